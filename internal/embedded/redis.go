package embedded

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/retry"
)

const expireInterval = 250 * time.Millisecond

// Redis is a Redis inside this process. It runs the same Lua scripts as a real one, a few thousand per second: enough
// for a demo, too slow for a benchmark. It is also a redis.Hook, which counts the round trips of the clients it is
// added to, the cost of a shared store. Methods are safe for concurrent use.
type Redis struct {
	mini *miniredis.Miniredis
	work sync.WaitGroup
	stop context.CancelFunc

	mu   sync.Mutex // guards used
	used Usage      // since the last Mark
}

// Usage counts the requests to a Redis.
type Usage struct {
	// RoundTrips counts requests that a client has waited for; the commands of a pipeline share one.
	RoundTrips int64
	// Commands counts single commands as sent by clients; a script is one command.
	Commands int64
}

// StartRedis starts a Redis on the loopback interface. The caller closes it.
func StartRedis() (*Redis, error) {
	mini, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("start the in-process Redis: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Redis{mini: mini, stop: stop}
	last := time.Now()
	// miniredis advances TTLs only on request. (Its ClockTTL does so at every command, which costs more than the commands.)
	r.work.Go(func() {
		retry.Every(ctx, expireInterval, func(now time.Time) {
			mini.FastForward(now.Sub(last))
			last = now
		})
	})
	return r, nil
}

// DialHook implements redis.Hook; connecting is not counted.
func (r *Redis) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements redis.Hook.
func (r *Redis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		r.count(1)
		return next(ctx, command)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (r *Redis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		r.count(len(commands))
		return next(ctx, commands)
	}
}

func (r *Redis) count(commands int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used.RoundTrips++
	r.used.Commands += int64(commands)
}

// Addr returns the address for a Redis client.
func (r *Redis) Addr() string { return r.mini.Addr() }

// Mark resets the counts, so that connecting and loading scripts are not part of the figures of a short run.
func (r *Redis) Mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = Usage{}
}

// Usage returns the counts since the last Mark, or since the start.
func (r *Redis) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// Close stops the server and closes its connections.
func (r *Redis) Close() {
	r.stop()
	r.work.Wait()
	r.mini.Close()
}
