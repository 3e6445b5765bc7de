package consumer

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// detained is a connection that delays one commit.
type detained struct {
	kafka.RoundTripper
	mu     sync.Mutex
	detain func(ctx context.Context, send func()) error // what becomes of the next commit; nil: it is sent
}

func (d *detained) RoundTrip(ctx context.Context, addr net.Addr, req kafka.Request) (kafka.Response, error) {
	if req.ApiKey() == protocol.OffsetCommit {
		d.mu.Lock()
		detain := d.detain
		d.detain = nil
		d.mu.Unlock()
		if detain != nil {
			var answer kafka.Response
			var refused error
			err := detain(ctx, func() { answer, refused = d.RoundTripper.RoundTrip(context.WithoutCancel(ctx), addr, req) })
			if err != nil {
				return nil, err
			}
			return answer, refused
		}
	}
	return d.RoundTripper.RoundTrip(ctx, addr, req)
}

func (d *detained) next(detain func(ctx context.Context, send func()) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.detain = detain
}

// startDetained starts a consumer whose commits can be detained, with ten open jobs.
func startDetained(t *testing.T, r *rig, change ...func(*Options)) (*detained, *running) {
	t.Helper()
	r.create(1, r.jobs(), r.opt.LaneTopic)
	d := &detained{}
	f := newFake()
	f.keep = func(*delivery.Job) bool { return true }
	c := r.start(f, append(change, func(o *Options) {
		o.Client = newBroker(t, r.brokers, func(rt kafka.RoundTripper) kafka.RoundTripper { d.RoundTripper = rt; return d })
	})...)
	r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 10))
	r.eventually("all are open", func() bool { return c.count() == 10 })
	return d, c
}

// draining is a handler that tells when it drains.
type draining struct {
	*fake
	begun chan struct{}
}

func (d draining) Drain(ctx context.Context) (int, error) {
	defer close(d.begun)
	return d.fake.Drain(ctx)
}

// A stop waits for the commit that is in flight, since its own could overtake it.
func TestAStopWaitsForTheCommitInFlight(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		drained := make(chan struct{})
		d, c := startDetained(t, r, func(o *Options) { o.Handler = draining{o.Handler.(*fake), drained} })
		inFlight, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		d.next(func(ctx context.Context, send func()) error {
			close(inFlight)
			select {
			case <-release:
				send()
			case <-ctx.Done():
			}
			ended <- ctx.Err()
			return ctx.Err()
		})
		c.settle(func(j *delivery.Job) bool { return j.Offset < 5 })
		<-inFlight
		stopped := make(chan struct{})
		go func() { defer close(stopped); c.stop() }()
		<-drained
		time.Sleep(50 * time.Millisecond) // the last commit comes at once, if it comes
		close(release)
		if err := <-ended; errors.Is(err, context.Canceled) { // its own timeout may have come before, on a busy machine
			t.Error("the commit in flight was abandoned")
		}
		<-stopped
		if at := r.committed(r.jobs(), 0); at != 5 {
			t.Errorf("%d is committed", at)
		}
	})
}

// A stop that cannot commit says so: what was settled since the last commit will be sent again.
func TestALastCommitThatFailsIsTold(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		d, c := startDetained(t, r, func(o *Options) { o.ShutdownTimeout = time.Second })
		var refuse func(context.Context, func()) error
		refuse = func(context.Context, func()) error {
			d.next(refuse)
			return kafka.GroupLoadInProgress
		}
		d.next(refuse)
		c.settle(nil)
		c.stop()
		if lines := r.logs.lines("level=WARN", "the last commit was not accepted", "may be sent twice"); len(lines) != 1 {
			t.Errorf("%s", r.logs)
		}
	})
}

// full is a position whose commit takes all the room that Kafka gives to the metadata of one.
type full struct{ position }

func (full) Position() offset.Position {
	return offset.Position{Offset: 1, Metadata: strings.Repeat("x", 4096)}
}

// Kafka refuses all of a request above its message size. So there are several, and one that fails holds up no other.
func TestCommitsOfManyPartitionsFit(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		const partitions = 300
		r.create(partitions, r.jobs())
		d := &detained{}
		client := newBroker(t, r.brokers, func(rt kafka.RoundTripper) kafka.RoundTripper { d.RoundTripper = rt; return d })
		b := newBudget(1 << 20)
		m := newMetrics(newRegistry(), b)
		nobody := &membership{member: broker.Member{Group: r.opt.Group, Generation: -1}}
		c := newCommitter(client, nobody, m, broker.NewHealth(discardLog()))
		var sources []*source
		for p := range partitions {
			src, _ := newSource(partition{Topic: r.jobs(), ID: p}, delivery.FromIngress, start{committed: true}, b, m, offset.NewOrigins(), c.kicked.Send)
			src.position = full{src.position}
			src.changes++
			sources = append(sources, src)
		}
		c.sources = func() []*source { return sources }
		left := func() (n int) {
			for _, s := range sources {
				if s.changes > s.acked {
					n++
				}
			}
			return n
		}
		r.eventually("a coordinator", func() bool {
			_, err := client.Committed(t.Context(), r.opt.Group, []partition{{Topic: r.jobs()}})
			return err == nil
		})
		d.next(func(context.Context, func()) error { return kafka.GroupLoadInProgress })
		if err := c.commit(t.Context(), true); err == nil || left() > partitions/2 {
			t.Errorf("%d partitions are not committed: %v", left(), err)
		}
		if err := c.commit(t.Context(), true); err != nil || left() > 0 {
			t.Errorf("then %d partitions are not committed: %v", left(), err)
		}
	})
}
