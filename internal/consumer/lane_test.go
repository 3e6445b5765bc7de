package consumer

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// laneSim drives a lane as its reader does, over a log in memory, with a handler whose queues have bounds. It checks
// what must hold: nothing is skipped, nothing is handed over twice at a time, nothing settled and committed is handed
// over again.
type laneSim struct {
	t    *rapid.T
	log  []string // the campaign of each record
	lane *lane

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
		t: t, lane: newLane(lanePositions{}), queue: map[string][]int64{}, settled: map[int64]bool{}, safe: map[int64]bool{},
		last: map[string]int64{}, capacity: rapid.IntRange(1, 6).Draw(t, "capacity"),
	}
}

func (s *laneSim) size() int64 { return int64(len(s.log)) }

// read is one read from an offset on, as pick.visit does it.
func (s *laneSim) read(from, count int64, ask func(*lane, uint64, int64) verdict, until int64) (next int64, got []int64) {
	next = from
	for o := from; o < min(from+count, until); o++ {
		hash := campaignHash(s.log[o])
		switch ask(s.lane, hash, o) {
		case stop:
			return next, got
		case take:
			s.lane.add(hash, s.log[o], laneSlot{offset: o, size: 1, weight: 1})
			got = append(got, o)
		}
		next = o + 1
	}
	return next, got
}

func (s *laneSim) main() {
	from := s.lane.main
	next, got := s.read(from, 5, (*lane).meet, s.size())
	s.lane.pass(next)
	s.offer(got)
}

func (s *laneSim) catchUp() {
	from, _, ok := s.lane.candidate()
	if !ok {
		return
	}
	if from >= s.lane.main {
		s.t.Fatalf("catch-up from %d, but main is at %d", from, s.lane.main)
	}
	s.lane.beginCatchUp(from)
	next, got := s.read(from, 5, (*lane).revisit, s.lane.main)
	s.lane.endCatchUp(next, 100)
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
			if _, ok := s.lane.giveBack(o); !ok {
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
		if _, ok = s.lane.settle(o); !ok {
			s.t.Fatalf("offset %d is not open", o)
		}
		s.settled[o] = true
		s.lane.grantRoom(campaignHash(id), int64(s.capacity-len(s.queue[id])))
	}
}

func (s *laneSim) release() {
	if id, i, ok := s.pickOpen("release"); ok {
		o := s.queue[id][i]
		s.queue[id] = slices.Delete(s.queue[id], i, i+1)
		if _, ok = s.lane.giveBack(o); !ok {
			s.t.Fatalf("offset %d cannot be released", o)
		}
		s.lane.grantRoom(campaignHash(id), int64(s.capacity-len(s.queue[id])))
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
			want[campaignHash(s.log[o])]++
		}
	}
	for hash, c := range s.lane.campaigns {
		if c.waiting() != want[hash] {
			s.t.Fatalf("%d of %s are counted before %d, %d wait", c.waiting(), c.id, s.lane.main, want[hash])
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
				if _, ok := s.lane.settle(o); !ok {
					s.t.Fatalf("offset %d is not open", o)
				}
				s.settled[o] = true
				idle = false
			}
			s.queue[id] = nil
		}
		s.lane.probe()
		if idle && len(s.lane.campaigns) == 0 {
			break
		}
	}
	if c := s.lane.committed(); c != s.size() {
		s.t.Fatalf("committed %d of %d when all is read", c, s.size())
	}
	for o := range s.size() {
		if !s.settled[o] {
			s.t.Fatalf("offset %d (%s) was never handed over", o, s.log[o])
		}
	}
}

func TestLaneLosesAndRepeatsNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
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
			"probe":   func(*rapid.T) { s.lane.probe() },
			"save":    func(*rapid.T) { s.save() },
			"crash":   func(*rapid.T) { s.crash() },
			"":        func(*rapid.T) { s.counts() },
		})
		s.finish()
	})
}

// A lane with as many campaigns as it may have still fits its positions into one commit, and waits before it meets one
// more.
func TestLaneBoundsItsCampaigns(t *testing.T) {
	l := newLane(lanePositions{})
	offset := int64(0)
	for l.meet(campaignHash(fmt.Sprint("c", offset)), offset) == take {
		id := fmt.Sprint("c", offset)
		l.add(campaignHash(id), id, laneSlot{offset: offset, weight: 1})
		offset++
	}
	if offset != maxLaneCampaigns || l.main != offset {
		t.Fatalf("%d campaigns were met, main is %d; want %d", offset, l.main, maxLaneCampaigns)
	}
	for o := range offset {
		if o%2 == 0 {
			l.giveBack(o)
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
	l.settle(1)
	if !l.freed {
		t.Fatal("the main reader does not hear that a campaign has finished")
	}
}

// A campaign whose head is slow does not take the whole lane into memory, and goes on when the head is through.
func TestLaneCapsOneCampaign(t *testing.T) {
	l := newLane(lanePositions{})
	h := campaignHash("c")
	var taken int64
	for o := range int64(2 * maxSlots) {
		if l.meet(h, o) == take {
			l.add(h, "c", laneSlot{offset: o, weight: 1})
			taken++
		}
	}
	if taken != maxSlots || l.main != 2*maxSlots {
		t.Fatalf("%d taken, main %d", taken, l.main)
	}
	for o := int64(1); o < taken; o++ {
		l.settle(o)
	}
	if l.grantRoom(h, 5) {
		t.Fatal("a capped campaign was given room")
	}
	if _, _, ok := l.candidate(); ok {
		t.Fatal("a capped campaign is read")
	}
	if s := l.positions().entries[0].settled; len(s) != 1 || s[0] != (span{1, taken - 1}) {
		t.Fatalf("settled %v, want one span", s)
	}
	l.settle(0)
	if from, _, ok := l.candidate(); !ok || from != taken || !l.freed {
		t.Fatalf("not read on when its head is through: %d %t", from, ok)
	}
}

// Spans are left out, positions never, when a commit has no room.
func TestLaneMetadataTrims(t *testing.T) {
	p := lanePositions{main: 1 << 20}
	for i := range maxLaneCampaigns {
		e := laneEntry{hash: uint64(i) << 40, low: int64(1000 * i), waiting: 7, done: 120}
		for k := range 40 {
			e.settled = append(e.settled, span{e.low + int64(10*k) + 5, e.low + int64(10*k) + 7})
		}
		p.entries = append(p.entries, e)
	}
	committed, metadata, trimmed := encodeLane(p)
	if !trimmed || len(metadata) > maxMetadata {
		t.Fatalf("trimmed %t, %d characters", trimmed, len(metadata))
	}
	got, err := decodeLane(committed, metadata)
	if err != nil || len(got.entries) != len(p.entries) {
		t.Fatalf("%d entries, %v", len(got.entries), err)
	}
	for i, e := range got.entries {
		if e.low != p.entries[i].low || e.hash != p.entries[i].hash {
			t.Fatalf("entry %d is %+v", i, e)
		}
		if want := int64(7); len(e.settled) > 0 && e.waiting != want || len(e.settled) == 0 && e.waiting != want+120 {
			t.Fatalf("entry %d of %d spans counts %d", i, len(e.settled), e.waiting)
		}
	}
}

// raise moves positions into a log that was cut off, and no further.
func TestLaneRaise(t *testing.T) {
	l := newLane(lanePositions{main: 100, entries: []laneEntry{{hash: 1, low: 10}, {hash: 2, low: 60}}})
	if !l.raise(50) || l.committed() != 50 || l.main != 100 {
		t.Fatalf("committed %d, main %d", l.committed(), l.main)
	}
	if l.raise(50) {
		t.Fatal("raised twice")
	}
	if !l.raise(200) || l.committed() != 200 || len(l.campaigns) != 0 {
		t.Fatalf("committed %d, %d campaigns", l.committed(), len(l.campaigns))
	}
}

// A log that was cut off takes about its part of what was left behind with it; what is level with main counts right.
func TestLaneCountsAfterRaise(t *testing.T) {
	l := newLane(lanePositions{main: 100, entries: []laneEntry{{hash: 1, low: 0, waiting: 50}, {hash: 2, low: 40, waiting: 9}}})
	l.raise(60)
	if got := l.campaigns[1].waiting(); got != 20 {
		t.Errorf("%d of 50 left when 60 of 100 offsets are gone", got)
	}
	if got := l.campaigns[2].waiting(); got != 6 {
		t.Errorf("%d of 9 left when 20 of 60 offsets are gone", got)
	}
	for o := int64(60); o < 70; o++ {
		l.beginCatchUp(o)
		if l.revisit(2, o) == take {
			l.add(2, "c", laneSlot{offset: o, weight: 1})
		}
	}
	l.beginCatchUp(70)
	l.endCatchUp(100, 1)
	if got := l.campaigns[2].waiting(); got != 10 {
		t.Errorf("level with main, %d are counted, 10 are open", got)
	}
}

// Commits of before lanes counted are read as they were; what they do not say counts as nothing, never below.
func TestLaneWithoutCounts(t *testing.T) {
	body := binary.AppendUvarint(nil, 90) // main
	body = binary.BigEndian.AppendUint64(body, 5)
	body = append(body, 10, 1, 2, 3) // low, one span: gap, length - 1
	p, err := decodeLane(10, frame(10, kindLane, body))
	if err != nil || p.main != 100 || len(p.entries) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if e := p.entries[0]; e.hash != 5 || e.low != 20 || !slices.Equal(e.settled, []span{{22, 25}}) || e.waiting != 0 {
		t.Fatalf("%+v", e)
	}
	l := newLane(p)
	l.beginCatchUp(20)
	if l.revisit(5, 20) != take {
		t.Fatal("not tried at once")
	}
	l.add(5, "c", laneSlot{offset: 20, weight: 1})
	if got := l.campaigns[5].waiting(); got != 1 {
		t.Errorf("%d are counted, one is open", got)
	}
}
