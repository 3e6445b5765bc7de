package offset

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// laneSim drives a lane as its reader does, over a log in memory, with a handler whose queues have bounds. It checks
// what must hold: nothing is skipped, nothing is handed over twice at a time, nothing settled and committed is handed
// over again.
type laneSim struct {
	t    *rapid.T
	log  []string // the campaign of each record
	lane *Lane

	queue    map[string][]int64 // open at the handler
	settled  map[int64]bool
	safe     map[int64]bool // settled and committed
	last     map[string]int64
	capacity int
	commit   struct {
		offset   int64
		metadata string
	}
}

func newLaneSim(t *rapid.T) *laneSim {
	return &laneSim{
		t: t, lane: NewLane(0), queue: map[string][]int64{}, settled: map[int64]bool{}, safe: map[int64]bool{},
		last: map[string]int64{}, capacity: rapid.IntRange(1, 6).Draw(t, "capacity"),
	}
}

func (s *laneSim) size() int64 { return int64(len(s.log)) }

// read is one read from an offset on, as pick.visit does it.
func (s *laneSim) read(from, count int64, ask func(*Lane, uint64, int64) Verdict, until int64) (next int64, got []int64) {
	next = from
	for o := from; o < min(from+count, until); o++ {
		hash := delivery.CampaignHash(s.log[o])
		switch ask(s.lane, hash, o) {
		case Stop:
			return next, got
		case HandOver:
			s.lane.Add(hash, Record{Offset: o, Size: 1, Weight: 1})
			got = append(got, o)
		}
		next = o + 1
	}
	return next, got
}

func (s *laneSim) main() {
	from := s.lane.main
	next, got := s.read(from, 5, (*Lane).ClassifyMain, s.size())
	s.lane.Pass(next)
	s.offer(got)
}

func (s *laneSim) catchUp() {
	from, _, ok := s.lane.Candidate()
	if !ok {
		return
	}
	if from >= s.lane.main {
		s.t.Fatalf("catch-up from %d, but main is at %d", from, s.lane.main)
	}
	s.lane.BeginCatchUp(from)
	next, got := s.read(from, 5, (*Lane).ClassifyCatchUp, s.lane.main)
	s.lane.EndCatchUp(next, 100)
	s.offer(got)
}

func (s *laneSim) offer(offsets []int64) {
	refused := map[string]bool{}
	for _, o := range offsets {
		id := s.log[o]
		switch {
		case s.safe[o]:
			s.t.Fatalf("offset %d was settled and committed, and is handed over again", o)
		case slices.Contains(s.queue[id], o):
			s.t.Fatalf("offset %d is handed over while it is open", o)
		case refused[id] || len(s.queue[id]) >= s.capacity:
			refused[id] = true
			if _, ok := s.lane.GiveBack(o); !ok {
				s.t.Fatalf("offset %d cannot be given back", o)
			}
		default:
			s.queue[id] = append(s.queue[id], o)
			s.last[id] = max(s.last[id], o)
		}
	}
}

func (s *laneSim) pickOpen(label string) (string, int, bool) {
	ids := slices.Sorted(maps.Keys(s.queue))
	ids = slices.DeleteFunc(ids, func(id string) bool { return len(s.queue[id]) == 0 })
	if len(ids) == 0 {
		return "", 0, false
	}
	id := rapid.SampledFrom(ids).Draw(s.t, label)
	return id, rapid.IntRange(0, len(s.queue[id])-1).Draw(s.t, label+" at"), true
}

func (s *laneSim) settle() {
	if id, i, ok := s.pickOpen("settle"); ok {
		o := s.queue[id][i]
		s.queue[id] = slices.Delete(s.queue[id], i, i+1)
		if _, ok = s.lane.Settle(o); !ok {
			s.t.Fatalf("offset %d is not open", o)
		}
		s.settled[o] = true
		s.lane.GrantCapacity(delivery.CampaignHash(id), int64(s.capacity-len(s.queue[id])))
	}
}

func (s *laneSim) release() {
	if id, i, ok := s.pickOpen("release"); ok {
		o := s.queue[id][i]
		s.queue[id] = slices.Delete(s.queue[id], i, i+1)
		if _, ok = s.lane.GiveBack(o); !ok {
			s.t.Fatalf("offset %d cannot be released", o)
		}
		s.lane.GrantCapacity(delivery.CampaignHash(id), int64(s.capacity-len(s.queue[id])))
	}
}

func (s *laneSim) save() {
	offset, metadata, trimmed := encodeLane(s.lane.positions())
	if trimmed || len(metadata) > maxMetadata {
		s.t.Fatalf("%d campaigns do not fit into the metadata", len(s.lane.campaigns))
	}
	for o := range min(offset, s.size()) {
		if !s.settled[o] {
			s.t.Fatalf("offset %d is committed over, and is not settled", o)
		}
	}
	s.commit.offset, s.commit.metadata = offset, metadata
	s.safe = maps.Clone(s.settled)
}

// counts checks that the lane counts what waits: every record before main that is not settled.
func (s *laneSim) counts() {
	want := map[uint64]int64{}
	for o := range s.lane.main {
		if !s.settled[o] {
			want[delivery.CampaignHash(s.log[o])]++
		}
	}
	for hash, c := range s.lane.campaigns {
		if c.waiting() != want[hash] {
			s.t.Fatalf("%d of %x are counted before %d, %d wait", c.waiting(), hash, s.lane.main, want[hash])
		}
		delete(want, hash)
	}
	if len(want) > 0 {
		s.t.Fatalf("not counted: %v", want)
	}
}

// crash forgets everything but the last commit.
func (s *laneSim) crash() {
	p, err := decodeLane(s.commit.offset, s.commit.metadata)
	if err != nil {
		s.t.Fatalf("decode: %v", err)
	}
	s.lane = newLane(p)
	s.queue, s.settled = map[string][]int64{}, maps.Clone(s.safe) // what was settled since happens again
}

// finish reads and settles everything.
func (s *laneSim) finish() {
	for range 100_000 {
		s.main()
		s.catchUp()
		idle := s.lane.main == s.size()
		for id := range s.queue {
			for _, o := range s.queue[id] {
				if _, ok := s.lane.Settle(o); !ok {
					s.t.Fatalf("offset %d is not open", o)
				}
				s.settled[o] = true
				idle = false
			}
			s.queue[id] = nil
		}
		s.lane.Probe()
		if idle && len(s.lane.campaigns) == 0 {
			break
		}
	}
	if c := s.lane.Committed(); c != s.size() {
		s.t.Fatalf("committed %d of %d when all is read", c, s.size())
	}
	for o := range s.size() {
		if !s.settled[o] {
			s.t.Fatalf("offset %d (%s) was never handed over", o, s.log[o])
		}
	}
}

// histories checks a property of 3,000 histories: a lane has handed over a settled record in one of 2,000. The race detector has nothing to find
// in what has no goroutines.
func histories(t *testing.T, property func(*rapid.T)) {
	testservices.Simulation(t)
	for range 30 {
		rapid.Check(t, property)
	}
}

func TestLaneLosesAndRepeatsNothing(t *testing.T) {
	histories(t, func(rt *rapid.T) {
		s := newLaneSim(rt)
		campaigns := rapid.IntRange(1, 5).Draw(rt, "campaigns")
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(rt, "records") {
					s.log = append(s.log, fmt.Sprintf("c%d", rapid.IntRange(1, campaigns).Draw(rt, "of")))
				}
			},
			"main":    func(*rapid.T) { s.main() },
			"catchUp": func(*rapid.T) { s.catchUp() },
			"settle":  func(*rapid.T) { s.settle() },
			"settle2": func(*rapid.T) { s.settle() },
			"release": func(*rapid.T) { s.release() },
			"probe":   func(*rapid.T) { s.lane.Probe() },
			"save":    func(*rapid.T) { s.save() },
			"crash":   func(*rapid.T) { s.crash() },
			"":        func(*rapid.T) { s.counts() },
		})
		s.finish()
	})
}

// cut makes the log lose its end: the lane is begun anew in what is left.
func (s *laneSim) cut() {
	at := rapid.Int64Range(max(0, s.size()-10), s.size()).Draw(s.t, "cut at")
	s.save()
	s.crash()
	if s.commit.offset > at {
		s.lane = NewLane(at)
	}
	s.lane.Cut(at)
	s.log = s.log[:at]
	for _, m := range []map[int64]bool{s.settled, s.safe} {
		maps.DeleteFunc(m, func(o int64, _ bool) bool { return o >= at })
	}
	if low, high := s.lane.Span(); low > high || high > at {
		s.t.Fatalf("reading goes on from %d and %d of a log that ends at %d", low, high, at)
	}
	s.save()
}

// TestLaneGoesOnAfterACut: what is left of a log that loses its end, and what is written then, is handed over like
// everything else.
func TestLaneGoesOnAfterACut(t *testing.T) {
	histories(t, func(rt *rapid.T) {
		s := newLaneSim(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"write": func(rt *rapid.T) {
				for range rapid.IntRange(1, 8).Draw(rt, "records") {
					s.log = append(s.log, fmt.Sprintf("c%d", rapid.IntRange(1, 3).Draw(rt, "of")))
				}
			},
			"main":    func(*rapid.T) { s.main() },
			"catchUp": func(*rapid.T) { s.catchUp() },
			"settle":  func(*rapid.T) { s.settle() },
			"release": func(*rapid.T) { s.release() },
			"save":    func(*rapid.T) { s.save() },
			"crash":   func(*rapid.T) { s.crash() },
			"cut":     func(*rapid.T) { s.cut() },
		})
		s.finish()
	})
}

// A lane with as many campaigns as it may have still fits its positions into one commit, and waits before it meets one
// more.
func TestLaneBoundsItsCampaigns(t *testing.T) {
	l := NewLane(0)
	offset := int64(0)
	for l.ClassifyMain(delivery.CampaignHash(fmt.Sprint("c", offset)), offset) == HandOver {
		id := fmt.Sprint("c", offset)
		l.Add(delivery.CampaignHash(id), Record{Offset: offset, Weight: 1})
		offset++
	}
	if offset != maxLaneCampaigns || l.main != offset {
		t.Fatalf("%d campaigns were met, main is %d; want %d", offset, l.main, maxLaneCampaigns)
	}
	for o := range offset {
		if o%2 == 0 {
			l.GiveBack(o)
		}
	}
	l.main += 1 << 39 // positions far apart cost more, and so do high counts
	for _, c := range l.campaigns {
		c.left += maxLaneCount
	}
	committed, metadata, trimmed := encodeLane(l.positions())
	if trimmed || len(metadata) > maxMetadata {
		t.Fatalf("metadata has %d characters, trimmed %t", len(metadata), trimmed)
	}
	p, err := decodeLane(committed, metadata)
	if err != nil || len(p.entries) != maxLaneCampaigns || p.main != l.main {
		t.Fatalf("decoded %d entries, main %d, %v", len(p.entries), p.main, err)
	}
	l.Settle(1)
	if !l.freed {
		t.Fatal("the main reader does not hear that a campaign has finished")
	}
}

// A campaign whose head is slow does not take the whole lane into memory, and goes on when the head is through.
func TestLaneCapsOneCampaign(t *testing.T) {
	l := NewLane(0)
	h := delivery.CampaignHash("c")
	var taken int64
	for o := range int64(2 * maxHandedOver) {
		if l.ClassifyMain(h, o) == HandOver {
			l.Add(h, Record{Offset: o, Weight: 1})
			taken++
		}
	}
	if taken != maxHandedOver || l.main != 2*maxHandedOver {
		t.Fatalf("%d taken, main %d", taken, l.main)
	}
	for o := int64(1); o <= taken/2; o++ {
		l.Settle(o)
	}
	if l.GrantCapacity(h, 5) {
		t.Fatal("a capped campaign was given room")
	}
	if _, _, ok := l.Candidate(); ok {
		t.Fatal("a capped campaign is read")
	}
	l.Settle(0)
	if from, _, ok := l.Candidate(); !ok || from != taken || !l.freed {
		t.Fatalf("not read on when its head is through: %d %t", from, ok)
	}
}

// Nor does one with large records, which is read on when half of their bytes are settled; another one is not affected.
func TestLaneCapsTheBytesOfOneCampaign(t *testing.T) {
	l := NewLane(0)
	l.Bound(1000)
	large, small := delivery.CampaignHash("large"), delivery.CampaignHash("small")
	for o := range int64(20) {
		h, size := large, int64(300)
		if o%2 == 1 {
			h, size = small, 10
		}
		if l.ClassifyMain(h, o) == HandOver {
			l.Add(h, Record{Offset: o, Weight: 1, Size: size})
		}
	}
	if l.Open() != 4+10 || l.OpenBytes() != 4*300+10*10 || l.Main() != 20 {
		t.Fatalf("%d open, of %d bytes, main %d", l.Open(), l.OpenBytes(), l.Main())
	}
	l.Settle(0)
	l.Settle(4)
	if _, _, ok := l.Candidate(); ok || l.OpenBytes() != 2*300+10*10 {
		t.Fatalf("read on with %d bytes open", l.OpenBytes())
	}
	l.Settle(2)
	from, _, ok := l.Candidate()
	if !ok || from != 8 || !l.TakeFreed() {
		t.Fatalf("not read on: %d %t", from, ok)
	}
	l.BeginCatchUp(from)
	for o := from; o < l.Main(); o += 2 {
		if l.ClassifyCatchUp(large, o) == HandOver {
			l.Add(large, Record{Offset: o, Weight: 1, Size: 300})
		}
	}
	l.EndCatchUp(l.Main(), 3000)
	if l.Open() != 4+10 {
		t.Errorf("%d open after catching up", l.Open())
	}
	l.Settle(6)
	if _, ok := l.GiveBack(14); ok {
		t.Error("gave back what was not handed over")
	}
	for _, o := range []int64{12, 10, 8} {
		l.GiveBack(o)
	}
	if l.OpenBytes() != 10*10 {
		t.Errorf("%d bytes open after all was given back", l.OpenBytes())
	}
}

// A commit without room leaves out the offsets settled farthest, never positions.
func TestLaneMetadataTrims(t *testing.T) {
	p := lanePositions{main: 1 << 20}
	for i := range maxLaneCampaigns {
		e := laneEntry{hash: uint64(i) << 40, low: int64(1000 * i), waiting: 7, settledTo: int64(1000*i) + 900}
		for k := range int64(40) {
			p.open = append(p.open, e.low+20*k)
		}
		p.entries = append(p.entries, e)
	}
	want := slices.Clone(p.entries)
	committed, metadata, trimmed := encodeLane(p)
	if !trimmed || len(metadata) > maxMetadata {
		t.Fatalf("trimmed %t, %d characters", trimmed, len(metadata))
	}
	got, err := decodeLane(committed, metadata)
	if err != nil || len(got.entries) != len(p.entries) {
		t.Fatalf("%d entries, %v", len(got.entries), err)
	}
	for i, e := range got.entries {
		if e.low != want[i].low || e.hash != want[i].hash || e.waiting != 7 {
			t.Fatalf("entry %d is %+v", i, e)
		}
	}
	first, last := got.entries[0], got.entries[maxLaneCampaigns-1]
	if first.settledTo != want[0].settledTo || last.settledTo != last.low {
		t.Errorf("settled are %+v and %+v", first, last)
	}
}

// TestLaneRaise: positions move into a log that was cut off, and no further.
func TestLaneRaise(t *testing.T) {
	l := newLane(lanePositions{main: 100, entries: []laneEntry{{hash: 1, low: 10}, {hash: 2, low: 60}}})
	if !l.Raise(50) || l.Committed() != 50 || l.main != 100 {
		t.Fatalf("committed %d, main %d", l.Committed(), l.main)
	}
	if l.Raise(50) {
		t.Fatal("raised twice")
	}
	if !l.Raise(200) || l.Committed() != 200 || len(l.campaigns) != 0 {
		t.Fatalf("committed %d, %d campaigns", l.Committed(), len(l.campaigns))
	}
}

// A log that was cut off takes about its part of what was left behind with it; what is level with main counts right.
func TestLaneCountsAfterRaise(t *testing.T) {
	l := newLane(lanePositions{main: 100, entries: []laneEntry{{hash: 1, low: 0, waiting: 50}, {hash: 2, low: 40, waiting: 9}}})
	l.Raise(60)
	if got := l.campaigns[1].waiting(); got != 20 {
		t.Errorf("%d of 50 left when 60 of 100 offsets are gone", got)
	}
	if got := l.campaigns[2].waiting(); got != 6 {
		t.Errorf("%d of 9 left when 20 of 60 offsets are gone", got)
	}
	for o := int64(60); o < 70; o++ {
		l.BeginCatchUp(o)
		if l.ClassifyCatchUp(2, o) == HandOver {
			l.Add(2, Record{Offset: o, Weight: 1})
		}
	}
	l.BeginCatchUp(70)
	l.EndCatchUp(100, 1)
	if got := l.campaigns[2].waiting(); got != 10 {
		t.Errorf("level with main, %d are counted, 10 are open", got)
	}
}
