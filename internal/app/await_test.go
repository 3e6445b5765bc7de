package app

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
)

// A service that never answers is named within two seconds, and once.
func TestWhatDoesNotAnswerIsNamedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, log := time.Now(), &shared{}
		hangs := func(ctx context.Context) error {
			<-ctx.Done()
			if time.Since(begun) > time.Minute {
				return nil
			}
			return ctx.Err()
		}
		s := newHealth(func(ctx context.Context) []error { return []error{hangs(ctx)} }, hangs, func() *delivery.Snapshot { return nil }, slog.New(slog.NewTextHandler(log, nil)), prometheus.NewRegistry())
		go func() { _ = s.Run(t.Context()) }() // until the end of the test
		time.Sleep(2*time.Second + 1)
		for _, service := range []string{"redis", "kafka"} {
			if !strings.Contains(log.String(), "service="+service) || s.missing() == "" {
				t.Errorf("after two seconds: %s", log.String())
			}
		}
		time.Sleep(2 * time.Minute)
		if n := strings.Count(log.String(), "does not answer"); n != 2 || s.missing() != "" {
			t.Errorf("%q is missing: %s", s.missing(), log.String())
		}
	})
}

// shared is a log that several goroutines write to.
type shared struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *shared) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// setUp is a catalog of a database that is set up for an installation.
type setUp struct {
	*catalog.Memory
	installation atomic.Pointer[delivery.Installation]
}

func (c *setUp) Snapshot() *delivery.Snapshot {
	s := *c.Memory.Snapshot()
	s.Installation = *c.installation.Load()
	return &s
}

// installed gives the parts a catalog that is set up so.
func installed(parts *Parts, i delivery.Installation) *setUp {
	c := &setUp{Memory: parts.Catalog.(*catalog.Memory)}
	c.installation.Store(&i)
	parts.Catalog = c
	return c
}

// A daemon says at its start that another installation uses its database, and nothing of its like.
func TestAnotherInstallationIsToldOfAtTheStart(t *testing.T) {
	t.Parallel()
	for prefix, want := range map[string]int{"night.": 1, "pacer.": 0} {
		t.Run(prefix, func(t *testing.T) {
			t.Parallel()
			log := &shared{}
			parts := testParts(t, slog.New(slog.NewTextHandler(log, nil)))
			installed(&parts, delivery.Installation{Group: "pacer", Prefix: prefix})
			d, err := NewDaemon(parts)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			for end := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), "taking jobs") && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "level=ERROR msg=\"the database is shared"); n != want {
				t.Errorf("told of %d times:\n%s", n, log.String())
			}
		})
	}
}

// Kafka is named once, with results or without, whatever else is away.
func TestEachServiceThatIsAwayIsNamedOnce(t *testing.T) {
	t.Parallel()
	for name, results := range map[string]bool{"without results": false, "with results": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &shared{}
			parts := testParts(t, slog.New(slog.NewTextHandler(log, nil)))
			parts.Topics.Results, parts.Config.Kafka.Brokers = results, []string{"127.0.0.1:1"}
			if err := parts.OpenKafka(); err != nil {
				t.Fatal(err)
			}
			d, err := NewDaemon(parts)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- d.Run(ctx) }()
			for end := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), "service=kafka") && time.Now().Before(end); {
				time.Sleep(5 * time.Millisecond)
			}
			ok, why := d.Ready()
			cancel()
			if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			if n := strings.Count(log.String(), "127.0.0.1:1:"); n != 1 || ok || why == "" {
				t.Errorf("named %d times; ready: %t, %s\n%s", n, ok, why, log.String())
			}
		})
	}
}
