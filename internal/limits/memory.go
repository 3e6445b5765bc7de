package limits

import (
	"context"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

// memoryEvery is how often it is looked whether Redis may evict keys.
const memoryEvery = 10 * time.Minute

// watchMemory says, until ctx ends, when servers begin to be allowed to evict keys.
func (e *Engine) watchMemory(ctx context.Context) {
	told := e.checkMemory(ctx, "")
	retry.Every(ctx, memoryEvery, func(time.Time) { told = e.checkMemory(ctx, told) })
}

// checkMemory returns which servers may evict keys, and logs them if they are others than those that were told.
func (e *Engine) checkMemory(ctx context.Context, told string) string {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	evicting, err := e.set.Evicting(ctx)
	if err != nil {
		e.log.Debug("the memory of redis could not be looked at", "error", err)
		return told
	}
	servers := strings.Join(evicting, ", ")
	if servers != "" && servers != told {
		e.log.Error("redis forgets limits once its memory is full; run CONFIG SET maxmemory-policy noeviction there", "servers", servers)
	}
	return servers
}
