package count

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	// statusClientGone is recorded, never sent, for a request whose sender closed the connection before the answer.
	statusClientGone = 499
	maxBody          = 16 << 20
)

// ReceiverOptions describe a Receiver.
type ReceiverOptions struct {
	// Paths are the destinations, by URL path. Other paths answer 404 and record nothing.
	Paths map[string]Behaviour
	Log   *slog.Logger
}

// Receiver is the destination of the demo: an HTTP server that answers as real ones do, also late and with errors. It records each
// request: its campaign, its job, the answer, and when it reached this machine's kernel. Without a time from the kernel it records when
// the header had been read. The report relies on nothing else.
//
// Instants are durations since the receiver's epoch, on the monotonic clock: Now returns the current one, At converts
// a time of this process. Methods are safe for concurrent use.
type Receiver struct {
	options      ReceiverOptions
	epoch        time.Time
	arrivals     *arrivals
	destinations map[string]*destination
	listener     net.Listener
}

// Listen makes a receiver. Requests wait in the kernel until Run answers them.
func Listen(options ReceiverOptions) (*Receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the receiver: %w", err)
	}
	r := &Receiver{
		options: options, epoch: time.Now(), arrivals: &arrivals{campaigns: make(map[string]*journal)}, listener: Stamped(listener),
		destinations: make(map[string]*destination, len(options.Paths)),
	}
	for path, b := range options.Paths {
		r.destinations[path] = &destination{behaviour: b}
	}
	return r, nil
}

// URL returns the URL of the destination at path.
func (r *Receiver) URL(path string) string { return "http://" + r.listener.Addr().String() + path }

// Now returns the current instant on the receiver's clock.
func (r *Receiver) Now() time.Duration { return time.Since(r.epoch) }

// At converts a time of this process to the receiver's clock.
func (r *Receiver) At(t time.Time) time.Duration { return t.Sub(r.epoch) }

// Journals returns what was received so far, by campaign.
func (r *Receiver) Journals() map[string]Journal { return r.arrivals.journals() }

// Accepted returns the number of accepted requests so far, by campaign, for live views.
func (r *Receiver) Accepted() map[string]int { return r.arrivals.accepted() }

// Run answers requests until the context ends. Call it once.
func (r *Receiver) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           http.HandlerFunc(r.serve),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		ConnContext:       WithConn,
		ErrorLog:          slog.NewLogLogger(r.options.Log.Handler(), slog.LevelWarn),
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // those who sent have ended
	if err := server.Serve(r.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}

func (r *Receiver) serve(w http.ResponseWriter, req *http.Request) {
	at := r.At(ArrivedAt(req, time.Now())) // the recorded instant
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
	slot, number, nth := r.arrivals.begin(campaign, job, at)
	if _, err := io.Copy(io.Discard, http.MaxBytesReader(w, req.Body, maxBody)); err != nil {
		http.Error(w, "unreadable body", http.StatusBadRequest)
		r.arrivals.finish(campaign, slot, http.StatusBadRequest)
		return
	}
	status, latency := d.answer(number, nth, at)
	if latency > 0 && retry.Sleep(req.Context(), latency) != nil {
		r.arrivals.finish(campaign, slot, statusClientGone)
		return
	}
	if status == http.StatusTooManyRequests {
		wait := d.behaviour.RetryAfter
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
		r.arrivals.closeGate(campaign, Interval{From: at, To: r.Now() + wait})
	}
	r.arrivals.finish(campaign, slot, status)
	w.WriteHeader(status)
}
