package app

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
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
		s := newHealth(func(ctx context.Context) []error { return []error{hangs(ctx)} }, hangs, func() *delivery.Snapshot { return nil }, log.Logger(), prometheus.NewRegistry())
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
			parts, log := testParts(t)
			installed(&parts, delivery.Installation{Group: "pacer", Prefix: prefix})
			_, stop := start(t, parts)
			kafkatest.Eventually(t, "it takes jobs", func() bool { return strings.Contains(log.String(), "taking jobs") })
			stop()
			log.has(t, "level=ERROR msg=\"the database is shared", want)
		})
	}
}

// Kafka is named once, with results or without, whatever else is away.
func TestEachServiceThatIsAwayIsNamedOnce(t *testing.T) {
	t.Parallel()
	for name, results := range map[string]bool{"without results": false, "with results": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts, log := testParts(t)
			parts.Topics.Results, parts.Config.Kafka.Brokers = results, []string{"127.0.0.1:1"}
			if err := parts.OpenKafka(); err != nil {
				t.Fatal(err)
			}
			d, stop := start(t, parts)
			kafkatest.Eventually(t, "Kafka is named", func() bool { return strings.Contains(log.String(), "service=kafka") })
			ok, why := d.Ready()
			stop()
			if log.has(t, "127.0.0.1:1:", 1); ok || why == "" {
				t.Errorf("ready: %t, %s", ok, why)
			}
		})
	}
}

// Each request of a command that goes on, such as pacer top, names the database that does not answer.
func TestALocalRequestNamesTheDatabaseEachTime(t *testing.T) {
	cfg := config.Default()
	cfg.Postgres.DSN = "postgres://pacer@127.0.0.1:1/pacer"
	s := NewServices(cfg, slog.New(slog.DiscardHandler))
	defer s.Close()
	transport, end, err := s.Local("", true)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for range 2 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/api/v1/campaigns", nil)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := transport.RoundTrip(request); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%v, %v", answer, err)
		}
	}
}
