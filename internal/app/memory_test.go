package app

import (
	"context"
	"math"
	"runtime/debug"
	"testing"
	"testing/synctest"

	"github.com/pacer/pacer/internal/delivery"
)

// TestMemoryFollowsTheCatalog: the collector's limit grows with the campaigns, and a limit that was set outside stays.
func TestMemoryFollowsTheCatalog(t *testing.T) {
	if before := debug.SetMemoryLimit(-1); before != math.MaxInt64 {
		t.Fatalf("the tests run with a memory limit of %d", before)
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var s *delivery.Snapshot
		changed := make(chan struct{})
		go followMemory(ctx, 64<<20, func() *delivery.Snapshot { return s }, changed)
		synctest.Wait()
		if limit := debug.SetMemoryLimit(-1); limit != 192<<20 {
			t.Errorf("%d bytes before there is a catalog, want 192 MiB", limit)
		}
		s = &delivery.Snapshot{Campaigns: map[string]*delivery.Campaign{"a": {}, "b": {}}}
		changed <- struct{}{}
		synctest.Wait()
		if limit := debug.SetMemoryLimit(-1); limit != 192<<20+2*memoryPerCampaign {
			t.Errorf("%d bytes with two campaigns", limit)
		}
	})
	debug.SetMemoryLimit(1 << 30)
	followMemory(t.Context(), 64<<20, func() *delivery.Snapshot { return nil }, nil)
	if limit := debug.SetMemoryLimit(-1); limit != 1<<30 {
		t.Errorf("a limit that was set outside became %d", limit)
	}
}
