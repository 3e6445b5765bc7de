package page

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobs"
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
		Acts     []act
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
			data.Fault = "Not known: " + view.Line(err)
		default:
			data.Found = found
			if len(found.Waiting) > 0 {
				data.Acts = allowed(c.Who.Role, []act{send(auth.Operator, "Cancel", "job-cancel", id, "last", data.Last)})
			}
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

// cancelJob cancels the jobs of an id that wait. Of several, the page that follows tells of one that was not cancelled.
func cancelJob(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id := form.Get("id")
	out, err := s.watcher.Sources().CancelJobs(ctx, jobs.Cancellation{IDs: []string{id}})
	state := jobs.NotFound
	for _, j := range out.Jobs {
		if state = j.State; state != string(delivery.StatusCancelled) {
			break
		}
	}
	return "job?" + view.Query(map[string]string{"id": id, "last": form.Get("last"), "done": "job-" + state}), nil, err
}
