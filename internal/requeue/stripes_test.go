package requeue

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/testservices"
)

// spread counts the jobs of offsets 0 to n-1 by lane.
func (s *stripes) spread(source *fakeSource, n int64) map[int]int {
	counts := map[int]int{}
	for o := range n {
		counts[s.of(source.job(o, "c"))]++
	}
	return counts
}

// TestStripesFollowWeights: lanes get jobs by their weights, and those that have less get more.
func TestStripesFollowWeights(t *testing.T) {
	source := newSource("pacer.jobs/3")
	const jobs = 1000 << stretchBits
	even := (&stripes{lanes: []int{3, 4, 5, 6}}).spread(source, jobs)
	for lane, n := range even {
		if share := float64(n) / jobs; len(even) != 4 || share < 0.2 || share > 0.3 {
			t.Errorf("lane %d of %d gets %.2f", lane, len(even), share)
		}
	}
	s := &stripes{lanes: []int{3, 4}}
	s.weigh(map[int]int64{3: 8000, 4: 2000}) // weights 5000 and 11000
	if share := float64(s.spread(source, jobs)[4]) / jobs; share < 0.63 || share > 0.74 {
		t.Errorf("the lane with less gets %.2f, want 0.69", share)
	}
}

// Lanes that differ by less than a quarter weigh the same, so that a job that is written again after a crash meets its first
// record.
func TestStripesThatDifferLittle(t *testing.T) {
	s := stripes{lanes: []int{3, 5, 8, 13}}
	s.weigh(map[int]int64{3: 10_000, 5: 9_000, 8: 8_500, 13: 10_400})
	even := stripes{lanes: s.lanes}
	for stretch := range int64(1000) {
		if a, b := s.choose(42, stretch), even.choose(42, stretch); a != b {
			t.Fatalf("stretch %d goes to lane %d, and to %d after the next count", stretch, a, b)
		}
	}
}

// TestStripesThatNobodyReads: a lane of which no daemon says what waits there is not taken for an empty one.
func TestStripesThatNobodyReads(t *testing.T) {
	s := &stripes{lanes: []int{3, 4, 5, 6}}
	s.weigh(map[int]int64{3: 8000, 4: 8000, 5: 2000})
	if want := []float64{6000, 6000, 12000, 6000}; !slices.Equal(s.weights, want) {
		t.Errorf("weights %v, want %v", s.weights, want)
	}
	s.weigh(nil)
	if want := []float64{leastWaiting, leastWaiting, leastWaiting, leastWaiting}; !slices.Equal(s.weights, want) {
		t.Errorf("weights %v, want %v", s.weights, want)
	}
}

// TestStripesAreKept: a job goes to the same lane however often it is written, and of a lane that is added or left out
// only the share moves.
func TestStripesAreKept(t *testing.T) {
	testservices.Few(t, 30, func(rt *rapid.T) {
		lanes := rapid.SliceOfNDistinct(rapid.IntRange(0, 255), 2, 32, rapid.ID).Draw(rt, "lanes")
		slices.Sort(lanes)
		waiting := map[int]int64{}
		for _, lane := range lanes {
			waiting[lane] = rapid.Int64Range(0, 1_000_000).Draw(rt, "waiting")
		}
		source, gone := newSource(rapid.String().Draw(rt, "source")), rapid.SampledFrom(lanes).Draw(rt, "gone")
		all, again := &stripes{lanes: lanes}, &stripes{lanes: lanes}
		all.weigh(waiting)
		again.weigh(waiting)
		less := &stripes{lanes: leaveOut(lanes, []int{gone})}
		less.weights = slices.Clone(all.weights)
		i := slices.Index(lanes, gone)
		less.weights = slices.Delete(less.weights, i, i+1)
		for o := range int64(100) {
			j := source.job(o<<stretchBits, "c")
			to := all.of(j)
			if !slices.Contains(lanes, to) || again.of(j) != to {
				rt.Fatalf("offset %d: lanes %d and %d", j.Offset, to, again.of(j))
			}
			if other := less.of(j); to != gone && other != to {
				rt.Fatalf("offset %d moves from lane %d to %d, without lane %d", j.Offset, to, other, gone)
			}
		}
	})
}

// TestStripesOfManyAreAskedForOnce: a campaign whose lanes are too few is asked for, and not again at once if there are
// no more; without an answer it uses those that it has.
func TestStripesOfManyAreAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pins, wanted := &fakePins{lane: 2}, 1
		c := cacheOf(pins, slog.New(slog.DiscardHandler))
		c.current = func(string) []int { return []int{2} }
		c.stripes = func(string) int { return wanted }
		lanes := func(avoid ...int) []int { return c.find(t.Context(), []string{"c"}, avoid)["c"] }
		if got := lanes(); !slices.Equal(got, []int{2}) || pins.calls != 0 {
			t.Errorf("lanes %v after %d calls", got, pins.calls)
		}
		wanted = 4
		if c.knows("c", time.Now()) {
			t.Error("too few lanes are enough")
		}
		for range 10 {
			if got := lanes(); !slices.Equal(got, []int{2, 3, 4, 5}) || pins.calls != 1 {
				t.Fatalf("lanes %v after %d calls", got, pins.calls)
			}
		}
		if got := lanes(3, 2); !slices.Equal(got, []int{4, 5}) || pins.calls != 1 {
			t.Errorf("lanes %v after %d calls: two are to be avoided", got, pins.calls)
		}
		time.Sleep(pinTTL)
		pins.err = errors.New("database is down")
		for range 10 {
			if got := lanes(); !slices.Equal(got, []int{2}) || pins.calls != 2 {
				t.Fatalf("lanes %v after %d calls: the ones that every daemon knows are left", got, pins.calls)
			}
		}
		c.current = nil
		c.known = map[string]knownPins{}
		hash := broker.HashPartition("c", 8)
		want := []int{hash, (hash + 1) % 8, (hash + 2) % 8, (hash + 3) % 8}
		slices.Sort(want)
		if got := lanes(); !slices.Equal(got, want) {
			t.Errorf("lanes %v by hash, want %v", got, want)
		}
	})
}

// stripesOf pins every campaign to as many lanes as it wants, from 0 on.
type stripesOf struct{}

func (stripesOf) Pin(_ context.Context, wanted map[string]int, _ int, _ []int) (map[string][]int, error) {
	pins := map[string][]int{}
	for id, n := range wanted {
		for lane := range n {
			pins[id] = append(pins[id], lane)
		}
	}
	return pins, nil
}

// TestStripeThatRefuses: while the partition of a stripe refuses, the other stripes get all jobs, also those that were
// meant for it; afterwards it gets its share again.
func TestStripeThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, refuses := newMemory("t."), true
		m.Refuse = func(to string, _, _ int) (int16, bool) {
			if to == "t.lanes/1" && refuses {
				return int16(kafka.NotEnoughReplicas), false
			}
			return 0, true
		}
		r := start(t, Options{
			Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Pins: stripesOf{}, Stripes: func(string) int { return 3 },
		})
		s, jobs := newSource("pacer.jobs/0"), int64(0)
		put := func() {
			for range 8 << stretchBits {
				r.Put(s.job(jobs, "wide"), lane)
				jobs++
			}
		}
		put()
		time.Sleep(time.Second)
		if n := int64(s.count()); n < jobs/2 || n == jobs {
			t.Errorf("%d of %d jobs are settled while one of three stripes refuses", n, jobs)
		}
		first := jobs - int64(s.count())
		put()
		time.Sleep(time.Second)
		if left := jobs - int64(s.count()); left != first {
			t.Errorf("%d jobs wait, of which %d before it was known", left, first)
		}
		time.Sleep(2 * moveAfter)
		if n := int64(s.count()); n != jobs || m.Total("t.lanes/1") != 0 {
			t.Errorf("%d of %d jobs are settled, %d where it refuses", n, jobs, m.Total("t.lanes/1"))
		}
		refuses = false
		time.Sleep(2 * avoidFor)
		put()
		time.Sleep(time.Second)
		if n := m.Total("t.lanes/1"); int64(s.count()) != jobs || n == 0 || int64(m.Total("t.lanes")) != jobs || s.twice != 0 {
			t.Errorf("%d of %d settled, %d twice; %d written, %d where it refused", s.count(), jobs, s.twice, m.Total("t.lanes"), n)
		}
	})
}
