package requeue

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestLanesOfABacklog: few jobs of a campaign go to its first lane, and many to all, about as many to each. What others have written counts.
func TestLanesOfABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, counted := newMemory("t."), int64(0)
		r := start(t, Options{
			Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Backlog: func(string) (jobs, all int64) { return counted, counted },
		})
		s, jobs := newSource("pacer.jobs/0"), int64(0)
		put := func(n int64) (in []int) {
			was := make([]int, 8)
			for l := range was {
				was[l] = m.Total(fmt.Sprint("t.lanes/", l))
			}
			for range n {
				r.Put(s.job(jobs, campaignIn(3)), lane)
				jobs++
			}
			time.Sleep(time.Second)
			for l := range was {
				in = append(in, m.Total(fmt.Sprint("t.lanes/", l))-was[l])
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
			if n < 2000 || n > 7000 {
				t.Errorf("%d of 32000 jobs of a large backlog are in lane %d", n, l)
			}
		}
	})
}

// TestAJobWrittenAgain: after a crash, jobs are written to the lanes where they are, wherever the batches begin and end.
func TestAJobWrittenAgain(t *testing.T) {
	testservices.Few(t, 50, func(rt *rapid.T) {
		counted := rapid.Int64Range(0, 100_000).Draw(rt, "jobs that wait")
		source := newSource(rapid.String().Draw(rt, "source"))
		write := func(name string) (lanes []int) {
			b := backlogs{counted: func(string) (jobs, all int64) { return counted, 2 * counted }}
			for len(lanes) < 3000 {
				n := rapid.Int64Range(1, maxBatchJobs).Draw(rt, name)
				own, all := b.grow(written{source.name, "c"}, n)
				to := lanesOf{delivery.OrderOfLanes("c", 64), own, all}
				for range n {
					lanes = append(lanes, to.next(source.job(int64(len(lanes)), "c"), layout{partitions: 64}))
				}
				b.grow(written{"another source", "c"}, n)
			}
			return lanes[:3000]
		}
		first, second := write("batch"), write("batch after the crash")
		for offset := range first {
			if first[offset] != second[offset] {
				rt.Fatalf("offset %d is in lane %d, and after the crash in lane %d", offset, first[offset], second[offset])
			}
		}
	})
}

// TestALaneThatRefuses: while the partition of a lane refuses, the campaign's other lanes get all jobs, also those that were
// meant for it; afterwards it gets its share again.
func TestALaneThatRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, refuses := newMemory("t."), true
		m.Refuse = func(to string, _, _ int) (int16, bool) {
			if to == "t.lanes/1" && refuses {
				return int16(kafka.NotEnoughReplicas), false
			}
			return 0, true
		}
		r := start(t, Options{
			Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8},
			Backlog: func(string) (jobs, all int64) { return 100_000, 100_000 },
		})
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
