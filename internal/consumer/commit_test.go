package consumer

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// detained is a way that keeps commits back while this is not nil, and else sends them.
type detained struct{ atomic.Pointer[way] }

func (d *detained) way(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
	if detain := d.Load(); detain != nil && request.ApiKey() == protocol.OffsetCommit {
		return (*detain)(ctx, request, send)
	}
	return send(ctx)
}

// A stop waits for the commit that is in flight, since its own could overtake it.
func TestAStopWaitsForTheCommitInFlight(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		d := &detained{}
		c := r.start(keeping(all), r.through(d.way))
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 10))
		r.eventually("all are open", func() bool { return c.count() == 10 })
		inFlight, release, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		detain := way(func(ctx context.Context, _ kafka.Request, send sending) (answer kafka.Response, err error) {
			d.Store(nil)
			close(inFlight)
			select {
			case <-release:
				answer, err = send(context.WithoutCancel(ctx))
			case <-ctx.Done():
			}
			ended <- ctx.Err()
			return answer, errors.Join(err, ctx.Err())
		})
		d.Store(&detain)
		c.settle(func(j *delivery.Job) bool { return j.Offset < 5 })
		<-inFlight
		stopped := make(chan struct{})
		go func() { defer close(stopped); c.stop() }()
		r.eventually("it drains", c.revoked)
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

// busy is a coordinator that begins.
func busy(context.Context, kafka.Request, sending) (kafka.Response, error) {
	return nil, kafka.GroupLoadInProgress
}

// full is a position whose commit takes all the room that Kafka gives to the metadata of one.
type full struct{ position }

func (full) Position() offset.Position {
	return offset.Position{Offset: 1, Metadata: strings.Repeat("x", 4096)}
}

// Kafka refuses all of a request above its message size. So there are several, and one that fails holds up no other.
func TestCommitsOfManyPartitionsFit(t *testing.T) {
	const partitions = 300
	onBrokers(t, partitions, 0, func(t *testing.T, r *rig) {
		d := &detained{}
		client := r.by(d.way)
		c, sources := r.committing(client, broker.Member{Group: r.opt.Group, Generation: -1}, partitions)
		for _, src := range sources {
			src.position = full{src.position}
			src.changes++
		}
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
		once := way(func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
			d.Store(nil)
			return busy(ctx, request, send)
		})
		d.Store(&once)
		if err := c.commit(t.Context(), true); err == nil || left() > partitions/2 {
			t.Errorf("%d partitions are not committed: %v", left(), err)
		}
		if err := c.commit(t.Context(), true); err != nil || left() > 0 {
			t.Errorf("then %d partitions are not committed: %v", left(), err)
		}
	})
}

// The last commit goes on without a topic that is gone: a stop would wait for it until its time is over.
func TestTheLastCommitDoesNotWaitForATopicThatIsGone(t *testing.T) {
	r := inProcess(t, 1, 0)
	c, sources := r.committing(r.broker(), broker.Member{Group: r.opt.Group, Generation: -1}, 2) // the topic has one partition
	for _, src := range sources {
		src.changes++
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := c.last(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("%v, and its time: %v", err, ctx.Err())
	}
	if src := sources[0]; src.changes != src.acked {
		t.Error("the other partition is not committed")
	}
}

// A partition that moves waits for its last commit also while the group refuses those of the generation before, as long as a join takes.
func TestAFlushOutlastsAJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sourceOf(partition{Topic: "jobs"}, delivery.FromIngress)
		flushed := make(chan error, 1)
		go func() { flushed <- s.flush(t.Context()) }()
		p, _ := s.progress()
		for range 2 * lastAttempts {
			s.answered(p, kafka.IllegalGeneration)
			synctest.Wait()
		}
		select {
		case err := <-flushed:
			t.Fatalf("it ended before its commit was accepted: %v", err)
		default:
		}
		s.answered(p, nil)
		if err := <-flushed; err != nil {
			t.Error(err)
		}
	})
}

// A job that was given back, and that the log has lost since, is committed over, and does not count as open twice.
func TestAJobGivenBackAndLostIsNotOpen(t *testing.T) {
	s := sourceOf(partition{Topic: "jobs"}, delivery.FromIngress)
	s.register(&delivery.Job{Reading: delivery.Reading{Size: 1}})
	s.reopen(0)
	s.lose(0)
	if p, dirty := s.progress(); p.Offset != 1 || !dirty || testutil.ToFloat64(s.metrics.openJobs[delivery.FromIngress]) != 0 {
		t.Errorf("%d is committed, %v are open", p.Offset, testutil.ToFloat64(s.metrics.openJobs[delivery.FromIngress]))
	}
}

// TestOnlyTrimmedCommitsCount: a position that is stored between two commits is none.
func TestOnlyTrimmedCommitsCount(t *testing.T) {
	s := sourceOf(partition{Topic: "jobs"}, delivery.FromIngress)
	for o := range int64(4000) { // every other one stays open, and they lie far apart
		s.register(&delivery.Job{Reading: delivery.Reading{Offset: o * 100}})
		if o%2 == 1 {
			s.settle(o*100, "", "")
		}
	}
	s.storedPosition()
	p, _ := s.progress()
	if n := testutil.ToFloat64(s.metrics.trimmed); !p.Trimmed || n != 1 {
		t.Errorf("trimmed %t, counted %v", p.Trimmed, n)
	}
}

// memberOf is the only member of the rig's group.
func (r *rig) memberOf() (member string) {
	r.t.Helper()
	r.eventually("the group has a member", func() bool {
		answer, err := r.client.DescribeGroups(r.t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{r.opt.Group}})
		if err != nil || len(answer.Groups) != 1 || len(answer.Groups[0].Members) != 1 {
			return false
		}
		member = answer.Groups[0].Members[0].MemberID
		return true
	})
	return member
}

// committing is what commits the first partitions of ingress for a member, and their sources.
func (r *rig) committing(client *broker.Client, member broker.Member, partitions int) (c *committer, sources []*source) {
	for p := range partitions {
		sources = append(sources, sourceOf(partition{Topic: r.jobs(), ID: p}, delivery.FromIngress))
	}
	return &committer{
		client: client, member: &membership{member: member, lease: &lease{}}, metrics: sources[0].metrics, health: broker.NewHealth(discardLog()),
		kicked: retry.NewSignal(), sources: func() []*source { return sources },
	}, sources
}

// A partition that moves waits for what is in flight for ShutdownTimeout and no longer, and nothing else does; what was settled in
// time is committed, and the next owner has what was not.
func TestRevokeIsBounded(t *testing.T) {
	onBrokers(t, 2, 1, func(t *testing.T, r *rig) {
		const bound = 1500 * time.Millisecond
		f := keeping(func(j *delivery.Job) bool { return j.Offset >= 5 })
		f.lingers = true
		first := r.start(f, func(o *Options) { o.ShutdownTimeout = bound })
		for p, name := range []string{"a", "b"} {
			r.produceIDs(r.jobs(), p, "c", numbered(name, 0, 10))
		}
		r.eventually("all are in flight or settled", func() bool { return first.count() == 20 })
		joins := time.Now()
		second := r.start(newFake())
		r.eventually("the second's share", func() bool { return second.count() == 5 })
		if took := time.Since(joins); took < bound-50*time.Millisecond {
			t.Errorf("the partition moved after %s", took)
		}
		r.said(1, "level=WARN", "may be sent twice", "jobs=5")
	})
}
