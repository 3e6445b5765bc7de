package app

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/record"
)

// deaf are sinks that do not tell the scheduler their capacity, until released.
type deaf struct {
	pacer.Sinks
	calls    *atomic.Int64
	released chan struct{}
}

func (d deaf) Capacity(id string) (inFlight int, ok bool) {
	d.calls.Add(1)
	<-d.released
	return d.Sinks.Capacity(id)
}

// A daemon whose scheduler stands still says so at /healthz, gives itself up when nothing restarts it, and ends though the scheduler still
// does not move.
func TestDaemonThatIsStuckEnds(t *testing.T) {
	t.Parallel()
	sink := deaf{calls: &atomic.Int64{}, released: make(chan struct{})}
	defer close(sink.released)
	parts, logs := testParts(t)
	parts.WrapSinks = func(inner pacer.Sinks) pacer.Sinks { sink.Sinks = inner; return sink }
	cfg := parts.Config
	cfg.Watchdog, cfg.ShutdownTimeout = 900*time.Millisecond, time.Second
	d, err := NewDaemon(parts)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.RunToEnd(t.Context()) }()
	producer := broker.NewProducer(broker.ProducerOptions{Client: parts.Kafka})
	at := []broker.Partition{{Topic: testTopic}}
	if _, err = producer.PublishTo(t.Context(), at, broker.All([]delivery.Record{record.New(testCampaign, "a", []byte("x"))}), nil); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); sink.calls.Load() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the scheduler never came to the sink\n%s", logs.String())
		}
	}
	if ok, why := d.healthy(); !ok {
		t.Fatalf("stuck at once: %s", why)
	}
	ok, why := true, ""
	for deadline := time.Now().Add(30 * time.Second); ok && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		ok, why = d.healthy()
	}
	if ok || !strings.Contains(why, testTopic+"/0 has stood still") {
		t.Errorf("healthy %t: %s\n%s", ok, why, logs.String())
	}
	select {
	case err = <-ended:
	case <-time.After(60 * time.Second):
		t.Fatalf("it does not end\n%s", logs.String())
	}
	if !errors.Is(err, errOverdue) && (err == nil || !strings.Contains(err.Error(), "no progress")) {
		t.Errorf("ended with %v", err)
	}
	logs.has(t, "no progress for twice the time allowed", 1)
}
