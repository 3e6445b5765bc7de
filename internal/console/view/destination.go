package view

import (
	"encoding/json"
	"net/url"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/notation"
)

// DestinationsOf selects destinations; empty fields select all.
type DestinationsOf struct {
	Text  string // part of the id
	State string // disabled, failing or enabled
	Sink  string // that they name
	After string // Next of the page before
	Limit int
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

// NewDestination is what the form of a new destination begins with.
func NewDestination() *catalog.DestinationRow { return &catalog.DestinationRow{} }

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

// DestinationForm lists the fields of the form of a destination.
var DestinationForm = []Setting[catalog.DestinationRow, catalog.DestinationChange]{
	words("url", "URL", "the whole address, with its query, which is not shown here; secrets belong into headers", func(d *catalog.DestinationRow) string { return d.URL }, func(e *catalog.DestinationChange) **string { return &e.URL }),
	offered(InputSink, words("sink", "Sink", "that sends to it; empty for any with destinations", func(d *catalog.DestinationRow) string { return d.Sink }, func(e *catalog.DestinationChange) **string { return &e.Sink })),
	{
		Name: "headers", Label: "Headers", Hint: `all of them, as {"x-tenant": "blue", "authorization": "file:shop-7"}; empty for none`,
		Text: func(d *catalog.DestinationRow) string {
			if len(d.Headers) == 0 {
				return ""
			}
			text, _ := json.Marshal(d.Headers) // texts never fail
			return string(text)
		},
		set: func(e *catalog.DestinationChange, text string) error {
			headers := map[string]string{}
			if text != "" && json.Unmarshal([]byte(text), &headers) != nil || headers == nil {
				return Fault(catalog.ErrInvalid, `headers: %s is not an object of names and texts; use one such as {"x-tenant": "blue"}`, notation.Shorten(text))
			}
			e.Headers = &headers
			return nil
		},
	},
	{
		Name: "secrets", Label: "Secrets", Hint: "references to what signs its requests, the newest first, such as file:shop-7; empty for none",
		Text: func(d *catalog.DestinationRow) string { return strings.Join(d.Secrets, " ") },
		set: func(e *catalog.DestinationChange, text string) error {
			list := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
			e.Secrets = &list
			return nil
		},
	},
	numbers("max_in_flight", "Max in flight", "of one daemon; 0 for as many as the sink has", func(d *catalog.DestinationRow) int64 { return d.MaxInFlight }, func(e *catalog.DestinationChange) **int64 { return &e.MaxInFlight }),
}
