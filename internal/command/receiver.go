package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/config"
)

const (
	receiverBody    = 1 << 20 // more of a request is not read
	receiverTimeout = 10 * time.Second
)

// receiver is `pacer receiver`: an endpoint for trying things, with nothing behind it.
func (c *cli) receiver() *cobra.Command {
	r := &httpReceiver{}
	var listen string
	cmd := bare("receiver", "An HTTP endpoint to try sinks with: it answers and counts", func(ctx context.Context) error {
		return c.runReceiver(ctx, listen, r)
	})
	cmd.Long = `Answers every request with 204 and prints once a second how many came. It keeps nothing, and is no part of an
installation: send to it while you try rates, quotas and retries.`
	cmd.Example = "  pacer receiver\n  pacer receiver --listen 127.0.0.1:9000 --latency 50ms --failing 2"
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:9000", "address to listen on")
	spanVar(f, &r.latency, "latency", 0, "how long each answer takes")
	f.IntVar(&r.failing, "failing", 0, "percentage of requests that are answered with 503")
	return cmd
}

// httpReceiver answers requests. Safe for concurrent use; its options are set before.
type httpReceiver struct {
	latency time.Duration
	failing int // in percent

	requests, failed atomic.Int64
}

func (r *httpReceiver) validate() error {
	if r.latency < 0 || r.latency > receiverTimeout {
		return config.Usagef("--latency must lie between 0 and %s", receiverTimeout)
	}
	if r.failing < 0 || r.failing > 100 {
		return config.Usagef("--failing %d is a percentage, from 0 to 100", r.failing)
	}
	return nil
}

// ServeHTTP counts requests that may have a job. GET and HEAD, which health checks use, are answered at once.
func (r *httpReceiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodGet || q.Method == http.MethodHead {
		return
	}
	_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, q.Body, receiverBody)) // the answer is the same
	select {
	case <-time.After(r.latency):
	case <-q.Context().Done():
		return
	}
	r.requests.Add(1)
	if rand.IntN(100) < r.failing { // #nosec G404 -- not a secret
		r.failed.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (c *cli) runReceiver(ctx context.Context, listen string, r *httpReceiver) error {
	if err := r.validate(); err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return config.Usagef("--listen %s: %w", listen, err)
	}
	out := &printer{w: c.Stdout}
	out.line("listening on http://%s", listener.Addr())
	server := &http.Server{Handler: r, ReadTimeout: receiverTimeout, WriteTimeout: 2 * receiverTimeout, MaxHeaderBytes: 64 << 10}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("receive: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		r.report(ctx, out)
		return server.Close() // nobody waits for the answers
	})
	return group.Wait()
}

// report prints a line for each second with requests, and the total at the end.
func (r *httpReceiver) report(ctx context.Context, out *printer) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			out.line("%d requests in all, %d of them answered with 503", r.requests.Load(), r.failed.Load())
			return
		case now := <-tick.C:
			if n := r.requests.Load(); n != before {
				out.line("%s  %d/s, %d in all", now.Format(time.TimeOnly), n-before, n)
				before = n
			}
		}
	}
}
