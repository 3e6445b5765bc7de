package config

import "cmp"

// HTTP configures the server of the console, health and metrics; "" for none.
type HTTP struct {
	Listen        string `yaml:"listen" is:"address" such:"127.0.0.1:8080, or \"off\"" zero:""`
	MetricsListen string `yaml:"metrics_listen" is:"address" such:"127.0.0.1:9464, or \"off\", to have /metrics at http.listen" zero:""` // of /metrics, which Listen does not have then; "": at Listen
	BasePath      string `yaml:"base_path" is:"path" such:"/pacer, with letters, digits, - and _" zero:""`                               // where the console is as well as at /
	Console       bool   `yaml:"console"`                                                                                                // pages and API

	Tokens         Secret    `yaml:"tokens"`                                                     // of those who may do more: lines of a name, a role, and the SHA-256 of the token
	Anonymous      string    `yaml:"anonymous" oneof:"viewer, none"`                             // the role of those without a token
	Payloads       string    `yaml:"payloads" oneof:"all, beginning, hidden"`                    // of dead letters, how much operators see of them
	InsecureLogin  bool      `yaml:"insecure_login"`                                             // log in over plain HTTP from elsewhere than this machine
	TrustedOrigins []string  `yaml:"trusted_origins" is:"origin" such:"https://ops.example.com"` // pages of which may send forms here
	Proxy          HTTPProxy `yaml:"proxy"`
}

// Metrics returns the address of /metrics, /healthz and /readyz; "" for none.
func (h HTTP) Metrics() string { return cmp.Or(h.MetricsListen, h.Listen) }

// HTTPProxy is a proxy that authenticates people. Its headers are believed from these networks only.
type HTTPProxy struct {
	Networks     []string `yaml:"networks" is:"network" such:"10.0.0.7/32 or 127.0.0.1/32"`
	UserHeader   string   `yaml:"user_header" is:"header" such:"X-Forwarded-User"`
	GroupsHeader string   `yaml:"groups_header" is:"header" such:"X-Forwarded-User"`
	Operators    []string `yaml:"operators"` // users, and groups as group:NAME
	Admins       []string `yaml:"admins"`
}
