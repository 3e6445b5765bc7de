package hms

import (
	"regexp"

	"github.com/pacer/pacer/internal/sink/httpcall"
)

// Config configures an hms sink.
type Config struct {
	httpcall.Service
	// Version is that of the API: v3 for HarmonyOS, v2 or v1 for HMS Core.
	Version string `yaml:"version" oneof:"v3, v2, v1"`
	// Project is the id of the project, or of the app for v1; "" for the one in KeyFile.
	Project string `yaml:"project"`
	// PushType is the kind of message, a number; "" for none.
	PushType string `yaml:"push_type"`
	// KeyFile is the key of a service account in JSON.
	KeyFile string `yaml:"service_account_file"`
	// ClientID and ClientSecret are the credentials of the app instead of KeyFile. TokenURL gives access tokens for them.
	ClientID     string `yaml:"client_id"`
	ClientSecret string `yaml:"client_secret" secret:"value"`
	TokenURL     string `yaml:"token_url" secret:"url"`
}

// tokenURL is where access tokens are given; it is also whom a service account's own token is for.
const tokenURL = "https://oauth-login.cloud.huawei.com/oauth2/v3/token" //nolint:gosec // no credential

// Default returns the configuration of an hms sink without credentials.
func Default() *Config {
	return &Config{
		Service: httpcall.DefaultService("https://push-api.cloud.huawei.com"),
		Version: "v3", PushType: "0", TokenURL: tokenURL,
	}
}

var (
	projectPattern  = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,100}$`)
	pushTypePattern = regexp.MustCompile(`^[0-9]{0,3}$`)
)

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	p := c.Service.Problems()
	switch byClient := c.ClientID != "" || c.ClientSecret != ""; {
	case c.KeyFile == "" && !byClient:
		p.Add("service_account_file: required; name the JSON file of a service account's key, or use client_id and client_secret")
	case c.KeyFile != "" && byClient:
		p.Add("client_id: goes not together with service_account_file; remove one")
	case c.KeyFile == "" && (c.ClientID == "" || c.ClientSecret == ""):
		p.Add("client_id: goes together with client_secret; set both")
	case c.KeyFile == "" && c.Project == "":
		p.Add("project: required with client_id; use the project's id, or the app's with v1")
	}
	p.When(c.Project != "" && !projectPattern.MatchString(c.Project), "project: not the id of a project; use letters, digits, - and _")
	p.When(!pushTypePattern.MatchString(c.PushType), "push_type: not a type; use a number such as 0")
	p.Because("token_url", httpcall.SecureProblem(c.TokenURL))
	return p
}
