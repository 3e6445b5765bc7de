package app

import (
	"context"
	"math"
	"os"
	"runtime/debug"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	memoryFloor = 64 << 20 // for everything but jobs and campaigns
	// memoryPerCampaign is four times what a campaign with jobs takes in the catalog, the scheduler, the quota engine and
	// the metrics, measured with ten thousand, so that the collector has room.
	memoryPerCampaign = 32 << 10
	// growth is by how many percent the heap may grow between two collections, while it stays within the limit.
	growth = 400
)

// followMemory tells the garbage collector what the process may use, for as long as ctx lasts: twice the buffer, for the
// jobs' bytes and what surrounds them, something for each campaign of the catalog, and a floor. Near its limit the
// collector takes the processors from sending, so the limit has to grow with what is really needed; within it, collections
// are made a quarter as often as usual. GOMEMLIMIT in the environment wins, and so does GOGC.
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
