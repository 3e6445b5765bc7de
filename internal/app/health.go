package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	storesEvery  = time.Second
	storesWithin = time.Second
	// kafkaWithin is how long a broker may take to answer, and kafkaTries how often it is asked: a connection to one that was restarted
	// fails once.
	kafkaWithin = 2 * time.Second
	kafkaTries  = 2
	// degradedAfter is how long a service may be away before the daemon calls itself degraded: reconnecting takes a moment.
	degradedAfter = 3 * time.Second
	// catalogAge is how old the catalog may be: it is read every three seconds or so.
	catalogAge = 30 * time.Second
)

// stores watches the servers of the quota store, and Kafka, so that an outage shows although everything that is computed from them
// disappears.
type stores struct {
	ping  func(ctx context.Context) []error // of each shard's server
	kafka func(ctx context.Context) error   // nil: none is configured
	up    *prometheus.GaugeVec
	away  atomic.Pointer[[]time.Time] // since when each server is away; zero: it answers
	// kafkaAway is since when Kafka is away; nil: it answers.
	kafkaAway atomic.Pointer[time.Time]
}

func newStores(ping func(ctx context.Context) []error, kafka func(ctx context.Context) error, r prometheus.Registerer) *stores {
	s := &stores{ping: ping, kafka: kafka, up: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_store_up", Help: "1 while the server of a shard of the quota store (Redis) answers this daemon, else 0.",
	}, []string{"shard"})}
	s.away.Store(&[]time.Time{})
	return s
}

// Run pings the servers every second until ctx ends.
func (s *stores) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watch := func(update func(context.Context)) {
		watching.Go(func() {
			update(ctx)
			retry.Every(ctx, storesEvery, func(time.Time) { update(ctx) })
		})
	}
	watch(s.update)
	if s.kafka != nil {
		watch(s.updateKafka)
	}
	watching.Wait()
	return nil
}

func (s *stores) updateKafka(ctx context.Context) {
	now := time.Now()
	call, cancel := context.WithTimeout(ctx, kafkaWithin)
	defer cancel()
	for range kafkaTries {
		if s.kafka(call) == nil {
			s.kafkaAway.Store(nil)
			return
		}
	}
	if ctx.Err() == nil {
		s.kafkaAway.CompareAndSwap(nil, &now)
	}
}

// KafkaAway returns since when Kafka does not answer; zero: it does, or was not asked yet.
func (s *stores) KafkaAway() time.Time {
	if since := s.kafkaAway.Load(); since != nil {
		return *since
	}
	return time.Time{}
}

func (s *stores) update(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, storesWithin)
	defer cancel()
	errs := s.ping(call)
	if ctx.Err() != nil {
		return
	}
	before, away := *s.away.Load(), make([]time.Time, len(errs))
	for i, err := range errs {
		up := 1.0
		if err != nil {
			up, away[i] = 0, time.Now()
			if i < len(before) && !before[i].IsZero() {
				away[i] = before[i]
			}
		}
		s.up.WithLabelValues(strconv.Itoa(i)).Set(up)
	}
	s.away.Store(&away)
}

// withoutKafka says that Kafka has been away for some seconds; "" if it has not.
func (s *stores) withoutKafka(now time.Time) string {
	since := s.KafkaAway()
	if since.IsZero() || now.Sub(since) < degradedAfter {
		return ""
	}
	return fmt.Sprintf("kafka has not answered for %s", now.Sub(since).Round(time.Second))
}

// degraded says which servers of the quota store have been away for some seconds; "" if none has.
func (s *stores) degraded(now time.Time) string {
	var shards []string
	var since time.Time
	away := *s.away.Load()
	for i, at := range away {
		if at.IsZero() || now.Sub(at) < degradedAfter {
			continue
		}
		if shards = append(shards, strconv.Itoa(i)); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	switch {
	case len(shards) == 0:
		return ""
	case len(shards) < len(away):
		return fmt.Sprintf("redis has not answered for %s, shard %s", now.Sub(since).Round(time.Second), strings.Join(shards, ", "))
	}
	return fmt.Sprintf("redis has not answered for %s", now.Sub(since).Round(time.Second))
}

// stale says that the catalog has not been read for long; "" if it has.
func stale(s *delivery.Snapshot, now time.Time) string {
	if s == nil || s.LoadedAt.IsZero() || now.Sub(s.LoadedAt) < catalogAge {
		return ""
	}
	return fmt.Sprintf("the catalog has not been read for %s: is PostgreSQL reachable?", now.Sub(s.LoadedAt).Round(time.Second))
}

// Degraded says what is wrong although the daemon is ready: jobs may wait, but another daemon would do no better. "" if nothing
// is.
func (d *Daemon) Degraded() string { return degradedBy(d.stores, d.parts.Catalog.Snapshot)() }

func degradedBy(s *stores, snapshot func() *delivery.Snapshot) func() string {
	return func() string {
		now := time.Now()
		var why []string
		for _, one := range []string{s.degraded(now), s.withoutKafka(now), stale(snapshot(), now)} {
			if one != "" {
				why = append(why, one)
			}
		}
		return strings.Join(why, "; ")
	}
}

// showReady exports what /readyz answers.
func showReady(r prometheus.Registerer, ready func() (bool, string)) {
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_ready", Help: "1 while /readyz answers 200: jobs can flow as far as this daemon knows.",
	}, func() float64 {
		if ok, _ := ready(); ok {
			return 1
		}
		return 0
	})
}
