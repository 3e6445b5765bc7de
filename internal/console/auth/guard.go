package auth

import (
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of a Guard. All may be empty: then everybody is anonymous.
type Options struct {
	// Tokens returns the list of tokens, as CheckTokens describes it, and Admin one more, of an administrator. They are asked for each
	// request, so that a token that is removed is of no use at once, and neither are sessions that it has begun.
	Tokens, Admin func() string
	// Anonymous is what those may do who show nothing.
	Anonymous Role
	Proxy     Proxy
	// InsecureLogin allows to log in over plain HTTP from elsewhere than this machine.
	InsecureLogin bool
	Logger        *slog.Logger
}

// Proxy is one that authenticates people.
type Proxy struct {
	Networks                 []netip.Prefix // whose headers are believed
	UserHeader, GroupsHeader string
	Operators, Admins        []string // names of users, and of groups behind "group:"; everybody else is a viewer
}

var (
	// ErrToken means that a token is not known.
	ErrToken = errors.New("this token is not known, or no longer")
	// ErrLimited means that there were too many wrong tokens from this address.
	ErrLimited = errors.New("too many wrong tokens from this address; wait a minute")
	// ErrInsecure means that a token would be readable on the way.
	ErrInsecure = errors.New("logging in takes https, as a proxy of http.proxy.networks provides it, or a connection from this machine; " +
		"http.insecure_login allows it all the same")
)

// Guard says who asks. Safe for concurrent use.
type Guard struct {
	options Options

	mu       sync.Mutex // guards what follows
	text     string     // of the tokens
	tokens   []token
	sessions map[[sha256.Size]byte]session
	failures map[netip.Prefix]failure
}

// NewGuard makes a Guard; it starts nothing.
func NewGuard(o Options) *Guard {
	return &Guard{options: o, sessions: map[[sha256.Size]byte]session{}, failures: map[netip.Prefix]failure{}}
}

// Enabled reports whether one can log in, or a proxy does it.
func (g *Guard) Enabled() bool {
	return len(g.known()) > 0 || g.Proxied()
}

// Proxied reports whether there are proxies that say who asks.
func (g *Guard) Proxied() bool { return len(g.options.Proxy.Networks) > 0 }

// known returns the tokens that may be used now.
func (g *Guard) known() (list []token) {
	if g.options.Tokens != nil {
		text := g.options.Tokens()
		g.mu.Lock()
		if text != g.text {
			g.text = text // also of one that cannot be used: it is reported once
			if tokens, err := parseTokens(text); err == nil {
				g.tokens = tokens
			} else {
				g.options.Logger.Error("http.tokens has changed and cannot be used; the old tokens stay in use", "error", err)
			}
		}
		list = slices.Clone(g.tokens)
		g.mu.Unlock()
	}
	if g.options.Admin != nil {
		if secret := g.options.Admin(); secret != "" {
			list = append(list, token{name: "admin", role: Admin, hash: sha256.Sum256([]byte(secret))})
		}
	}
	return list
}

// Identify returns the identity of a request, from its bearer token, its session or the header of a trusted proxy. Without these it is
// anonymous.
func (g *Guard) Identify(r *http.Request) (*Identity, error) {
	address, trusted := g.client(r)
	who := &Identity{Role: g.options.Anonymous, Address: address.String()}
	if scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
		t, err := g.check(address, strings.TrimSpace(secret))
		if err != nil {
			return nil, err
		}
		who.Name, who.Role = t.name, t.role
		return who, nil
	}
	if t := g.ofSession(r); t != nil {
		who.Name, who.Role, who.Session = t.name, t.role, true
		return who, nil
	}
	if user := r.Header.Get(g.options.Proxy.UserHeader); trusted && g.options.Proxy.UserHeader != "" && user != "" && len(user) <= maxName {
		who.Name, who.Role = user, g.options.Proxy.role(user, r.Header.Values(g.options.Proxy.GroupsHeader))
	}
	return who, nil
}

// maxName bounds names that others give.
const maxName = 200

// groupPrefix tells groups from users in the lists: who may choose a name for one must not get what the other has.
const groupPrefix = "group:"

func (p *Proxy) role(user string, headers []string) Role {
	var names []string
	if !strings.HasPrefix(user, groupPrefix) {
		names = append(names, user)
	}
	for _, header := range headers {
		for group := range strings.SplitSeq(header, ",") {
			names = append(names, groupPrefix+strings.TrimSpace(group))
		}
	}
	in := func(list []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
	}
	switch {
	case in(p.Admins):
		return Admin
	case in(p.Operators):
		return Operator
	}
	return Viewer
}

// client returns the address of the client, and whether the request came by a trusted proxy.
func (g *Guard) client(r *http.Request) (address netip.Addr, trusted bool) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err == nil {
		address, _ = netip.ParseAddr(host)
	}
	address = address.Unmap()
	if trusted = g.trusts(address); !trusted {
		return address, false
	}
	// The proxy adds the address that it was asked from. Earlier entries came with the request. Any client can forge them, also one
	// within the networks of proxies.
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	if a, err := netip.ParseAddr(strings.TrimSpace(hops[len(hops)-1])); err == nil {
		address = a.Unmap()
	}
	return address, true
}

func (g *Guard) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(g.options.Proxy.Networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// Bounds of wrong tokens.
const (
	maxFailures  = 5 // of an address, in failuresFor
	failuresFor  = time.Minute
	maxAddresses = 4096
)

// failure counts the wrong tokens of an address.
type failure struct {
	count int
	until time.Time
}

// check returns the token that was shown. One that is known passes however many wrong ones came from its address: the limit is of noise,
// and must not let one client lock out those that share its address. The length of tokens keeps them from being guessed.
func (g *Guard) check(address netip.Addr, secret string) (*token, error) {
	bits := 32
	if address.Is6() {
		bits = 64 // what one host has
	}
	from, _ := address.Prefix(bits) // the zero one for an address that is not known
	now := time.Now()
	if t := find(g.known(), sha256.Sum256([]byte(secret))); t != nil {
		return t, nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.failures[from]
	if now.After(f.until) {
		f = failure{until: now.Add(failuresFor)}
	}
	if f.count >= maxFailures {
		return nil, ErrLimited
	}
	if _, counted := g.failures[from]; !counted && len(g.failures) >= maxAddresses {
		maps.DeleteFunc(g.failures, func(_ netip.Prefix, of failure) bool { return now.After(of.until) })
		if len(g.failures) >= maxAddresses {
			return nil, ErrLimited
		}
	}
	f.count++
	g.failures[from] = f
	return nil, ErrToken
}
