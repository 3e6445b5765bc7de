package requeue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// campaignIn returns the id of a campaign whose first lane of eight is that one.
func campaignIn(lane int) string {
	for n := 0; ; n++ {
		if id := fmt.Sprint("c", n); delivery.OrderOfLanes(id, 8).Lane(0) == lane {
			return id
		}
	}
}

// refusal answers for one partition until it is mended.
type refusal struct {
	at   string // "": all
	code kafka.Error
	keep bool // the records are written all the same

	mu     sync.Mutex
	mended bool
}

// refuse has a partition refuse.
func (r *rig) refuse(at string, code kafka.Error) *refusal {
	f := &refusal{at: at, code: code}
	r.m.Refuse = f.answer
	return f
}

func (f *refusal) answer(to string, _, _ int) (int16, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if (f.at == "" || to == f.at) && !f.mended {
		return int16(f.code), f.keep
	}
	return 0, true
}

func (f *refusal) mend() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mended = true
}

// TestOnePartitionRefusesAlone: what must go to a partition that refuses waits, loudly. Everything else of the same source
// is written.
func TestOnePartitionRefusesAlone(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		lane3 := r.refuse("t.lanes/3", kafka.NotEnoughReplicasAfterAppend)
		s := newSource("pacer.jobs/0")
		r.Put(s.job(0, campaignIn(3)), lane)
		time.Sleep(100 * time.Millisecond)
		for i := range int64(1000) {
			r.Put(s.job(1+i, campaignIn(1)), lane)
		}
		r.Put(s.job(5000, campaignIn(1)), timer)
		r.Put(s.job(5001, campaignIn(1)), dead)
		time.Sleep(time.Second)
		r.settled(1002, s)
		time.Sleep(10 * time.Minute)
		if _, ok := s.outcome(0); ok || r.m.Total("t.lanes/3") != 0 {
			t.Error("the job for the partition that refuses is settled")
		}
		r.shows(map[string]float64{"pacer_requeue_refusing_partitions": 1, "pacer_requeue_held": 1, "pacer_requeue_outage": 1})
		lane3.mend()
		time.Sleep(3 * time.Second)
		if r.settled(1003, s); r.outage() || r.m.Total("t.lanes/3") != 1 {
			t.Errorf("%d written to lane 3", r.m.Total("t.lanes/3"))
		}
		r.logged(1, 1)
	})
}

// TestWhatWaitsForAPlaceAfterAnotherPartitionHasMoved: items of a moving partition for a place that refuses are dropped, even after the
// move, unless they may have been written. Items of others for that place are written when it accepts.
func TestWhatWaitsForAPlaceAfterAnotherPartitionHasMoved(t *testing.T) {
	for code, dropped := range map[kafka.Error]int{kafka.NotEnoughReplicas: 1, kafka.RequestTimedOut: 0} {
		onMemory(t, func(t *testing.T, r *rig) {
			lane3 := r.refuse("t.lanes/3", code)
			a, b := newSource("a"), newSource("b")
			r.Put(a.job(0, campaignIn(3)), lane)
			time.Sleep(2 * time.Second) // its attempts are a second or two apart by now
			a.moves(true, false)
			r.Revoke()
			r.Put(b.job(1, campaignIn(3)), lane)
			time.Sleep(2 * time.Second)
			if a.dropped != dropped || a.count()+b.count() != 0 {
				t.Errorf("%s: %d dropped, %d settled", code, a.dropped, a.count()+b.count())
			}
			lane3.mend()
			time.Sleep(time.Minute)
			r.settled(2-dropped, a, b)
		})
	}
}

// TestAnOutageEndsWithWhatWaits: what waited has moved to another daemon, so that nothing is written here any more that would show that Kafka works.
func TestAnOutageEndsWithWhatWaits(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		r.refuse("", kafka.NotEnoughReplicas)
		s := newSource("a")
		r.Put(s.job(0, "c"), timer)
		time.Sleep(time.Minute)
		r.shows(map[string]float64{"pacer_requeue_outage": 1, "pacer_requeue_queued": 1})
		s.moves(false, true)
		r.Revoke()
		time.Sleep(time.Minute)
		r.shows(map[string]float64{"pacer_requeue_outage": 0, "pacer_requeue_queued": 0})
		r.Put(newSource("b").job(0, "c"), timer)
		time.Sleep(time.Minute)
		r.logged(2, 0) // the next outage is logged, too
	})
}

// TestRevokeDropsWhatNeedNotBeWritten: of a partition that is about to move, a job on its way to a lane that is in no produce call is dropped.
// One in a call is settled, and so is a dead letter: its job was sent, and would be sent again.
func TestRevokeDropsWhatNeedNotBeWritten(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		s := newSource("a")
		r.m.OnProduce = func(context.Context, int) (int16, error) { time.Sleep(time.Second); return 0, nil }
		r.Put(s.job(1, "c"), lane)
		synctest.Wait() // in the produce call
		r.Put(s.job(2, "c"), lane)
		r.Put(s.job(3, "c"), dead)
		s.moves(true, false)
		r.Revoke()
		r.Put(s.job(4, "c"), lane)
		if s.dropped != 2 {
			t.Errorf("%d are dropped before the call has ended", s.dropped)
		}
		time.Sleep(3 * time.Second)
		_, one := s.outcome(1)
		if _, letter := s.outcome(3); !one || !letter || s.count() != 2 || s.dropped != 2 {
			t.Errorf("settled: the one in flight %t, the dead letter %t, %d in all; %d dropped", one, letter, s.count(), s.dropped)
		}
		r.settled(2, s)
	})
}

// TestWhatHasMovedIsNotWritten: a timer record of a job whose partition has moved while the timer refused would be another copy of it.
func TestWhatHasMovedIsNotWritten(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		all := r.refuse("", kafka.NotEnoughReplicas)
		a := newSource("a")
		r.Put(a.job(0, "c"), timer)
		time.Sleep(time.Second)
		a.moves(true, false)
		r.Revoke()
		a.moves(false, true)
		all.mend()
		time.Sleep(time.Minute)
		r.settled(0, a)
	})
}

// moves sets how far a source is on its way to another daemon.
func (s *fakeSource) moves(leaving, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked, s.left = leaving, left
}

// TestALeaderThatMovesIsNotLogged: leaders move in normal operation. A partition without one for longer is logged.
func TestALeaderThatMovesIsNotLogged(t *testing.T) {
	for after, logged := range map[time.Duration]bool{300 * time.Millisecond: false, 20 * time.Second: true} {
		onMemory(t, func(t *testing.T, r *rig) {
			moved := r.refuse("t.lanes/3", kafka.NotLeaderForPartition)
			s := newSource("pacer.jobs/0")
			r.Put(s.job(0, campaignIn(3)), lane)
			time.Sleep(after)
			moved.mend()
			time.Sleep(10 * time.Second)
			r.settled(1, s)
			if w, i := r.log.Count("WARN"), r.log.Count("INFO"); w > 0 != logged || i > 0 != logged {
				t.Errorf("without a leader for %v: %d warnings and %d notes", after, w, i)
			}
		})
	}
}

// TestACampaignTakesAnotherLane: a campaign whose lane refuses for some seconds gets another, in the order of its
// jobs; nothing is written twice. Retries and dead letters take another partition as well.
func TestACampaignTakesAnotherLane(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		next := fmt.Sprint("t.lanes/", delivery.OrderOfLanes(campaignIn(3), 8).Lane(1))
		refusals := map[string]bool{"t.lanes/3": true, "t.timer.5s/0": true, "t.dead/1": true}
		r.m.Refuse = func(to string, _, _ int) (int16, bool) {
			if refusals[to] {
				return int16(kafka.NotEnoughReplicas), false
			}
			return 0, true
		}
		s := newSource("a")
		for i := range int64(60) {
			r.Put(s.job(i, campaignIn(3)), lane)
			time.Sleep(time.Millisecond)
		}
		if s.count() != 0 {
			t.Errorf("%d settled too early", s.count())
		}
		all := []*fakeSource{s}
		for p := range 8 {
			other := newSource(fmt.Sprint("pacer.jobs/", p))
			all = append(all, other)
			r.Put(other.job(0, "c"), timer)
			r.Put(other.job(1, fmt.Sprint("c", p)), dead)
		}
		time.Sleep(moveAfter + 2*time.Second)
		if r.settled(60+16, all...); r.m.Total(next) != 60 {
			t.Errorf("%d written to the other lane", r.m.Total(next))
		}
		r.Put(s.job(60, campaignIn(3)), lane)
		time.Sleep(50 * time.Millisecond)
		if s.count() != 61 || r.outage() {
			t.Error("the next job waits again")
		}
	})
}

// TestWhatMayBeWrittenStaysAtItsPartition: a record whose outcome is unknown goes nowhere else, however long its partition
// refuses: its twin would not be recognised there. A leader that is deposed while it waits for its replicas has written it,
// too.
func TestWhatMayBeWrittenStaysAtItsPartition(t *testing.T) {
	for _, code := range []kafka.Error{kafka.RequestTimedOut, kafka.NotLeaderForPartition} {
		t.Run(code.Title(), func(t *testing.T) {
			onMemory(t, func(t *testing.T, r *rig) {
				next := fmt.Sprint("t.lanes/", delivery.OrderOfLanes(campaignIn(3), 8).Lane(1))
				lane3 := r.refuse("t.lanes/3", code)
				lane3.keep = true
				s := newSource("a")
				r.Put(s.job(0, campaignIn(3)), lane)
				time.Sleep(time.Second)
				r.Put(s.job(1, campaignIn(3)), lane) // not tried yet: it may go elsewhere
				time.Sleep(10 * time.Minute)
				if r.m.Total(next) != 1 || s.count() != 1 {
					t.Errorf("%d written to the other lane, %d settled; want 1", r.m.Total(next), s.count())
				}
				lane3.mend()
				time.Sleep(3 * time.Second)
				if s.count() != 2 || s.twice != 0 {
					t.Errorf("%d settled", s.count())
				}
			})
		})
	}
}

// TestAnOutageMovesNobody: while all lanes refuse, campaigns keep theirs.
func TestAnOutageMovesNobody(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		down := r.refuse("", kafka.NotEnoughReplicas)
		s := newSource("a")
		for i := range int64(80) {
			r.Put(s.job(i, campaignIn(int(i%8))), lane)
		}
		time.Sleep(2 * time.Minute)
		if s.count() != 0 || r.log.Count("WARN") > 2 {
			t.Errorf("%d settled, %d warnings", s.count(), r.log.Count("WARN"))
		}
		down.mend()
		time.Sleep(5 * time.Second)
		for l := range 8 {
			if n := r.m.Total(fmt.Sprint("t.lanes/", l)); n != 10 {
				t.Errorf("%d of 10 jobs are in lane %d", n, l)
			}
		}
		if r.settled(80, s); r.log.Count("INFO") != 1 || r.outage() {
			t.Errorf("log %q", r.log.Lines(""))
		}
	})
}

// TestNothingIsLostOrRepeatedByRefusals: partitions refuse anything at any time. Each job is settled once, after its record was accepted.
// No record is written twice where the refusal was certain.
func TestNothingIsLostOrRepeatedByRefusals(t *testing.T) {
	codes := []kafka.Error{0, 0, kafka.NotEnoughReplicas, kafka.TopicAuthorizationFailed, kafka.MessageSizeTooLarge, kafka.LeaderNotAvailable}
	testservices.Few(t, 40, func(rt *rapid.T) {
		seed := rapid.SliceOfN(rapid.SampledFrom(codes), 40, 40).Draw(rt, "answers")
		calm := rapid.IntRange(10, 300).Draw(rt, "calls until all works")
		jobs := rapid.IntRange(1, 60).Draw(rt, "jobs")
		onMemory(t, func(t *testing.T, r *rig) {
			calls := 0
			var mu sync.Mutex
			r.m.Refuse = func(string, int, int) (int16, bool) {
				mu.Lock()
				defer mu.Unlock()
				if calls++; calls > calm {
					return 0, true
				}
				code := seed[calls%len(seed)]
				return int16(code), code == 0
			}
			sources := []*fakeSource{newSource("a"), newSource("b")}
			for i := range jobs {
				to := []delivery.Reroute{lane, lane, lane, timer, dead}[i%5]
				r.Put(sources[i%2].job(int64(i), fmt.Sprint("c", i%7)), to)
				time.Sleep(time.Duration(i%3) * time.Second)
			}
			time.Sleep(10 * time.Minute)
			if r.settled(jobs, sources...); r.waiting() != 0 {
				t.Errorf("%d wait", r.waiting())
			}
		})
	})
}
