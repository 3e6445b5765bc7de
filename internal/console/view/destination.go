package view

import (
	"net/url"

	"github.com/pacer/pacer/internal/catalog"
)

// DestinationStates are the states of destinations, in the order of lists.
var DestinationStates = []string{"disabled", "failing", "enabled"}

// DestinationsQuery reads a selection from the query of a URL.
func DestinationsQuery(q url.Values) catalog.DestinationsOf {
	return catalog.DestinationsOf{Text: q.Get("q"), State: q.Get("state"), Sink: q.Get("sink"), After: q.Get("after"), Limit: PageSize}
}

// Tested is the outcome of one job that was sent for a test. Request and Answer are without secrets.
type Tested struct {
	Sink              string  `json:"sink"`
	Job               string  `json:"job_id"`
	Class             string  `json:"class"`
	Scope             string  `json:"scope,omitempty"` // whom a throttled or misconfigured answer is about
	Status            int     `json:"status,omitempty"`
	RetryAfter        float64 `json:"retry_after_s,omitempty"`
	ProviderCode      string  `json:"provider_code,omitempty"`
	ProviderMessageID string  `json:"provider_message_id,omitempty"`
	Detail            string  `json:"detail,omitempty"`
	Took              float64 `json:"took_ms"`
	Request           string  `json:"request,omitempty"`
	Answer            string  `json:"answer,omitempty"`
}
