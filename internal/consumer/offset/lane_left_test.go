package offset

import (
	"slices"
	"testing"
)

// aBacklogAndVisitors is a lane that begins with a few jobs of 20 campaigns, mixed; behind them only the first one's follow.
func aBacklogAndVisitors() *readSim {
	s := newReadSim(append([]float64{50}, repeatRate(3, 19)...), 60)
	s.log = append(s.log, make([]int, 10_000)...)
	return s
}

// TestNobodyReadsALaneToItsEndForNothing: campaigns with few jobs at the beginning of a lane do not look for more behind them, record by
// record, while a backlog of another is sent.
func TestNobodyReadsALaneToItsEndForNothing(t *testing.T) {
	s := aBacklogAndVisitors()
	s.main()
	for range 290 { // tenths of a second: before the first probe
		s.pass()
		for s.catchUp() {
		}
	}
	for i, n := range s.sent {
		if want := min(60, int(s.rates[i]*29)) - 1; i > 0 && n < want {
			t.Errorf("%s: %d sent of %d", s.ids[i], n, want)
		}
	}
	sent := 0
	for _, n := range s.sent {
		sent += n
	}
	if 2*s.read > 3*sent {
		t.Errorf("%d records read for %d jobs", s.read, sent)
	}
	if s.lane.Probe(); !slices.ContainsFunc(s.hash[1:], func(h uint64) bool { return s.lane.campaigns[h] != nil }) {
		t.Error("no campaign waits with nothing left: this tests nothing")
	}
	for s.catchUp() {
	}
	if n := len(s.lane.campaigns); n > 1 {
		t.Errorf("after a probe, %d campaigns still have a position of their own", n)
	}
}

// TestAReadEndsWithTheLastRecordThatIsCounted: of a campaign with room for more than is left of it.
func TestAReadEndsWithTheLastRecordThatIsCounted(t *testing.T) {
	s := newReadSim([]float64{1, 1}, 3)
	s.log = append(s.log, 0, 0, 0, 0)
	for offset, i := range s.log {
		if s.lane.ClassifyMain(s.hash[i], int64(offset)) == HandOver {
			s.lane.Add(s.hash[i], Record{Offset: int64(offset), Weight: 1})
			s.lane.GiveBack(int64(offset))
		}
	}
	s.lane.GrantCapacity(s.hash[1], 10)
	from, _, _ := s.lane.Candidate()
	s.lane.BeginCatchUp(from)
	next, got := s.visit(from, int64(len(s.log)), (*Lane).ClassifyCatchUp)
	if !slices.Equal(got, []int64{1, 3, 5}) || next != 6 {
		t.Errorf("read to %d: %v", next, got)
	}
}

// TestACountThatIsTooLowDelaysOnce: a campaign of which more is left than its count says is found by the next probe, and read from then on
// like any other.
func TestACountThatIsTooLowDelaysOnce(t *testing.T) {
	s := aBacklogAndVisitors()
	s.main()
	for _, h := range s.hash[1:] {
		s.lane.campaigns[h].left = 5
	}
	probes := 0
	for tenth := range 600 {
		s.pass()
		if tenth%300 == 299 {
			probes++
			s.lane.Probe()
		}
		for s.catchUp() {
		}
	}
	for i, n := range s.sent {
		if i > 0 && n < 59 {
			t.Errorf("%s: %d sent of 60 after %d probes", s.ids[i], n, probes)
		}
	}
}
