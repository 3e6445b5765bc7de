package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// lanes is how many lanes a consumer reads.
func (c *running) lanes() int { return len(c.Backlog().Lanes) }

// eachLane writes jobs to each lane, with a name for each.
func (r *rig) eachLane(lanes int, campaign string, jobs int) {
	for p := range lanes {
		r.produceIDs(r.opt.LaneTopic, p, campaign, numbered(fmt.Sprint(campaign, p), 0, jobs))
	}
}

// TestWhatIsKeptGoesOn: a member that joins takes over some partitions, after their jobs in flight are settled; of all others the
// first member goes on, and nothing is handed over twice.
func TestWhatIsKeptGoesOn(t *testing.T) {
	const partitions, jobs = 4, 5
	onBrokers(t, partitions, partitions, func(t *testing.T, r *rig) {
		first := r.start(keeping(all))
		r.eventually("joined", first.Joined)
		r.eachLane(partitions, "c", jobs)
		r.eventually("all are in hand", func() bool { return first.count() == partitions*jobs })
		first.settle(func(j *delivery.Job) bool { return j.Offset == 0 })

		second := r.start(newFake())
		r.eventually("the second has its part", func() bool { return second.count() == 2*(jobs-1) })
		if kept := first.kept(); kept != 2*(jobs-1) {
			t.Errorf("the first has %d jobs in hand", kept)
		}
		first.settle(all)
		r.eventually("all is committed", r.allCommitted(jobs, partitions, r.opt.LaneTopic))
		second.stop()
		r.eventually("the first has all of them again", func() bool { return first.lanes() == partitions })
		handedOnce(t, partitions*jobs, first.fake)
		handedOnce(t, 2*(jobs-1), second.fake)
		if warns := r.logs.warnings(); len(warns) > 0 {
			t.Errorf("warned of ordinary life: %v", warns)
		}
	})
}

// TestACoordinatorThatIsAway: while the coordinator does not answer, or says that it is not one any more, a member keeps what it holds,
// and goes on where it was when there is one again.
func TestACoordinatorThatIsAway(t *testing.T) {
	r := inProcess(t, 2, 1)
	cluster := r.cluster
	c := startWaiting(r)
	var beats atomic.Int32
	var away atomic.Bool
	away.Store(true)
	cluster.ControlKey(int16(kmsg.Heartbeat), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		n := beats.Add(1)
		switch {
		case !away.Load():
			return nil, nil, false
		case n%2 == 0:
			return nil, errors.New("the connection is lost"), true
		}
		out := req.ResponseKind().(*kmsg.HeartbeatResponse)
		out.ErrorCode = kerr.NotCoordinator.Code
		return out, nil, true
	})
	r.eventually("it is missed", func() bool { return beats.Load() >= 6 })
	away.Store(false)
	r.eventually("there is one again", func() bool { return beats.Load() >= 10 })
	c.settle(all)
	r.eventually("all are committed", func() bool { return r.committed(r.jobs(), 0) == 20 })
	if r.said(1, "joined the group"); c.revoked() {
		t.Error("it has let go of everything")
	}
	handedOnce(t, 20, c.fake)
}

// TestASilentGroupIsLeftInTime: a member that hears nothing lets go of everything before the group gives up on it, and joins again as
// the same one.
func TestASilentGroupIsLeftInTime(t *testing.T) {
	r := inProcess(t, 1, 1)
	cluster, c := r.cluster, startWaiting(r)
	member := r.memberOf()
	var silent atomic.Bool
	silent.Store(true)
	cluster.ControlKey(int16(kmsg.Heartbeat), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if silent.Load() {
			return nil, errors.New("the connection is lost"), true
		}
		return nil, nil, false
	})
	r.eventually("it lets go", func() bool { return !c.Joined() })
	r.said(0, "the group has gone on without this daemon") // it has not waited for that
	silent.Store(false)
	r.eventually("all are read again", func() bool { return c.kept() == 20 })
	if now := r.memberOf(); now != member {
		t.Errorf("it came back as %s, and was %s", now, member)
	}
	c.settle(all)
	r.eventually("all are committed", func() bool { return r.committed(r.jobs(), 0) == 20 })
}

// TestWhatIsLetGoOfDuringAJoinIsDealt: a member claims a partition in its join, and lets go of it before the answer. The partition is not
// dealt; the member joins once more.
func TestWhatIsLetGoOfDuringAJoinIsDealt(t *testing.T) {
	r := inProcess(t, 1, 2)
	f := keeping(all)
	f.lingers = true
	var next atomic.Bool // the answer to the next join is held up
	in, over := make(chan struct{}), make(chan struct{})
	first := r.start(f, r.through(func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
		answer, err := send(ctx)
		if _, joins := kafkatest.Message(request).(*kmsg.JoinGroupRequest); joins && next.CompareAndSwap(true, false) {
			close(in)
			<-over
		}
		return answer, err
	}))
	r.eachLane(2, "c", 1)
	r.eventually("both are read", func() bool { return first.count() == 2 })
	has := func(c *running) int { return int(metric.Value(c.metrics.partitions[delivery.FromLane])) }
	second := r.start(newFake())
	var leaving *delivery.Job
	r.eventually("one is to move", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for j := range f.open {
			if is, _ := j.Source.Revoked(); is {
				leaving = j
			}
		}
		return leaving != nil && second.Joined()
	})
	next.Store(true)
	third := r.start(newFake())
	<-in
	leaving.Source.Release(leaving.Offset)
	r.eventually("it is let go of", func() bool { return has(first) == 1 })
	close(over)
	r.eventually("it has moved", func() bool { return has(first) == 1 && has(second)+has(third) == 1 })
}

// TestEachPartitionMovesWhenItCan: a partition whose jobs in flight take long does not keep others from moving.
func TestEachPartitionMovesWhenItCan(t *testing.T) {
	r := inProcess(t, 1, 4)
	slow := func() *fake {
		f := keeping(func(j *delivery.Job) bool { return j.Source.(*source).ID == 0 })
		f.lingers = true
		return f
	}
	first := r.start(slow())
	r.eachLane(4, "c", 5)
	r.eventually("all are read", func() bool { return first.count() == 20 })
	second := r.start(slow())
	r.eventually("what can move has", func() bool { // one of two, and the other one waits
		one := second.lanes() == 1 && first.lanes()+len(first.Backlog().Unreadable) == 3
		return one || second.lanes() == 2
	})
	first.settle(all)
	r.eventually("all have moved", func() bool { return second.lanes() == 2 && first.lanes() == 2 })
}

// TestAStoppingMemberIsDealtNothing: two members stop, and one of them has to wait for its jobs in flight. The third member reads the
// other's partitions at once.
func TestAStoppingMemberIsDealtNothing(t *testing.T) {
	r := inProcess(t, 1, 6)
	slow := newFake()
	a, b, c := r.start(slow), r.start(newFake()), r.start(newFake())
	r.eventually("each has its part", func() bool { return a.lanes() == 2 && b.lanes() == 2 && c.lanes() == 2 })
	slow.mu.Lock()
	slow.revokes, slow.revokesFor = 0, 2*time.Second
	slow.mu.Unlock()
	stopped := make(chan struct{})
	go func() { defer close(stopped); a.stop() }()
	r.eventually("the first stops", func() bool { return !a.Joined() || slow.revoked() })
	b.stop()
	r.eventually("the third has what the second had", func() bool { return c.lanes() == 4 })
	select {
	case <-stopped:
		t.Error("the first has ended before")
	default:
	}
	<-stopped
	r.eventually("it has all", func() bool { return c.lanes() == 6 })
}

// TestATopicIsMadeAnewBetweenGenerations: a topic that is missing while the group rebalances stays with its readers, who are told when
// there is one again. A member that gains a partition of it goes on where the last owner was, although it has read the earlier topic.
func TestATopicIsMadeAnewBetweenGenerations(t *testing.T) {
	r := inProcess(t, 1, 2)
	quick := func(o *Options) { o.topicsWatched = 20 * time.Millisecond }
	first, second := r.start(newFake(), quick), r.start(newFake(), quick)
	r.eventually("each has one", func() bool { return first.lanes() == 1 && second.lanes() == 1 })
	r.eachLane(2, "old", 10)
	r.eventually("the old jobs", func() bool { return first.count()+second.count() == 20 })
	generations := func() int { return len(r.logs.lines("joined the group", "lanes=1")) }
	before := generations()
	if err := r.admin.DeleteTopics(t.Context(), []string{r.opt.LaneTopic}); err != nil {
		t.Fatal(err)
	}
	r.eventually("another generation", func() bool { return generations() >= before+2 })
	r.create(2, r.opt.LaneTopic)
	r.eachLane(2, "new", 10)
	r.eventually("the new jobs", func() bool { return first.count()+second.count() == 40 })
	r.eventually("their commit", r.allCommitted(10, 2, r.opt.LaneTopic))
	r.said(2, "level=WARN", "the topic was made anew")
	second.stop()
	r.eventually("the first has both", func() bool { return first.lanes() == 2 })
	time.Sleep(time.Second)
	r.said(2, "made anew")
	handedOnce(t, 40, first.fake, second.fake)
}
