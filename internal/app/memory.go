package app

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	memoryFloor = 64 << 20 // bytes for everything but jobs and campaigns
	// memoryPerCampaign, in bytes, is twice the need of a campaign of the catalog. memoryPerBusy is four times the need of one with jobs
	// in the scheduler, the quota engine and the metrics, measured with ten thousand, so that the collector has room.
	memoryPerCampaign = 1 << 10
	memoryPerBusy     = 32 << 10
	// growth is the percentage of growth of the heap between two collections, within the limit, while the catalog takes less than
	// smallCatalog bytes. A larger one does not become garbage, so the heap need not grow with it.
	growth       = 400
	smallCatalog = 32 << 20
	memoryEvery  = time.Second
)

// followMemory sets the memory limit of the garbage collector until ctx ends. It is twice the buffer, for the jobs' bytes and their
// overhead, plus a constant for each campaign of the catalog, a larger one for each that has had jobs here, and a floor. Near its limit
// the collector takes the processors from sending, so the limit has to grow with the real need; within it, collections are a quarter as
// frequent as usual. GOMEMLIMIT and GOGC in the environment take precedence.
func followMemory(ctx context.Context, buffer int64, size func() (campaigns, busy int)) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	percent := -1
	update := func(time.Time) {
		campaigns, busy := size()
		debug.SetMemoryLimit(memoryLimit(buffer, campaigns, busy))
		if next := growthFor(campaigns); next != percent && os.Getenv("GOGC") == "" {
			percent = next
			debug.SetGCPercent(percent)
		}
	}
	update(time.Time{})
	retry.Every(ctx, memoryEvery, update)
}

func memoryLimit(buffer int64, campaigns, busy int) int64 {
	return 2*buffer + memoryFloor + int64(campaigns)*memoryPerCampaign + int64(busy)*memoryPerBusy
}

// growthFor returns the growth of the heap that is allowed with n campaigns in the catalog.
func growthFor(campaigns int) int {
	return growth * smallCatalog / max(smallCatalog, campaigns*memoryPerCampaign/2)
}
