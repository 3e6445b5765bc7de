package app

import (
	"context"
	"math"
	"os"
	"runtime/debug"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	memoryFloor = 64 << 20 // bytes for everything but jobs and campaigns
	// memoryPerCampaign, in bytes, is four times what a campaign with jobs takes in the catalog, the scheduler, the
	// quota engine and the metrics, measured with ten thousand, so that the collector has room.
	memoryPerCampaign = 32 << 10
	// growth is the percentage by which the heap may grow between two collections, within the limit.
	growth = 400
)

// followMemory sets the memory limit of the garbage collector until ctx ends: twice the buffer, for the jobs' bytes
// and what surrounds them, plus a constant for each campaign of the catalog, plus a floor. Near its limit the
// collector takes the processors from sending, so the limit has to grow with the real need; within it, collections are
// a quarter as frequent as usual. GOMEMLIMIT and GOGC in the environment take precedence.
func followMemory(ctx context.Context, buffer int64, snapshot func() *delivery.Snapshot, changed <-chan struct{}) {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(growth)
	}
	for {
		campaigns := 0
		if s := snapshot(); s != nil {
			campaigns = len(s.Campaigns)
		}
		debug.SetMemoryLimit(memoryLimit(buffer, campaigns))
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func memoryLimit(buffer int64, campaigns int) int64 {
	return 2*buffer + memoryFloor + int64(campaigns)*memoryPerCampaign
}
