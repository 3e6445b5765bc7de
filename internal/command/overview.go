package command

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/shards"
)

// overview is what a command knows of what holds campaigns.
type overview struct {
	config   *config.Config
	snapshot *delivery.Snapshot
	gates    []delivery.Gate
	windows  map[string][]delivery.WindowState // by quota; nil: not asked
	board    *progress.Board                   // nil: not asked
	one      string                            // of which more is asked
	senders  []progress.Sender                 // of that one
	waits    map[string]hold.Wait              // what quotas have refused it, by quota
	silent   bool                              // Redis does not answer
	note     string                            // what could not be asked, and why
}

// overviewWith asks the catalog something, and then for an overview.
func overviewWith[T any](ctx context.Context, c *cli, one string, what func(*catalog.Admin) (T, error)) (answer T, o *overview, err error) {
	answer, err = withAdmin(c, func(s *app.Services, admin *catalog.Admin) (answer T, err error) {
		if answer, err = what(admin); err == nil {
			o, err = newOverview(ctx, s, admin, one)
		}
		return answer, err
	})
	return answer, o, err
}

// newOverview asks the catalog and, for at most peekTimeout, Redis. Of one campaign, if that is not "", it asks who sends it.
func newOverview(ctx context.Context, s *app.Services, admin *catalog.Admin, one string) (*overview, error) {
	snapshot, err := admin.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	o := &overview{config: s.Config, snapshot: snapshot, one: one}
	if len(s.Config.Redis.Addrs) == 0 {
		o.note = "redis.addrs is not set, so gates, quotas and daemons were not asked"
		return o, nil
	}
	if err := o.askRedis(ctx, s); err != nil {
		o.silent, o.note = o.board == nil, fmt.Sprintf("redis.addrs: %s", err)
	}
	return o, nil
}

func (o *overview) askRedis(ctx context.Context, s *app.Services) error {
	engine, shards, err := openLimits(s)
	if err != nil {
		return err
	}
	defer func() { _ = shards.Close() }() // nothing is written on closing
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	var all errgroup.Group
	exchange := progress.NewRedisExchange(shards.Master(0), s.Config.Redis.KeyPrefix)
	all.Go(func() (err error) {
		o.board, err = progress.ReadBoard(ctx, exchange)
		return err
	})
	if c := o.snapshot.Campaign(o.one); c != nil {
		all.Go(func() (err error) {
			o.senders, err = progress.ReadSenders(ctx, exchange, c)
			return err
		})
		all.Go(func() (err error) {
			o.waits, err = view.Waits(ctx, engine.Claims, c)
			return err
		})
	}
	all.Go(func() (err error) {
		o.gates, err = engine.Gates(ctx, o.sinks())
		return err
	})
	all.Go(func() error {
		var quotas []*delivery.Quota
		for _, q := range o.snapshot.Quotas {
			quotas = append(quotas, q)
		}
		states, err := engine.Peek(ctx, quotas)
		o.windows = hold.Windows(states)
		return err
	})
	return all.Wait()
}

// sinks returns the names of all sinks that are configured or that a campaign names.
func (o *overview) sinks() []string {
	names := map[string]bool{}
	for name := range o.config.Sinks {
		names[name] = true
	}
	for _, c := range o.snapshot.Campaigns {
		if name := cmp.Or(c.Sink, o.config.DefaultSink); name != "" {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// openLimits makes an engine that only looks, on connections that the caller closes.
func openLimits(s *app.Services) (*limits.Engine, *shards.Set, error) {
	if err := s.Config.Fault(config.NeedRedis); err != nil {
		return nil, nil, config.UsageError{Err: err}
	}
	set, err := s.Shards()
	if err != nil {
		return nil, nil, err
	}
	engine, err := limits.New(limits.Options{
		Shards: set, KeyPrefix: s.Config.Redis.KeyPrefix, Logger: s.Log, Registerer: prometheus.NewRegistry(), Timeout: peekTimeout,
	})
	if err != nil {
		_ = set.Close() // nothing is written on closing
		return nil, nil, err
	}
	return engine, set, nil
}

// of returns what holds the campaign; nothing if it was deleted meanwhile.
func (o *overview) of(id string) hold.Answer {
	c := o.snapshot.Campaign(id)
	if c == nil {
		return hold.Answer{Campaign: id}
	}
	e := hold.Evidence{Now: time.Now(), Campaign: c, Gates: o.gates, Windows: o.windows, Store: o.silent, Stores: o.snapshot.Stores}
	if id == o.one {
		e.Waits = o.waits
	}
	e.Sink, e.SinkFault = sinkOf(o.config, c.Sink)
	if o.board != nil {
		e.Board, e.Failure = o.board.Of(c, o.snapshot), o.board.Failure(e.Sink)
	}
	return hold.Of(e)
}

// failure says when and why the sink of a campaign that names this one last did not take a job; "" if that is not known.
func (o *overview) failure(sink string) string {
	if o.board == nil {
		return ""
	}
	sink, _ = sinkOf(o.config, sink)
	return hold.LastFailure(o.board.Failure(sink))
}

// sinkOf returns the sink of a campaign that names this one, or why there is none. If the configuration has no sinks at
// all, it is not that of the daemons, and nothing is known.
func sinkOf(cfg *config.Config, name string) (sink, fault string) {
	if name == "" {
		name = cfg.DefaultSink
	}
	if _, ok := cfg.Sinks[name]; !ok && len(cfg.Sinks) > 0 {
		return "", hold.SinkFault(name)
	}
	return name, ""
}

// heldView is what holds a campaign, as JSON.
type heldView struct {
	Cause  hold.Cause `json:"cause"`
	Why    string     `json:"why"`
	Since  *time.Time `json:"since,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	Remedy string     `json:"remedy"`
}

// newHeldView returns nil if nothing holds the campaign.
func newHeldView(a *hold.Answer) *heldView {
	if a.Cause == hold.None {
		return nil
	}
	return &heldView{Cause: a.Cause, Why: a.Why(), Since: whole(a.Since), Until: whole(a.Until), Remedy: a.Remedy()}
}

// whole returns t in UTC and whole seconds, which it has reached, nil for the zero time.
func whole(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Second)
	return &t
}

func (v *heldView) print(p *printer) {
	p.line("held\t%s", v.Why)
	p.line("held since\t%s", agoOrAhead(v.Since))
	p.line("held until\t%s", agoOrAhead(v.Until))
	p.line("to do\t%s", v.Remedy)
}

// agoOrAhead formats a time with how far off it is.
func agoOrAhead(at *time.Time) string {
	if at == nil {
		return "not known"
	}
	off := time.Until(*at).Round(time.Second)
	switch {
	case off < 0:
		return fmt.Sprintf("%s (%s ago)", instant(at, time.RFC3339), formatSeconds(-off))
	case off == 0:
		return instant(at, time.RFC3339) + " (now)"
	}
	return fmt.Sprintf("%s (in %s)", instant(at, time.RFC3339), formatSeconds(off))
}
