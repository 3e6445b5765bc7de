package pacer

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

func TestPressure(t *testing.T) {
	for _, c := range []struct {
		name  string
		taken []int // of 64, in each round
		want  bool
	}{
		{"an instant", []int{64}, false},
		{"not long enough", slices.Repeat([]int{64}, highPressure-1), false},
		{"long enough", slices.Repeat([]int{64}, highPressure), true},
		{"some have just ended", slices.Repeat([]int{56}, highPressure), true},
		{"free ones for ever", slices.Repeat([]int{55}, 100), false},
		{"a free moment in between", slices.Concat(slices.Repeat([]int{64}, highPressure), []int{10}), true},
		{"free ones for a while", slices.Concat(slices.Repeat([]int{64}, 100), slices.Repeat([]int{10}, 3)), false},
		{"half of the time", slices.Repeat([]int{64, 10}, 100), false},
		{"taken again, not long enough", slices.Concat(slices.Repeat([]int{64}, 100), []int{0, 0, 0}, slices.Repeat([]int{64}, 5)), false},
	} {
		var p pressure
		for _, taken := range c.taken {
			p.update(taken, 64)
		}
		if p.high != c.want {
			t.Errorf("%s: %t", c.name, p.high)
		}
	}
}

// Lane is the number in the name of the lane.
func (p laneSource) Lane() int {
	n, _ := strconv.Atoi(p.name[strings.LastIndexByte(p.name, '/')+1:])
	return n
}

func (p laneSource) HasCapacity(string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.cramped
}

// widened lists the offsets of the jobs that were moved to other lanes.
func (o *outbox) widened() (offsets []int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.puts {
		if p.to.Kind == delivery.ToLane && p.to.Reason == delivery.ReasonWidened {
			offsets = append(offsets, p.job.Offset)
		}
	}
	return offsets
}

// asks notes for which campaigns lanes are asked for.
type asks struct {
	mu    sync.Mutex
	asked []string
}

func (a *asks) Widen(_ context.Context, campaigns []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, campaigns...)
}

func (a *asks) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.asked)
}

// TestANarrowLaneIsReadOn: jobs are moved on only once all calls have been taken for a while, as many as there are too many, from
// the end of the queue, and none that was moved before. Those that are sent soon stay.
func TestANarrowLaneIsReadOn(t *testing.T) {
	c := campaign("c", 500)
	c.Lanes = []int{3, 4, 5}
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		const calls, offered, surplus = 16, 900, 500
		f.receiver.max = calls
		f.receiver.setLatency(time.Second)
		lane := newPartition("lanes/3")
		list := jobs(lane, delivery.FromLane, "c", 0, offered)
		for _, j := range list[offered-100:] {
			j.Moves = delivery.Widened
		}
		if n := f.offer(t, list); n > 0 {
			t.Fatalf("%d jobs are refused", n)
		}
		f.daemons[0].BalanceLanes([]delivery.UnevenLane{{Campaign: "c", Lane: 3, Surplus: surplus}})
		time.Sleep(1500 * time.Millisecond)
		if moved := f.outboxes[0].widened(); len(moved) > 0 {
			t.Fatalf("%d jobs are moved on although calls have been taken for a moment", len(moved))
		}
		time.Sleep(1500 * time.Millisecond)
		moved := f.outboxes[0].widened()
		if len(moved) != surplus || slices.Max(moved) >= offered-100 {
			t.Fatalf("%d jobs are moved on: %v", len(moved), moved)
		}
		if first := slices.Min(moved); first < 2*calls {
			t.Errorf("job %d is moved on, which would have been sent soon", first)
		}
		time.Sleep(10 * time.Second)
		if n := len(f.outboxes[0].widened()); n != surplus {
			t.Errorf("%d jobs are moved on by a list that is old", n)
		}
		time.Sleep(20 * time.Second)
		if sent := f.count("c"); sent != offered-surplus {
			t.Errorf("%d jobs are sent of %d", sent, offered-surplus)
		}
	})
}

// TestWhatKeepsALaneFromBeingReadOn: free calls, a lane that holds as many of the campaign's jobs as it may beside those that are
// sent, memory that is short, a campaign that may not send, and lists that do not name the lane.
func TestWhatKeepsALaneFromBeingReadOn(t *testing.T) {
	narrow := []delivery.UnevenLane{{Campaign: "c", Lane: 3, Surplus: 500}}
	for _, c := range []struct {
		name  string
		keeps func(f *fleet, lane *partition)
		list  []delivery.UnevenLane
		moves bool
	}{
		{"nothing", func(*fleet, *partition) {}, narrow, true},
		{"free calls", func(f *fleet, _ *partition) { f.receiver.setLatency(20 * time.Millisecond) }, narrow, false},
		{"no room in the lane", func(_ *fleet, lane *partition) { lane.cramped = true }, narrow, false},
		{"no memory", func(f *fleet, _ *partition) { f.yield(1) }, narrow, false},
		{"another lane", func(*fleet, *partition) {}, []delivery.UnevenLane{{Campaign: "c", Lane: 4, Surplus: 500}, {Campaign: "d", Lane: 3, Surplus: 500}}, false},
		{"too few lanes", func(*fleet, *partition) {}, []delivery.UnevenLane{{Campaign: "c", Lane: 3, Few: true}}, false},
		{"no list any more", func(f *fleet, _ *partition) { f.daemons[0].BalanceLanes(narrow); f.daemons[0].BalanceLanes(nil) }, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			wide := campaign("c", 500)
			wide.Lanes = []int{3, 4, 5}
			one(t, newBook(wide), nil, func(t *testing.T, f *fleet) {
				f.receiver.max = 16
				f.receiver.setLatency(time.Second)
				lane := newPartition("lanes/3")
				f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 900))
				time.Sleep(100 * time.Millisecond)
				c.keeps(f, lane)
				for range 4 {
					if c.list != nil {
						f.daemons[0].BalanceLanes(c.list)
					}
					time.Sleep(time.Second)
				}
				if n := len(f.outboxes[0].widened()); (n > 0) != c.moves {
					t.Errorf("%d jobs are moved on", n)
				}
			})
		})
	}
}

// TestCallsOfACampaign: a campaign that has used up its own calls is widened, although its sink has more.
func TestCallsOfACampaign(t *testing.T) {
	c := campaign("c", 500)
	c.Lanes, c.MaxInFlight = []int{3, 4, 5}, 8
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 1000
		f.receiver.setLatency(time.Second)
		f.offer(t, jobs(newPartition("lanes/3"), delivery.FromLane, "c", 0, 900))
		for range 4 {
			f.daemons[0].BalanceLanes([]delivery.UnevenLane{{Campaign: "c", Lane: 3, Surplus: 500}})
			time.Sleep(time.Second)
		}
		if n := len(f.outboxes[0].widened()); n < 500 {
			t.Errorf("%d jobs are moved on", n)
		}
	})
}

// TestLanesAreAskedFor: a campaign with too few lanes gets more once its calls are taken, and not before.
func TestLanesAreAskedFor(t *testing.T) {
	c, a := campaign("c", 500), &asks{}
	c.Lanes = []int{3}
	one(t, newBook(c, campaign("idle", 500)), func(o *Options) { o.Widener = a }, func(t *testing.T, f *fleet) {
		f.receiver.max = 16
		f.receiver.setLatency(time.Second)
		f.offer(t, jobs(newPartition("lanes/3"), delivery.FromLane, "c", 0, 900))
		few := []delivery.UnevenLane{{Campaign: "c", Lane: 3, Few: true}, {Campaign: "idle", Lane: 3, Few: true}}
		f.daemons[0].BalanceLanes(few)
		time.Sleep(time.Second)
		if asked := a.all(); len(asked) > 0 {
			t.Errorf("lanes are asked for at once for %v", asked)
		}
		time.Sleep(2 * time.Second)
		f.daemons[0].BalanceLanes(few)
		time.Sleep(time.Second)
		if asked := a.all(); !slices.Equal(asked, []string{"c"}) {
			t.Errorf("lanes are asked for for %v", asked)
		}
	})
}
