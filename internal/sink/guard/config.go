package guard

import (
	"fmt"
	"net/netip"
	"slices"
)

// Config configures a Guard.
type Config struct {
	// Ports are those that may be dialled.
	Ports []int `yaml:"ports" range:"1..65535" most:"256"`
	// Deny are networks that are refused besides those that always are; it goes before Allow.
	Deny []string `yaml:"deny" most:"256"`
	// Allow are networks that would be refused otherwise. The metadata addresses of clouds stay refused.
	Allow []string `yaml:"allow" most:"256"`
	// AllowHTTP allows addresses with http:// besides https://.
	AllowHTTP bool `yaml:"allow_http"`
}

// Default returns the configuration that allows only port 443 of public addresses, with TLS.
func Default() Config { return Config{Ports: []int{443}} }

// Problems returns the errors in the configuration, one line each, beginning with the key. The prefix stands before keys.
func (c *Config) Problems(prefix string) (p []string) {
	if len(c.Ports) == 0 {
		p = append(p, prefix+"ports: required; name those that may be dialled, such as [443]")
	}
	for _, list := range []struct {
		key   string
		items []string
	}{{"deny", c.Deny}, {"allow", c.Allow}} {
		if _, err := networks(list.items); err != nil {
			p = append(p, prefix+list.key+": "+err.Error())
		}
	}
	return p
}

// Equal reports whether both say the same.
func (c Config) Equal(o Config) bool {
	return slices.Equal(c.Ports, o.Ports) && slices.Equal(c.Deny, o.Deny) && slices.Equal(c.Allow, o.Allow) && c.AllowHTTP == o.AllowHTTP
}

// networks parses networks, 10.0.0.0/8 or fd00::/8, and addresses.
func networks(items []string) (list []netip.Prefix, err error) {
	for i, item := range items {
		network, err := netip.ParsePrefix(item)
		if addr, notAddr := netip.ParseAddr(item); err != nil && notAddr == nil && addr.Zone() == "" {
			network, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("item %d is not a network; use one such as 10.0.0.0/8 or fd00::/8", i+1)
		case network.Addr().Is4In6():
			return nil, fmt.Errorf("item %d is a network of IPv4 in IPv6; write it as one of IPv4", i+1)
		case network != network.Masked():
			return nil, fmt.Errorf("item %d has bits behind its length; write %s", i+1, network.Masked())
		}
		list = append(list, network)
	}
	return list, nil
}
