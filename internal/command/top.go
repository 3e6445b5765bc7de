package command

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/top"
)

func (c *cli) top() *cobra.Command {
	watch := &top.Watch{Ready: console.AskReady}
	var once bool
	var sort string
	cmd := c.withServer(c.plain("top", "Watch a running daemon, or all: rates, backlogs, quotas", func(ctx context.Context) error {
		return c.watch(ctx, watch, sort, once)
	}))
	cmd.Long = `Polls a daemon's /metrics and shows how fast each campaign sends, how many jobs wait, what is left of the quotas
and the state of the daemon. Sent jobs are those of this daemon; rates, backlogs and quotas are those of all daemons.
With --server, all daemons are watched over the API of a console; what only one daemon knows of itself is left out.
If stdout is not a terminal, one picture is printed.`
	cmd.Flags().StringVar(&watch.Address, "addr", "", "host:port of the daemon's metrics; http.metrics_listen or http.listen of the configuration unless given")
	spanVar(cmd.Flags(), &watch.Interval, "interval", time.Second, "time between two looks")
	cmd.Flags().BoolVar(&once, "once", false, "print one picture and end")
	cmd.Flags().StringVar(&sort, "sort", "sent", "order of the campaigns: "+strings.Join(top.OrderNames(), ", "))
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

// watch shows the activity of a running daemon, from its /metrics. On a terminal the view is redrawn until the user
// quits; otherwise, and with --once or --json, it is printed once, over one interval.
func (c *cli) watch(ctx context.Context, watch *top.Watch, sort string, once bool) (err error) {
	if watch.Query.Sort, err = top.ParseOrder(sort); err != nil {
		return config.Usagef("--sort %w", err)
	}
	if err := c.checkWatch(watch); err != nil {
		return err
	}
	first, err := watch.Ask(ctx)
	if err != nil {
		return err
	}
	if isTerminal(c.Stdout) && !once && !c.json {
		return watch.Live(ctx, c.Stdout, first)
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
	frame := watch.Frame(ctx, first, second)
	return c.print(frame, func(p *printer) { p.line("%s", top.Page(&frame)) })
}

// checkWatch checks the flags, and finds the daemon.
func (c *cli) checkWatch(w *top.Watch) error {
	switch {
	case w.Interval < minTopInterval || w.Interval > maxTopInterval:
		return config.Usagef("--interval %s is out of range; use a duration between %s and %s, such as 1s",
			w.Interval, minTopInterval, maxTopInterval)
	case w.Query.Limit < 0 || w.Query.Limit > maxTopRows:
		return config.Usagef("--limit %d is out of range; use 1 to %d, or 0 for what fits", w.Query.Limit, maxTopRows)
	}
	if c.server.address != "" {
		return c.watchServer(w)
	}
	if err := c.noToken(); err != nil {
		return err
	}
	asked := w.Address
	if asked == "" {
		cfg, _, err := c.load()
		if err != nil {
			return err
		}
		if asked = cfg.HTTP.Metrics(); asked == "" {
			return config.Usagef("http.listen: off, so there is nothing to ask; set an address, or name a daemon with --addr")
		}
	}
	if _, _, err := net.SplitHostPort(asked); err != nil {
		return config.Usagef("--addr %q is not host:port; use one such as 127.0.0.1:8080", asked)
	}
	w.Address = console.Dialable(asked)
	if err := w.Check(); err != nil {
		return config.Usagef("--addr %s: %w", asked, err)
	}
	return nil
}
