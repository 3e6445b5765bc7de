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

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
)

// A service that is asked for and never answers is named within a second, and once; when it answers, the daemon goes on.
func TestWhatDoesNotAnswerIsNamedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, d := time.Now(), &Daemon{}
		var answered atomic.Bool
		var told []time.Duration
		d.ask(t.Context(), &answered, func(ctx context.Context) error {
			if time.Since(begun) > time.Minute {
				return nil
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			<-ctx.Done()
			return ctx.Err()
		}, func(error) { told = append(told, time.Since(begun)) })
		if len(told) != 1 || told[0] > firstPatience || !answered.Load() {
			t.Errorf("told after %s", told)
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

// inhabited is a catalog that other daemons use as well.
type inhabited struct {
	*catalog.Memory
	by delivery.Installation
}

func (c inhabited) Installations(context.Context) ([]delivery.Installation, error) {
	return []delivery.Installation{c.by}, nil
}

// A daemon says at its start that another installation uses its database, and nothing of its like.
func TestAnotherInstallationIsToldOfAtTheStart(t *testing.T) {
	t.Parallel()
	for lanes, want := range map[string]int{"night.lanes": 1, "pacer.lanes": 0} {
		t.Run(lanes, func(t *testing.T) {
			t.Parallel()
			log := &shared{}
			parts := testParts(t, slog.New(slog.NewTextHandler(log, nil)))
			parts.Catalog = inhabited{parts.Catalog.(*catalog.Memory), delivery.Installation{Group: "pacer", Lanes: lanes}}
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

// Kafka is named once whether results are written or not, and whatever else is away.
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
			for end := time.Now().Add(10 * time.Second); !strings.Contains(log.String(), "kafka does not answer") && time.Now().Before(end); {
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
