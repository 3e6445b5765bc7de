package offset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// readSim drives one lane over a log of records of one size and counts what is read. Its handler does as package pacer does: a queue
// holds two seconds' worth of its campaign's jobs, at least 16. The queue reports room once it is half empty and a job of it was refused.
type readSim struct {
	lane  *Lane
	log   []int // the campaign of each record
	ids   []string
	hash  []uint64
	rates []float64 // jobs a second
	owed  []bool
	queue [][]int64
	due   []float64
	ahead int // units that may wait of a campaign, beyond two seconds' worth
	read  int // records
	reads int
	sent  []int
}

const (
	simRecord = 450 // bytes
	// How much the reader of a lane fetches and hands over at once.
	laneJobs      = 1000
	minFetchBytes = 16 << 10
	maxFetchBytes = 256 << 10
)

func newReadSim(rates []float64, each int) *readSim {
	s := &readSim{lane: NewLane(0), rates: rates, ahead: 16}
	n := len(rates)
	s.owed, s.queue, s.due, s.sent = make([]bool, n), make([][]int64, n), make([]float64, n), make([]int, n)
	for i := range rates {
		s.ids = append(s.ids, fmt.Sprintf("c%d", i))
		s.hash = append(s.hash, delivery.CampaignHash(s.ids[i]))
		s.due[i] = rand.Float64()
	}
	for range each {
		for i := range rates {
			s.log = append(s.log, i)
		}
	}
	return s
}

func (s *readSim) room(i int) int { return max(s.ahead, int(2*s.rates[i])) }

// main reads the whole log, as the main reader does while others wait.
func (s *readSim) main() {
	for s.lane.main < int64(len(s.log)) {
		s.visit(s.lane.main, int64(len(s.log)), (*Lane).ClassifyMain)
	}
	s.read, s.reads = 0, 0
}

// visit reads up to the offset to, offers what was taken, and returns where it ended.
func (s *readSim) visit(from, to int64, ask func(*Lane, uint64, int64) Verdict) (next int64, got []int64) {
	for next = from; next < to && len(got) < laneJobs; next++ {
		i := s.log[next]
		v := ask(s.lane, s.hash[i], next)
		if v == Stop {
			break
		}
		s.read++
		if v == HandOver {
			s.lane.Add(s.hash[i], Record{Offset: next, Size: simRecord, Weight: 1})
			got = append(got, next)
		}
	}
	s.reads++
	if s.lane.reads == 0 || next > s.lane.main { // a main read
		s.offer(got)
	}
	return next, got
}

func (s *readSim) catchUp() bool {
	from, bytes, ok := s.lane.Candidate()
	if !ok {
		return false
	}
	s.lane.BeginCatchUp(from)
	to := min(from+min(max(bytes, minFetchBytes), maxFetchBytes)/simRecord, s.lane.main)
	next, got := s.visit(from, to, (*Lane).ClassifyCatchUp)
	s.lane.EndCatchUp(next, (next-from)*simRecord)
	s.offer(got)
	return true
}

func (s *readSim) offer(offsets []int64) {
	refused := map[int]bool{}
	for _, o := range offsets {
		i := s.log[o]
		if refused[i] || len(s.queue[i]) >= s.room(i) {
			refused[i], s.owed[i] = true, true
			s.lane.GiveBack(o)
			continue
		}
		s.queue[i] = append(s.queue[i], o)
	}
}

// pass lets the campaigns send for a tenth of a second.
func (s *readSim) pass() {
	for i, rate := range s.rates {
		for s.due[i] += rate / 10; s.due[i] >= 1; s.due[i]-- {
			if len(s.queue[i]) == 0 {
				continue // late: the slot is lost
			}
			s.lane.Settle(s.queue[i][0])
			s.queue[i] = s.queue[i][1:]
			s.sent[i]++
		}
		if s.owed[i] && len(s.queue[i]) <= s.room(i)/2 {
			s.owed[i] = false
			s.lane.GrantCapacity(s.hash[i], int64(s.room(i)-len(s.queue[i])))
		}
	}
}

// TestLaneReadsLittleMoreThanIsSent: how many records the catch-up reads of a shared lane read per job that is sent. A
// campaign's jobs lie as far apart as there are campaigns, so one that shares its position with no other has to read
// as many.
func TestLaneReadsLittleMoreThanIsSent(t *testing.T) {
	testservices.Simulation(t)
	for _, tc := range []struct {
		name  string
		rates []float64
		ahead int
		most  float64
	}{
		{"alone", []float64{100}, 16, 1.3},
		{"alone and slow", []float64{1}, 16, 2},
		{"equal rates read together", []float64{2, 2, 2, 2, 2, 2, 2, 2}, 16, 1.8},
		{"unequal rates read for themselves", []float64{1, 14, 200}, 16, 4},
		{"a crowd of equals", repeatRate(5, 40), 16, 2.5},
		{"a crowd with little memory", repeatRate(1, 40), 4, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const runs = 20 // chance decides who is read first; one run says little
			read, sent := 0, 0
			for range runs {
				s := newReadSim(tc.rates, int(slices.Max(tc.rates)*simSeconds*1.1)+50)
				s.ahead = tc.ahead
				s.run(t)
				read += s.read
				for _, n := range s.sent {
					sent += n
				}
			}
			factor := float64(read) / float64(sent)
			t.Logf("%.2f records read per job sent", factor)
			if factor > tc.most {
				t.Errorf("%.2f records read per job sent, want at most %.1f", factor, tc.most)
			}
		})
	}
}

const simSeconds = 60

// run sends for a minute. Meanwhile no campaign may run out of jobs.
func (s *readSim) run(t *testing.T) {
	t.Helper()
	s.main()
	for tenth := range simSeconds * 10 {
		s.pass()
		if tenth%150 == 149 { // every 15 s
			s.lane.Probe()
		}
		for s.catchUp() {
		}
	}
	for i, n := range s.sent {
		if want := s.rates[i] * simSeconds; float64(n) < want-1 {
			t.Errorf("%s at %.0f/s: %d sent of %.0f", s.ids[i], s.rates[i], n, want)
		}
	}
}

func repeatRate(rate float64, n int) []float64 {
	rates := make([]float64, n)
	for i := range rates {
		rates[i] = rate
	}
	return rates
}

// TestAReadEndsWithTheCampaignsNearItsBeginning: a read does not go on for a campaign far away, and takes its records if it meets them.
func TestAReadEndsWithTheCampaignsNearItsBeginning(t *testing.T) {
	const far = 20_000
	near, away := delivery.CampaignHash("near"), delivery.CampaignHash("away")
	start := func() *Lane {
		l := NewLane(0)
		for offset := range int64(far + 10) {
			hash := near
			if offset >= far {
				hash = away
			}
			if l.ClassifyMain(hash, offset) == HandOver {
				l.Add(hash, Record{Offset: offset, Weight: 1})
				l.GiveBack(offset)
			}
		}
		l.GrantCapacity(near, 2)
		l.GrantCapacity(away, 2)
		from, _, ok := l.Candidate()
		if !ok || from != 0 {
			t.Fatalf("a read from %d, %v", from, ok)
		}
		l.BeginCatchUp(from)
		return l
	}
	l := start()
	var verdicts []Verdict
	for offset := range int64(5) {
		v := l.ClassifyCatchUp(near, offset)
		if verdicts = append(verdicts, v); v == HandOver {
			l.Add(near, Record{Offset: offset, Weight: 1})
		}
	}
	if want := []Verdict{HandOver, HandOver, HandOver, Skip, Stop}; !slices.Equal(verdicts, want) {
		t.Errorf("%v, want %v", verdicts, want)
	}
	if v := start().ClassifyCatchUp(away, far); v != HandOver {
		t.Errorf("a record of the other: %v", v)
	}
}
