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

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestDegraded: an outage shows at once in the metric, and for readers only once it lasts.
func TestDegraded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{nil, nil}
		read := time.Now()
		h := newHealth(func(context.Context) []error { return answers }, nil, func() *delivery.Snapshot { return &delivery.Snapshot{LoadedAt: read} },
			slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		s := h.services[0]
		up := func(first, second float64) {
			t.Helper()
			a, b := testutil.ToFloat64(s.up.WithLabelValues("0")), testutil.ToFloat64(s.up.WithLabelValues("1"))
			if a != first || b != second {
				t.Errorf("up: %v and %v, want %v and %v", a, b, first, second)
			}
		}
		says := func(want string) {
			t.Helper()
			if got := h.degraded(); got != want {
				t.Errorf("says %q, want %q", got, want)
			}
		}
		says("")
		s.look(t.Context(), h.log)
		up(1, 1)
		answers = []error{nil, errors.New("refused")}
		s.look(t.Context(), h.log)
		up(1, 0)
		says("")
		time.Sleep(5 * time.Second)
		s.look(t.Context(), h.log)
		says("redis has not answered for 5s, shard 1")
		answers[0] = answers[1]
		s.look(t.Context(), h.log)
		time.Sleep(4 * time.Second)
		says("redis has not answered for 9s")
		answers = []error{nil, nil}
		s.look(t.Context(), h.log)
		up(1, 1)
		says("")
		read = time.Now().Add(-10 * time.Second)
		says("")
		read = time.Now().Add(-time.Minute)
		says("the catalog has not been read for 1m0s: is PostgreSQL reachable?")
	})
}

// TestKafkaAway: it is known since when Kafka does not answer, whether anybody looks or not, and that it is over; a connection that is lost
// once is no outage.
func TestKafkaAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Int32
		h := newHealth(func(context.Context) []error { return []error{nil} }, func(context.Context) error {
			if fails.Load() == 0 {
				return nil
			}
			fails.Add(-1)
			return errors.New("connection refused")
		}, func() *delivery.Snapshot { return &delivery.Snapshot{LoadedAt: time.Now()} }, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = h.Run(ctx) }() // until the end of the test
		says := func(up bool, degraded string) *time.Time {
			t.Helper()
			synctest.Wait()
			list := h.list()
			kafka := list[len(list)-1]
			if kafka.Name != "Kafka" || kafka.Up != up || up != (kafka.Since == nil) {
				t.Errorf("%+v", kafka)
			}
			if why := h.degraded(); why != degraded {
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

// TestAStoreThatRefusesWritesIsDown, though it answers: it is shown as down in its own words, and no answer claims that no daemon runs.
func TestAStoreThatRefusesWritesIsDown(t *testing.T) {
	cfg := config.Default()
	cfg.Redis.Addrs, cfg.Redis.KeyPrefix = []string{testservices.FreshRedis(t).Addr}, "pacer."
	s := NewServices(cfg, slog.New(slog.DiscardHandler))
	set, err := s.Shards()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	h := newHealth(s.storeUp(set), nil, func() *delivery.Snapshot { return nil }, s.Log, prometheus.NewRegistry())
	sources := s.sources(set, nil, nil)
	for _, full := range []bool{false, true} {
		want := 1.0
		if full {
			want = 0
			if err := set.Master(0).ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
		}
		h.services[0].look(t.Context(), s.Log)
		if up := testutil.ToFloat64(h.services[0].up.WithLabelValues("0")); up != want {
			t.Errorf("full: %t; up is %v", full, up)
		}
		if _, err := sources.Fleet(t.Context()); (err != nil) != full || full && !strings.Contains(err.Error(), "OOM") {
			t.Errorf("full: %t; of the fleet is known: %v", full, err)
		}
	}
	h.services[0].away[0] = time.Now().Add(-time.Minute)
	if why := h.degraded(); !strings.HasPrefix(why, "redis has not answered for 1m0s: OOM command not allowed") {
		t.Errorf("degraded: %q", why)
	}
	if err := set.Master(0).ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	cfg.Redis.Password = "wrong"
	stranger, err := shards.Connect(cfg.Redis.Options())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Close() }()
	h.services[0].ask = s.storeUp(stranger)
	h.services[0].look(t.Context(), s.Log)
	if why := h.degraded(); !strings.HasSuffix(why, "; correct redis.username and redis.password") {
		t.Errorf("degraded: %q", why)
	}
}
