package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/page"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
)

// SiteOptions of a Site. Sources, Guard, Logger and Registerer are required.
type SiteOptions struct {
	Sources view.Sources
	// BasePath is where the site is as well, for proxies that do not remove it: "" or /pacer.
	BasePath string
	// Guard says who asks, and what they may do.
	Guard *auth.Guard
	// TrustedOrigins are those, besides the site's own, whose pages may send forms to it.
	TrustedOrigins []string
	Logger         *slog.Logger
	Registerer     prometheus.Registerer
}

// Site is the console's pages and API.
type Site struct {
	hub      *live.Hub
	watcher  *view.Watcher
	mux      *http.ServeMux
	guard    *auth.Guard
	origins  *http.CrossOriginProtection
	replays  *replay.Jobs
	base     string
	trusted  []string // origins
	requests *prometheus.CounterVec
	ended    context.Context
	end      context.CancelFunc // ends the changes that are still being made
}

// NewSite makes a Site; it starts nothing.
func NewSite(o SiteOptions) *Site {
	s := &Site{
		hub: live.NewHub(o.Guard), mux: http.NewServeMux(), guard: o.Guard, origins: http.NewCrossOriginProtection(), base: o.BasePath, trusted: o.TrustedOrigins,
		requests: promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_http_requests_total", Help: "Requests that the console answered, by route and status.",
		}, []string{"route", "code"}),
	}
	promauto.With(o.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_live_streams", Help: fmt.Sprintf("Streams of pages and of the API that are open; at most %d.", live.MaxStreams),
	}, func() float64 { return float64(s.hub.Open()) })
	s.ended, s.end = context.WithCancel(context.Background())
	for _, origin := range o.TrustedOrigins {
		_ = s.origins.AddTrustedOrigin(origin) // the configuration has checked it
	}
	s.watcher = view.NewWatcher(o.Sources)
	s.replays = s.watcher.Sources().Replays
	page.New(s.watcher, s.hub, o.Guard, o.Logger).Register(s.mux)
	api.Register(s.mux, api.Options{Watcher: s.watcher, Hub: s.hub, Logger: o.Logger})
	return s
}

// Run keeps a state ready until ctx ends.
func (s *Site) Run(ctx context.Context) { s.watcher.Run(ctx) }

// Close ends the streams, which would otherwise keep a server from stopping, and the replay that is running.
func (s *Site) Close() {
	s.hub.Close()
	s.replays.Close()
}

// serve answers one request, and counts it.
func (s *Site) serve(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, api.Prefix) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBodyBytes)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		// A caller or a proxy that gives up must not end a change of many campaigns halfway.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), changeWithin)
		defer cancel()
		defer context.AfterFunc(s.ended, cancel)()
		r = r.WithContext(ctx)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(changeWithin + writeTimeout)) // tests have none
	}
	noted := &noting{ResponseWriter: w, code: http.StatusOK}
	route := s.answer(noted, r)
	if _, path, found := strings.Cut(route, " "); found {
		route = path
	}
	if route == "" || route == "/" {
		route = "(none)"
	}
	s.requests.WithLabelValues(route, strconv.Itoa(noted.code)).Inc()
}

var requestID = regexp.MustCompile(`^[\w.:-]{1,64}$`)

// answer answers one request to those who may ask, and returns its route: one of the registered ones.
func (s *Site) answer(w http.ResponseWriter, r *http.Request) (route string) {
	id := r.Header.Get("X-Request-Id")
	if !requestID.MatchString(id) {
		id = rand.Text()
	}
	w.Header().Set("X-Request-Id", id)
	refuse := func(status int, kind api.Kind, why string) string {
		if !strings.HasPrefix(r.URL.Path, api.Prefix) {
			http.Error(w, why, status)
			return ""
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(status)
		problem, _ := json.Marshal(api.Problem(status, kind, why)) // never fails
		_, _ = w.Write(problem)
		return ""
	}
	if err := s.origins.Check(r); err != nil {
		return refuse(http.StatusForbidden, api.ForeignOrigin, "this request comes from a page of another site; http.trusted_origins allows some")
	}
	who, err := s.guard.Identify(r)
	switch {
	case errors.Is(err, auth.ErrLimited):
		w.Header().Set("Retry-After", "60")
		return refuse(http.StatusTooManyRequests, "", err.Error())
	case err != nil:
		w.Header().Set("WWW-Authenticate", `Bearer realm="pacer", error="invalid_token"`)
		return refuse(http.StatusUnauthorized, api.TokenUnknown, err.Error())
	}
	who.Request = id
	r = r.WithContext(auth.With(r.Context(), who))
	if strings.HasPrefix(r.URL.Path, api.Prefix) {
		if none, route := s.mux.Handler(r); route == "" { // or not by this method, which the mux says in plain text
			said := answer{header: w.Header(), code: http.StatusNotFound}
			none.ServeHTTP(&said, r)
			return refuse(said.code, "", "there is no such operation; "+api.Prefix+"/openapi.json lists them")
		}
	}
	s.mux.ServeHTTP(w, r)
	return r.Pattern
}

// noting notes the status of an answer.
type noting struct {
	http.ResponseWriter
	code int
}

// WriteHeader implements http.ResponseWriter.
func (n *noting) WriteHeader(code int) {
	n.code = code
	n.ResponseWriter.WriteHeader(code)
}

// Unwrap is for http.ResponseController.
func (n *noting) Unwrap() http.ResponseWriter { return n.ResponseWriter }
