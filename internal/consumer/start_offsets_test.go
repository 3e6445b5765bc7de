package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/offsetcommit"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// TestRebalanceWithoutPositions: while stored positions cannot be read, only partitions that need one wait: those with
// records and without a committed offset.
func TestRebalanceWithoutPositions(t *testing.T) {
	r := inProcess(t, 2, 4)
	kept := &keptPositions{}
	use := func(o *Options) { o.Positions, o.PositionInterval = kept, 50*time.Millisecond }
	for p := range 2 {
		r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint("before", p), 0, 50))
	}
	kept.down.Store(true)
	r.produceIDs(r.opt.LaneTopic, 3, "c", numbered("lane", 0, 10))
	a := r.start(newFake(), use)
	r.eventually("ingress is read, and lanes that are empty", func() bool { return a.count() == 100 })
	r.produceIDs(r.opt.LaneTopic, 1, "c", numbered("fresh", 0, 10))
	r.eventually("so is what is written to them now", func() bool { return a.count() == 110 })
	r.says(1, "level=WARN", "stored positions", "partitions=1")
	r.eventually("empty partitions have a commit", func() bool { return r.committed(r.opt.LaneTopic, 0) == 0 })
	if got := r.committed(r.opt.LaneTopic, 3); got != -1 {
		t.Errorf("a lane whose position is not known was committed at %d", got)
	}

	b := r.start(newFake(), use) // a rebalance
	r.eventually("both are members", func() bool { return a.Joined() && b.Joined() && b.reading.Load() != nil })
	for p := range 2 {
		r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint("after", p), 0, 50))
	}
	r.eventually("ingress is read after the rebalance", func() bool { return a.count()+b.count() >= 210 })
	kept.down.Store(false)
	r.eventually("the lane too", func() bool { return a.count()+b.count() >= 220 })
	r.eventually("it is committed", func() bool { return r.committed(r.opt.LaneTopic, 3) == 10 })
}

// TestPositionsOfAnotherTopic: a stored position counts for the topic that it is of, and not for another one that has its
// name, made anew.
func TestPositionsOfAnotherTopic(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		r.produceIDs(r.opt.LaneTopic, 0, "c", numbered("j", 0, 10))
		topic, err := r.admin.IdentityOf(t.Context(), partition{Topic: r.opt.LaneTopic})
		if err != nil {
			t.Fatal(err)
		}
		group := r.opt.Group
		for name, c := range map[string]struct {
			topic delivery.TopicID
			want  int
		}{
			"the same":                       {topic, 3},
			"made anew since":                {delivery.NewTopicID([16]byte{1}), 10},
			"saved by a daemon without them": {delivery.TopicID{}, 10},
		} {
			kept := &keptPositions{}
			r.opt.Group = group + "-" + name
			if err := kept.SavePositions(t.Context(), "", []delivery.Position{
				{Topic: r.opt.LaneTopic, Committed: 7, TopicID: c.topic},
			}); err != nil {
				t.Fatal(err)
			}
			d := r.start(newFake(), func(o *Options) { o.Positions, o.PositionInterval = kept, 20*time.Millisecond })
			r.eventually("the lane is at its end", func() bool { return r.committed(r.opt.LaneTopic, 0) == 10 })
			r.eventually("its position is stored", func() bool {
				list, _ := kept.LoadPositions(t.Context(), "")
				return slices.ContainsFunc(list, func(p delivery.Position) bool {
					return p.Topic == r.opt.LaneTopic && p.Committed == 10 && p.TopicID == topic
				})
			})
			d.stop()
			if d.count() != c.want {
				t.Errorf("%s: %d jobs are read, want %d", name, d.count(), c.want)
			}
		}
	})
}

// TestAGroupThatAnotherProgramUsed: an offset that lies in the log is used as it is, with any committed epoch.
func TestAGroupThatAnotherProgramUsed(t *testing.T) {
	r := inProcess(t, 1, 1)
	r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 50))
	if err := r.cluster.MoveTopicPartition(r.jobs(), 0, r.cluster.LeaderFor(r.jobs(), 0)); err != nil { // a clean election
		t.Fatal(err)
	}
	r.produceIDs(r.jobs(), 0, "c", numbered("j", 50, 100))
	r.eventually("a commit", func() bool {
		answer, err := r.client.Transport.RoundTrip(t.Context(), r.client.Addr, &offsetcommit.Request{
			GroupID: r.opt.Group, GenerationID: -1, RetentionTimeMs: -1, Topics: []offsetcommit.RequestTopic{{
				Name: r.jobs(), Partitions: []offsetcommit.RequestPartition{{CommittedOffset: 80}}, // of epoch 0, which ends at 50
			}},
		})
		return err == nil && answer.(*offsetcommit.Response).Topics[0].Partitions[0].ErrorCode == 0
	})
	c := r.start(newFake())
	r.eventually("the rest", func() bool { return r.committed(r.jobs(), 0) == 100 })
	if c.stop(); c.count() != 20 {
		t.Errorf("%d jobs were read\n%s", c.count(), r.logs)
	}
}

// TestExpiredIngressOffsets: a partition of ingress whose offset has expired is read from the earliest record. The log and
// the metrics say how many records are read again for that, or were deleted before they were read. A group that had no
// offset begins silently; one that had it in another topic with the name, with a line that says so.
func TestExpiredIngressOffsets(t *testing.T) {
	onBrokers(t, 5, 1, func(t *testing.T, r *rig) {
		topic, err := r.admin.IdentityOf(t.Context(), partition{Topic: r.jobs()})
		if err != nil {
			t.Fatal(err)
		}
		const again, deleted, all, anew = 0, 1, 2, 3 // 4 is new
		first := map[int]int64{deleted: 8, all: 10}
		kept := &keptPositions{}
		for p := range 5 {
			r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint("p", p), 0, 10))
			if before := first[p]; before > 0 {
				r.eventually("records are deleted", func() bool {
					out, ok := r.admin.DeleteRecords(t.Context(), map[partition]int64{{Topic: r.jobs(), ID: p}: before})[partition{Topic: r.jobs(), ID: p}]
					return ok && out.Err == nil
				})
			}
			position := delivery.Position{Topic: r.jobs(), Partition: p, Committed: 3, TopicID: topic}
			switch p {
			case again:
				position.Committed = 7
			case anew:
				position.TopicID = delivery.NewTopicID([16]byte{1})
			case 4:
				continue
			}
			if err := kept.SavePositions(t.Context(), "", []delivery.Position{position}); err != nil {
				t.Fatal(err)
			}
		}
		c := r.start(newFake(), func(o *Options) { o.Positions = kept })
		r.eventually("all are read", func() bool { return c.count() == 32 })
		r.eventually("all are committed", r.allCommitted(10, 5, r.jobs()))
		for p, words := range map[int][]string{
			again: {"committed=7", "earliest=0", "records=7", "read before"}, deleted: {"committed=3", "earliest=8", "records=5", "deleted"},
			all: {"committed=3", "earliest=10", "records=7", "deleted"},
		} {
			words = append(words, "level=WARN", fmt.Sprintf("partition=%s/%d", r.jobs(), p), "remedy=")
			r.said(1, words...)
		}
		r.said(3, "offset of a partition is gone")
		r.said(1, "of another topic with its name")
		if lost, reread := c.lostRecords(lostDeleted), testutil.ToFloat64(c.metrics.reread); lost != 12 || reread != 7 {
			t.Errorf("%v records count as lost, %v as read again", lost, reread)
		}
	})
}

// TestRebalanceAsksNoDatabase: partitions that move do not wait for positions to be stored, which a slow database makes last;
// those of a daemon that stops are.
func TestRebalanceAsksNoDatabase(t *testing.T) {
	r := inProcess(t, 2, 2)
	for _, topic := range []string{r.jobs(), r.opt.LaneTopic} {
		r.produceIDs(topic, 0, "c", numbered(topic, 0, 10))
	}
	kept := &keptPositions{}
	c := r.start(newFake(), func(o *Options) { o.Positions, o.PositionInterval = kept, time.Hour })
	r.eventually("all", func() bool { return c.count() == 20 })
	other := r.start(newFake(), func(o *Options) { o.PositionInterval = time.Hour })
	r.eventually("both have partitions", func() bool { return len(r.logs.lines("joined the group", "ingress=1", "lanes=1")) >= 2 })
	if n := kept.saves.Load(); n > 0 {
		t.Errorf("positions were saved %d times in a rebalance", n)
	}
	other.stop()
	c.stop()
	if kept.saves.Load() == 0 {
		t.Error("a daemon that stops has not saved its positions")
	}
}

// TestAPartitionThatComesBackGoesOnFromItsCommit: a partition is lost while its committed offset is asked for, another daemon reads it, and it
// comes back before the answer. What was committed meanwhile is not sent again.
func TestAPartitionThatComesBackGoesOnFromItsCommit(t *testing.T) {
	r := inProcess(t, 2, 1)
	for p := range 2 {
		r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint("p", p), 0, 10))
	}
	f, release := newFake(), make(chan struct{})
	var asked atomic.Int32
	r.start(f, r.through(func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
		if _, ok := kafkatest.Message(request).(*kmsg.OffsetFetchRequest); !ok {
			return send(ctx)
		}
		first := asked.Add(1) == 1
		answer, err := send(ctx)
		for ctx.Err() == nil && (first && !closed(release) || !first && f.count() == 0) {
			time.Sleep(time.Millisecond)
		}
		if !first {
			answer, err = send(ctx)
		}
		return answer, err
	}))
	r.eventually("the first asks", func() bool { return asked.Load() == 1 })
	second := r.start(newFake())
	r.eventually("the second reads one of them", func() bool {
		return second.count() == 10 && (r.committed(r.jobs(), 0) == 10 || r.committed(r.jobs(), 1) == 10)
	})
	before := len(r.logs.lines("joined the group", "ingress=2"))
	second.stop()
	r.eventually("it comes back", func() bool { return len(r.logs.lines("joined the group", "ingress=2")) > before })
	close(release)
	r.eventually("all are committed", r.allCommitted(10, 2, r.jobs()))
	handedOnce(t, 20, f, second.fake)
}

// closed reports whether a channel is closed.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
