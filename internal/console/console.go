// Package console is the HTTP side of a daemon: whether it lives, whether it is ready, and its metrics. Nothing it
// serves changes any state.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Bounds on what a client may ask of the server.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxBodyBytes      = 4 << 10 // nothing here reads a body
	maxGathers        = 4       // scrapes at once; more are answered 503
	gatherTimeout     = 10 * time.Second
	stopTimeout       = 2 * time.Second // for open requests, once Run's context is cancelled
	maxReason         = 200
)

// Options configure a Server.
type Options struct {
	// Listen is the address, such as 127.0.0.1:8080; "" serves nothing.
	Listen string
	// Ready and Healthy tell whether the daemon can take jobs and whether it makes progress; where not, why, in one line.
	// They are called from many goroutines at once and must not block.
	Ready   func() (ok bool, reason string)
	Healthy func() (ok bool, reason string)
	// Gatherer is what /metrics shows.
	Gatherer prometheus.Gatherer
	Logger   *slog.Logger
}

func (o Options) validate() error {
	for name, missing := range map[string]bool{
		"Ready": o.Ready == nil, "Healthy": o.Healthy == nil, "Gatherer": o.Gatherer == nil, "Logger": o.Logger == nil,
	} {
		if missing {
			return fmt.Errorf("console: %s is required", name)
		}
	}
	return nil
}

// Server answers /, /healthz, /readyz and /metrics. While a daemon drains, /readyz says so, so Run's context is to be
// cancelled last.
type Server struct {
	opt     Options
	handler http.Handler

	listening chan struct{} // closed once addr is set, by Listen
	mu        sync.Mutex    // guards listener: set by Listen, taken over by Run
	listener  net.Listener
	addr      string // written before listening is closed, read after
}

// New makes a Server. It does not listen yet.
func New(opt Options) (*Server, error) {
	if err := opt.validate(); err != nil {
		return nil, err
	}
	s := &Server{opt: opt, listening: make(chan struct{})}
	s.handler = s.routes()
	return s, nil
}

// Listen binds the address, so that a taken port is known before anything else is started; Run does it where Listen
// was not called. Calling it again does nothing.
func (s *Server) Listen(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opt.Listen == "" || s.addr != "" {
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.opt.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w; choose another address, or \"off\" for none", err)
	}
	s.listener, s.addr = l, l.Addr().String()
	close(s.listening)
	return nil
}

// Addr waits until the server listens and gives its address: useful with port 0. It is "" when ctx is done first.
func (s *Server) Addr(ctx context.Context) string {
	select {
	case <-s.listening:
		return s.addr
	case <-ctx.Done():
		return ""
	}
}

// Run serves until ctx is cancelled, then lets open requests finish for two seconds, and returns nil. An address that
// cannot be had is an error at once. With Listen "" it only waits for ctx. It is to be called once.
func (s *Server) Run(ctx context.Context) error {
	if s.opt.Listen == "" {
		<-ctx.Done()
		return nil
	}
	if err := s.Listen(ctx); err != nil {
		return err
	}
	srv := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.opt.Logger.Handler(), slog.LevelWarn),
	}
	s.mu.Lock()
	l := s.listener
	s.mu.Unlock()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	s.opt.Logger.Info("console listens", "address", s.addr)

	select {
	case err := <-served:
		return fmt.Errorf("serve http on %s: %w", s.addr, err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close() // whoever still reads a page has had its two seconds
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", s.addr, err)
	}
	return nil
}

// ServeHTTP serves one request, with the headers and bounds that hold for every page.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.Handle("GET /healthz", verdict(s.opt.Healthy))
	mux.Handle("GET /readyz", verdict(s.opt.Ready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.opt.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.opt.Logger.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError, // one broken collector does not blind the others
		MaxRequestsInFlight: maxGathers,
		Timeout:             gatherTimeout,
		EnableOpenMetrics:   true,
	}))
	return harden(mux)
}

// harden adds what every answer carries. Answers are states of a moment, so nothing is to be cached; and nothing here
// is to be framed, scripted or guessed at.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
		next.ServeHTTP(w, r)
	})
}

// verdict answers 200 "ok", or 503 and the reason in one line.
func verdict(probe func() (bool, string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		ok, reason := probe()
		if ok {
			_, _ = w.Write([]byte("ok\n"))
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(line(reason) + "\n"))
	})
}

func line(reason string) string {
	reason = strings.Join(strings.Fields(reason), " ")
	if reason == "" {
		return "no reason given"
	}
	if len(reason) > maxReason {
		return strings.ToValidUTF8(reason[:maxReason], "") + "..."
	}
	return reason
}

const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>pacer</title>
<h1>pacer</h1>
<ul>
<li><a href="/readyz">/readyz</a>: can this daemon take jobs?
<li><a href="/healthz">/healthz</a>: does it make progress?
<li><a href="/metrics">/metrics</a>: its metrics, for Prometheus
</ul>
</html>
`

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(page))
}
