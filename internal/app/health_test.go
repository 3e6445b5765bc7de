package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// TestDegraded: an outage shows at once in the metric, and for readers only once it lasts.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{nil, nil}
		s := newStores(func(context.Context) []error { return answers }, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		up := func(first, second float64) {
			t.Helper()
			a, b := testutil.ToFloat64(s.up.WithLabelValues("0")), testutil.ToFloat64(s.up.WithLabelValues("1"))
			if a != first || b != second {
				t.Errorf("up: %v and %v, want %v and %v", a, b, first, second)
			}
		}
		says := func(want string) {
			t.Helper()
			if got := s.degraded("redis", &s.shards, time.Now()); got != want {
				t.Errorf("says %q, want %q", got, want)
			}
		}
		says("")
		s.update(t.Context())
		up(1, 1)
		answers = []error{nil, errors.New("refused")}
		s.update(t.Context())
		up(1, 0)
		says("")
		time.Sleep(5 * time.Second)
		s.update(t.Context())
		says("redis has not answered for 5s, shard 1")
		answers[0] = answers[1]
		s.update(t.Context())
		time.Sleep(4 * time.Second)
		says("redis has not answered for 9s")
		answers = []error{nil, nil}
		s.update(t.Context())
		up(1, 1)
		says("")
	})
}

func TestTheCatalogGrowsOld(t *testing.T) {
	now := time.Now()
	if why := stale(nil, now) + stale(&delivery.Snapshot{LoadedAt: now.Add(-10 * time.Second)}, now); why != "" {
		t.Error(why)
	}
	if why := stale(&delivery.Snapshot{LoadedAt: now.Add(-time.Minute)}, now); !strings.Contains(why, "not been read for 1m0s") {
		t.Errorf("says %q", why)
	}
}

// TestKafkaAway: it is known since when Kafka does not answer, whether anybody looks or not, and that it is over; a connection that is lost
// once is no outage.
func TestKafkaAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Int32
		s := newStores(func(context.Context) []error { return []error{nil} }, func(context.Context) error {
			if fails.Load() == 0 {
				return nil
			}
			fails.Add(-1)
			return errors.New("connection refused")
		}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = s.Run(ctx) }() // until the end of the test
		snapshot := func() *delivery.Snapshot { return &delivery.Snapshot{LoadedAt: time.Now()} }
		says := func(up bool, degraded string) *time.Time {
			t.Helper()
			synctest.Wait()
			list := s.list(snapshot)
			kafka := list[len(list)-1]
			if kafka.Name != "Kafka" || kafka.Up != up || up != (kafka.Since == nil) {
				t.Errorf("%+v", kafka)
			}
			if why := degradedBy(s, snapshot)(); why != degraded {
				t.Errorf("degraded: %q, want %q", why, degraded)
			}
			return kafka.Since
		}
		says(true, "")
		fails.Store(1)
		time.Sleep(1500 * time.Millisecond)
		says(true, "")
		fails.Store(1000)
		time.Sleep(time.Second)
		since := says(false, "")
		time.Sleep(4 * time.Second)
		if still := says(false, "kafka has not answered for 5s"); !still.Equal(*since) {
			t.Errorf("it is away since %s, and then since %s", since, still)
		}
		fails.Store(0)
		time.Sleep(time.Second)
		says(true, "")
	})
}
