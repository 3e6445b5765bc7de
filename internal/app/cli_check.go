package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

const (
	checkTimeout = 10 * time.Second
	// drainTimeout is what sends in flight have at a rebalance.
	drainTimeout = 3 * time.Second
)

// Check is `pacer check`: the configuration and every connection, one line each. It is ErrNotOK when one failed.
func Check(ctx context.Context, in Invocation) error {
	s, err := in.services(NeedTopics, NeedRedis, NeedPostgres, NeedSinks)
	if err != nil {
		return err
	}
	defer s.close()
	c := &checks{p: &printer{w: in.Stdout}}
	c.say("configuration", nil)
	c.dedupe(&s.config.Dedupe)
	for _, one := range []struct {
		name string
		run  func(ctx context.Context) error
	}{{"postgres", s.checkPostgres}, {"redis", s.checkRedis}} {
		c.run(ctx, one.name, one.run)
	}
	c.kafka(ctx, s)
	c.sinks(ctx, s)
	if c.p.err != nil {
		return c.p.err
	}
	if c.failed {
		return ErrNotOK
	}
	return nil
}

// checks prints one line for each thing that was looked at.
type checks struct {
	p      *printer
	failed bool
}

func (c *checks) say(name string, err error) {
	if err == nil {
		c.p.line("ok    %s", name)
		return
	}
	c.failed = true
	c.p.line("FAIL  %s: %s", name, err)
}

func (c *checks) run(ctx context.Context, name string, check func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c.say(name, check(ctx))
}

func (s *services) checkPostgres(ctx context.Context) error {
	m, err := catalog.NewMigrator(s.dsn)
	if err != nil {
		return err
	}
	current, newest, err := m.SchemaVersion(ctx)
	switch {
	case err != nil:
		return err
	case current < newest:
		return fmt.Errorf("the schema is at version %d of %d; run pacer migrate up", current, newest)
	}
	return nil
}

func (s *services) checkRedis(ctx context.Context) error {
	shards, err := s.shards()
	if err != nil {
		return err
	}
	defer func() { _ = shards.Close() }() // nothing is written on closing
	if err := shards.Ping(ctx); err != nil {
		return fmt.Errorf("redis.addrs: %w", err)
	}
	return nil
}

// dedupe says whether jobs are kept from being sent twice.
func (c *checks) dedupe(d *DedupeConfig) {
	if d.TTL == 0 {
		c.p.line("ok    dedupe: off, so two records with one id are two jobs; dedupe.ttl switches it on")
		return
	}
	c.p.line("ok    dedupe: a job delivered is not sent again under its id for %s; policy %s", spellDuration(d.TTL), d.OnStoreFailure)
}

func (c *checks) kafka(ctx context.Context, s *services) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	problems, err := requeue.CheckTopics(ctx, s.kafka, s.topics)
	if err != nil {
		c.say("kafka", fmt.Errorf("kafka.brokers: %w", err))
		return
	}
	c.say("kafka", nil)
	for _, p := range problems {
		c.failed = true
		c.p.line("FAIL  topics: %s", p)
	}
	if len(problems) == 0 {
		c.say("topics", nil)
	}
}

func (c *checks) sinks(ctx context.Context, s *services) {
	for _, name := range slices.Sorted(maps.Keys(s.config.Sinks)) {
		c.run(ctx, "sink "+name, func(ctx context.Context) error {
			entry, err := sink.Open(s.config.Sinks[name], sink.Host{Version: Version, Logger: s.log})
			if err != nil {
				return err // names the key
			}
			if reachable, ok := entry.Sink.(interface {
				Check(ctx context.Context) error
			}); ok {
				return reachable.Check(ctx)
			}
			return nil
		})
		if h, ok := s.config.Sinks[name].(*sinkhttp.Config); ok && h.Timeout > drainTimeout {
			c.p.line("note  sinks.%s.timeout: %s is above the %s that sends have at a rebalance; those cut off may be sent twice",
				name, h.Timeout, drainTimeout)
		}
	}
}
