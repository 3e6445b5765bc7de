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
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"
)

// Bounds on the requests of clients.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	changeWithin      = 5 * time.Minute // of 100,000 campaigns it takes more than one
	idleTimeout       = 2 * time.Minute
	maxHeaderBytes    = 16 << 10
	maxConnections    = 1024     // of one address; further ones wait until one is closed
	maxBodyBytes      = 64 << 10 // of forms; the API bounds its own requests
	maxGathers        = 4        // concurrent scrapes; further ones are answered 503
	gatherTimeout     = 10 * time.Second
	stopTimeout       = 2 * time.Second // for open requests, once Run's context is cancelled
	maxReason         = 200
)

// Server answers /, /healthz, /readyz and /metrics. /readyz reports that a daemon drains, so the context of Run should
// be cancelled last. All fields but the addresses are required.
type Server struct {
	// Listen is the address, such as 127.0.0.1:8080; "" for none.
	Listen string
	// MetricsListen is the address of /metrics, which Listen does not have then, and, beside Listen, of /healthz and /readyz. With ""
	// all are at Listen.
	MetricsListen string
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

// endpoint is one address that a Server listens at.
type endpoint struct {
	net.Listener
	handler http.Handler
	metrics bool // of their own
}

// Run serves until ctx is cancelled, then lets open requests finish for two seconds, and returns nil. If an address
// cannot be bound it returns an error at once. Without any address it only waits for ctx.
func (s *Server) Run(ctx context.Context) error {
	var all []endpoint
	for _, e := range []struct {
		key, listen, remedy string
		endpoint
	}{
		{"http.listen", s.Listen, `choose another address, or "off" for none`, endpoint{handler: s.routes()}},
		{"http.metrics_listen", s.MetricsListen, `choose another address, or "off", to have /metrics at http.listen`,
			endpoint{handler: s.metricsRoutes(), metrics: true}},
	} {
		if e.listen == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", e.listen)
		if err != nil {
			for _, bound := range all {
				_ = bound.Close() // nobody has been told of it
			}
			return fmt.Errorf("%s: %w; %s", e.key, err, e.remedy)
		}
		e.Listener = l
		all = append(all, e.endpoint)
	}
	return s.serve(ctx, all...)
}

// serve serves all endpoints until ctx is cancelled or one of them fails.
func (s *Server) serve(ctx context.Context, all ...endpoint) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, e := range all {
		group.Go(func() error { return s.serveOne(ctx, e) })
	}
	if s.Site != nil {
		group.Go(func() error {
			s.Site.Run(ctx)
			return nil
		})
	}
	<-ctx.Done()
	if s.Site != nil {
		s.Site.Close() // streams would be open requests
		defer s.Site.end()
	}
	return group.Wait()
}

func (s *Server) serveOne(ctx context.Context, e endpoint) error {
	srv := &http.Server{
		Handler:           e.handler,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(netutil.LimitListener(e, maxConnections)) }()
	if e.metrics {
		s.Logger.Info("metrics are served", "address", e.Addr().String())
	} else {
		s.Logger.Info("console listens", "address", e.Addr().String())
	}

	select {
	case err := <-served:
		return fmt.Errorf("serve http on %s: %w", e.Addr(), err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		_ = srv.Close() // open requests have had their two seconds
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", e.Addr(), err)
	}
	return nil
}

// routes serves the pages, the probes, and the metrics unless they have an address of their own.
func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	all, base, proxied := http.Handler(mux), "", false
	if s.Site != nil {
		mux.HandleFunc("/", s.Site.serve)
		base, proxied = s.Site.base, s.Site.guard.Proxied()
	}
	if base != "" { // besides, for proxies that do not remove it
		outer := http.NewServeMux()
		outer.Handle("/", mux)
		outer.Handle(base+"/", http.StripPrefix(base, mux))
		all = outer
	}
	s.probes(mux)
	if s.MetricsListen == "" {
		s.metrics(mux)
	}
	if !proxied {
		all = s.here(s.Listen, all)
	}
	return harden(all)
}

// metricsRoutes serves the metrics and the probes, to everybody who reaches the address.
func (s *Server) metricsRoutes() http.Handler {
	mux := http.NewServeMux()
	s.probes(mux)
	s.metrics(mux)
	return harden(s.here(s.MetricsListen, mux))
}

func (s *Server) probes(mux *http.ServeMux) {
	readOnly(mux, "/healthz", verdict(s.Healthy, nil))
	readOnly(mux, "/readyz", verdict(s.Ready, s.Degraded))
}

func (s *Server) metrics(mux *http.ServeMux) {
	readOnly(mux, "/metrics", promhttp.HandlerFor(s.Gatherer, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(s.Logger.Handler(), slog.LevelError),
		ErrorHandling:       promhttp.ContinueOnError, // one failing collector does not hide the others
		MaxRequestsInFlight: maxGathers,
		Timeout:             gatherTimeout,
		EnableOpenMetrics:   true,
	}))
}

// readOnly answers GET and HEAD, and other methods with 405, which "/" would otherwise take.
func readOnly(mux *http.ServeMux, path string, h http.Handler) {
	mux.Handle("GET "+path, h)
	mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
	})
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

// verdict answers 200 "ok", or 503 and the reason in one line. A degraded daemon is ok; a second line and a header say what is degraded.
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
