package console

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"

	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/view"
)

// Local is the transport of a client whose API is in its own process. Its user reaches the services, and so has every role. It logs
// nothing: its user sees the answers.
type Local struct {
	mux *http.ServeMux
	by  string
}

// NewLocal makes a Local. by names the user to the sources; "" where the database knows the role that is used, and that is enough.
func NewLocal(sources view.Sources, by string) *Local {
	l := &Local{mux: http.NewServeMux(), by: by}
	api.Register(l.mux, api.Options{
		Watcher: view.NewWatcher(sources), Hub: live.NewHub(auth.NewGuard(auth.Options{})), Logger: slog.New(slog.DiscardHandler),
	})
	return l
}

// RoundTrip implements http.RoundTripper.
func (l *Local) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.WithContext(auth.With(r.Context(), &auth.Identity{Name: l.by, Role: auth.Admin}))
	if r.Body == nil {
		r.Body = http.NoBody
	}
	a := &answer{header: http.Header{}, code: http.StatusOK}
	l.mux.ServeHTTP(a, r)
	return &http.Response{
		Status: http.StatusText(a.code), StatusCode: a.code, ProtoMajor: 1, ProtoMinor: 1, Header: a.header, Body: io.NopCloser(&a.body), Request: r,
	}, nil
}

// answer keeps what is written to it.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(code int) { a.code = code }

// Write implements http.ResponseWriter.
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }
