package sink_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

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
		if p, ok := plays[kind]; ok { // has settings without a default
			cfg = p.start(t, func(string, int) act { return takes }).config
		} else if !slices.Contains([]string{"log", "discard"}, kind) { // which TestConformance sends by
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
	trusting := http.Default()
	trusting.URL, trusting.CAFile = "https://a", "/nowhere"
	for want, cfg := range map[string]sink.Config{"sinks.x.url: required": http.Default(), "sinks.x.ca_file: open /nowhere": trusting} {
		_, err := sink.OpenAll(map[string]sink.Config{"x": cfg, "z": log.DefaultDiscard()}, host)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestKeepRejectedOfHTTP: the setting reaches the router.
func TestKeepRejectedOfHTTP(t *testing.T) {
	for _, keep := range []bool{false, true} {
		cfg := http.Default()
		cfg.URL, cfg.KeepRejected = "http://127.0.0.1:9/", keep
		if e, err := sink.Open(cfg, host); err != nil || e.KeepRejected != keep {
			t.Errorf("%t: %+v, %v", keep, e, err)
		}
	}
}
