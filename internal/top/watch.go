package top

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

const askWithin = 10 * time.Second

// Watch reads the metrics of one daemon periodically.
type Watch struct {
	Address  string        // host:port
	Interval time.Duration // between two looks
	Query    Query
	Ready    func(ctx context.Context, address string) error // requests /readyz
	// Fetch, if it is set, is asked in place of a daemon's /metrics and /readyz. Its samples have a Fleet.
	Fetch func(ctx context.Context) (*Sample, error)

	transport *http.Transport
}

// Check returns an error unless the address is valid.
func (w *Watch) Check() error {
	_, err := w.request(context.Background())
	return err
}

func (w *Watch) request(ctx context.Context) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, http.MethodGet, (&url.URL{Scheme: "http", Host: w.Address, Path: "/metrics"}).String(), nil)
}

// Ask asks the daemon for its metrics.
func (w *Watch) Ask(ctx context.Context) (*Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if w.Fetch != nil {
		return w.Fetch(ctx)
	}
	request, err := w.request(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", w.Address, err)
	}
	if w.transport == nil {
		// No proxy from the environment: it is meant for destinations, not for daemons.
		w.transport = &http.Transport{MaxIdleConns: 1, IdleConnTimeout: time.Minute}
	}
	answer, err := w.transport.RoundTrip(request)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Err != nil {
			err = op.Err // "connect: connection refused"
		}
		return nil, fmt.Errorf("no daemon answers at %s: %w; start pacer run, or name another with --addr", w.Address, err)
	}
	defer func() { _ = answer.Body.Close() }() // read as far as needed
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s to /metrics, which is not what pacer run says; name a daemon with --addr, by its http.metrics_listen if it has one", w.Address, answer.Status)
	}
	sample, err := Read(answer.Body, time.Now())
	switch {
	case errors.Is(err, ErrForeign):
		return nil, fmt.Errorf("%s: %w; name a daemon with --addr", w.Address, err)
	case err != nil:
		return nil, fmt.Errorf("%s: %w", w.Address, err)
	}
	return sample, nil
}

// Frame reads the metrics and /readyz, and makes the frame.
func (w *Watch) Frame(ctx context.Context, before, now *Sample) Frame {
	f := Show(before, now, w.Query)
	f.Address = w.Address
	if now.Fleet != nil {
		f.Reason = now.Fleet.Degraded
	} else if err := w.Ready(ctx, w.Address); err != nil {
		f.Reason = err.Error()
	}
	f.Ready = f.Reason == ""
	return f
}
