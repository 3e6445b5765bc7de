package requeue

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// fakeLane is a lane as a source.
type fakeLane struct {
	*fakeSource
	lane int

	taken sync.Mutex
	back  []int64
	room  int64
}

func (l *fakeLane) Lane() int { return l.lane }

func (l *fakeLane) Release(_ string, offset int64) {
	l.taken.Lock()
	defer l.taken.Unlock()
	l.back, l.room = append(l.back, offset), 0
}

func (l *fakeLane) GrantCapacity(_ string, units int64) {
	l.taken.Lock()
	defer l.taken.Unlock()
	l.room = units
}

// given returns how many jobs were given back, and the room that there is for them.
func (l *fakeLane) given() (jobs int, room int64) {
	l.taken.Lock()
	defer l.taken.Unlock()
	return len(l.back), l.room
}

func (l *fakeLane) job(offset int64) *delivery.Job {
	j := l.fakeSource.job(offset, "wide")
	j.Source, j.From, j.Hops = l, delivery.FromLane, 1
	return j
}

var widened = delivery.Reroute{Kind: delivery.ToLane, Reason: delivery.ReasonWidened}

// TestWidenedJobsGoToOtherLanes: a job that is moved on goes to another lane of its campaign than the one it comes from, to the
// same one however often it is written, and counts apart. Those that are written for another reason go to any.
func TestWidenedJobsGoToOtherLanes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, waiting := newMemory("t."), map[int]int64{0: 100, 1: 3000, 2: 0, 3: 200}
		r := start(t, Options{
			Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Pins: stripesOf{}, Stripes: func(string) int { return 4 },
			Waiting: func(string) map[int]int64 { return waiting },
		})
		const jobs = 16 << stretchBits
		places := func() (lanes [4]int) {
			for i := range lanes {
				lanes[i] = m.Total("t.lanes/" + string(rune('0'+i)))
			}
			return lanes
		}
		put := func(to delivery.Reroute) (from *fakeLane) {
			from = &fakeLane{fakeSource: newSource("pacer.lanes/1"), lane: 1}
			for o := range int64(jobs) {
				r.Put(from.job(o), to)
			}
			time.Sleep(10 * time.Second)
			if back, _ := from.given(); from.count() != jobs || back > 0 {
				t.Errorf("%d of %d jobs are settled, %d given back", from.count(), jobs, back)
			}
			return from
		}
		put(widened)
		once := places()
		if once[1] != 0 || slices.Min([]int{once[0], once[2], once[3]}) < jobs/16 {
			t.Errorf("records by lane: %v", once)
		}
		waiting = map[int]int64{0: 900, 1: 2000, 2: 400, 3: 0} // the next count
		put(widened)
		if twice := places(); twice != [4]int{2 * once[0], 0, 2 * once[2], 2 * once[3]} {
			t.Errorf("records by lane: %v, after %v once", twice, once)
		}
		if n := testutil.ToFloat64(r.metrics.widened); n != 2*jobs {
			t.Errorf("%v jobs count as widened", n)
		}
		hops := `
# HELP pacer_requeue_hops Lane writes a job has behind it besides widening, observed at each of them. Above 1 is a defect.
# TYPE pacer_requeue_hops histogram
pacer_requeue_hops_bucket{le="1"} 8192
pacer_requeue_hops_bucket{le="2"} 8192
pacer_requeue_hops_bucket{le="3"} 8192
pacer_requeue_hops_bucket{le="5"} 8192
pacer_requeue_hops_bucket{le="10"} 8192
pacer_requeue_hops_bucket{le="+Inf"} 8192
pacer_requeue_hops_sum 8192
pacer_requeue_hops_count 8192
`
		if err := testutil.CollectAndCompare(r.metrics.hops, strings.NewReader(hops)); err != nil {
			t.Error(err)
		}
		waiting = nil
		put(lane)
		if places()[1] == 0 {
			t.Error("a job that is written for another reason does not go to the lane it comes from")
		}
	})
}

// TestLevelLanes: of the lanes that jobs are moved to, those are left out that hold too much themselves, or that nobody reads.
func TestLevelLanes(t *testing.T) {
	for _, c := range []struct {
		waiting map[int]int64 // the jobs come from lane 1
		want    []int
	}{
		{map[int]int64{1: 1000, 2: 0, 3: 0, 4: 0}, []int{2, 3, 4}},
		{map[int]int64{1: 1000, 2: 100, 3: 250, 4: 300}, []int{2, 3, 4}},
		{map[int]int64{1: 1000, 2: 1000, 3: 0, 4: 0}, []int{3, 4}},
		{map[int]int64{1: 1000, 2: 0, 4: 0}, []int{2, 4}},
		{map[int]int64{1: 1000}, []int{2, 3, 4}},
		{nil, []int{2, 3, 4}},
	} {
		if got := level([]int{2, 3, 4}, c.waiting); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.waiting, got, c.want)
		}
	}
}

// TestWidenedJobsStayWithoutAnotherLane: if the campaign has no other lane that accepts records, a job goes back to its own,
// which has room to read it again.
func TestWidenedJobsStayWithoutAnotherLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, lanes := newMemory("t."), 1
		m.Refuse = func(to string, _, _ int) (int16, bool) {
			return int16(kafka.NotEnoughReplicas), to != "t.lanes/0"
		}
		r := start(t, Options{
			Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Pins: stripesOf{}, Stripes: func(string) int { return lanes },
		})
		from := &fakeLane{fakeSource: newSource("pacer.lanes/0")}
		for o := range int64(10) {
			r.Put(from.job(o), widened)
		}
		time.Sleep(time.Second)
		if back, room := from.given(); back != 10 || room != 1 || from.count() != 0 {
			t.Errorf("%d of 10 jobs are given back, with room for %d; %d are settled", back, room, from.count())
		}

		lanes = 2
		other := newSource("pacer.jobs/0") // whose job waits for the lane that refuses
		from = &fakeLane{fakeSource: newSource("pacer.lanes/1"), lane: 1}
		for o := range int64(16 << stretchBits) {
			r.Put(other.job(o, "wide"), lane)
		}
		time.Sleep(time.Second)
		if !r.LanesRefuse() {
			t.Fatal("no lane refuses")
		}
		r.Put(from.job(0), widened)
		time.Sleep(100 * time.Millisecond)
		if back, _ := from.given(); back != 1 || from.count() != 0 {
			t.Errorf("%d jobs are given back while the other lane refuses", back)
		}
	})
}
