package page

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/console/view"
)

// event is what became of a job, as its result says.
type event struct {
	Campaign    string    `json:"campaign"`
	Destination string    `json:"destination"`
	Outcome     string    `json:"outcome"`
	Reason      string    `json:"reason"`
	Attempts    int       `json:"attempts"`
	Status      int       `json:"status"`
	At          time.Time `json:"settled_at"`
}

// fillJob shows where a job is. It is looked for once; the stream shows what was found.
func fillJob(ctx context.Context, s *Site, query url.Values, c *content) {
	id := strings.TrimSpace(query.Get("id"))
	c.Title = "Find a job"
	data := struct {
		ID, Last string
		Spans    []string
		Found    *view.FoundJob
		Events   []event
		Looking  bool
		Fault    string
	}{ID: id, Last: oneOf(query.Get("last"), spans), Spans: []string{"1h", "1d", "7d", "30d"}}
	if id != "" {
		c.Title = "Job " + id
		found, err := s.watcher.FindJob(ctx, id, data.Last)
		switch {
		case errors.Is(err, view.ErrAsking):
			data.Looking = true
		case err != nil:
			data.Fault = "Not known: " + brief(err)
		default:
			data.Found = found
			for _, raw := range found.Results {
				var e event
				if json.Unmarshal(raw, &e) == nil {
					data.Events = append(data.Events, e)
				}
			}
		}
	}
	c.Data = data
}
