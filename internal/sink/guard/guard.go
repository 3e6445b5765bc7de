// Package guard keeps requests whose address comes from a job, or from a customer, away from the network that pacer is in. It refuses
// loopback, private and link-local addresses, the metadata addresses of clouds, and ports that are not configured.
package guard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"code.dny.dev/ssrf"
)

// metadata are the addresses where clouds give credentials or settings to the machines in them. Some are public. All are refused, even if
// Allow has them.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.254/32"),     // AWS, Azure, Google Cloud, OpenStack, DigitalOcean, Oracle
	netip.MustParsePrefix("fd00:ec2::254/128"),      // AWS
	netip.MustParsePrefix("169.254.170.2/32"),       // AWS ECS
	netip.MustParsePrefix("169.254.170.23/32"),      // AWS EKS
	netip.MustParsePrefix("fd00:ec2::23/128"),       // AWS EKS
	netip.MustParsePrefix("fd20:ce::254/128"),       // Google Cloud
	netip.MustParsePrefix("168.63.129.16/32"),       // Azure, a public address
	netip.MustParsePrefix("100.100.100.200/32"),     // Alibaba Cloud
	netip.MustParsePrefix("192.0.0.192/32"),         // Oracle Cloud
	netip.MustParsePrefix("fd00:c1::a9fe:a9fe/128"), // Oracle Cloud
}

// Guard decides which addresses may be dialled. It is safe for concurrent use and never changes.
//
// A request is looked at twice. URL looks at what is written: the scheme, the port, an address in place of a name. The function that
// Dialer returns opens the connections. It checks the address that is really dialled, immediately before the socket connects, so a name
// cannot change its meaning in between. A refusal is about the job's address and stays the same when it is tried again; Refused tells it
// from a failure to connect.
//
// With a proxy in between, the address that is dialled is that of the proxy, which then has to look after this itself: a
// guarded request must not take the proxy of the environment.
type Guard struct {
	ports     []int
	allowHTTP bool
	deny      []netip.Prefix
	allow6    []netip.Prefix
	addresses *ssrf.Guardian // the special addresses of IANA's registries, less those that are allowed
}

// New makes a Guard. The error is one line that begins with the key.
func New(c Config) (*Guard, error) {
	if p := c.Problems(""); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	deny, _ := networks(c.Deny)
	allow, _ := networks(c.Allow)
	g := &Guard{ports: c.Ports, allowHTTP: c.AllowHTTP, deny: append(slices.Clone(metadata), deny...)}
	var allow4 []netip.Prefix
	for _, network := range allow {
		if network.Addr().Is4() {
			allow4 = append(allow4, network)
		} else {
			g.allow6 = append(g.allow6, network)
		}
	}
	g.addresses = ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV4Prefixes(allow4...), ssrf.WithAllowedV6Prefixes(g.allow6...))
	return g, nil
}

// refusal is the error of a request that the guard does not allow.
type refusal string

func (why refusal) Error() string { return "refused by the sink's guard: " + string(why) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// Refused returns what the guard says of a request that ended with err, in one line; ok is false if err is no refusal of a
// guard.
func Refused(err error) (detail string, ok bool) {
	why, ok := errors.AsType[refusal](err)
	if ok {
		detail = why.Error()
	}
	return detail, ok
}

// URL returns the error in an address, before anything is looked up. The scheme, the host and the port are looked at.
func (g *Guard) URL(u *url.URL) error {
	port := 443
	switch {
	case u.Scheme == "http" && g.allowHTTP:
		port = 80
	case u.Scheme != "https":
		return refuse("the address must begin with https://")
	}
	host := u.Hostname()
	switch {
	case u.User != nil:
		return refuse("the address has a user or a password")
	case host == "":
		return refuse("the address names no host")
	case len(host) > 253, slices.ContainsFunc(strings.Split(strings.TrimSuffix(host, "."), "."),
		func(label string) bool { return label == "" || len(label) > 63 }):
		return refuse("the host of the address is no name")
	case strings.ContainsFunc(host, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '%' || c == '\\' }):
		return refuse("the host of the address is not plain ASCII")
	}
	if u.Port() != "" {
		var err error
		if port, err = strconv.Atoi(u.Port()); err != nil {
			return refuse("the port of the address is not a number")
		}
	}
	if !slices.Contains(g.ports, port) {
		return refuse("port %d is not in guard.ports", port)
	}
	if ip, err := netip.ParseAddr(strings.TrimSuffix(host, ".")); err == nil {
		return g.address(ip, "")
	}
	if endsInNumber(host) {
		return refuse("the host of the address is a number, and neither an address nor a name")
	}
	return nil
}

// endsInNumber reports whether the last label of a host is a number, as of 2130706433, 127.1 and 0x7f.1: no name ends so, and some
// resolvers, and proxies, take it for an address of IPv4.
func endsInNumber(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	if digits, isHex := strings.CutPrefix(last, "0x"); isHex {
		return strings.Trim(digits, "0123456789abcdef") == ""
	}
	return last != "" && strings.Trim(last, "0123456789") == ""
}

// address returns the error in an address that is to be dialled for a name, "" for none.
func (g *Guard) address(ip netip.Addr, name string) error {
	ip = ip.Unmap().WithZone("") // a prefix contains no address with a zone
	what := ip.String()
	if name != "" && name != what {
		what = name + ", which is " + what + ","
	}
	behind := g.behind(ip)
	for _, network := range g.deny {
		if network.Contains(ip) || network.Contains(behind) {
			return refuse("%s is in %s, which is denied", what, network)
		}
	}
	if g.addresses.SafeAddr(behind) != nil {
		return refuse("%s is not a public address; name its network in guard.allow if it is meant", what)
	}
	return nil
}

// behind returns the IPv4 address that a gateway of NAT64 makes of an address that it translates, where these are allowed;
// any other address is what it is. The gateway is not trusted to drop those of its own network.
func (g *Guard) behind(ip netip.Addr) netip.Addr {
	if !ssrf.IPv6NAT64Prefix.Contains(ip) || !slices.ContainsFunc(g.allow6, func(p netip.Prefix) bool { return p.Contains(ip) }) {
		return ip
	}
	b := ip.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// Dialer returns a function that opens connections as d would, but only to addresses that the guard allows. If a name has
// several addresses, those that are refused are passed over.
func (g *Guard) Dialer(d net.Dialer) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		var refused atomic.Pointer[error]
		var allowed atomic.Bool
		one := d // of this call; two addresses may be dialled at a time
		one.Control = nil
		one.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
			if err := g.dialled(network, address, host); err != nil {
				refused.Store(&err)
				return err
			}
			allowed.Store(true)
			if d.ControlContext != nil {
				return d.ControlContext(ctx, network, address, c)
			}
			return nil
		}
		conn, err := one.DialContext(ctx, network, addr)
		_, isRefusal := Refused(err)
		switch first := refused.Load(); {
		case err == nil || first == nil:
			return conn, err
		case !allowed.Load():
			return nil, *first
		case isRefusal: // the error is that of the first address, and another one could have been dialled
			return nil, fmt.Errorf("%s cannot be reached", host)
		}
		return nil, err
	}
}

// dialled returns the error in an address that is about to be dialled, as the dialer writes it.
func (g *Guard) dialled(network, address, host string) error {
	to, err := netip.ParseAddrPort(address)
	switch {
	case err != nil || network != "tcp4" && network != "tcp6":
		return refuse("%s is not an address of TCP", network)
	case !slices.Contains(g.ports, int(to.Port())):
		return refuse("port %d is not in guard.ports", to.Port())
	}
	return g.address(to.Addr(), host)
}
