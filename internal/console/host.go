package console

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// here refuses requests for another host on a loopback listener. Otherwise DNS rebinding would let a foreign site act with the rights of
// the user who has it open. Elsewhere than on loopback a firewall decides who may ask. It is not for what a proxy serves, whose name a
// request has then.
func (s *Server) here(listen string, next http.Handler) http.Handler {
	if !loopback(listen) {
		return next
	}
	var trusted []string
	if s.Site != nil {
		for _, origin := range s.Site.trusted {
			if u, err := url.Parse(origin); err == nil {
				trusted = append(trusted, strings.ToLower(u.Host), strings.ToLower(u.Hostname()))
			}
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host := strings.ToLower(r.Host); !literal(host) && !slices.Contains(trusted, host) {
			http.Error(w, "this address is only for this machine, and this host is not it; use localhost, or list its origin in http.trusted_origins",
				http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// loopback reports whether only this machine can connect to a listener.
func loopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// literal reports whether a host, with or without a port, is an address, which no name can be made to lead to, or this machine; none is
// sent by clients of HTTP/1.0, which are no browsers.
func literal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(host, ".")
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}
