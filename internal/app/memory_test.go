package app

import (
	"context"
	"math"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemoryFollowsTheCatalog: the collector's limit grows with the campaigns that have jobs, and little with others, and a
// limit that was set outside stays.
func TestMemoryFollowsTheCatalog(t *testing.T) {
	if before := debug.SetMemoryLimit(-1); before != math.MaxInt64 {
		t.Fatalf("the tests run with a memory limit of %d", before)
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var campaigns, busy atomic.Int64
		go followMemory(ctx, 64<<20, func() (int, int) { return int(campaigns.Load()), int(busy.Load()) })
		synctest.Wait()
		if limit := debug.SetMemoryLimit(-1); limit != 192<<20 {
			t.Errorf("%d bytes before there is a catalog, want 192 MiB", limit)
		}
		campaigns.Store(100_000)
		busy.Store(2)
		time.Sleep(memoryEvery)
		synctest.Wait()
		if limit := debug.SetMemoryLimit(-1); limit != 192<<20+100_000*memoryPerCampaign+2*memoryPerBusy {
			t.Errorf("%d bytes with two campaigns that have jobs", limit)
		}
	})
	debug.SetMemoryLimit(1 << 30)
	followMemory(t.Context(), 64<<20, func() (int, int) { return 0, 0 })
	if limit := debug.SetMemoryLimit(-1); limit != 1<<30 {
		t.Errorf("a limit that was set outside became %d", limit)
	}
}

// TestALargeCatalogIsNoReasonToWait: the heap of a catalog that does not change grows by a part of it, not by a multiple.
func TestALargeCatalogIsNoReasonToWait(t *testing.T) {
	for campaigns, want := range map[int]int{0: 400, 10_000: 400, 65_536: 400, 131_072: 200, 1_000_000: 26} {
		if got := growthFor(campaigns); got != want {
			t.Errorf("%d campaigns: %d %%, want %d", campaigns, got, want)
		}
	}
}
