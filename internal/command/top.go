package command

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/top"
)

func (c *cli) top() *cobra.Command {
	watch := &top.Watch{}
	var once bool
	cmd := c.withServer(c.plain("top", "Watch all daemons: rates, backlogs, quotas", func(ctx context.Context) error {
		return c.watch(ctx, watch, once)
	}), config.NeedPostgres, config.NeedRedis)
	cmd.Long = `Shows how fast each campaign sends, how many jobs wait, what is left of the quotas and the state of the daemons, by what they
exchange in Redis and what the database has. With --server a console is asked for it. If stdout is not a terminal, one picture is printed.`
	spanVar(cmd.Flags(), &watch.Interval, "interval", time.Second, "time between two looks")
	cmd.Flags().BoolVar(&once, "once", false, "print one picture and end")
	cmd.Flags().StringVar(&watch.Query.Sort, "sort", top.BySent, "order of the campaigns: "+strings.Join(top.Orders, ", "))
	cmd.Flags().StringVar(&watch.Query.Filter, "campaign", "", "only campaigns whose id contains this")
	cmd.Flags().IntVar(&watch.Query.Limit, "limit", 0, "campaigns to list; 0 for what fits the terminal, or 20")
	return cmd
}

const (
	minTopInterval = 100 * time.Millisecond
	maxTopInterval = time.Hour
	maxTopRows     = 10_000
	defaultTopRows = 20
)

// watch shows an installation. On a terminal the view is redrawn until the user quits; otherwise, and with --once or --json, it is printed
// once, over one interval.
func (c *cli) watch(ctx context.Context, watch *top.Watch, once bool) error {
	switch {
	case !slices.Contains(top.Orders, watch.Query.Sort):
		return config.Usagef("--sort %q is no order; use one of %s", watch.Query.Sort, strings.Join(top.Orders, ", "))
	case watch.Interval < minTopInterval || watch.Interval > maxTopInterval:
		return config.Usagef("--interval %s is out of range; use a duration between %s and %s, such as 1s", watch.Interval, minTopInterval, maxTopInterval)
	case watch.Query.Limit < 0 || watch.Query.Limit > maxTopRows:
		return config.Usagef("--limit %d is out of range; use 1 to %d, or 0 for what fits", watch.Query.Limit, maxTopRows)
	}
	watch.Fetch = func(ctx context.Context) (*top.Frame, error) { return c.frame(ctx, watch.Query.Filter) }
	first, err := watch.Ask(ctx)
	if err != nil {
		return err
	}
	if terminal, ok := c.Stdout.(*os.File); ok && isTerminal(terminal) && !once && !c.json {
		return watch.Live(ctx, c.Stdin, terminal, first)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(watch.Interval):
	}
	second, err := watch.Ask(ctx)
	if err != nil {
		return err
	}
	if watch.Query.Limit == 0 {
		watch.Query.Limit = defaultTopRows
	}
	frame := second.Arrange(first, watch.Query)
	return c.print(frame, func(p *printer) { p.line("%s", top.Page(&frame)) })
}

// frame asks for what pacer top shows, of campaigns whose id contains the filter.
func (c *cli) frame(ctx context.Context, filter string) (*top.Frame, error) {
	var state view.State
	if err := c.get(ctx, "/status", nil, &state); err != nil {
		return nil, err
	}
	f := &top.Frame{
		At: state.At, Version: state.Version, Address: c.api.address, Reason: faults(&state),
		Fleet: top.Fleet{Running: state.DaemonsRunning, Ready: state.DaemonsReady, LateCapacity: state.LateCapacity, LateDestination: state.LateDestination},
	}
	f.Ready = f.Reason == ""
	err := pages(ctx, c, "campaigns", url.Values{"q": {filter}}, func(c *view.Campaign) { f.Campaigns = append(f.Campaigns, topRow(c)) })
	if err != nil {
		return nil, err
	}
	if err := pages(ctx, c, "quotas", url.Values{}, func(q *view.Quota) {
		for i := range q.Windows {
			w := &q.Windows[i]
			f.Quotas = append(f.Quotas, top.QuotaRow{Quota: q.ID, Window: w.Span, Remaining: w.Remaining, Limit: w.Limit})
		}
	}); err != nil {
		return nil, err
	}
	var fleet struct{ Daemons []progress.Daemon }
	if err := c.get(ctx, "/daemons", nil, &fleet); err != nil {
		return nil, err
	}
	var sinks struct{ Sinks []view.Sink }
	if err := c.get(ctx, "/sinks", nil, &sinks); err != nil {
		return nil, err
	}
	addDaemons(&f.Fleet, fleet.Daemons)
	for i := range sinks.Sinks {
		if s := &sinks.Sinks[i]; s.Figures != nil {
			f.Sinks = append(f.Sinks, top.SinkRow{Sink: s.Name, InFlight: s.Figures.InFlight})
		}
	}
	return f, nil
}

// faults says in one line what a process could not ask, and which services do not answer it.
func faults(s *view.State) string {
	return strings.Trim(strings.Join(append(s.Faults, s.Degraded), "; "), "; ")
}

// addDaemons adds what the daemons tell of themselves: of what is late the worst of them.
func addDaemons(fleet *top.Fleet, daemons []progress.Daemon) {
	for i := range daemons {
		d := daemons[i].Figures
		fleet.Queued += daemons[i].Queued
		fleet.Stalled += d.Stalled
		forfeited := d.Forfeited
		if fleet.Forfeited != nil {
			forfeited += *fleet.Forfeited
		}
		fleet.Forfeited = &forfeited
		if late := d.LatenessP99; late != nil && (fleet.LatenessP99 == nil || *late > *fleet.LatenessP99) {
			fleet.LatenessP99 = late
		}
	}
}

// topRow is a campaign as pacer top shows it. The outcomes of its jobs are those that the daemons have stored.
func topRow(c *view.Campaign) top.Row {
	row := top.Row{Campaign: c.ID, SendRate: &c.Allowed, Sent: c.Sent, Backlog: c.Backlog, Lanes: len(c.Lanes)}
	if p := c.Progress; p != nil {
		row.ETA, row.Total, row.DeadTotal = p.ETASeconds, p.Delivered, p.Dead
	}
	return row
}
