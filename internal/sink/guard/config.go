package guard

import (
	"fmt"
	"net/netip"
	"slices"
)

// Config configures a Guard.
type Config struct {
	// Ports are those that may be dialled.
	Ports []int `yaml:"ports"`
	// Deny are networks that are refused besides those that always are; it goes before Allow.
	Deny []string `yaml:"deny"`
	// Allow are networks that would be refused otherwise. The metadata addresses of clouds stay refused.
	Allow []string `yaml:"allow"`
	// AllowHTTP allows addresses with http:// besides https://.
	AllowHTTP bool `yaml:"allow_http"`
}

const maxItems = 256

// Default returns the configuration that allows only port 443 of public addresses, with TLS.
func Default() Config { return Config{Ports: []int{443}} }

// Problems returns the errors in the configuration, one line each, beginning with the key. The prefix stands before keys.
func (c *Config) Problems(prefix string) (p []string) {
	if len(c.Ports) == 0 || len(c.Ports) > maxItems {
		p = append(p, fmt.Sprintf("%sports: %d of them; name 1 to %d ports, such as [443]", prefix, len(c.Ports), maxItems))
	}
	for _, port := range c.Ports {
		if port < 1 || port > 65535 {
			p = append(p, fmt.Sprintf("%sports: %d is not a port; use numbers between 1 and 65535", prefix, port))
		}
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
	if len(items) > maxItems {
		return nil, fmt.Errorf("%d of them; use at most %d", len(items), maxItems)
	}
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
