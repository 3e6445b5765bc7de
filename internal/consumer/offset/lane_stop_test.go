package offset

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// stopSim is a lane whose jobs are settled in any order. It counts what a stop would send again.
type stopSim struct {
	*Lane
	hash    []uint64 // of each record's campaign
	settled map[int64]bool
	again   int
}

func newStopSim(campaigns, records int, of func(i int) int) *stopSim {
	s := &stopSim{Lane: NewLane(0), settled: map[int64]bool{}}
	for i := range campaigns * records {
		s.hash = append(s.hash, delivery.CampaignHash(fmt.Sprint("c", of(i))))
	}
	return s
}

// read reads n records on from main, and as many of those that were left behind.
func (s *stopSim) read(n int) {
	s.visit(s.main, min(s.main+int64(n), int64(len(s.hash))), (*Lane).ClassifyMain)
	if from, _, ok := s.Candidate(); ok {
		s.BeginCatchUp(from)
		to := min(from+int64(n), s.main)
		s.visit(from, to, (*Lane).ClassifyCatchUp)
		s.EndCatchUp(to, 600*(to-from))
	}
}

func (s *stopSim) visit(from, to int64, ask func(*Lane, uint64, int64) Verdict) {
	for o := from; o < to; o++ {
		switch ask(s.Lane, s.hash[o], o) {
		case Stop:
			return
		case HandOver:
			s.Add(s.hash[o], Record{Offset: o, Size: 600, Weight: 1})
			if s.settled[o] {
				s.again++
			}
		}
	}
}

func (s *stopSim) settle(which func(offset int64) bool) {
	for o := range s.at {
		if which(o) {
			s.Settle(o)
			s.settled[o] = true
		}
	}
}

// stop goes on as the next owner does, to the end.
func (s *stopSim) stop(t *testing.T) {
	t.Helper()
	p := s.Position()
	next, err := RestoreLane(p.Offset, p.Metadata)
	if err != nil {
		t.Fatal(err)
	}
	for s.Lane = next; s.Committed() < int64(len(s.hash)); s.settle(func(int64) bool { return true }) {
		s.read(len(s.hash))
	}
	if s.again > 0 || p.Trimmed || len(s.settled) != len(s.hash) {
		t.Errorf("%d of %d settled jobs come again, trimmed %t", s.again, len(s.settled), p.Trimmed)
	}
}

// A graceful stop sends nothing again, even if jobs were sent while others waited.
func TestAStopOfALaneRepeatsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		campaigns, records int
		open               func(n int64) bool
	}{
		"a quarter waits for its destinations":     {5, 2000, func(int64) bool { return rand.IntN(4) == 0 }},
		"every other job has high priority":        {2, 2000, func(n int64) bool { return n/2%2 == 0 }},
		"the same, as many as a campaign may have": {1, maxHandedOver, func(n int64) bool { return n%2 == 0 }},
		"few holes": {1, 2000, func(n int64) bool { return n%20 == 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStopSim(c.campaigns, c.records, func(i int) int { return i % c.campaigns })
			s.read(len(s.hash))
			s.settle(func(o int64) bool { return !c.open(o) })
			s.stop(t)
		})
	}
}

// Where hardly a job is sent in order, and those of a campaign lie far apart, a lane hands over no more than a commit has room for.
func TestALaneLeavesItsCommitRoom(t *testing.T) {
	testservices.Simulation(t)
	for _, campaigns := range []int{20, 100} {
		s := newStopSim(campaigns, 600, func(int) int { return rand.IntN(campaigns) })
		for len(s.settled) < len(s.hash)/2 {
			s.read(500)
			s.settle(func(int64) bool { return rand.IntN(8) == 0 })
			if p := s.Position(); p.Trimmed {
				t.Fatalf("%d campaigns: trimmed, %d are open", campaigns, s.Open())
			}
		}
		s.stop(t)
	}
}
