package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/embedded"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

const (
	testTopic    = "pacer.jobs"
	testCampaign = "spring"
)

// shared is a log that several goroutines write to.
type shared struct{ kafkatest.LogBook }

func (s *shared) String() string { return strings.Join(s.Lines(""), "") }

// has expects a part a number of times.
func (s *shared) has(t *testing.T, part string, times int) {
	t.Helper()
	if n := strings.Count(s.String(), part); n != times {
		t.Errorf("%d times %q, want %d:\n%s", n, part, times, s)
	}
}

// testParts are those of a daemon with one campaign, on a broker, a Redis and a destination in this process. All that it logs is returned as well.
func testParts(t *testing.T) (Parts, *shared) {
	t.Helper()
	text := &shared{}
	log := text.Logger()
	services := NewServices(config.Default(), log)
	cfg := services.Config
	made := make(map[string]int)
	for _, name := range services.Topics.Names() {
		made[name] = 1
	}
	brokers, err := embedded.StartBroker(made)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(brokers.Close)
	store, err := embedded.StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	connection := shards.ClientOptions(store.Addr())
	connection.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewUniversalClient(connection)
	t.Cleanup(func() { _ = client.Close() })
	destination := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(destination.Close)
	receiver := sinkhttp.Default()
	receiver.URL = destination.URL
	entry, err := sink.Open(receiver, sink.Host{Version: Version, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	campaigns := catalog.NewMemory()
	campaigns.PutCampaign(delivery.Campaign{ID: testCampaign, Rate: delivery.PerSecond(10), Sink: "receiver", PriorityWeight: 1})
	cfg.Kafka.Brokers, cfg.Redis.KeyPrefix, cfg.DefaultSink, cfg.HTTP.Listen = brokers.ListenAddrs(), "pacer.", "receiver", ""
	if err := services.OpenKafka(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(services.Close)
	return Parts{
		Services: services, Redis: shards.New(client), Catalog: campaigns, Sinks: map[string]sink.Entry{"receiver": entry},
		KeepDelivered: true, Registry: prometheus.NewRegistry(),
	}, text
}

// start runs a daemon of these parts. The returned function ends it, and expects no error.
func start(t *testing.T, parts Parts) (d *Daemon, stop func()) {
	t.Helper()
	d, err := NewDaemon(parts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return d, func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
