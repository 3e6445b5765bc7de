package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// sweepings notes what brokers are asked to remove.
type sweepings struct {
	mu    sync.Mutex
	heard map[partition]int64
	check func(at partition, offset int64)
}

// way notes them.
func (s *sweepings) way(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
	if asked, ok := kafkatest.Message(request).(*kmsg.DeleteRecordsRequest); ok {
		for _, topic := range asked.Topics {
			for _, p := range topic.Partitions {
				s.note(partition{Topic: topic.Topic, ID: int(p.Partition)}, p.Offset)
			}
		}
	}
	return send(ctx)
}

func (s *sweepings) note(at partition, offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.heard[at] = offset; s.check != nil {
		s.check(at, offset)
	}
}

// sweeping returns the removals of consumers with these positions.
func (r *rig) sweeping(kept Positions) (s *sweepings, use func(o *Options)) {
	s = &sweepings{heard: map[partition]int64{}}
	return s, func(o *Options) {
		o.Client = r.by(s.way)
		o.KeepDelivered, o.Positions, o.PositionInterval, o.sweepEvery = false, kept, 10*time.Millisecond, 20*time.Millisecond
	}
}

func (s *sweepings) of(topic string, id int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard[partition{Topic: topic, ID: id}]
}

// Jobs of lanes and timers are settled in any order, by two owners that come and go; what is removed is never a job that
// is open, and at the end everything is.
func TestNothingOpenIsRemoved(t *testing.T) {
	onBrokers(t, 1, 2, func(t *testing.T, r *rig) {
		timer := r.opt.Group + ".timer"
		r.opt.Timers = []Timer{{Topic: timer, Delay: time.Millisecond}}
		r.create(2, timer)
		const each = 300
		for p := range 2 {
			for _, topic := range []string{r.opt.LaneTopic, timer} {
				for _, campaign := range []string{"a", "b"} {
					r.produceIDs(topic, p, campaign, numbered(fmt.Sprint(topic, p, campaign), 0, each))
				}
			}
		}
		sweep, use := r.sweeping(&keptPositions{})
		open := &openJobs{settled: map[partition]map[int64]bool{}}
		sweep.check = func(at partition, offset int64) {
			if at.Topic == r.jobs() {
				t.Errorf("records of ingress are removed: %v before %d", at, offset)
			}
			if first := open.first(at); first < offset {
				t.Errorf("%v is removed before %d, where %d is not settled", at, offset, first)
			}
		}
		fakes := []*fake{keeping(all), keeping(all)}
		settleSome := func(share float64) {
			for _, f := range fakes {
				f.settle(func(j *delivery.Job) bool { return rand.Float64() < share && open.settle(j) })
			}
		}
		settleForAWhile := func() {
			for range 20 {
				settleSome(0.1)
				time.Sleep(5 * time.Millisecond)
			}
		}
		first := r.start(fakes[0], use)
		r.eventually("jobs are handed over", func() bool { return first.count() > 4*each })
		settleForAWhile()
		second := r.start(fakes[1], use)
		r.eventually("the second has some", func() bool { return second.count() > 0 })
		settleForAWhile()
		first.stop()
		r.eventually("everything is gone", func() bool {
			settleSome(0.5)
			for p := range 2 {
				if sweep.of(r.opt.LaneTopic, p) != 2*each || sweep.of(timer, p) != 2*each {
					return false
				}
			}
			return true
		})
		second.stop()
		for p := range 2 {
			if at := []int64{beginning(t, r.admin, r.opt.LaneTopic, p), beginning(t, r.admin, timer, p)}; at[0] != 2*each || at[1] != 2*each {
				t.Errorf("the lane and the timer %d begin at %d, want %d", p, at, 2*each)
			}
		}

		// A restart, and one without the group's offsets, go on where they are, in peace.
		sweep.check = nil
		for i := range 2 {
			for p := range 2 {
				r.produceIDs(r.opt.LaneTopic, p, "a", numbered(fmt.Sprint("more", p), 0, 5))
			}
			last := r.start(newFake(), use)
			r.eventually("that is gone, too", func() bool {
				at := int64(2*each + 5*(i+1))
				return sweep.of(r.opt.LaneTopic, 0) == at && sweep.of(r.opt.LaneTopic, 1) == at
			})
			last.stop()
			handedOnce(t, 10, last.fake)
			r.opt.Group += "-other"
		}
		r.said(0, "level=ERROR")
	})
}

// openJobs keeps the unsettled jobs of each partition. A job is one record.
type openJobs struct {
	mu      sync.Mutex
	settled map[partition]map[int64]bool
}

// settle notes that the job is about to be settled.
func (o *openJobs) settle(j *delivery.Job) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := j.Source.(*source).partition
	if o.settled[at] == nil {
		o.settled[at] = map[int64]bool{}
	}
	o.settled[at][j.Offset] = true
	return true
}

// first is the first offset of the partition that is not settled.
func (o *openJobs) first(at partition) (offset int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.settled[at][offset] {
		offset++
	}
	return offset
}

// Nothing is removed that the positions kept elsewhere have not followed: they may be all that is left one day. When the group's offsets
// are gone, lanes go on from them.
func TestNothingIsRemovedWhilePositionsAreNotKept(t *testing.T) {
	r := inProcess(t, 1, 2)
	for lane, campaign := range []string{"a", "b"} {
		r.produceIDs(r.opt.LaneTopic, lane, campaign, numbered(campaign, 0, 10))
	}
	kept := &keptPositions{err: errors.New("read-only")}
	sweep, use := r.sweeping(kept)
	open := []string{"a-0002", "a-0003", "b-0005"}
	c := r.start(keeping(func(j *delivery.Job) bool { return slices.Contains(open, j.ID) }), use)
	r.eventually("committed", func() bool { return r.committed(r.opt.LaneTopic, 0) == 2 && r.committed(r.opt.LaneTopic, 1) == 5 })
	r.says(1, "level=WARN", "cannot be saved")
	time.Sleep(100 * time.Millisecond)
	removed := func() [2]int64 { return [2]int64{sweep.of(r.opt.LaneTopic, 0), sweep.of(r.opt.LaneTopic, 1)} }
	if at := removed(); at != [2]int64{} {
		t.Errorf("removed before %d", at)
	}
	kept.mu.Lock()
	kept.err = nil
	kept.mu.Unlock()
	r.eventually("removed", func() bool { return removed() == [2]int64{2, 5} })
	c.stop()
	r.said(1, "level=WARN", "cannot be saved")
	r.opt.Group += "-other"
	d := r.start(newFake(), use)
	r.eventually("the open ones", func() bool { return d.count() == 3 })
	d.stop()
	if got := d.ids(); !slices.Equal(got, open) {
		t.Errorf("read %v", got)
	}
	r.said(2, "level=WARN", "kept in the catalog")
	r.said(0, "level=ERROR")
}
