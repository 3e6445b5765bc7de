package requeue

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
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
	at   string
	code kafka.Error
	keep bool // the records are written all the same

	mu     sync.Mutex
	mended bool
}

func (f *refusal) answer(to string, _, _ int) (int16, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if to == f.at && !f.mended {
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
	synctest.Test(t, func(t *testing.T) {
		m, log, reg := newMemory("t."), &kafkatest.LogBook{}, prometheus.NewRegistry()
		lane3 := &refusal{at: "t.lanes/3", code: kafka.NotEnoughReplicasAfterAppend}
		m.Refuse = lane3.answer
		r := start(t, Options{
			Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Logger: log.Logger(), Registerer: reg,
		})
		s := newSource("pacer.jobs/0")
		r.Put(s.job(0, campaignIn(3)), lane)
		time.Sleep(100 * time.Millisecond)
		for i := range int64(1000) {
			r.Put(s.job(1+i, campaignIn(1)), lane)
		}
		r.Put(s.job(5000, campaignIn(1)), timer)
		r.Put(s.job(5001, campaignIn(1)), dead)
		time.Sleep(time.Second)
		if s.count() != 1002 {
			t.Errorf("%d of 1002 jobs for other partitions are settled", s.count())
		}
		time.Sleep(10 * time.Minute)
		if _, ok := s.outcome(0); ok || m.Total("t.lanes/3") != 0 {
			t.Error("the job for the partition that refuses is settled")
		}
		values := gather(t, reg)
		if values["pacer_requeue_refusing_partitions"] != 1 || values["pacer_requeue_held"] != 1 || values["pacer_requeue_outage"] != 1 {
			t.Errorf("metrics %v", values)
		}
		lane3.mend()
		time.Sleep(3 * time.Second)
		if s.count() != 1003 || s.twice != 0 || m.Total("t.lanes/3") != 1 || outage(r) {
			t.Errorf("%d settled, %d twice, %d written to lane 3", s.count(), s.twice, m.Total("t.lanes/3"))
		}
		if w, i := log.Count("WARN"), log.Count("INFO"); w != 1 || i != 1 {
			t.Errorf("%d warnings, %d infos: %q", w, i, log.Lines(""))
		}
	})
}

// TestWhatWaitsForAPlaceAfterAnotherPartitionHasMoved: items of a moving partition for a place that refuses are dropped, even after the
// move. Items of others for that place are written when it accepts.
func TestWhatWaitsForAPlaceAfterAnotherPartitionHasMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("t.")
		lane3 := &refusal{at: "t.lanes/3", code: kafka.NotEnoughReplicas}
		m.Refuse = lane3.answer
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		a, b := newSource("a"), newSource("b")
		r.Put(a.job(0, campaignIn(3)), lane)
		time.Sleep(2 * time.Second) // its attempts are a second or two apart by now
		set(a, true, false)
		r.Revoke()
		r.Put(b.job(1, campaignIn(3)), lane)
		time.Sleep(2 * time.Second)
		if a.dropped != 1 || b.count() != 0 {
			t.Errorf("%d dropped, %d settled", a.dropped, b.count())
		}
		lane3.mend()
		time.Sleep(time.Minute)
		if b.count() != 1 || m.Total("") != 1 {
			t.Errorf("%d settled, %d written", b.count(), m.Total(""))
		}
	})
}

// TestWhatHasMovedIsNotWritten: a timer record of a job whose partition has moved while the timer refused would be another copy of it.
func TestWhatHasMovedIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("t.")
		m.Refuse = func(string, int, int) (int16, bool) { return int16(kafka.NotEnoughReplicas), false }
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		a := newSource("a")
		r.Put(a.job(0, "c"), timer)
		time.Sleep(time.Second)
		set(a, true, false)
		r.Revoke()
		set(a, false, true)
		m.Refuse = nil
		time.Sleep(time.Minute)
		if m.Total("") != 0 || a.count() != 0 {
			t.Errorf("%d written, %d settled", m.Total(""), a.count())
		}
	})
}

// set sets how far a source is on its way to another daemon.
func set(s *fakeSource, leaving, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revoked, s.left = leaving, left
}

// TestALeaderThatMovesIsNotLogged: leaders move in normal operation. A partition without one for longer is logged.
func TestALeaderThatMovesIsNotLogged(t *testing.T) {
	for after, logged := range map[time.Duration]bool{300 * time.Millisecond: false, 20 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			m, log := newMemory("t."), &kafkatest.LogBook{}
			moved := &refusal{at: "t.lanes/3", code: kafka.NotLeaderForPartition}
			m.Refuse = moved.answer
			r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Logger: log.Logger()})
			s := newSource("pacer.jobs/0")
			r.Put(s.job(0, campaignIn(3)), lane)
			time.Sleep(after)
			moved.mend()
			time.Sleep(10 * time.Second)
			if s.count() != 1 || m.Total("t.lanes") != 1 {
				t.Errorf("%d settled, %d written", s.count(), m.Total("t.lanes"))
			}
			if w, i := log.Count("WARN"), log.Count("INFO"); w > 0 != logged || i > 0 != logged {
				t.Errorf("without a leader for %v: %d warnings and %d notes", after, w, i)
			}
		})
	}
}

// TestACampaignTakesAnotherLane: a campaign whose lane refuses for some seconds gets another, in the order of its
// jobs; nothing is written twice.
func TestACampaignTakesAnotherLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, next := newMemory("t."), fmt.Sprint("t.lanes/", delivery.OrderOfLanes(campaignIn(3), 8).Lane(1))
		m.Refuse = (&refusal{at: "t.lanes/3", code: kafka.NotEnoughReplicas}).answer
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		s := newSource("a")
		for i := range int64(60) {
			r.Put(s.job(i, campaignIn(3)), lane)
			time.Sleep(time.Millisecond)
		}
		if s.count() != 0 {
			t.Errorf("%d settled too early", s.count())
		}
		time.Sleep(moveAfter + 2*time.Second)
		if s.count() != 60 || m.Total(next) != 60 || m.Total("") != 60 {
			t.Errorf("%d settled, %d written to the other lane, %d in all", s.count(), m.Total(next), m.Total(""))
		}
		r.Put(s.job(60, campaignIn(3)), lane)
		time.Sleep(50 * time.Millisecond)
		if s.count() != 61 || outage(r) {
			t.Error("the next job waits again")
		}
	})
}

// TestAnotherTimerPartitionIsTaken: retries and dead letters take another partition as well.
func TestAnotherTimerPartitionIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory("t.")
		m.Refuse = func(to string, _, _ int) (int16, bool) {
			refuses := to == "t.timer.5s/0" || to == "t.dead/1"
			return int16(kafka.NotEnoughReplicas) * map[bool]int16{true: 1}[refuses], !refuses
		}
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		var sources []*fakeSource
		for p := range 8 {
			s := newSource(fmt.Sprint("pacer.jobs/", p))
			sources = append(sources, s)
			r.Put(s.job(0, "c"), timer)
			r.Put(s.job(1, fmt.Sprint("c", p)), dead)
		}
		time.Sleep(moveAfter + 2*time.Second)
		for _, s := range sources {
			if s.count() != 2 {
				t.Errorf("%s: %d of 2 settled", s.name, s.count())
			}
		}
	})
}

// TestWhatMayBeWrittenStaysAtItsPartition: a record whose outcome is unknown goes nowhere else, however long its partition
// refuses: its twin would not be recognised there. A leader that is deposed while it waits for its replicas has written it,
// too.
func TestWhatMayBeWrittenStaysAtItsPartition(t *testing.T) {
	for _, code := range []kafka.Error{kafka.RequestTimedOut, kafka.NotLeaderForPartition} {
		t.Run(code.Title(), func(t *testing.T) { mayBeWritten(t, code) })
	}
}

func mayBeWritten(t *testing.T, code kafka.Error) {
	synctest.Test(t, func(t *testing.T) {
		m, next := newMemory("t."), fmt.Sprint("t.lanes/", delivery.OrderOfLanes(campaignIn(3), 8).Lane(1))
		lane3 := &refusal{at: "t.lanes/3", code: code, keep: true}
		m.Refuse = lane3.answer
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
		s := newSource("a")
		r.Put(s.job(0, campaignIn(3)), lane)
		time.Sleep(time.Second)
		r.Put(s.job(1, campaignIn(3)), lane) // not tried yet: it may go elsewhere
		time.Sleep(10 * time.Minute)
		if m.Total(next) != 1 || s.count() != 1 {
			t.Errorf("%d written to the other lane, %d settled; want 1", m.Total(next), s.count())
		}
		lane3.mend()
		time.Sleep(3 * time.Second)
		if s.count() != 2 || s.twice != 0 {
			t.Errorf("%d settled", s.count())
		}
	})
}

// TestAnOutageMovesNobody: while all lanes refuse, campaigns keep theirs.
func TestAnOutageMovesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, log := newMemory("t."), &kafkatest.LogBook{}
		down := true
		var mu sync.Mutex
		m.Refuse = func(string, int, int) (int16, bool) {
			mu.Lock()
			defer mu.Unlock()
			if down {
				return int16(kafka.NotEnoughReplicas), false
			}
			return 0, true
		}
		r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Logger: log.Logger()})
		s := newSource("a")
		for i := range int64(80) {
			r.Put(s.job(i, campaignIn(int(i%8))), lane)
		}
		time.Sleep(2 * time.Minute)
		if s.count() != 0 || log.Count("WARN") > 2 {
			t.Errorf("%d settled, %d warnings", s.count(), log.Count("WARN"))
		}
		mu.Lock()
		down = false
		mu.Unlock()
		time.Sleep(5 * time.Second)
		for l := range 8 {
			if n := m.Total(fmt.Sprint("t.lanes/", l)); n != 10 {
				t.Errorf("%d of 10 jobs are in lane %d", n, l)
			}
		}
		if s.count() != 80 || m.Total("") != 80 || log.Count("INFO") != 1 || outage(r) {
			t.Errorf("%d settled, %d written, log %q", s.count(), m.Total(""), log.Lines(""))
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
		synctest.Test(t, func(t *testing.T) {
			m, calls := newMemory("t."), 0
			var mu sync.Mutex
			m.Refuse = func(string, int, int) (int16, bool) {
				mu.Lock()
				defer mu.Unlock()
				if calls++; calls > calm {
					return 0, true
				}
				code := seed[calls%len(seed)]
				return int16(code), code == 0
			}
			r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}})
			sources := []*fakeSource{newSource("a"), newSource("b")}
			for i := range jobs {
				to := lane
				switch i % 5 {
				case 3:
					to = timer
				case 4:
					to = dead
				}
				r.Put(sources[i%2].job(int64(i), fmt.Sprint("c", i%7)), to)
				time.Sleep(time.Duration(i%3) * time.Second)
			}
			time.Sleep(10 * time.Minute)
			settled, twice := 0, 0
			for _, s := range sources {
				settled, twice = settled+s.count(), twice+s.twice
			}
			if settled != jobs || twice != 0 || m.Total("") != jobs || queued(r) != 0 {
				t.Errorf("of %d jobs %d are settled, %d twice, %d records written, %d queued", jobs, settled, twice, m.Total(""), queued(r))
			}
		})
	})
}
