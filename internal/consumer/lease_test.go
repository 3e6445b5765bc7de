package consumer

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
)

// A lease is lost once, when it was not renewed for longer than the session timeout, by either clock.
func TestLease(t *testing.T) {
	var l lease
	now := time.Now()
	if !l.holds(now) {
		t.Error("without a generation there is nothing to lose")
	}
	lost := 0
	l.begin(now, func(time.Duration) { lost++ })
	if !l.holds(now.Add(sessionTimeout)) || lost != 0 {
		t.Error("lost within the session timeout")
	}
	if l.holds(now.Add(sessionTimeout+time.Second)) || l.holds(now) || lost != 1 {
		t.Errorf("held after the session timeout, or not lost for good; told %d times", lost)
	}
	l.end()
	if !l.holds(now.Add(time.Hour)) {
		t.Error("the next generation does not begin with a lost lease")
	}
	l.begin(now, func(time.Duration) { lost++ })
	if l.holds(now.Round(0).Add(time.Minute)) { // a machine that was suspended
		t.Error("held though the clock on the wall has gone on")
	}
}

// startWaiting starts a consumer whose handler keeps twenty jobs.
func startWaiting(r *rig) *running {
	c := r.start(keeping(all))
	r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 20))
	r.eventually("the jobs wait", func() bool { return c.count() == 20 })
	return c
}

// joinsAnew checks that the jobs that wait are dropped, and read again in a new generation.
func (c *running) joinsAnew() {
	c.rig.t.Helper()
	c.rig.eventually("all are read again", func() bool {
		f := c.fake
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.open) == 20 && !slices.ContainsFunc(numbered("j", 0, 20), func(id string) bool { return f.seen[id] != 2 })
	})
	c.rig.said(1, "level=WARN", "the group has gone on without this daemon")
	c.settle(all)
	c.rig.eventually("all are committed", c.rig.allCommitted(20, 1, c.rig.jobs()))
}

// A daemon that stood still for longer than the session timeout drops the jobs that wait, and joins the group anew.
func TestASuspendedDaemonJoinsAnew(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		c := startWaiting(r)
		if !c.Owns(time.Now()) {
			t.Fatal("the partitions belong to others")
		}
		c.lease.mu.Lock()
		c.lease.seen = c.lease.seen.Add(-time.Minute)
		c.lease.mu.Unlock()
		if c.Owns(time.Now()) { // whoever asks first
			t.Error("the partitions still belong to a daemon that stood still")
		}
		c.joinsAnew()
		if !c.Owns(time.Now()) {
			t.Error("the partitions of the new generation do not belong to the daemon")
		}
	})
}

// So does one whose commit is refused, because the group has a later generation.
func TestAFencedDaemonJoinsAnew(t *testing.T) {
	r := inProcess(t, 1, 1)
	c := startWaiting(r)
	r.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		in := req.(*kmsg.OffsetCommitRequest)
		out := in.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, topic := range in.Topics {
			t := kmsg.NewOffsetCommitResponseTopic()
			t.Topic = topic.Topic
			for _, p := range topic.Partitions {
				at := kmsg.NewOffsetCommitResponseTopicPartition()
				at.Partition, at.ErrorCode = p.Partition, kerr.IllegalGeneration.Code
				t.Partitions = append(t.Partitions, at)
			}
			out.Topics = append(out.Topics, t)
		}
		return out, nil, true
	})
	c.settle(func(j *delivery.Job) bool { return j.Offset == 0 }) // the commit of this one is refused
	c.joinsAnew()
}
