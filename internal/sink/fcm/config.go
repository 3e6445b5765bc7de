package fcm

import (
	"regexp"

	"github.com/pacer/pacer/internal/sink/httpcall"
)

// Config configures an fcm sink.
type Config struct {
	httpcall.Service
	// Project is the id of the project; "" for the one in KeyFile.
	Project string `yaml:"project"`
	// KeyFile is the key of a service account in JSON.
	KeyFile string `yaml:"service_account_file"`
	// Bearer is a token that does not change, instead of KeyFile.
	Bearer string `yaml:"bearer" secret:"value"`
	// ValidateOnly has the service check messages and deliver none.
	ValidateOnly bool `yaml:"validate_only"`
}

// Default returns the configuration of an fcm sink without a key.
func Default() *Config {
	return &Config{Service: httpcall.DefaultService("https://fcm.googleapis.com")}
}

var projectPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}$`)

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	p := c.Service.Problems()
	switch {
	case c.KeyFile == "" && c.Bearer == "":
		p.Add("service_account_file: required; name the JSON file of a service account's key")
	case c.KeyFile != "" && c.Bearer != "":
		p.Add("bearer: goes not together with service_account_file; remove one")
	case c.KeyFile == "" && c.Project == "":
		p.Add("project: required with bearer; use the project's id")
	}
	p.When(c.Project != "" && !projectPattern.MatchString(c.Project), "project: not the id of a project; use letters, digits, - and _")
	return p
}
