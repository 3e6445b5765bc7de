package offset

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// readSim drives one lane and counts what is read. Its handler does as package pacer does: a queue holds two seconds' worth of its
// campaign's jobs, at least 16. The queue reports room once it is half empty and a job of it was refused.
type readSim struct {
	*driven
	campaigns []*simCampaign
	of        map[uint64]*simCampaign
	ahead     int   // units that may wait of a campaign, beyond two seconds' worth
	read      int64 // records
}

type simCampaign struct {
	hash  uint64
	rate  float64 // jobs a second
	due   float64
	owed  bool
	queue []int64
	sent  int
}

// How much the reader of a lane fetches and hands over at once.
const (
	laneJobs      = 1000
	minFetchBytes = 16 << 10
	maxFetchBytes = 256 << 10
)

// newReadSim makes a lane with as many jobs of each campaign, mixed.
func newReadSim(rates []float64, each int) *readSim {
	s := &readSim{driven: drive(), of: map[uint64]*simCampaign{}, ahead: 16}
	for i, rate := range rates {
		c := &simCampaign{hash: delivery.CampaignHash(fmt.Sprint("c", i)), rate: rate, due: rand.Float64()}
		s.campaigns, s.of[c.hash] = append(s.campaigns, c), c
	}
	for range each {
		for _, c := range s.campaigns {
			s.log = append(s.log, c.hash)
		}
	}
	return s
}

func (s *readSim) room(c *simCampaign) int { return max(s.ahead, int(2*c.rate)) }

func (s *readSim) offer(offsets []int64) {
	refused := map[*simCampaign]bool{}
	for _, o := range offsets {
		c := s.of[s.log[o]]
		if refused[c] || len(c.queue) >= s.room(c) {
			refused[c], c.owed = true, true
			s.GiveBack(o)
			continue
		}
		c.queue = append(c.queue, o)
	}
}

// begin reads the whole log, as the main reader does while others wait.
func (s *readSim) begin() {
	for s.main < s.end() {
		s.offer(s.readMain(laneJobs))
	}
}

// pass lets the campaigns send for a tenth of a second, and then reads for those with room.
func (s *readSim) pass(probe bool) {
	for _, c := range s.campaigns {
		for c.due += c.rate / 10; c.due >= 1; c.due-- {
			if len(c.queue) == 0 {
				continue // late: the slot is lost
			}
			s.Settle(c.queue[0])
			c.queue = c.queue[1:]
			c.sent++
		}
		if c.owed && len(c.queue) <= s.room(c)/2 {
			c.owed = false
			s.GrantCapacity(c.hash, int64(s.room(c)-len(c.queue)))
		}
	}
	if probe {
		s.Probe(never)
	}
	for from, bytes, ok := s.Candidate(); ok; from, bytes, ok = s.Candidate() {
		got, next := s.readAgain(from, from+min(max(bytes, minFetchBytes), maxFetchBytes)/recordSize)
		s.read += next - from
		s.offer(got)
	}
}

// sent is how many jobs were sent.
func (s *readSim) sent() (n int64) {
	for _, c := range s.campaigns {
		n += int64(c.sent)
	}
	return n
}

// TestLaneReadsLittleMoreThanIsSent: the catch-up of a shared lane reads few records per job that is sent. In the minute of the test no campaign
// may run out of jobs. A campaign's jobs lie as far apart as there are campaigns, so one that shares its position with no other
// has to read as many.
func TestLaneReadsLittleMoreThanIsSent(t *testing.T) {
	testservices.Simulation(t)
	const seconds = 60
	for _, tc := range []struct {
		name  string
		rates []float64
		ahead int
		most  float64
	}{
		{"alone", []float64{100}, 16, 1.3},
		{"alone and slow", []float64{1}, 16, 2},
		{"equal rates read together", slices.Repeat([]float64{2}, 8), 16, 1.8},
		{"unequal rates read for themselves", []float64{1, 14, 200}, 16, 4},
		{"a crowd of equals", slices.Repeat([]float64{5}, 40), 16, 2.5},
		{"a crowd with little memory", slices.Repeat([]float64{1}, 40), 4, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const runs = 20 // chance decides who is read first; one run says little
			read, sent := int64(0), int64(0)
			for range runs {
				s := newReadSim(tc.rates, int(slices.Max(tc.rates)*seconds*1.1)+50)
				s.ahead = tc.ahead
				s.begin()
				for tenth := range seconds * 10 {
					s.pass(tenth%150 == 149) // every 15 s
				}
				for i, c := range s.campaigns {
					if want := c.rate * seconds; float64(c.sent) < want-1 {
						t.Errorf("campaign %d at %.0f/s: %d sent of %.0f", i, c.rate, c.sent, want)
					}
				}
				read, sent = read+s.read, sent+s.sent()
			}
			factor := float64(read) / float64(sent)
			t.Logf("%.2f records read per job sent", factor)
			if factor > tc.most {
				t.Errorf("%.2f records read per job sent, want at most %.1f", factor, tc.most)
			}
		})
	}
}

// TestAReadEndsWithTheCampaignsNearItsBeginning: a read does not go on for a campaign far away, and takes its records if it meets them.
func TestAReadEndsWithTheCampaignsNearItsBeginning(t *testing.T) {
	const near, away, far = 1, 2, 20_000
	start := func() *driven {
		d := drive(append(slices.Repeat([]uint64{near}, far), slices.Repeat([]uint64{away}, 10)...)...)
		d.giveAllBack()
		d.GrantCapacity(near, 2)
		d.GrantCapacity(away, 2)
		if from, _, ok := d.Candidate(); !ok || from != 0 {
			t.Fatalf("a read from %d, %v", from, ok)
		}
		return d
	}
	if got, next := start().readAgain(0, far); !slices.Equal(got, []int64{0, 1, 2}) || next != 4 { // 3 is met, and finds no room
		t.Errorf("read to %d: %v", next, got)
	}
	d := start()
	d.BeginCatchUp(0)
	if v := d.ClassifyCatchUp(away, far); v != HandOver {
		t.Errorf("a record of the other: %v", v)
	}
}

// giveAllBack reads the log, and gives everything back.
func (d *driven) giveAllBack() {
	for d.main < d.end() {
		for _, o := range d.readMain(1) {
			d.GiveBack(o)
		}
	}
}

// TestAReadEndsWithTheLastRecordThatIsCounted: of a campaign with room for more than is left of it.
func TestAReadEndsWithTheLastRecordThatIsCounted(t *testing.T) {
	d := drive(0, 1, 0, 1, 0, 1, 0, 0, 0, 0)
	d.giveAllBack()
	d.GrantCapacity(1, 10)
	from, _, _ := d.Candidate()
	if got, next := d.readAgain(from, d.end()); !slices.Equal(got, []int64{1, 3, 5}) || next != 6 {
		t.Errorf("read to %d: %v", next, got)
	}
}

// aBacklogAndVisitors is a lane that begins with a few jobs of 20 campaigns, mixed; behind them only the first one's follow.
func aBacklogAndVisitors() *readSim {
	s := newReadSim(append([]float64{50}, slices.Repeat([]float64{3}, 19)...), 60)
	s.log = append(s.log, slices.Repeat(s.log[:1], 10_000)...)
	s.begin()
	return s
}

// TestNobodyReadsALaneToItsEndForNothing: campaigns with few jobs at the beginning of a lane do not look for more behind them, record by
// record, while a backlog of another is sent.
func TestNobodyReadsALaneToItsEndForNothing(t *testing.T) {
	s := aBacklogAndVisitors()
	for range 290 { // tenths of a second: before the first probe
		s.pass(false)
	}
	for i, c := range s.campaigns {
		if want := min(60, int(c.rate*29)) - 1; i > 0 && c.sent < want {
			t.Errorf("campaign %d: %d sent of %d", i, c.sent, want)
		}
	}
	if 2*s.read > 3*s.sent() {
		t.Errorf("%d records read for %d jobs", s.read, s.sent())
	}
	if !slices.ContainsFunc(s.campaigns[1:], func(c *simCampaign) bool { return s.Lane.campaigns[c.hash] != nil }) {
		t.Error("no campaign waits with nothing left: this tests nothing")
	}
	if s.pass(true); len(s.Lane.campaigns) > 1 {
		t.Errorf("after a probe, %d campaigns still have a position of their own", len(s.Lane.campaigns))
	}
}

// TestACountThatIsTooLowDelaysOnce: a campaign of which more is left than its count says is found by the next probe, and read from then on
// like any other.
func TestACountThatIsTooLowDelaysOnce(t *testing.T) {
	s := aBacklogAndVisitors()
	for _, c := range s.campaigns[1:] {
		s.Lane.campaigns[c.hash].left = 5
	}
	for tenth := range 600 {
		s.pass(tenth%300 == 299)
	}
	for i, c := range s.campaigns[1:] {
		if c.sent < 59 {
			t.Errorf("campaign %d: %d sent of 60 after two probes", i+1, c.sent)
		}
	}
}
