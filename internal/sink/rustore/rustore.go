// Package rustore is the sink that sends jobs as push messages of RuStore, whose API is that of Firebase Cloud Messaging.
package rustore

import (
	"encoding/json"
	"net/http"
	"time"

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
	return fcm.NewLike(c.client(), host, classify, checkMessage)
}

// said is an error, in the body of an answer or under the key error there.
type said struct {
	Status string `json:"status"`
}

// classify returns the result for an answer:
//
//	200                          delivered
//	NOT_FOUND, UNREGISTERED, 410 rejected: the token is gone
//	INVALID_ARGUMENT, 413        permanent
//	429                          throttled
//	503 with Retry-After         throttled
//	other 5xx                    temporary
//	other, 401 and 403 of them   misconfigured; also a 404 that is not the service's own
func classify(a httpcall.Answer, now time.Time) delivery.Result {
	var body struct {
		said
		Error *said `json:"error"`
	}
	if json.Unmarshal(a.Body, &body) == nil && body.Error != nil {
		body.said = *body.Error
	}
	code := body.Status
	res := a.ByStatus(now)
	if res.Class == delivery.Delivered && body.Error == nil && !a.Foreign() {
		return res
	}
	switch {
	case code == "NOT_FOUND" || code == "UNREGISTERED" || a.Status == http.StatusGone:
		res.Class = delivery.Rejected
	case code == "INVALID_ARGUMENT" || a.Status == http.StatusRequestEntityTooLarge:
		res.Class = delivery.Permanent
	case res.Class == delivery.Delivered: // an error with a status of success, or a proxy's page
		res.Class, res.By = delivery.Temporary, delivery.ByNobody
	}
	return a.Refusal(res, code)
}
