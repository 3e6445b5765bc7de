package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	lookEvery = time.Second
	// degradedAfter is how long a service may be away before the daemon calls itself degraded: reconnecting takes a moment.
	degradedAfter = 3 * time.Second
	// catalogLate is from when on the catalog is shown as old, and catalogAge from when on the daemon is degraded: it is read every three
	// seconds or so.
	catalogLate, catalogAge = 10 * time.Second, 30 * time.Second
)

// health watches whether the services answer, so that an outage shows although everything that is computed from them disappears.
type health struct {
	services []*service // Redis, and Kafka if it is configured
	snapshot func() *delivery.Snapshot
	log      *slog.Logger
}

// service is one that is asked every second. The servers of Redis are its shards.
type service struct {
	name   string
	within time.Duration // how long it may take to answer
	ask    func(ctx context.Context) []error
	up     *prometheus.GaugeVec // nil: it has none

	mu       sync.Mutex  // guards what follows
	away     []time.Time // since when each server does not answer; zero: it does
	answered bool        // one has since the start
	words    string      // in which a server of Redis refuses what it is asked; "": none does
}

func newHealth(redis func(ctx context.Context) []error, kafka func(ctx context.Context) error, snapshot func() *delivery.Snapshot, log *slog.Logger, r prometheus.Registerer) *health {
	h := &health{snapshot: snapshot, log: log, services: []*service{{name: "Redis", within: time.Second, ask: redis, up: promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_store_up", Help: "1 while the server of a shard of the quota store (Redis) takes writes of this daemon, else 0.",
	}, []string{"shard"})}}}
	if kafka != nil {
		h.services = append(h.services, &service{name: "Kafka", within: 2 * time.Second, ask: func(ctx context.Context) []error {
			err := kafka(ctx)
			if err != nil { // a connection to a broker that was restarted fails once
				err = kafka(ctx)
			}
			return []error{BrokersFault(err)}
		}})
	}
	return h
}

// Run asks the services every second until ctx ends.
func (h *health) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	for _, s := range h.services {
		watching.Go(func() {
			s.look(ctx, h.log)
			retry.Every(ctx, lookEvery, func(time.Time) { s.look(ctx, h.log) })
		})
	}
	watching.Wait()
	return nil
}

// look asks the service. It logs at the first time if none of its servers answers.
func (s *service) look(ctx context.Context, log *slog.Logger) {
	begun := time.Now()
	call, cancel := context.WithTimeout(ctx, s.within)
	defer cancel()
	errs := s.ask(call)
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.away == nil
	if first {
		s.away = make([]time.Time, len(errs))
	}
	s.words = ""
	for i, err := range errs {
		up := 0.0
		if _, refused := errors.AsType[redis.Error](err); refused {
			s.words = err.Error()
		}
		switch {
		case err == nil:
			up, s.away[i], s.answered = 1, time.Time{}, true
		case s.away[i].IsZero():
			s.away[i] = begun
		}
		if s.up != nil {
			s.up.WithLabelValues(strconv.Itoa(i)).Set(up)
		}
	}
	if first && !s.answered {
		log.Warn("a service does not answer; retrying until it does", "service", strings.ToLower(s.name), "error", errors.Join(errs...))
	}
}

// state returns the time since each server does not answer, the words of one that refuses, and whether one has answered since the start.
func (s *service) state() (away []time.Time, words string, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.away), s.words, s.answered
}

// missing says which service has not answered since the start; "" if all have.
func (h *health) missing() string {
	for _, s := range h.services {
		if _, _, answered := s.state(); !answered {
			return strings.ToLower(s.name) + " has not answered yet"
		}
	}
	return ""
}

// kafkaAway returns since when Kafka does not answer; zero: it does, or was not asked yet.
func (h *health) kafkaAway() (since time.Time) {
	for _, s := range h.services[1:] {
		if away, _, _ := s.state(); len(away) > 0 {
			since = away[0]
		}
	}
	return since
}

// degraded says which services have been away for some seconds, though the daemon is ready: jobs may wait, but another daemon would do no
// better. "" if none has.
func (h *health) degraded() string {
	now := time.Now()
	var why []string
	for _, s := range h.services {
		all, words, _ := s.state()
		first, which := now, []string{}
		for i, since := range all {
			if !since.IsZero() && now.Sub(since) >= degradedAfter {
				if which = append(which, strconv.Itoa(i)); since.Before(first) {
					first = since
				}
			}
		}
		if len(which) == 0 {
			continue
		}
		text := fmt.Sprintf("%s has not answered for %s", strings.ToLower(s.name), now.Sub(first).Round(time.Second))
		if len(which) < len(all) {
			text += ", shard " + strings.Join(which, ", ")
		}
		if words != "" {
			text += ": " + words
		}
		why = append(why, text)
	}
	if read := h.snapshot(); read != nil && !read.LoadedAt.IsZero() && now.Sub(read.LoadedAt) >= catalogAge {
		why = append(why, fmt.Sprintf("the catalog has not been read for %s: is PostgreSQL reachable?", now.Sub(read.LoadedAt).Round(time.Second)))
	}
	return strings.Join(why, "; ")
}

// list returns the services and whether they answer, for pages. PostgreSQL answers if the catalog was read lately.
func (h *health) list() (list []view.Store) {
	for i, s := range h.services {
		all, _, _ := s.state()
		for shard, since := range all {
			name := s.name
			if len(all) > 1 {
				name = fmt.Sprintf("%s, shard %d", name, shard)
			}
			list = append(list, view.StoreOf(name, since))
		}
		if i > 0 {
			continue
		}
		catalog := view.Store{Name: "PostgreSQL"}
		if read := h.snapshot(); read != nil && time.Since(read.LoadedAt) < catalogLate {
			catalog.Up = true
		} else if read != nil {
			catalog = view.StoreOf(catalog.Name, read.LoadedAt)
		}
		list = append(list, catalog)
	}
	return list
}

// Ready is the answer of /readyz: whether jobs can flow, and if not, what is missing.
func (d *Daemon) Ready() (ok bool, why string) {
	switch missing := d.missing(); {
	case d.phase.Load() == phaseDraining:
		return false, "draining"
	case missing != "":
		return false, missing
	case !d.consumer.Joined():
		return false, "the consumer group is not joined: is Kafka reachable, and are all topics there?"
	}
	return true, "ready"
}

// missing says what has to be there before a job can be sent, and is not; "" for nothing.
func (d *Daemon) missing() string {
	switch {
	case !d.parts.Catalog.Ready():
		return notLoaded
	}
	return d.health.missing()
}

const notLoaded = "the catalog is not loaded: is PostgreSQL reachable, and migrated?"
