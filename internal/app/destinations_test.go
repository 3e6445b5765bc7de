package app

import (
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
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
