package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// health turns the complaints of hundreds of readers about one broker into one Warn line when trouble begins and one
// Info line when it is over. Safe for use by several goroutines.
type health struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[string]time.Time // since when
	warned  bool
}

func newHealth(log *slog.Logger) *health {
	return &health{log: log, failing: map[string]time.Time{}}
}

// settling is how long a cluster may be busy with itself (electing, loading, rebalancing, telling its brokers of a new
// topic) before anybody is told.
const settling = 10 * time.Second

// fail notes that something does not work; key says what, and is handed to ok when it does again.
func (h *health) fail(key string, err error) {
	now := time.Now()
	h.mu.Lock()
	since, known := h.failing[key]
	if !known {
		since = now
		h.failing[key] = now
	}
	warn := !h.warned && (!busy(err) || now.Sub(since) > settling)
	h.warned = h.warned || warn
	h.mu.Unlock()
	if warn {
		h.log.Warn("kafka does not answer as it should; retrying until it does", "at", key, "error", err)
		return
	}
	h.log.Debug("kafka does not answer as it should", "at", key, "error", err)
}

// busy tells the ordinary life of a cluster from trouble.
func busy(err error) bool {
	var code kafka.Error
	if !errors.As(err, &code) {
		return false
	}
	switch code {
	case kafka.RebalanceInProgress, kafka.NotCoordinatorForGroup, kafka.GroupLoadInProgress,
		kafka.GroupCoordinatorNotAvailable, kafka.UnknownMemberId, kafka.IllegalGeneration, kafka.MemberIDRequired,
		kafka.NotLeaderForPartition, kafka.LeaderNotAvailable, kafka.UnknownTopicOrPartition, kafka.FencedLeaderEpoch:
		return true
	}
	return false
}

// ok notes that something works.
func (h *health) ok(key string) {
	h.mu.Lock()
	delete(h.failing, key)
	over := h.warned && len(h.failing) == 0
	if over {
		h.warned = false
	}
	h.mu.Unlock()
	if over {
		h.log.Info("kafka answers again")
	}
}

// fails tells whether something does not work at the moment.
func (h *health) fails(key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, failing := h.failing[key]
	return failing
}

// forget drops what nobody will try again, such as a partition that was lost. It says nothing about the broker.
func (h *health) forget(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.failing, key)
}

// backoff is the wait before the next try: doubling from min to max, varied by half so that readers do not knock all at
// once. Not safe for use by several goroutines; the zero value waits from 100 ms to 2 s.
type backoff struct{ wait time.Duration }

const (
	minBackoff = 100 * time.Millisecond
	maxBackoff = 2 * time.Second
)

func (b *backoff) reset() { b.wait = 0 }

// pause waits, and returns the context's error when that ends first.
func (b *backoff) pause(ctx context.Context) error {
	b.wait = min(max(2*b.wait, minBackoff), maxBackoff)
	return sleep(ctx, b.wait/2+rand.N(b.wait/2))
}

// sleep waits for d or for the end of ctx, whose error it then returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// debugLogger hands what kafka-go says to slog at debug. Its errors come here too: all that matter reach us as
// values, and most of them are the ordinary life of a group.
type debugLogger struct{ log *slog.Logger }

func (l debugLogger) Printf(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("kafka-go", "message", fmt.Sprintf(format, args...))
	}
}
