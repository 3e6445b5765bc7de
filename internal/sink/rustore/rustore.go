// Package rustore is the sink that sends jobs as push messages of RuStore, whose API is that of Firebase Cloud Messaging.
package rustore

import (
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/fcm"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// Config configures a rustore sink.
type Config struct {
	httpcall.Service
	// Project is the id of the project, and Bearer its service token.
	Project string `yaml:"project"`
	Bearer  string `yaml:"bearer" secret:"value"`
}

// Default returns the configuration of a rustore sink without a project and a token.
func Default() *Config {
	return &Config{Service: httpcall.DefaultService("https://vkpns.rustore.ru")}
}

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	if c.Bearer == "" {
		return append(c.Service.Problems(), "bearer: required; use the project's service token, best by file:PATH")
	}
	return c.client().Problems()
}

// client returns the configuration of the sink that does the work.
func (c *Config) client() *fcm.Config {
	return &fcm.Config{Service: c.Service, Project: c.Project, Bearer: c.Bearer}
}

// checkMessage is one for a token that is none: the service looks at the credentials first.
const checkMessage = `{"validate_only":true,"message":{"token":"pacer-check"}}`

// New makes a sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (base.Sink, error) {
	return fcm.NewLike(c.client(), host, &codes, checkMessage)
}

// codes are those of the service. A token that is gone has several.
var codes = httpcall.Codes{Classes: map[string]delivery.ResultClass{
	"NOT_FOUND": delivery.Rejected, "UNREGISTERED": delivery.Rejected, "410": delivery.Rejected,
	"INVALID_ARGUMENT": delivery.Permanent, "413": delivery.Permanent,
}}
