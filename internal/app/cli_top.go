package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/top"
)

// TopOptions of `pacer top`.
type TopOptions struct {
	Addr     string        // host:port of the daemon; "" for http.listen
	Interval time.Duration // between two looks
	Once     bool          // print one picture and end
	Sort     string        // one of top.Orders
	Campaign string        // part of the ids to show; "" for all
	Limit    int           // campaigns listed; 0 for what fits the terminal, or 20
	Terminal bool          // Stdout is one
}

const (
	minTopInterval  = 100 * time.Millisecond
	maxTopInterval  = time.Hour
	maxTopRows      = 10_000
	defaultTopRows  = 20
	askTopWithin    = 10 * time.Second
	defaultTopWidth = 80
)

// Top is `pacer top`: what a running daemon does, by what its /metrics says. On a terminal the picture is drawn again and
// again until the person has seen enough; otherwise, and with --once or --json, it is printed once, over one interval.
func Top(ctx context.Context, in Invocation, o TopOptions) error {
	watch, err := newTopWatch(in, &o)
	if err != nil {
		return err
	}
	first, err := watch.ask(ctx)
	if err != nil {
		return err
	}
	if o.Terminal && !o.Once && !in.JSON {
		return watch.live(ctx, in.Stdout, first)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(o.Interval):
	}
	second, err := watch.ask(ctx)
	if err != nil {
		return err
	}
	if watch.query.Limit == 0 {
		watch.query.Limit = defaultTopRows
	}
	frame := watch.frame(ctx, first, second)
	if in.JSON {
		return writeJSON(in.Stdout, frame)
	}
	p := &printer{w: in.Stdout}
	p.line("%s", topText(&frame, topSize{width: defaultTopWidth, height: maxTopRows}, ""))
	return p.err
}

// TopOrders are what TopOptions.Sort may be.
func TopOrders() []string { return top.OrderNames() }

// topWatch asks one daemon.
type topWatch struct {
	address   string
	interval  time.Duration
	query     top.Query
	transport *http.Transport
}

// newTopWatch checks what was asked for.
func newTopWatch(in Invocation, o *TopOptions) (*topWatch, error) {
	order, err := top.ParseOrder(o.Sort)
	switch {
	case err != nil:
		return nil, usagef("--sort %w", err)
	case o.Interval < minTopInterval || o.Interval > maxTopInterval:
		return nil, usagef("--interval %s is out of range; use a duration between %s and %s, such as 1s", o.Interval, minTopInterval, maxTopInterval)
	case o.Limit < 0 || o.Limit > maxTopRows:
		return nil, usagef("--limit %d is out of range; use 1 to %d, or 0 for what fits", o.Limit, maxTopRows)
	}
	if o.Addr == "" {
		cfg, _, err := in.load()
		if err != nil {
			return nil, err
		}
		if cfg.HTTP.Listen == "" {
			return nil, usagef("http.listen: off, so there is nothing to ask; set an address, or name a daemon with --addr")
		}
		o.Addr = cfg.HTTP.Listen
	}
	if _, _, err := net.SplitHostPort(o.Addr); err != nil {
		return nil, usagef("--addr %q is not host:port; use one such as 127.0.0.1:8080", o.Addr)
	}
	return &topWatch{
		address: dialable(o.Addr), interval: o.Interval, query: top.Query{Sort: order, Filter: o.Campaign, Limit: o.Limit},
		// A transport of its own: a proxy of the environment is for destinations, not for daemons.
		transport: &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute},
	}, nil
}

// ask asks the daemon for its metrics.
func (w *topWatch) ask(ctx context.Context) (*top.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, askTopWithin)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		(&url.URL{Scheme: "http", Host: w.address, Path: "/metrics"}).String(), nil)
	if err != nil {
		return nil, usagef("--addr %s: %w", w.address, err)
	}
	answer, err := w.transport.RoundTrip(request)
	if err != nil {
		return nil, fmt.Errorf("no daemon answers at %s: %s; start pacer run, or name another with --addr", w.address, cause(err))
	}
	defer func() { _ = answer.Body.Close() }() // read as far as it is needed
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s to /metrics, which is not what pacer run says; name a daemon with --addr", w.address, answer.Status)
	}
	sample, err := top.Read(answer.Body, time.Now())
	switch {
	case errors.Is(err, top.ErrForeign):
		return nil, fmt.Errorf("%s: %w; name a daemon with --addr", w.address, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", w.address, err)
	}
	return sample, nil
}

// frame makes the picture, with what /readyz says.
func (w *topWatch) frame(ctx context.Context, before, now *top.Sample) top.Frame {
	f := top.Show(before, now, w.query)
	f.Address = w.address
	if err := askReady(ctx, w.address); err != nil {
		f.Reason = err.Error()
	}
	f.Ready = f.Reason == ""
	return f
}
