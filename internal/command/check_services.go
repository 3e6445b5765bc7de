package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// maxSkew is how much clocks may differ before it is worth a note.
	maxSkew = time.Second
	// expiresSoon is how long before a certificate expires it is worth a note.
	expiresSoon = 30 * 24 * time.Hour
)

// postgres checks the schema, and that the user has the rights of a daemon. Nothing is changed. ok reports whether what is in the
// catalog can be looked at.
func (c *checks) postgres(ctx context.Context, s *app.Services) (ok bool) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found, err := s.CheckCatalog(ctx)
	c.say("postgres", postgresFault(found, err))
	s.Catalogued = func() *delivery.Snapshot { return &delivery.Snapshot{Installation: found.Installation} }
	if err != nil {
		return false
	}
	if why := found.Other(s.Installation()); why != "" {
		c.fail("installation", why)
	}
	c.clock("postgres", found.Ahead)
	if to, err := pgx.ParseConfig(s.DSN()); err == nil && !found.Encrypted && !onThisMachine(to.Host) {
		c.note("postgres.dsn", "not encrypted; add sslmode=verify-full")
	}
	return postgresFault(found, nil) == nil
}

// destinations checks the rows of pacer.destinations.
func (c *checks) destinations(ctx context.Context, s *app.Services, d *destinationCheck) {
	admin, err := openAdmin(s.Config)
	if err != nil {
		c.say("destinations", err)
		return
	}
	defer admin.Close()
	d.run(ctx, c, admin.DestinationsAfter)
}

func postgresFault(found catalog.Condition, err error) error {
	switch {
	case err != nil:
		return err
	case found.Schema < found.Newest:
		return fmt.Errorf("the schema is at version %d of %d; run pacer migrate up", found.Schema, found.Newest)
	case found.Behind:
		return errors.New("the sequence pacer.revisions is behind the rows, so that no change acts; run pacer migrate catch-up")
	case found.Missing != "":
		return fmt.Errorf("the user of postgres.dsn lacks rights of a daemon: %s", found.Missing)
	}
	return nil
}

// redis runs every command that daemons need, and looks at what is configured.
func (c *checks) redis(ctx context.Context, s *app.Services) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	found, err := probeRedis(ctx, s)
	if err == nil && len(found.Refused) > 0 {
		err = fmt.Errorf("the user of redis.username may not do all that a daemon does: %s", strings.Join(found.Refused, "; "))
	}
	if err == nil && len(found.Evicts) > 0 {
		err = fmt.Errorf("maxmemory-policy must be noeviction, or limits are forgotten once the memory is full; run CONFIG SET maxmemory-policy noeviction: %s",
			strings.Join(found.Evicts, ", "))
	}
	c.say("redis", err)
	if err != nil {
		return
	}
	if len(found.Unbounded) > 0 {
		c.note("redis", "maxmemory-policy should be noeviction, in case a maxmemory is set: %s", strings.Join(found.Unbounded, ", "))
	}
	c.clock("redis", found.Ahead)
	if !s.Config.Redis.TLS.Enabled && !onThisMachine(slices.Concat(s.Config.Redis.Addrs, s.Config.Eventual.Roots)...) {
		c.note("redis.tls", "not encrypted; set redis.tls")
	}
	roots, err := s.Roots()
	if err != nil {
		c.say("eventual.roots", err)
		return
	}
	defer func() { _ = roots.Close() }()
	for i, err := range roots.Up(ctx, s.Config.Redis.KeyPrefix) {
		if err != nil {
			c.say("eventual.roots", fmt.Errorf("%s: %w", s.Config.Eventual.Roots[i], err))
		}
	}
}

func probeRedis(ctx context.Context, s *app.Services) (found shards.Condition, err error) {
	set, err := s.Shards()
	if err != nil {
		return found, err
	}
	defer func() { _ = set.Close() }()                                                                                  // what is written expires by itself
	if err = errors.Join(set.Up(ctx, s.Config.Redis.KeyPrefix)...); err == nil || redis.HasErrorPrefix(err, "NOPERM") { // which rights are lacking is found
		found, err = set.Probe(ctx, s.Config.Redis.KeyPrefix)
	}
	if err != nil {
		return found, fmt.Errorf("redis.addrs: %w", err)
	}
	return found, nil
}

// kafka checks the cluster and the topics, and that the user may do what a daemon does.
func (c *checks) kafka(ctx context.Context, s *app.Services) {
	for _, err := range s.Kafka.Strangers(ctx) {
		c.say("kafka", fmt.Errorf("kafka.brokers: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	lacks, err := requeue.CheckRights(ctx, s.Kafka, s.Topics, s.Config.Kafka.Group)
	if err != nil {
		c.say("kafka", fmt.Errorf("kafka.brokers: %w", broker.Explained(err)))
		return
	}
	c.all("kafka", lacks)
	problems, err := requeue.CheckTopics(ctx, s.Kafka, s.Topics)
	switch {
	case err == nil:
		c.all("topics", problems)
	case len(lacks) == 0: // otherwise this is the consequence
		c.say("topics", broker.Explained(err))
	}
	k := &s.Config.Kafka
	switch {
	case k.TLS.Enabled || onThisMachine(k.Brokers...):
	case k.SASL.Mechanism == "plain":
		c.note("kafka.tls", "not encrypted, and kafka.sasl.mechanism plain sends the password as it is; set kafka.tls")
	default:
		c.note("kafka.tls", "not encrypted; set kafka.tls")
	}
}

// all reports each problem, or that there is none.
func (c *checks) all(name string, problems []string) {
	for _, p := range problems {
		c.say(name, errors.New(p))
	}
	if len(problems) == 0 {
		c.say(name, nil)
	}
}

// clock notes that the clock of a service differs from that of this machine.
func (c *checks) clock(service string, ahead time.Duration) {
	if ahead.Abs() < maxSkew {
		return
	}
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	c.note(service, "its clock is %s %s that of this machine; let NTP slew both", ahead.Abs().Round(100*time.Millisecond), direction)
}

// certificates notes those that expire soon. Servers refuse an expired certificate.
func (c *checks) certificates(seen []app.Expiring, now time.Time) {
	for _, e := range seen {
		key := e.Service + ".tls"
		if e.Service == "postgres" {
			key = "postgres.dsn"
		}
		left, whose := e.At.Sub(now), map[string]string{"server": "the server's", "client": "pacer's"}[e.Certificate]
		switch {
		case left < 0:
			c.say(key, fmt.Errorf("%s certificate has expired on %s; renew it", whose, e.At.UTC().Format(time.DateOnly)))
		case left < expiresSoon:
			c.note(key, "%s certificate expires on %s; renew it", whose, e.At.UTC().Format(time.DateOnly))
		}
	}
}

// onThisMachine reports whether all servers are: what is sent to them is on no network. They are host:port, a host, or the
// directory of a socket.
func onThisMachine(servers ...string) bool {
	return !slices.ContainsFunc(servers, func(server string) bool {
		host, _, err := net.SplitHostPort(server)
		if err != nil {
			host = server
		}
		ip := net.ParseIP(strings.Trim(host, "[]"))
		return host != "localhost" && !strings.HasPrefix(host, "/") && (ip == nil || !ip.IsLoopback())
	})
}
