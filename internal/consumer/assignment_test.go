package consumer

import (
	"context"
	"errors"
	"net"
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

// TestWhatIsKeptGoesOn: a member that joins takes over some partitions, after their jobs in flight are settled; of all others the
// first member goes on, and nothing is handed over twice.
func TestWhatIsKeptGoesOn(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		const partitions, jobs = 4, 5
		r.create(partitions, r.jobs(), r.opt.LaneTopic)
		f := newFake()
		f.keep = func(*delivery.Job) bool { return true }
		first := r.start(f)
		r.eventually("joined", first.Joined)
		for p := range partitions {
			r.produceIDs(r.opt.LaneTopic, p, "c", numbered(string(rune('a'+p)), 0, jobs))
		}
		r.eventually("all are in hand", func() bool { return first.count() == partitions*jobs })
		first.settle(func(j *delivery.Job) bool { return j.Offset == 0 })

		second := r.start(newFake())
		r.eventually("the second has its part", func() bool { return second.count() == 2*(jobs-1) })
		first.fake.mu.Lock()
		drains, kept := first.drains, len(first.open)
		first.fake.mu.Unlock()
		if drains != 0 || kept != 2*(jobs-1) {
			t.Errorf("the first has let go of everything %d times, and has %d jobs in hand", drains, kept)
		}
		first.settle(nil)
		for p := range partitions {
			r.eventually("all is committed", func() bool { return r.committed(r.opt.LaneTopic, p) == jobs })
		}
		second.stop()
		r.eventually("the first has all of them again", func() bool {
			return len(first.Backlog().Lanes) == partitions
		})
		for _, c := range []*running{first, second} {
			for id, n := range c.seen {
				if n != 1 {
					t.Errorf("%s was handed over %d times", id, n)
				}
			}
		}
		if warns := r.logs.warnings(); len(warns) > 0 {
			t.Errorf("warned of ordinary life: %v", warns)
		}
	})
}

// TestACoordinatorThatIsAway: while the coordinator does not answer, or says that it is not one any more, a member keeps what it holds,
// and goes on where it was when there is one again.
func TestACoordinatorThatIsAway(t *testing.T) {
	t.Parallel()
	cluster := inProcess(t)
	r := newRig(t, cluster.ListenAddrs())
	r.create(2, r.jobs(), r.opt.LaneTopic)
	f := newFake()
	f.keep = func(*delivery.Job) bool { return true }
	c := r.start(f)
	r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 20))
	r.eventually("the jobs are in hand", func() bool { return c.count() == 20 })
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
	c.settle(nil)
	r.eventually("all are committed", func() bool { return r.committed(r.jobs(), 0) == 20 })
	if n := len(r.logs.lines("joined the group")); n != 1 || f.drains != 0 {
		t.Errorf("joined %d times, let go of everything %d times: %s", n, f.drains, r.logs)
	}
	for id, n := range c.seen {
		if n != 1 {
			t.Errorf("%s was handed over %d times", id, n)
		}
	}
}

// TestASilentGroupIsLeftInTime: a member that hears nothing lets go of everything before the group gives up on it, and joins again as
// the same one.
func TestASilentGroupIsLeftInTime(t *testing.T) {
	t.Parallel()
	cluster := inProcess(t)
	r := newRig(t, cluster.ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	c, f := startWaiting(r)
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
	if late := r.logs.lines("the group has gone on without this daemon"); len(late) != 0 {
		t.Errorf("it waited until the group had given up on it: %s", late)
	}
	silent.Store(false)
	r.eventually("all are read again", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.open) == 20
	})
	if now := r.memberOf(); now != member {
		t.Errorf("it came back as %s, and was %s", now, member)
	}
	c.settle(nil)
	r.eventually("all are committed", func() bool { return r.committed(r.jobs(), 0) == 20 })
}

// heldJoin holds the answer to one join up.
type heldJoin struct {
	kafka.RoundTripper
	next     atomic.Bool
	in, over chan struct{}
}

func (h *heldJoin) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	answer, err := h.RoundTripper.RoundTrip(ctx, addr, request)
	if _, joins := kafkatest.Message(request).(*kmsg.JoinGroupRequest); joins && h.next.CompareAndSwap(true, false) {
		close(h.in)
		<-h.over
	}
	return answer, err
}

// TestWhatIsLetGoOfDuringAJoinIsDealt: a member claims a partition in its join, and lets go of it before the answer. The partition is not
// dealt; the member joins once more.
func TestWhatIsLetGoOfDuringAJoinIsDealt(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs())
	r.create(2, r.opt.LaneTopic)
	f := newFake()
	f.keep, f.lingers = func(*delivery.Job) bool { return true }, true
	join := &heldJoin{in: make(chan struct{}), over: make(chan struct{})}
	first := r.start(f, func(o *Options) {
		o.Client = newBroker(t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper { join.RoundTripper = inner; return join })
	})
	for p := range 2 {
		r.produceIDs(r.opt.LaneTopic, p, "c", numbered(string(rune('a'+p)), 0, 1))
	}
	r.eventually("both are read", func() bool { return first.count() == 2 })
	has := func(c *running) int { return int(metric.Value(c.metrics.partitions[delivery.FromLane])) }
	second := r.start(newFake())
	var leaving *delivery.Job
	r.eventually("one is to move", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, j := range f.open {
			if is, _ := j.Source.Revoked(); is {
				leaving = j
			}
		}
		return leaving != nil && second.Joined()
	})
	join.next.Store(true)
	third := r.start(newFake())
	<-join.in
	leaving.Source.Drop(leaving.Offset)
	r.eventually("it is let go of", func() bool { return has(first) == 1 })
	close(join.over)
	r.eventually("it has moved", func() bool { return has(first) == 1 && has(second)+has(third) == 1 })
}

// TestEachPartitionMovesWhenItCan: a partition whose jobs in flight take long does not keep others from moving.
func TestEachPartitionMovesWhenItCan(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs())
	r.create(4, r.opt.LaneTopic)
	f := newFake()
	f.keep = func(j *delivery.Job) bool { return j.Source.(*source).ID == 0 }
	f.lingers = true
	first := r.start(f)
	for p := range 4 {
		r.produceIDs(r.opt.LaneTopic, p, "c", numbered(string(rune('a'+p)), 0, 5))
	}
	r.eventually("all are read", func() bool { return first.count() == 20 })
	g := newFake()
	g.keep, g.lingers = f.keep, true
	second := r.start(g)
	r.eventually("what can move has", func() bool { return len(second.Backlog().Lanes) == 2 || movesTo(first, second) })
	first.settle(nil)
	r.eventually("all have moved", func() bool { return len(second.Backlog().Lanes) == 2 && len(first.Backlog().Lanes) == 2 })
}

// movesTo reports whether one of two partitions has moved, and the other one waits.
func movesTo(first, second *running) bool {
	return len(second.Backlog().Lanes) == 1 && len(first.Backlog().Lanes)+len(first.Backlog().Unreadable) == 3
}

// TestAStoppingMemberIsDealtNothing: two members stop, and one of them has to wait for its jobs in flight. The third member reads the
// other's partitions at once.
func TestAStoppingMemberIsDealtNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs())
	r.create(6, r.opt.LaneTopic)
	slow := newFake()
	slow.drainsFor = 3 * time.Second
	lanes := func(c *running) int { return len(c.Backlog().Lanes) }
	a, b, c := r.start(slow), r.start(newFake()), r.start(newFake())
	r.eventually("each has its part", func() bool { return lanes(a) == 2 && lanes(b) == 2 && lanes(c) == 2 })
	stopped := make(chan struct{})
	go func() { defer close(stopped); a.stop() }()
	r.eventually("the first stops", func() bool { return !a.Joined() || slow.draining() })
	b.stop()
	r.eventually("the third has what the second had", func() bool { return lanes(c) == 4 })
	select {
	case <-stopped:
		t.Error("the first has ended before")
	default:
	}
	<-stopped
	r.eventually("it has all", func() bool { return lanes(c) == 6 })
}

// TestAPartitionIsGainedOfATopicThatWasMadeAnew: a member that gains a partition takes it for one of the topic as it is now, and goes on
// where the last owner was, although it has read an earlier topic of that name.
func TestAPartitionIsGainedOfATopicThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs())
	r.create(2, r.opt.LaneTopic)
	first, second := r.start(newFake()), r.start(newFake())
	lanes := func(c *running) int { return len(c.Backlog().Lanes) }
	r.eventually("each has one", func() bool { return lanes(first) == 1 && lanes(second) == 1 })
	fill := func(name string) {
		for p := range 2 {
			r.produceIDs(r.opt.LaneTopic, p, "c", numbered(name+string(rune('a'+p)), 0, 10))
		}
	}
	fill("old")
	r.eventually("the old jobs", func() bool { return first.count()+second.count() == 20 })
	if err := newBroker(t, r.brokers).DeleteTopics(t.Context(), []string{r.opt.LaneTopic}); err != nil {
		t.Fatal(err)
	}
	r.create(2, r.opt.LaneTopic)
	fill("new")
	r.eventually("the new jobs", func() bool { return first.count()+second.count() == 40 })
	for p := range 2 {
		r.eventually("their commit", func() bool { return r.committed(r.opt.LaneTopic, p) == 10 })
	}
	noticed := len(r.logs.lines("made anew"))
	second.stop()
	r.eventually("the first has both", func() bool { return lanes(first) == 2 })
	time.Sleep(topicsWatched + time.Second)
	if n := len(r.logs.lines("made anew")); n != noticed {
		t.Errorf("%d lines more: %s", n-noticed, r.logs)
	}
	for id, n := range first.seen {
		if n+second.seen[id] != 1 {
			t.Errorf("%s was handed over %d times", id, n+second.seen[id])
		}
	}
}
