// Package console is the HTTP server of a daemon: liveness, readiness, metrics, and the pages and the API for those who look at an
// installation.
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

	"github.com/pacer/pacer/internal/console/page"
)

// Bounds on the requests of clients.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxBodyBytes      = 64 << 10 // of forms and of changes
	maxGathers        = 4        // concurrent scrapes; further ones are answered 503
	gatherTimeout     = 10 * time.Second
	stopTimeout       = 2 * time.Second // for open requests, once Run's context is cancelled
	maxReason         = 200
)

// Server answers /, /healthz, /readyz and /metrics. /readyz reports that a daemon drains, so the context of Run should
// be cancelled last. All fields but Listen are required.
type Server struct {
	// Listen is the address, such as 127.0.0.1:8080; "" for no server.
	Listen string
	// Ready and Healthy report whether the daemon can accept jobs and whether it makes progress, and if not, why, in
	// one line. They are called concurrently and must not block.
	Ready   func() (ok bool, reason string)
	Healthy func() (ok bool, reason string)
	// Degraded, if it is set, says in one line what is wrong although the daemon is ready; "" if nothing is.
	Degraded func() string
	// Gatherer provides the metrics of /metrics.
	Gatherer prometheus.Gatherer
	// Site is the pages and the API; nil for none.
	Site   *Site
	Logger *slog.Logger
}

// Run serves until ctx is cancelled, then lets open requests finish for two seconds, and returns nil. If the address
// cannot be bound it returns an error at once. With Listen "" it only waits for ctx.
func (s *Server) Run(ctx context.Context) error {
	if s.Listen == "" {
		<-ctx.Done()
		return nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return fmt.Errorf("http.listen: %w; choose another address, or \"off\" for none", err)
	}
	return s.serve(ctx, l)
}

func (s *Server) serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler:           s.routes(),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	if s.Site != nil {
		var site sync.WaitGroup
		defer site.Wait()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		site.Go(func() { s.Site.Run(ctx) })
	}
	s.Logger.Info("console listens", "address", l.Addr().String())

	select {
	case err := <-served:
		return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	if s.Site != nil {
		s.Site.Close()
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close() // open requests have had their two seconds
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
	}
	return nil
}

// routes serves the pages, with the headers and bounds common to all.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	all, base := http.Handler(mux), ""
	if s.Site != nil {
		mux.Handle("/", page.Secure(http.HandlerFunc(s.Site.serve)))
		base = s.Site.base
	}
	if base != "" { // besides, for proxies that do not remove it
		outer := http.NewServeMux()
		outer.Handle("/", mux)
		outer.Handle(base+"/", http.StripPrefix(base, mux))
		all = outer
	}
	mux.Handle("GET /healthz", verdict(s.Healthy, nil))
	mux.Handle("GET /readyz", verdict(s.Ready, s.Degraded))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.Logger.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError, // one failing collector does not hide the others
		MaxRequestsInFlight: maxGathers,
		Timeout:             gatherTimeout,
		EnableOpenMetrics:   true,
	}))
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		})
	}
	return harden(s.here(http.MaxBytesHandler(all, maxBodyBytes)))
}

// harden adds the headers of answers; pages set a policy of their own. They describe one moment, so they must not be cached; and none may be
// framed, run scripts or have its type guessed.
func harden(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		next.ServeHTTP(w, r)
	})
}

// verdict answers 200 "ok", or 503 and the reason in one line. What is wrong with one that is ok follows in a second line, and a
// header says so.
func verdict(probe func() (bool, string), degraded func() string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		ok, reason := probe()
		if ok {
			answer := "ok\n"
			if degraded != nil {
				if why := degraded(); why != "" {
					w.Header().Set("Pacer-Degraded", "true")
					answer += "degraded: " + line(why) + "\n"
				}
			}
			_, _ = w.Write([]byte(answer))
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
