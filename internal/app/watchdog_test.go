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
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/record"
)

// deaf is a sink that does not return, whatever its context says, until released.
type deaf struct {
	pacer.Sinks
	calls    *atomic.Int64
	released chan struct{}
}

func (d deaf) Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result {
	d.calls.Add(1)
	<-d.released
	return d.Sinks.Deliver(ctx, id, job)
}

// A daemon with a sink that never returns says so at /healthz, gives itself up when nothing restarts it, and ends though
// the sink still does not return.
func TestDaemonThatIsStuckEnds(t *testing.T) {
	t.Parallel()
	sink := deaf{calls: &atomic.Int64{}, released: make(chan struct{})}
	defer close(sink.released)
	var logs syncBuffer
	parts := testParts(t, slog.New(slog.NewTextHandler(&logs, nil)))
	parts.WrapSinks = func(inner pacer.Sinks) pacer.Sinks { sink.Sinks = inner; return sink }
	receiver := parts.Sinks["receiver"]
	receiver.Timeout = 0 // a job may be on its way for no time, so that it is stuck soon
	parts.Sinks["receiver"] = receiver
	cfg := parts.Config
	// A job that waits for longer than that on a busy machine would be sent from a lane.
	cfg.Watchdog, cfg.ShutdownTimeout, cfg.Pacing.MaxOpenAge = 900*time.Millisecond, time.Second, 3*time.Second
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
			t.Fatalf("the job never came to the sink\n%s", logs.String())
		}
	}
	if ok, why := d.healthy(); !ok {
		t.Fatalf("stuck at once: %s", why)
	}
	ok, why := true, ""
	for deadline := time.Now().Add(30 * time.Second); ok && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		ok, why = d.healthy()
	}
	if ok || !strings.Contains(why, testTopic+"/0 has stood still at offset 0") {
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
	if text := logs.String(); !strings.Contains(text, "no progress for twice the time allowed") {
		t.Error(text)
	}
}

// syncBuffer is a buffer that several goroutines may use.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
