package app

import (
	"net/netip"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/auth"
)

// guard says who may do what on the console. The tokens are those that were read last.
func (s *Services) guard() *auth.Guard {
	h := &s.Config.HTTP
	anonymous, _ := auth.ParseRole(h.Anonymous) // checked by the configuration
	options := auth.Options{
		Tokens:    func() string { return s.latest().HTTP.Tokens.Reveal() },
		Admin:     func() string { return s.latest().AdminToken.Reveal() },
		Anonymous: anonymous, InsecureLogin: h.InsecureLogin, Logger: s.Log,
		Proxy: auth.Proxy{
			UserHeader: h.Proxy.UserHeader, GroupsHeader: h.Proxy.GroupsHeader, Operators: h.Proxy.Operators, Admins: h.Proxy.Admins,
		},
	}
	for _, text := range h.Proxy.Networks {
		if network, err := netip.ParsePrefix(text); err == nil { // checked by the configuration
			options.Proxy.Networks = append(options.Proxy.Networks, network)
		}
	}
	return auth.NewGuard(options)
}

// latest returns the configuration with the secrets that were read last.
func (s *Services) latest() *config.Config {
	if s.keeper != nil {
		if a := s.keeper.current.Load(); a != nil {
			return a.config
		}
	}
	return s.Config
}
