package sink_test

import (
	"encoding/pem"
	"log/slog"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/log"
)

var host = sink.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)}

func TestKindsHaveUsableDefaults(t *testing.T) {
	for _, kind := range sink.Kinds() {
		cfg, ok := sink.NewConfig(kind)
		if !ok {
			t.Fatal(kind)
		}
		if got := sink.KindOf(cfg); got != kind {
			t.Errorf("the configuration of %s is said to be of %s", kind, got)
		}
		if c, isHTTP := cfg.(*http.Config); isHTTP {
			c.URL = "http://127.0.0.1:9/"
		}
		if p, ok := plays[kind]; ok { // has settings without a default
			cfg = p.start(t, func(string, int) act { return takes }).config
		} else if !slices.Contains([]string{"http", "log", "discard"}, kind) { // which TestConformance sends by
			t.Errorf("%s is not among the plays", kind)
		}
		e, err := sink.Open(cfg, host)
		if err != nil || e.MaxInFlight < 1 || e.Sink == nil {
			t.Errorf("%s: %+v, %v", kind, e, err)
		}
	}
	if _, ok := sink.NewConfig("pigeon"); ok {
		t.Error("a pigeon is a sink")
	}
}

func TestOpenAllNamesTheKey(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(notPEM, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	trusting := func(caFile string) sink.Config {
		c := http.Default()
		c.URL, c.CAFile = "https://a", caFile
		return c
	}
	for want, cfg := range map[string]sink.Config{
		"sinks.x.url: required":          http.Default(),
		"sinks.x.ca_file: open /nowhere": trusting("/nowhere"),
		"sinks.x.ca_file: " + notPEM:     trusting(notPEM),
	} {
		_, err := sink.OpenAll(map[string]sink.Config{"x": cfg, "z": log.DefaultDiscard()}, host)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestKeepRejectedOfHTTP: the setting reaches the results.
func TestKeepRejectedOfHTTP(t *testing.T) {
	srv := httptest.NewServer(nethttp.NotFoundHandler())
	defer srv.Close()
	for _, keep := range []bool{false, true} {
		cfg := http.Default()
		cfg.URL, cfg.Classes, cfg.KeepRejected = srv.URL, map[string]string{"404": "rejected"}, keep
		e, err := sink.Open(cfg, host)
		if err != nil {
			t.Fatal(err)
		}
		r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": e}})
		if res := r.Deliver(t.Context(), "a", &delivery.Job{ID: "1"}); res.Class != delivery.Rejected || res.Keep != keep {
			t.Errorf("%t: %+v", keep, res)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCAFile(t *testing.T) {
	srv := httptest.NewTLSServer(nethttp.HandlerFunc(func(nethttp.ResponseWriter, *nethttp.Request) {}))
	defer srv.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	b := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(ca, b, 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := http.Default()
	cfg.URL, cfg.CAFile = srv.URL, ca
	e, err := sink.Open(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": e}})
	defer r.Close()
	if res := r.Deliver(t.Context(), "a", &delivery.Job{ID: "1", Campaign: "c"}); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

func TestRecordOfADiscardSink(t *testing.T) {
	file := filepath.Join(t.TempDir(), "record")
	recorded := log.Settings{MaxInFlight: 1, Record: file}
	entries, err := sink.OpenAll(map[string]sink.Config{
		"d": &log.Discard{Settings: recorded}, "l": &log.Config{Settings: recorded},
	}, host)
	if err != nil {
		t.Fatal(err)
	}
	r, _, _ := newRouter(t, sink.Options{Sinks: entries})
	for _, name := range []string{"d", "l"} {
		if res := r.Deliver(t.Context(), name, &delivery.Job{ID: "1", Campaign: name}); res.Class != delivery.Delivered {
			t.Errorf("%+v", res)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	b, _ := os.ReadFile(file)
	if s := string(b); strings.Count(s, "\n") != 2 || !strings.Contains(s, " d 1\n") || !strings.Contains(s, " l 1\n") {
		t.Errorf("file %q", s)
	}
}
