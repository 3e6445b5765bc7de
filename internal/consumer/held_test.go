package consumer

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
)

// TestALaneWhoseCommitCannotBeRead: a lane with metadata that cannot be read, as a later version may have written it, is
// not read, nor committed: what was sent beyond its offset is not known. All other partitions are. Once an operator has
// reset its offset, it is read from there.
func TestALaneWhoseCommitCannotBeRead(t *testing.T) {
	onBrokers(t, 1, 2, func(t *testing.T, r *rig) {
		for lane, prefix := range []string{"held", "read"} {
			r.produceIDs(r.opt.LaneTopic, lane, "c", numbered(prefix, 0, 10))
			r.commitWith(r.opt.LaneTopic, lane, 3, []string{"of a later version", ""}[lane])
		}
		r.produceIDs(r.jobs(), 0, "c", numbered("fresh", 0, 10))
		r.commitWith(r.jobs(), 0, 2, "of a later version")
		c := r.start(newFake())
		r.eventually("the others are read", func() bool { return c.count() >= 15 })
		r.eventually("they are committed", func() bool {
			return r.committed(r.opt.LaneTopic, 1) == 10 && r.committed(r.jobs(), 0) == 10
		})
		r.said(1, "level=ERROR", "metadata", r.opt.LaneTopic+"/0", "offset=3", "remedy=")
		r.said(1, "level=WARN", "metadata", r.jobs()+"/0", "offset=2")
		if got := testutil.ToFloat64(c.metrics.unreadableLanes); got != 1 {
			t.Errorf("%v lanes are held", got)
		}
		if b := c.Backlog(); len(b.Lanes) != 1 || b.Lanes[0].Lane != 1 || len(b.Unreadable) != 1 || b.Unreadable[0] != 0 {
			t.Errorf("the backlog is of %v, and %v are held", b.Lanes, b.Unreadable)
		}
		c.stop()
		if got := testutil.ToFloat64(c.metrics.unreadableLanes); got != 0 {
			t.Errorf("%v lanes are held after the end", got)
		}
		if c.count() != 15 || r.committed(r.opt.LaneTopic, 0) != 3 {
			t.Errorf("%d jobs were read, the lane is committed at %d", c.count(), r.committed(r.opt.LaneTopic, 0))
		}

		r.commitWith(r.opt.LaneTopic, 0, 5, "")
		d := r.start(newFake())
		r.eventually("the lane is read from the offset", func() bool { return r.committed(r.opt.LaneTopic, 0) == 10 })
		if d.count() != 5 || !d.saw("held-0005") {
			t.Errorf("%d jobs were read", d.count())
		}
	})
}

// TestALaneThatIsNotBegunIsNotUnreadable: while it is being found out where to begin, nothing is wrong.
func TestALaneThatIsNotBegunIsNotUnreadable(t *testing.T) {
	t.Parallel()
	c := &Consumer{}
	begins, passed := &holding{from: delivery.FromLane}, &holding{from: delivery.FromLane}
	passed.ID = 1
	passed.passed.Store(true)
	c.reading.Store(&reading{1, []*holding{begins, passed}})
	if b := c.Backlog(); len(b.Lanes) != 0 || len(b.Unreadable) != 1 || b.Unreadable[0] != 1 {
		t.Errorf("read are %v, unreadable are %v", b.Lanes, b.Unreadable)
	}
}

// commitWith commits an offset with metadata for the group, which has no members.
func (r *rig) commitWith(topic string, id int, offset int64, metadata string) {
	r.t.Helper()
	at := partition{Topic: topic, ID: id}
	r.eventually("a commit without members", func() bool {
		outcomes, err := r.admin.Commit(r.t.Context(), broker.Member{Group: r.opt.Group, Generation: -1}, map[partition]broker.Commit{
			at: {Offset: offset, Metadata: metadata},
		})
		return err == nil && outcomes[at] == nil
	})
}
