package guard

import (
	"errors"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// refused are addresses that no job may name, of each class.
var refused = []string{
	"127.0.0.1", "127.255.0.3", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "169.254.0.7",
	"169.254.169.254", "169.254.170.2", "169.254.170.23", "168.63.129.16", "100.100.100.200", "192.0.0.192", "192.0.2.1", "198.18.0.1",
	"198.51.100.1", "203.0.113.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:168.63.129.16", "::127.0.0.1", "fe80::1", "fc00::1",
	"fd00:ec2::254", "fd20:ce::254", "ff02::1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::7f00:1", "2002:7f00:1::", "2001:0:7f00:1::",
	"2001:db8::1", "3fff::1", "100::1", "5f00::1", "2002:808:808::1", "2001:0:808:808::1", "::ffff:0:7f00:1", "::808:808", "fec0::1", "64:ff9b:1::808:808",
}

// public are addresses that any job may name.
var public = []string{"8.8.8.8", "168.63.129.17", "100.128.0.1", "2a00:1450:4001::1", "2606:4700::1111"}

// dials returns what is dialled for an address, and the error.
func dials(t *testing.T, c Config, answers map[string][]string, addrs ...string) (dialled []string, errs []error) {
	t.Helper()
	g, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	n := sinktest.NewNames(answers)
	dial := g.Dialer(n.Dialer())
	for _, addr := range addrs {
		conn, err := dial(t.Context(), "tcp", addr)
		if err == nil {
			conn.Close()
		}
		errs = append(errs, err)
	}
	return n.Dialled(), errs
}

func isRefused(err error) bool { _, ok := Refused(err); return ok }

// TestAddressesThatAreNotPublic: neither as a literal nor behind a name is one dialled, and the URL is refused before.
func TestAddressesThatAreNotPublic(t *testing.T) {
	g, _ := New(Default())
	for _, ip := range slices.Concat(refused, public) {
		literal, allowed := net.JoinHostPort(ip, "443"), slices.Contains(public, ip)
		for _, addr := range []string{literal, "name.test:443"} {
			dialled, errs := dials(t, Default(), map[string][]string{"name.test": {ip}}, addr)
			line, ok := Refused(errs[0])
			if ok == allowed || slices.Equal(dialled, []string{literal}) != allowed ||
				errors.Is(errs[0], sinktest.ErrStopped) != allowed || strings.Contains(line, "\n") {
				t.Errorf("%s as %s: dialled %v, %v", ip, addr, dialled, errs[0])
			}
		}
		if u, err := url.Parse("https://" + literal + "/x"); err != nil || isRefused(g.URL(u)) == allowed {
			t.Errorf("%s: as a URL, %v", ip, err)
		}
	}
}

// TestRebinding: a name is looked at each time that it is dialled, and of several addresses only those that are allowed are.
func TestRebinding(t *testing.T) {
	dialled, errs := dials(t, Default(), map[string][]string{"name.test": {"8.8.8.8", "127.0.0.1", "8.8.4.4 10.0.0.1", "10.0.0.1 8.8.4.4"}},
		"name.test:443", "name.test:443", "name.test:443", "name.test:443", "none.test:443")
	if want := []string{"8.8.8.8:443", "8.8.4.4:443", "8.8.4.4:443"}; !slices.Equal(dialled, want) {
		t.Errorf("dialled %v, want %v", dialled, want)
	}
	for i, want := range []bool{false, true, false, false, false} { // what could have been dialled is not refused
		if isRefused(errs[i]) != want || errs[i] == nil {
			t.Errorf("call %d: %v", i, errs[i])
		}
	}
	if line, _ := Refused(errs[1]); line != "refused by the sink's guard: name.test, which is 127.0.0.1, is not a public address; name its network in guard.allow if it is meant" {
		t.Error(line)
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		what    string
		config  Config
		addr    string
		allowed bool
	}{
		{"another port", Default(), "8.8.8.8:8443", false},
		{"a port that is listed", Config{Ports: []int{443, 8443}}, "8.8.8.8:8443", true},
		{"a network that is allowed", Config{Ports: []int{443}, Allow: []string{"10.1.0.0/16"}}, "10.1.2.3:443", true},
		{"an address that is allowed", Config{Ports: []int{443}, Allow: []string{"10.1.2.3"}}, "[::ffff:10.1.2.3]:443", true},
		{"beside it", Config{Ports: []int{443}, Allow: []string{"10.1.2.3"}}, "10.1.2.4:443", false},
		{"denied before allowed", Config{Ports: []int{443}, Allow: []string{"10.0.0.0/8"}, Deny: []string{"10.1.0.0/16"}}, "10.1.2.3:443", false},
		{"a public one that is denied", Config{Ports: []int{443}, Deny: []string{"8.8.0.0/16", "2a00::/16"}}, "8.8.8.8:443", false},
		{"the same in IPv6", Config{Ports: []int{443}, Deny: []string{"8.8.0.0/16", "2a00::/16"}}, "[2a00::1]:443", false},
		{"metadata whatever is allowed", Config{Ports: []int{443}, Allow: []string{"0.0.0.0/0", "::/0"}}, "169.254.169.254:443", false},
		{"the same in IPv6", Config{Ports: []int{443}, Allow: []string{"0.0.0.0/0", "::/0"}}, "[fd00:ec2::254]:443", false},
		{"link-local, allowed", Config{Ports: []int{443}, Allow: []string{"fe80::/10"}}, "[fe80::1%lo]:443", true},
		{"NAT64 of a public address", Config{Ports: []int{443}, Allow: []string{"64:ff9b::/96"}}, "[64:ff9b::808:808]:443", true},
		{"NAT64 of loopback", Config{Ports: []int{443}, Allow: []string{"64:ff9b::/96"}}, "[64:ff9b::7f00:1]:443", false},
		{"NAT64 of metadata", Config{Ports: []int{443}, Allow: []string{"::/0", "0.0.0.0/0"}}, "[64:ff9b::a9fe:a9fe]:443", false},
		{"NAT64 of what is denied", Config{Ports: []int{443}, Allow: []string{"64:ff9b::/96"}, Deny: []string{"8.8.8.8"}}, "[64:ff9b::808:808]:443", false},
		{"NAT64 that is denied", Config{Ports: []int{443}, Allow: []string{"::/0"}, Deny: []string{"64:ff9b::/96"}}, "[64:ff9b::808:808]:443", false},
	} {
		dialled, errs := dials(t, c.config, nil, c.addr)
		if c.allowed != (len(dialled) == 1) || c.allowed == isRefused(errs[0]) {
			t.Errorf("%s: dialled %v, %v", c.what, dialled, errs[0])
		}
	}
}

func TestURL(t *testing.T) {
	g, err := New(Default())
	if err != nil {
		t.Fatal(err)
	}
	plain, err := New(Config{Ports: []int{80, 443}, AllowHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url            string
		secure, either bool
	}{
		{"https://hooks.example/x?y", true, true},
		{"https://hooks.example:443/", true, true},
		{"https://8.8.8.8/", true, true},
		{"http://hooks.example/", false, true},
		{"https://hooks.example:80/", false, true},
		{"https://hooks.example:8443/", false, false},
		{"https://u:p@hooks.example/", false, false},
		{"https://u@hooks.example/", false, false},
		{"ftp://hooks.example/", false, false},
		{"file:///etc/passwd", false, false},
		{"https:///x", false, false},
		{"//hooks.example/x", false, false},
		{"https://[::1]/", false, false},
		{"https://[fe80::1%25lo]/", false, false},
		{"https://hööks.example/", false, false},
		{"https://2130706433/", false, false},
		{"https://127.1/", false, false},
		{"https://0x7f.1./", false, false},
		{"https://127.0.0.1./", false, false},
		{"https://8.8.8.8./", true, true},
		{"https://1.example/", true, true},
		{"https://0xfeed.example/", true, true},
		{"https://x0x1/", true, true},
		{"https://127.0.0.1/", false, false},
		{"https://hooks..example/", false, false}, // which no network finds, now or ever
		{"https://.example/", false, false},
		{"https://" + strings.Repeat("x", 63) + ".example./", true, true},
		{"https://" + strings.Repeat("x", 64) + ".example/", false, false},
		{"https://" + strings.Repeat("x.", 127) + "x/", false, false},
	} {
		u, err := url.Parse(c.url)
		if err != nil {
			t.Fatal(err)
		}
		for guard, want := range map[*Guard]bool{g: c.secure, plain: c.either} {
			if err := guard.URL(u); (err == nil) != want || err != nil && !isRefused(err) {
				t.Errorf("%s: %v", c.url, err)
			}
		}
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Default(), ""},
		{Config{}, "ports: required; name those that may be dialled, such as [443]"},
		{Config{Ports: []int{443}, Deny: []string{"10.0.0.0/8", "x"}}, "deny: item 2 is not a network; use one such as 10.0.0.0/8 or fd00::/8"},
		{Config{Ports: []int{443}, Allow: []string{"10.0.0.1/8"}}, "allow: item 1 has bits behind its length; write 10.0.0.0/8"},
		{Config{Ports: []int{443}, Allow: []string{"::ffff:10.0.0.0/104"}}, "allow: item 1 is a network of IPv4 in IPv6; write it as one of IPv4"},
		{Config{Ports: []int{443}, Allow: []string{"fe80::1%eth0"}}, "allow: item 1 is not a network; use one such as 10.0.0.0/8 or fd00::/8"},
	} {
		got := strings.Join(c.config.Problems(""), "\n")
		if _, err := New(c.config); got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%+v: %s, %v", c.config, got, err)
		}
	}
}
