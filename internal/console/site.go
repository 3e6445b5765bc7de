package console

import (
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/page"
	"github.com/pacer/pacer/internal/console/view"
)

// SiteOptions of a Site. Sources, Logger and Registerer are required.
type SiteOptions struct {
	Sources view.Sources
	// BasePath is where the site is as well, for proxies that do not remove it: "" or /pacer.
	BasePath string
	// Access says in one line what may be done on the site.
	Access     string
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Site is the console's pages and API.
type Site struct {
	hub      *live.Hub
	mux      *http.ServeMux
	base     string
	requests *prometheus.CounterVec
}

// NewSite makes a Site; it starts nothing.
func NewSite(o SiteOptions) *Site {
	s := &Site{hub: live.NewHub(), mux: http.NewServeMux(), base: o.BasePath, requests: promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_http_requests_total", Help: "Requests that the console answered, by route and status.",
	}, []string{"route", "code"})}
	promauto.With(o.Registerer).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_live_streams", Help: fmt.Sprintf("Pages that are watched live; at most %d.", live.MaxStreams),
	}, func() float64 { return float64(s.hub.Open()) })
	looker := view.NewLooker(o.Sources)
	page.New(looker, s.hub, o.Access, o.Logger).Register(s.mux)
	api.Register(s.mux, looker)
	return s
}

// Close ends the streams, which would otherwise keep a server from stopping.
func (s *Site) Close() { s.hub.Close() }

// serve answers one request, and counts it.
func (s *Site) serve(w http.ResponseWriter, r *http.Request) {
	noted := &noting{ResponseWriter: w, code: http.StatusOK}
	s.mux.ServeHTTP(noted, r)
	route := r.Pattern // of the innermost mux; one of the registered ones
	if _, path, found := strings.Cut(route, " "); found {
		route = path
	}
	if route == "" || route == "/" {
		route = "(none)"
	}
	s.requests.WithLabelValues(route, strconv.Itoa(noted.code)).Inc()
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
