package config

import "testing"

func TestAddressesThatCollide(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:1", "127.0.0.1:1", true}, {"127.0.0.1:1", "127.0.0.1:2", false}, {"127.0.0.1:1", "127.0.0.2:1", false},
		{":1", "10.0.0.1:1", true}, {"0.0.0.0:1", "10.0.0.1:1", true}, {"[::]:1", "10.0.0.1:1", true}, {"[::]:1", "[::1]:1", true},
		{"0.0.0.0:1", "[::1]:1", false}, {"0.0.0.0:1", "[::ffff:10.0.0.1]:1", true}, {"0.0.0.0:1", ":1", true}, {"[::]:1", ":2", false},
		{"localhost:1", "127.0.0.1:1", true}, {"localhost:1", "[::1]:1", false}, {"localhost:1", "0.0.0.0:1", true},
		{"pacer.example:1", "pacer.example:1", true}, {"pacer.example:1", "other.example:1", false}, {"pacer.example:1", "0.0.0.0:1", true},
		{"127.0.0.1:0", "127.0.0.1:0", false}, {"127.0.0.1:1", "", false}, {"", "", false}, {"1", "1", false},
	} {
		for _, h := range []HTTP{{Listen: tt.a, MetricsListen: tt.b}, {Listen: tt.b, MetricsListen: tt.a}} {
			if got := h.Collide(); got != tt.want {
				t.Errorf("%q and %q: %v, want %v", h.Listen, h.MetricsListen, got, tt.want)
			}
		}
	}
}

// Metrics are asked for where they are: at their own address if they have one.
func TestAddressOfMetrics(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"", "127.0.0.1:8080"}, {`http: {metrics_listen: ":9464"}`, ":9464"}, {`http: {metrics_listen: "off"}`, "127.0.0.1:8080"},
		{`http: {listen: "off", metrics_listen: ":9464"}`, ":9464"}, {`http: {listen: "off"}`, ""},
	} {
		if got := mustLoad(t, tt.text).HTTP.Metrics(); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.text, got, tt.want)
		}
	}
}
