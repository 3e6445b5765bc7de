package app

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// TestMissing: a job says what it lacks, also after its sink has looked for a destination in it.
func TestMissing(t *testing.T) {
	p := Parts{Catalog: catalog.NewMemory(), Sinks: map[string]sink.Entry{"hooks": {Destinations: true}, "plain": {}}}
	looked := &delivery.Job{}
	looked.SetFoundDestination("hooks", "")
	for want, j := range map[string]*delivery.Job{
		"names no destination, and its sink hooks needs one": looked, "no destination with the id shop-7;": {Destination: "shop-7"},
	} {
		if got := p.missing("hooks", j); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
		if got := p.missing("plain", j); got != "" {
			t.Errorf("a sink that needs none: %s", got)
		}
	}
}

// TestTheSinkOfATest is the one that the row names, or else the first that can send to it.
func TestTheSinkOfATest(t *testing.T) {
	first, second := sinkhttp.Default(), sinkhttp.Default()
	first.Destinations, second.Destinations = true, true
	second.Guard.AllowHTTP, second.Guard.Ports = true, []int{80, 443}
	s := &Services{Log: slog.New(slog.DiscardHandler)}
	cfg := &config.Config{Sinks: map[string]sink.Config{"a-plain": sinkhttp.Default(), "b": first, "c": second}}
	for url, want := range map[string]string{"https://shop.example/hook": "b", "http://shop.example/hook": "c", "": "b"} {
		if got, _ := s.sinkOf(cfg, &delivery.Destination{ID: "shop", URL: url}); got != want {
			t.Errorf("%q: %s, want %s", url, got, want)
		}
	}
	if got, _ := s.sinkOf(cfg, &delivery.Destination{ID: "shop", Sink: "c"}); got != "c" {
		t.Errorf("%s, want the one that the row names", got)
	}
}
