package command

import (
	"context"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/top"
)

// watchServer makes pacer top watch the installation of a console.
func (c *cli) watchServer(w *top.Watch) error {
	if w.Address != "" {
		return config.Usagef("--addr names one daemon and --server a console of all; give one of them")
	}
	r, err := c.remote()
	if err != nil {
		return err
	}
	w.Address = r.base.Host
	w.Fetch = func(ctx context.Context) (*top.Sample, error) { return r.sample(ctx, w.Query.Filter) }
	return nil
}

// sample asks for what pacer top shows, of campaigns whose id contains the filter.
func (r *remote) sample(ctx context.Context, filter string) (*top.Sample, error) {
	var state view.State
	if err := r.get(ctx, "/status", nil, &state); err != nil {
		return nil, err
	}
	s := &top.Sample{
		At: time.Now(), Version: state.Version, Campaigns: map[string]*top.Campaign{}, Quotas: map[top.Window]*top.Quota{}, Sinks: map[string]float64{},
		Fleet: &top.Fleet{
			Running: state.DaemonsRunning, Ready: state.DaemonsReady, LateCapacity: state.LateCapacity, LateDestination: state.LateDestination, Degraded: state.Degraded,
		},
	}
	err := r.eachCampaign(ctx, url.Values{"q": {filter}}, func(c *view.Campaign) { s.Campaigns[c.ID] = sampled(c, state.At) })
	if err != nil {
		return nil, err
	}
	if err := r.eachQuota(ctx, func(q *view.Quota) {
		for i := range q.Windows {
			w := &q.Windows[i]
			one := &top.Quota{Limit: number(w.Limit)}
			if w.Remaining != nil {
				one.Remaining = number(*w.Remaining)
			}
			s.Quotas[top.Window{Quota: q.ID, Span: w.Span}] = one
		}
	}); err != nil {
		return nil, err
	}
	var fleet struct{ Daemons []view.Daemon }
	if err := r.get(ctx, "/daemons", nil, &fleet); err != nil {
		return nil, err
	}
	var sinks struct{ Sinks []view.Sink }
	if err := r.get(ctx, "/sinks", nil, &sinks); err != nil {
		return nil, err
	}
	addDaemons(s, fleet.Daemons)
	for i := range sinks.Sinks {
		if f := sinks.Sinks[i].Figures; f != nil {
			delete(s.Sinks, allSinks)
			s.Sinks[sinks.Sinks[i].Name] = float64(f.InFlight)
		}
	}
	return s, nil
}

// allSinks stands for all sinks while no daemon tells what is in flight to each.
const allSinks = "all"

// addDaemons adds what the daemons tell of themselves: of what is late the worst of them.
func addDaemons(s *top.Sample, daemons []view.Daemon) {
	for i := range daemons {
		d := &daemons[i]
		s.Queued += float64(d.Queued)
		s.Sinks[allSinks] += float64(d.InFlight)
		f := d.Figures
		s.Stalled += float64(f.Stalled)
		s.Fleet.Forfeited = plus(s.Fleet.Forfeited, f.Forfeited)
		if late := f.LatenessP99; late != nil && (s.Fleet.LatenessP99 == nil || *late > *s.Fleet.LatenessP99) {
			s.Fleet.LatenessP99 = late
		}
	}
}

func plus(sum *float64, n float64) *float64 {
	if sum != nil {
		n += *sum
	}
	return &n
}

// sampled is a campaign as pacer top shows it. What became of its jobs is known as far as the daemons have stored it.
func sampled(c *view.Campaign, now time.Time) *top.Campaign {
	one := &top.Campaign{Rate: &c.Allowed, Sent: c.Sent, Settled: map[string]float64{}}
	one.Lanes = number(int64(len(c.Lanes)))
	if c.Backlog != nil {
		one.Backlog = number(*c.Backlog)
	}
	if p := c.Progress; p != nil {
		one.Settled["delivered"], one.Settled["dead"] = float64(p.Delivered), float64(p.Dead)
		if p.DoneAt != nil {
			eta := max(0, p.DoneAt.Sub(now).Seconds())
			one.ETA = &eta
		}
	}
	return one
}

func number(n int64) *float64 {
	v := float64(n)
	return &v
}
