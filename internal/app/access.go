package app

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/shards"
)

// accessEvery is how often the files of certificates and secrets are read again.
const accessEvery = 10 * time.Second

// access is what connections to the services are opened with, as read at one time.
type access struct {
	config       *config.Config
	kafka, redis encryption
}

// encryption is that of connections to a service.
type encryption struct {
	tls   *tls.Config // nil: they are not encrypted
	fault error       // why the files cannot be used; it concerns only who connects to the service
}

// readAccess reads the files that the configuration names. A part that cannot be used stays as in old, and err says why. Files of Kafka
// and Redis that could not be used from the beginning are no error.
func readAccess(cfg *config.Config, old *access) (a *access, err error) {
	a = &access{}
	a.config, err = cfg.Reread()
	renew := func(key string, files func() (*tls.Config, error), was *encryption) (now encryption) {
		var fault error
		if now.tls, fault = files(); fault == nil {
			return now
		}
		if fault = fmt.Errorf("%s.%w", key, fault); was == nil || was.fault != nil {
			return encryption{fault: fault}
		}
		err = errors.Join(err, fault)
		return *was
	}
	var kafka, redis *encryption
	if old != nil {
		kafka, redis = &old.kafka, &old.redis
	}
	a.kafka, a.redis = renew("kafka.tls", a.config.Kafka.TLS.Client, kafka), renew("redis.tls", a.config.Redis.TLS.Client, redis)
	return a, err
}

// changes names what differs between two readings.
func (a *access) changes(b *access) (keys []string) {
	for _, c := range []struct {
		key  string
		same bool
	}{
		{"kafka.tls", sameTLS(a.kafka.tls, b.kafka.tls)},
		{"kafka.sasl.password", a.config.Kafka.SASL == b.config.Kafka.SASL},
		{"redis.tls", sameTLS(a.redis.tls, b.redis.tls)},
		{"redis.password", a.config.Redis.Password == b.config.Redis.Password},
		{"postgres.dsn", a.config.Postgres == b.config.Postgres},
		{"http.tokens", a.config.HTTP.Tokens == b.config.HTTP.Tokens},
		{"admin_token", a.config.AdminToken == b.config.AdminToken},
	} {
		if !c.same {
			keys = append(keys, c.key)
		}
	}
	return keys
}

// sameTLS compares what is read from files.
func sameTLS(a, b *tls.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.RootCAs.Equal(b.RootCAs) && slices.EqualFunc(a.Certificates, b.Certificates, func(a, b tls.Certificate) bool {
		return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
	})
}

// certificateCache holds the current access, and when the certificates expire that were seen.
type certificateCache struct {
	current atomic.Pointer[access]
	expiry  *prometheus.GaugeVec

	mu   sync.Mutex             // guards when
	when map[[2]string]Expiring // by service and certificate
}

// Expiring is a certificate that was seen on a connection to a service, or sent on it.
type Expiring struct {
	Service     string // kafka, redis, postgres
	Certificate string // server, or client for pacer's own
	At          time.Time
}

func newCertificateCache() *certificateCache {
	return &certificateCache{when: map[[2]string]Expiring{}, expiry: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_certificate_expiry_timestamp_seconds",
		Help: "When a certificate expires: that of a service (server), as its last connection showed it, or pacer's own (client).",
	}, []string{"service", "certificate"})}
}

// set makes new connections use what was read.
func (k *certificateCache) set(a *access) {
	for service, encryption := range map[string]*tls.Config{"kafka": a.kafka.tls, "redis": a.redis.tls} {
		if encryption == nil || encryption.VerifyConnection != nil { // that of before is in use
			continue
		}
		encryption.VerifyConnection = func(state tls.ConnectionState) error {
			k.seen(service, state)
			return nil
		}
		for _, own := range encryption.Certificates {
			k.note(service, "client", own.Leaf)
		}
	}
	k.current.Store(a)
}

// seen notes the certificates of a server.
func (k *certificateCache) seen(service string, state tls.ConnectionState) {
	k.note(service, "server", state.PeerCertificates...)
}

func (k *certificateCache) note(service, whose string, chain ...*x509.Certificate) {
	if len(chain) == 0 {
		return
	}
	first := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
	k.expiry.WithLabelValues(service, whose).Set(float64(first.NotAfter.Unix()))
	k.mu.Lock()
	defer k.mu.Unlock()
	k.when[[2]string{service, whose}] = Expiring{service, whose, first.NotAfter}
}

// Certificates returns those that connections have shown so far, the first to expire first.
func (s *Services) Certificates() []Expiring {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.keeper.when), func(a, b Expiring) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Certificate, b.Certificate))
	})
}

// CheckCatalog connects to the catalog as a daemon would.
func (s *Services) CheckCatalog(ctx context.Context) (catalog.Condition, error) {
	if _, err := s.access(); err != nil {
		return catalog.Condition{}, err
	}
	return catalog.Check(ctx, s.dsn(), s.renewal())
}

// access returns the current access, and reads it at the first call.
func (s *Services) access() (*access, error) {
	if a := s.keeper.current.Load(); a != nil {
		return a, nil
	}
	a, err := readAccess(s.Config, nil)
	if err != nil {
		return nil, config.UsageError{Err: err}
	}
	s.keeper.set(a)
	return a, nil
}

// kafkaAccess, redisAccess and dsn return what a new connection uses. access has been called.
func (s *Services) kafkaAccess() broker.Security {
	a := s.keeper.current.Load()
	login := a.config.Kafka.SASL
	return broker.Security{TLS: a.kafka.tls, SASL: broker.SASL{
		Mechanism: login.Mechanism, Username: login.Username, Password: login.Password.Reveal(),
	}}
}

func (s *Services) redisAccess() shards.Access {
	a := s.keeper.current.Load()
	return shards.Access{Username: a.config.Redis.Username, Password: a.config.Redis.Password.Reveal(), TLS: a.redis.tls}
}

// renewal is how the DSN of the catalog changes.
func (s *Services) renewal() catalog.Renewal {
	return catalog.Renewal{DSN: s.dsn, Encrypted: func(state tls.ConnectionState) { s.keeper.seen("postgres", state) }}
}

func (s *Services) dsn() string { return s.keeper.current.Load().config.Postgres.DSN.Reveal() }

// latest returns the configuration with the secrets that were read last.
func (s *Services) latest() *config.Config {
	if a := s.keeper.current.Load(); a != nil {
		return a.config
	}
	return s.Config
}

// followAccess reads certificates and secrets again when hangup says so, and every ten seconds, until ctx ends. New
// connections use what has changed; those that are open stay. On a hangup, others read theirs as well, who otherwise do so by themselves,
// and report whether they have changed.
func (s *Services) followAccess(ctx context.Context, hangup <-chan os.Signal, others ...func() (changed bool)) {
	tick := time.NewTicker(accessEvery)
	defer tick.Stop()
	for last, logged := "", ""; ; {
		asked, theirs := false, false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-hangup:
			asked = true
			for _, reread := range others {
				theirs = reread() || theirs
			}
		}
		changed, err := s.renewAccess()
		if len(changed) > 0 {
			s.Log.Info("certificates or secrets have changed; new connections use them", "changed", changed)
		}
		fault := fmt.Sprint(err)
		switch {
		case err == nil:
			logged = ""
			if asked && len(changed) == 0 && !theirs {
				s.Log.Info("certificates and secrets were read again; none has changed")
			}
		// The second time, since one of two files may have been written before the other.
		case asked || fault == last && fault != logged:
			s.Log.Error("certificates or secrets cannot be read again; those that these files hold stay as they were", "error", err)
			logged = fault
		}
		last = fault
	}
}

// renewAccess reads the files again and returns what has changed. One that cannot be used leaves what it is of as it was, and nothing
// else: after a token is withdrawn or a password changed, the old one must not stay in use because of another file.
func (s *Services) renewAccess() (changed []string, err error) {
	old, err := s.access()
	if err != nil {
		return nil, err
	}
	fresh, err := readAccess(old.config, old)
	if changed = fresh.changes(old); len(changed) > 0 {
		s.keeper.set(fresh)
		if s.Kafka != nil {
			s.Kafka.Close() // those that are idle
		}
	}
	return changed, err
}
