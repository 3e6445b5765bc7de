package config

import "testing"

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
