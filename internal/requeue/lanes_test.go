package requeue

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/testservices"
)

// TestLanesOfABacklog: few jobs of a campaign go to its first lane, and many to all, about as many to each. Jobs that others have written
// count.
func TestLanesOfABacklog(t *testing.T) {
	counted := int64(0)
	onMemory(t, func(t *testing.T, r *rig) {
		s, jobs := newSource("pacer.jobs/0"), int64(0)
		put := func(n int64) (in []int) {
			was := make([]int, 8)
			for l := range was {
				was[l] = r.m.Total(fmt.Sprint("t.lanes/", l))
			}
			for range n {
				r.Put(s.job(jobs, campaignIn(3)), lane)
				jobs++
			}
			time.Sleep(time.Second)
			for l := range was {
				in = append(in, r.m.Total(fmt.Sprint("t.lanes/", l))-was[l])
			}
			return in
		}
		if in := put(128); in[3] != 128 {
			t.Errorf("the first jobs are in lanes %v", in)
		}
		if in := put(1900); in[3] > 0 {
			t.Errorf("the next jobs are in lanes %v", in)
		}
		counted = 1_000_000
		time.Sleep(time.Minute)
		for l, n := range put(32_000) {
			if n < 1200 || n > 8000 {
				t.Errorf("%d of 32000 jobs of a large backlog are in lane %d", n, l)
			}
		}
	}, func(o *Options) {
		o.Backlog = func(string) Backlog { return Backlog{Jobs: counted, Large: 1, Huge: 1} }
	})
}

// TestABacklogFillsItsLanesEvenly: with any part of the jobs of its sources.
func TestABacklogFillsItsLanesEvenly(t *testing.T) {
	b := backlogs{counted: func(string) Backlog { return Backlog{Jobs: 1 << 20} }, lately: map[string]*recent{}}
	const sources, lanes, stretches = 6, 32, 3 * 32
	for _, every := range []int64{1, 7, 100} {
		in := make([]int, lanes)
		for n := range sources {
			s := newSource(fmt.Sprint("jobs/", n))
			for offset := int64(0); offset < stretches<<stretchBits; offset += every {
				in[b.laneOf(s.job(offset, "wide"), s.name, layout{partitions: lanes})]++
			}
		}
		if least, most := slices.Min(in), slices.Max(in); most > least+least/4 {
			t.Errorf("every %d. job: %d to %d jobs are in a lane", every, least, most)
		}
	}
}

// TestAJobWrittenAgain: after a crash, jobs are written to the lanes where they are, even if jobs of other sources are written meanwhile.
func TestAJobWrittenAgain(t *testing.T) {
	testservices.Few(t, 10, func(rt *rapid.T) {
		counted := rapid.Int64Range(0, 100_000).Draw(rt, "jobs that wait")
		campaigns := rapid.IntRange(1, 20).Draw(rt, "campaigns")
		source := newSource(rapid.String().Draw(rt, "source"))
		write := func(name string) (lanes []int) {
			b := backlogs{counted: func(string) Backlog { return Backlog{Jobs: counted} }, lately: map[string]*recent{}}
			other := newSource(source.name + "'")
			for len(lanes) < 3000 {
				campaign := fmt.Sprint("c", len(lanes)%campaigns)
				lanes = append(lanes, b.laneOf(source.job(int64(len(lanes)), campaign), source.name, layout{partitions: 16}))
				for range rapid.IntRange(0, 3).Draw(rt, name) {
					b.laneOf(other.job(int64(len(lanes)), campaign), other.name, layout{partitions: 16})
				}
			}
			return lanes
		}
		first, second := write("others"), write("others after the crash")
		for offset := range first {
			if first[offset] != second[offset] {
				rt.Fatalf("offset %d is in lane %d, and after the crash in lane %d", offset, first[offset], second[offset])
			}
		}
	})
}

// TestManyCampaignsAreNotCounted: what is remembered of a source is bounded, however many campaigns it has.
func TestManyCampaignsAreNotCounted(t *testing.T) {
	b := backlogs{lately: map[string]*recent{}}
	for n := range 10_000 {
		if waits := b.grow("jobs/0", fmt.Sprint("c", n%5000)); n >= 5000 && waits.Jobs != 0 {
			t.Fatalf("%d jobs count, of a source with 5000 campaigns", waits.Jobs)
		}
	}
	if n := len(b.lately["jobs/0"].now); n > fewCampaigns+1 {
		t.Errorf("%d campaigns are remembered", n)
	}
}

// TestALaneThatRefuses: while the partition of a lane refuses, the campaign's other lanes get all jobs, also those that were
// meant for it; afterwards it gets its share again.
func TestALaneThatRefuses(t *testing.T) {
	onMemory(t, func(t *testing.T, r *rig) {
		lane1 := r.refuse("t.lanes/1", kafka.NotEnoughReplicas)
		s, jobs := newSource("pacer.jobs/0"), int64(0)
		put := func() {
			for range 32 << stretchBits {
				r.Put(s.job(jobs, "wide"), lane)
				jobs++
			}
		}
		put()
		time.Sleep(time.Second)
		if n := int64(s.count()); n < jobs/2 || n == jobs {
			t.Errorf("%d of %d jobs are settled while one of eight lanes refuses", n, jobs)
		}
		first := jobs - int64(s.count())
		put()
		time.Sleep(time.Second)
		if left := jobs - int64(s.count()); left != first {
			t.Errorf("%d jobs wait, of which %d before it was known", left, first)
		}
		time.Sleep(2 * moveAfter)
		if n := int64(s.count()); n != jobs || r.m.Total("t.lanes/1") != 0 {
			t.Errorf("%d of %d jobs are settled, %d where it refuses", n, jobs, r.m.Total("t.lanes/1"))
		}
		lane1.mend()
		time.Sleep(2 * avoidFor)
		put()
		time.Sleep(time.Second)
		if r.settled(int(jobs), s); r.m.Total("t.lanes/1") == 0 {
			t.Error("nothing is written where it refused")
		}
	}, func(o *Options) {
		o.Backlog = func(string) Backlog { return Backlog{Jobs: 100_000, Large: 1, Huge: 1} }
	})
}
