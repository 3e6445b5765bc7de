package view

import (
	"net/url"
)

// DestinationsOf selects destinations, as the API's list takes it; empty fields select all.
type DestinationsOf struct {
	Text  string `query:"q" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"part of the id"`
	State string `query:"state" enum:"disabled,failing,enabled"`
	Sink  string `query:"sink" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"name of the sink that it names"`
	After string `query:"after" maxLength:"300" pattern:"^(|(disabled|failing|enabled):[!-~]+)$" patternDescription:"next of the page before" doc:"next of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

// DestinationStates are the states of destinations, in the order of lists.
var DestinationStates = []string{"disabled", "failing", "enabled"}

// DestinationsQuery reads a selection from the query of a URL.
func DestinationsQuery(q url.Values) DestinationsOf {
	return DestinationsOf{Text: q.Get("q"), State: q.Get("state"), Sink: q.Get("sink"), After: q.Get("after"), Limit: PageSize}
}

// Query formats the selection as the query of a URL.
func (o DestinationsOf) Query() string {
	return Query(map[string]string{"q": o.Text, "state": o.State, "sink": o.Sink, "after": o.After})
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
