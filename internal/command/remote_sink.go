package command

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/console/view"
)

// sinkViews are the sinks that the server knows.
func (r *remote) sinkViews(ctx context.Context) ([]sinkView, error) {
	var answer struct {
		Sinks []view.Sink `json:"sinks"`
	}
	if err := r.get(ctx, "/sinks", nil, &answer); err != nil {
		return nil, err
	}
	views := make([]sinkView, 0, len(answer.Sinks))
	for i := range answer.Sinks {
		s := &answer.Sinks[i]
		v := sinkView{Sink: s.Name, Gate: "open", Calls: s.MaxInFlight, Destinations: s.Closed(), Figures: s.Figures}
		for _, g := range s.Gates { // there is one at most
			v.Gate, v.Cause, v.Since = "half-open", g.Cause, g.Since
			if g.Until != nil && g.Until.After(time.Now()) {
				v.Gate, v.Until = "closed", g.Until
			}
		}
		views = append(views, v)
	}
	return views, nil
}

// openRemote has the server open the gate of a sink or, if it is named, of one of its destinations.
func (c *cli) openRemote(ctx context.Context, name, destination string) error {
	r, err := c.remote()
	if err != nil {
		return err
	}
	var v struct {
		Sink        string `json:"sink"`
		Destination string `json:"destination,omitempty"`
		Opened      bool   `json:"opened"` // false: it was open
	}
	if err := r.call(ctx, http.MethodPost, "/sinks/"+url.PathEscape(name)+"/open", nil, map[string]string{"destination": destination}, &v); err != nil {
		return err
	}
	return c.print(v, func(p *printer) {
		what := "the gate of sink " + name
		if destination != "" {
			what = "destination " + destination + " of sink " + name
		}
		if v.Opened {
			p.line("opened %s", what)
		} else {
			p.line("%s was open", what)
		}
	})
}
