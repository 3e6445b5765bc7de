package httpcall

import (
	"cmp"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// MaxHeaderBytes bounds the value of a header.
const MaxHeaderBytes = 8 << 10

// URLProblem returns the error in the URL without repeating the URL, since it may contain a password.
func URLProblem(s string) string {
	const remedy = "use one such as https://example.com/deliver"
	if s == "" {
		return "required; " + remedy
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "not a URL; " + remedy
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://; " + remedy
	case u.Hostname() == "":
		return "names no host; " + remedy
	case u.Fragment != "":
		return "has a #fragment, which is never sent; remove it"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "its port must be between 1 and 65535; " + remedy
		}
	}
	return ""
}

// SecureProblem is URLProblem of one that must be encrypted.
func SecureProblem(s string) string {
	if why := URLProblem(s); why != "" || strings.HasPrefix(s, "https://") {
		return why
	}
	return "must begin with https://"
}

// HasUser reports whether there is a user in a URL.
func HasUser(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.User != nil
}

// ProxyProblem returns the error in the URL of a proxy, without repeating it; "" if there is none.
func ProxyProblem(proxy string) string {
	if proxy == "" {
		return ""
	}
	switch u, err := url.Parse(proxy); {
	case err != nil || u.Hostname() == "":
		return "not a URL; use one such as http://proxy.example:4750"
	case u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" && u.Scheme != "socks5h":
		return "must begin with http://, https:// or socks5://"
	}
	return ""
}

// DestinationOf returns the name of the destination at an address: scheme, host and port.
func DestinationOf(u *url.URL) string {
	return strings.ToLower(u.Scheme + "://" + at(u, strings.TrimSuffix(u.Hostname(), ".")))
}

// at returns host:port for the port of an address, or the usual one of its scheme.
func at(u *url.URL, host string) string {
	usual := "443"
	switch u.Scheme {
	case "http":
		usual = "80"
	case "socks5", "socks5h":
		usual = "1080"
	}
	return net.JoinHostPort(host, cmp.Or(u.Port(), usual))
}
