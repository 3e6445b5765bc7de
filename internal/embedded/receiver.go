package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// statusClientGone is recorded, never sent, for a request whose sender hung up before the answer.
	statusClientGone = 499
	// defaultMaxRequests bounds the receiver's memory at about 100 MiB.
	defaultMaxRequests = 2_000_000
	maxBody            = 16 << 20
	shutdownTimeout    = 500 * time.Millisecond
)

// ReceiverOptions describe a Receiver.
type ReceiverOptions struct {
	// Paths are the destinations it plays, by URL path. Other paths answer 404 and record nothing.
	Paths map[string]Behaviour
	// MaxRequests bounds how many requests it remembers; 0 means two million.
	MaxRequests int
	Log         *slog.Logger
}

func (o ReceiverOptions) validate() error {
	if len(o.Paths) == 0 {
		return errors.New("the receiver needs at least one path")
	}
	for path, b := range o.Paths {
		if path == "" || path[0] != '/' {
			return fmt.Errorf("path %q must begin with /", path)
		}
		if err := b.validate(); err != nil {
			return fmt.Errorf("path %s: %w", path, err)
		}
	}
	return nil
}

// Receiver is the destination of the demo: an HTTP server that answers as real ones do, some of them late, some
// with errors, and that writes down each request: when it reached this machine's kernel (where that can be had;
// otherwise when its header had been read), for which campaign and job, which attempt, and what was answered. It is the only witness the report believes.
//
// Instants are durations since the receiver's epoch, on the monotonic clock: Now gives the present one, At
// converts a time of this process. The zero value is not usable; make one with NewReceiver, Start it, then Run
// it. Methods are safe for concurrent use after Start has returned.
type Receiver struct {
	options      ReceiverOptions
	epoch        time.Time
	arrivals     *arrivals
	stalls       stallWatch
	destinations map[string]*destination
	listener     net.Listener
	running      atomic.Bool
}

// NewReceiver describes a receiver; Start brings it up.
func NewReceiver(options ReceiverOptions) *Receiver {
	if options.MaxRequests == 0 {
		options.MaxRequests = defaultMaxRequests
	}
	if options.Log == nil {
		options.Log = slog.New(slog.DiscardHandler)
	}
	r := &Receiver{
		options: options, epoch: time.Now(), arrivals: newArrivals(options.MaxRequests),
		destinations: make(map[string]*destination, len(options.Paths)),
	}
	for path, b := range options.Paths {
		r.destinations[path] = &destination{behaviour: b}
	}
	return r
}

// Start listens; requests wait in the kernel until Run answers them.
func (r *Receiver) Start() error {
	if err := r.options.validate(); err != nil {
		return fmt.Errorf("start the receiver: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("start the receiver: %w", err)
	}
	r.listener = Stamped(listener)
	return nil
}

// URL is where the destination at path can be reached.
func (r *Receiver) URL(path string) string { return "http://" + r.listener.Addr().String() + path }

// Now is the present instant on the receiver's clock.
func (r *Receiver) Now() time.Duration { return time.Since(r.epoch) }

// At converts a time of this process to the receiver's clock.
func (r *Receiver) At(t time.Time) time.Duration { return t.Sub(r.epoch) }

// Epoch is the wall-clock time of instant 0.
func (r *Receiver) Epoch() time.Time { return r.epoch }

// Journals are what was received so far, by campaign, and how many requests did not fit its memory; if any, the
// journals prove nothing.
func (r *Receiver) Journals() (journals []Journal, dropped int) { return r.arrivals.journals() }

// Accepted is the number of accepted requests so far, by campaign; for live views.
func (r *Receiver) Accepted() map[string]int { return r.arrivals.accepted() }

// Stalls are the stretches in which this process was seen not to run, while Run did; they may overlap. What is known to
// have happened at an instant in or just after one may have been due earlier by as much.
func (r *Receiver) Stalls() []Interval { return r.stalls.list() }

// Run answers requests until the context ends, then finishes those in progress. It is called once.
func (r *Receiver) Run(ctx context.Context) error {
	if !r.running.CompareAndSwap(false, true) {
		return errors.New("the receiver runs already")
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(r.serve),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       WithConn,
		ErrorLog:          slog.NewLogLogger(r.options.Log.Handler(), slog.LevelWarn),
	}
	watching, stopWatching := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.stalls.run(watching, r.Now) })
	defer watch.Wait()
	defer stopWatching()
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(r.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("receive: %w", err)
	case <-ctx.Done():
	}
	// The caller's context has ended; requests in progress get a bounded time of their own. A connection that a
	// client opened ahead and never used looks busy to Shutdown, so running out of time is no error.
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	err := server.Shutdown(bounded)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close()
	}
	if ended := <-failed; err == nil && !errors.Is(ended, http.ErrServerClosed) {
		err = ended
	}
	if err != nil {
		return fmt.Errorf("stop the receiver: %w", err)
	}
	return nil
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	at := r.At(ArrivedAt(req, time.Now())) // the instant that counts
	d := r.destinations[req.URL.Path]
	if d == nil {
		http.NotFound(w, req)
		return
	}
	campaign, job := req.Header.Get("pacer-campaign"), req.Header.Get("Idempotency-Key")
	if campaign == "" || job == "" {
		http.Error(w, "pacer-campaign and Idempotency-Key are required", http.StatusBadRequest)
		return
	}
	attempt, _ := strconv.ParseInt(req.Header.Get("pacer-attempt"), 10, 32) // absent or unreadable: 0
	slot, nth, recorded := r.arrivals.begin(campaign, job, at, int32(attempt))
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, req.Body, maxBody)); err != nil {
		http.Error(w, "unreadable body", http.StatusBadRequest)
		r.finish(recorded, campaign, slot, http.StatusBadRequest)
		return
	}
	status, latency := d.answer(job, nth, at)
	if latency > 0 && !sleep(req.Context(), latency) {
		r.finish(recorded, campaign, slot, statusClientGone)
		return
	}
	if status == http.StatusTooManyRequests {
		wait := d.behaviour.RetryAfter
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
		if recorded {
			r.arrivals.closeGate(campaign, Interval{From: at, To: r.Now() + wait})
		}
	}
	r.finish(recorded, campaign, slot, status)
	w.WriteHeader(status)
}

func (r *Receiver) finish(recorded bool, campaign string, slot, status int) {
	if recorded {
		r.arrivals.finish(campaign, slot, status)
	}
}

// sleep waits for d; false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
