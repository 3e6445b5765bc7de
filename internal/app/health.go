package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
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
	log   *slog.Logger

	mu              sync.Mutex // guards what follows
	shards, brokers outages
}

// outages are those of the servers of a service.
type outages struct {
	since    []time.Time // when each stopped to answer; zero: it answers
	answered bool        // whether one has answered since the start
	logged   bool        // whether it is logged that none has
}

func newStores(ping func(ctx context.Context) []error, kafka func(ctx context.Context) error, log *slog.Logger, r prometheus.Registerer) *stores {
	return &stores{ping: ping, kafka: kafka, log: log, up: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_store_up", Help: "1 while the server of a shard of the quota store (Redis) answers this daemon, else 0.",
	}, []string{"shard"})}
}

// Run pings the servers every second until ctx ends.
func (s *stores) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	for _, update := range []func(context.Context){s.update, s.updateKafka} {
		watching.Go(func() {
			update(ctx)
			retry.Every(ctx, storesEvery, func(time.Time) { update(ctx) })
		})
	}
	watching.Wait()
	return nil
}

func (s *stores) update(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, storesWithin)
	defer cancel()
	errs := s.ping(call)
	if ctx.Err() != nil {
		return
	}
	s.note("redis", &s.shards, time.Now(), errs)
	for i, err := range errs {
		up := 1.0
		if err != nil {
			up = 0
		}
		s.up.WithLabelValues(strconv.Itoa(i)).Set(up)
	}
}

func (s *stores) updateKafka(ctx context.Context) {
	if s.kafka == nil {
		return
	}
	begun := time.Now()
	call, cancel := context.WithTimeout(ctx, kafkaWithin)
	defer cancel()
	err := s.kafka(call)
	for try := 1; err != nil && try < kafkaTries; try++ {
		err = s.kafka(call)
	}
	if ctx.Err() == nil {
		s.note("kafka", &s.brokers, begun, []error{BrokersFault(err)})
	}
}

// note records which servers answer. It logs once if none has since the start.
func (s *stores) note(service string, o *outages, at time.Time, errs []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.since == nil {
		o.since = make([]time.Time, len(errs))
	}
	for i, err := range errs {
		switch {
		case err == nil:
			o.since[i], o.answered = time.Time{}, true
		case o.since[i].IsZero():
			o.since[i] = at
		}
	}
	if !o.answered && !o.logged {
		o.logged = true
		s.log.Warn("a service does not answer; retrying until it does", "service", service, "error", errors.Join(errs...))
	}
}

// missing returns the service that has not answered since the start; "" if both have.
func (s *stores) missing() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.shards.answered:
		return "redis"
	case !s.brokers.answered && s.kafka != nil:
		return "kafka"
	}
	return ""
}

// KafkaAway returns since when Kafka does not answer; zero: it does, or was not asked yet.
func (s *stores) KafkaAway() (since time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.brokers.since) > 0 {
		since = s.brokers.since[0]
	}
	return since
}

// degraded says which servers have been away for some seconds; "" if none has.
func (s *stores) degraded(service string, o *outages, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var away []string
	first := now
	for i, since := range o.since {
		if !since.IsZero() && now.Sub(since) >= degradedAfter {
			if away = append(away, strconv.Itoa(i)); since.Before(first) {
				first = since
			}
		}
	}
	why := fmt.Sprintf("%s has not answered for %s", service, now.Sub(first).Round(time.Second))
	switch len(away) {
	case 0:
		return ""
	case len(o.since):
		return why
	}
	return why + ", shard " + strings.Join(away, ", ")
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
		for _, one := range []string{s.degraded("redis", &s.shards, now), s.degraded("kafka", &s.brokers, now), stale(snapshot(), now)} {
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
