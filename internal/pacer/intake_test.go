package pacer

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// roomNotes is a source that notes the room it is told of.
type roomNotes struct {
	source
	told *[]int64
}

func (r *roomNotes) GrantCapacity(_ string, units int64) { *r.told = append(*r.told, units) }

// TestRoomIsDivided: of several sources with jobs of a campaign, each gets a part of its room. Lanes get no small parts, and none
// that is more than they may hand over; those that get nothing are told later.
func TestRoomIsDivided(t *testing.T) {
	for _, tc := range []struct {
		name           string
		lanes, ingress int
		units          int64
		want           []int64
		left           int
	}{
		{"ingress", 0, 3, 100, []int64{34, 34, 34}, 0},
		{"a lane", 1, 0, 8, []int64{8}, 0},
		{"little for lanes", 3, 0, 100, []int64{100}, 2},
		{"enough for two lanes", 10, 0, 1050, []int64{525, 525}, 8},
		{"enough for all", 3, 0, 3000, []int64{1000, 1000, 1000}, 0},
		{"more than they hand over", 2, 0, 100_000, []int64{2048, 2048}, 0},
		{"all that there is", 2, 0, settleAll, []int64{settleAll / 2, settleAll / 2}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var told []int64
			var i intake
			for range tc.lanes {
				i.await(&roomNotes{source{from: delivery.FromLane}, &told})
			}
			for range tc.ingress {
				i.await(&roomNotes{told: &told})
			}
			i.grant("c", tc.units, true)
			exactly(t, len(i.waiting), tc.left, "go on waiting")
			for k := range told {
				if d := told[k] - tc.want[min(k, len(tc.want)-1)]; d < 0 || d > 1 {
					t.Errorf("told %v, want %v", told, tc.want)
				}
			}
			if len(told) != len(tc.want) {
				t.Errorf("told %v, want %v", told, tc.want)
			}
		})
	}
}

// TestLanesAreToldOfWhatFits: a campaign whose rate is higher than its memory has room for is not told of more, and what lanes were
// told of is not told to others until they have had time to use it.
func TestLanesAreToldOfWhatFits(t *testing.T) {
	p := &Pacer{}
	p.opt.MaxQueueBytes = 8 << 20
	fast := campaign("c", 1_000_000)
	q := newQueue("c")
	q.campaign = &fast
	q.units, q.size = 1000, 1000<<10
	var told []int64
	await := func(n int) {
		for range n {
			q.await(&roomNotes{source{from: delivery.FromLane}, &told})
		}
	}
	sum := func() (n int64) {
		for _, units := range told {
			n += units
		}
		return n
	}
	await(32)
	room, now := p.ahead.laneCapacity(q), instant{local: 1_000_000}
	q.grantLanes(room, p.opt.MaxQueueBytes, now)
	if n := sum(); room != 100_000 || n < 7000 || n > 8192-1000+32 {
		t.Errorf("told of %d units, of %d in all: there is memory for %d", n, room, 8192-1000)
	}
	atLeast(t, slices.Min(told), leastGranted, "units that a lane is told of")
	before := len(told)
	now.local += leastComing.Microseconds() / 2
	q.grantLanes(room, p.opt.MaxQueueBytes, now)
	exactly(t, len(told), before, "lanes told before the others had time")
	now.local += mostComing.Microseconds()
	q.grantLanes(room, p.opt.MaxQueueBytes, now)
	if len(told) == before {
		t.Error("what lanes have not used in time is not told to others")
	}
}

// remnant is a lane with a few jobs of a campaign. It offers them when it is told of room.
type remnant struct {
	source
	daemon *Pacer
	mu     sync.Mutex
	left   []*delivery.Job
}

func (r *remnant) GrantCapacity(_ string, units int64) { go r.offer(units + 1) }

func (r *remnant) offer(units int64) {
	time.Sleep(3 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(int(units), len(r.left))
	if refused, err := r.daemon.Offer(context.Background(), r.left[:n]); err == nil {
		r.left = append(refused, r.left[n:]...)
	}
}

// TestLanesWithFewJobsAreEnough: a campaign whose backlog lies in many lanes, few jobs in each, is sent at its rate.
func TestLanesWithFewJobsAreEnough(t *testing.T) {
	const lanes, each, rate, seconds = 200, 26, 500, 8
	one(t, newBook(campaign("c", rate)), nil, func(t *testing.T, f *fleet) {
		for range lanes {
			r := &remnant{source: source{f.newPartition(delivery.FromLane), delivery.FromLane}, daemon: f.daemons[0]}
			r.left = jobs(r.partition, delivery.FromLane, "c", 0, each)
			for _, j := range r.left {
				j.Source = r
			}
			r.offer(each)
		}
		before := f.count("c")
		time.Sleep(seconds * time.Second)
		atLeast(t, f.count("c")-before, rate*seconds*99/100, "sent")
	})
}

// TestCampaignsThatAreResumedTogetherFitIntoMemory: they are told of as much room as there is memory for them all.
func TestCampaignsThatAreResumedTogetherFitIntoMemory(t *testing.T) {
	const campaigns, each, size = 200, 2, 1 << 10
	paused := func(status delivery.Status) (list []delivery.Campaign) {
		for i := range campaigns {
			c := as(status, campaign(string(rune('a'+i%26))+string(rune('a'+i/26)), 1))
			list = append(list, c)
		}
		return list
	}
	b := newBook(paused(delivery.StatusPaused)...)
	little := func(o *Options) { o.MaxQueueBytes = 200 << 10 }
	one(t, b, little, func(t *testing.T, f *fleet) {
		lane := newPartition("lane/0")
		for i, c := range paused(delivery.StatusPaused) {
			list := jobs(lane, delivery.FromLane, c.ID, int64(i*each), each)
			for _, j := range list {
				j.Size = size
			}
			f.offer(t, list)
		}
		b.set(paused(delivery.StatusActive)...)
		time.Sleep(100 * time.Millisecond)
		lane.mu.Lock()
		defer lane.mu.Unlock()
		exactly(t, len(lane.rooms), campaigns, "campaigns are told of room")
		if lane.units*size > 4*200<<10 || lane.units < 3*campaigns {
			t.Errorf("%d campaigns are told of room for %d KiB, with 800 KiB of memory", campaigns, lane.units*size>>10)
		}
	})
}

// heavy makes jobs of ingress that need 4 KiB of memory each.
func heavy(src *partition, campaign string, n int) []*delivery.Job {
	list := jobs(src, delivery.FromIngress, campaign, 0, n)
	for _, j := range list {
		j.Size = 4 << 10
	}
	return list
}

// TestWhatIsSentSoonIsNotRelayed: a backlog that is larger than the memory of its campaign, and is sent as fast as it could be moved, waits in
// ingress instead of going through a lane. If it is not sent soon after all, it leaves ingress, and the others follow at once.
func TestWhatIsSentSoonIsNotRelayed(t *testing.T) {
	for name, tc := range map[string]struct {
		stops  func(*fleet)
		within time.Duration
	}{
		"a slow sink": {func(f *fleet) { f.receiver.setLatency(time.Minute) }, 2500 * time.Millisecond},
		"a pause":     {func(f *fleet) { f.book.set(as(delivery.StatusPaused, campaign("c", 20_000))) }, 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			one(t, newBook(campaign("c", 20_000)), nil, func(t *testing.T, f *fleet) {
				f.receiver.max = 256
				src := newPartition("in/0")
				list := heavy(src, "c", 40_000)
				exactly(t, len(f.hand(t, src, list[:20_000], 10*time.Second)), 0, "refused after ten seconds")
				time.Sleep(3 * time.Second)
				atMost(t, len(f.outboxes[0].all()), 0, "jobs went through a lane")
				exactly(t, src.count(delivery.OutcomeDelivered), 20_000, "sent")
				left := f.hand(t, src, list[20_000:], 300*time.Millisecond)
				tc.stops(f)
				began := time.Now()
				exactly(t, len(f.hand(t, src, left, time.Minute)), 0, "refused then")
				atMost(t, time.Since(began), tc.within, "ingress waited for")
				atLeast(t, len(f.outboxes[0].all()), 9000, "jobs went to a lane")
			})
		})
	}
}

// TestABacklogDoesNotHoldUpWhatLiesBehindIt: a backlog of 40 s that is larger than the memory of its campaign leaves the
// partition sooner than it is sent.
func TestABacklogDoesNotHoldUpWhatLiesBehindIt(t *testing.T) {
	one(t, newBook(campaign("c", 300), campaign("behind", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 256
		src := newPartition("in/0")
		list := append(heavy(src, "c", 12_000), jobs(src, delivery.FromIngress, "behind", 12_000, 10)...)
		for _, j := range list {
			j.Size = max(j.Size, 20<<10)
		}
		exactly(t, len(f.hand(t, src, list, 2*time.Second)), 0, "refused after two seconds")
		time.Sleep(time.Second)
		exactly(t, f.count("behind"), 10, "jobs behind the backlog are sent")
	})
}

// TestAllCampaignsAreReadAheadForAsLong: as long as the memory allows, but each by two units at least; with memory for all of them,
// by as much as usual.
func TestAllCampaignsAreReadAheadForAsLong(t *testing.T) {
	many := func(n int, r delivery.Rate, more ...delivery.Rate) []delivery.Rate {
		for range n {
			more = append(more, r)
		}
		return more
	}
	for _, tc := range []struct {
		name  string
		rates []delivery.Rate
		bytes int64
		slow  int64 // units of the last one
		first int64 // and of the first
	}{
		{"none", nil, 0, 0, 0},
		{"few", many(100, delivery.PerSecond(1)), 32 << 20, 16, 16},
		{"one fast among many slow", many(10_000, delivery.PerSecond(1), delivery.PerSecond(5000)), 32 << 20, 3, 2048},
		{"as fast as can be", many(1, delivery.PerSecond(1_000_000)), 32 << 20, 0, 0},
		{"many fast", many(1000, delivery.PerSecond(1000)), 80 << 20, 80, 80},
		{"no memory", many(1000, delivery.PerSecond(1), delivery.PerSecond(1000)), 1 << 20, 2, 50},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := ahead{each: 1 << 10}
			for range 3 { // the limit that is found does not move
				a.fit(tc.rates, tc.bytes)
			}
			sum := int64(0)
			for _, r := range tc.rates {
				sum += a.units(r)
			}
			if sum > tc.bytes>>10 && a.limit > leastAhead {
				t.Errorf("%d units, want at most %d", sum, tc.bytes>>10)
			}
			if a.limit > 0 && sum < tc.bytes>>10*2/5 {
				t.Errorf("%d units of %d", sum, tc.bytes>>10)
			}
			if tc.slow > 0 {
				within(t, a.units(tc.rates[0]), tc.first*9/10-1, tc.first, "units of the first")
				within(t, a.units(tc.rates[len(tc.rates)-1]), tc.slow*9/10-1, tc.slow, "units of the last")
			}
			a.fit(nil, tc.bytes)
			exactly(t, a.limit, 0, "the limit when no campaign is left")
		})
	}
}

// TestTheMemoryOfAUnit follows what is read, by weight.
func TestTheMemoryOfAUnit(t *testing.T) {
	var a ahead
	for range 1000 {
		a.saw(&delivery.Job{Weight: 2, Reading: delivery.Reading{Size: 4 << 10}})
	}
	exactly(t, a.each, 2<<10, "bytes")
	for range 1000 {
		a.saw(&delivery.Job{Weight: 1, Reading: delivery.Reading{Size: 1 << 10}})
	}
	atMost(t, a.each, 5<<8, "bytes")
}

// TestBacklogIsNotOvertaken: once jobs of a campaign have gone to its lane, jobs read behind them go there as well, even while the
// backlog is not counted yet. After a while without any, they are sent at once again.
func TestBacklogIsNotOvertaken(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		p := newPartition("jobs/0")
		inLane := func() int { return f.outboxes[0].count(delivery.ToLane, delivery.ReasonOverflow) }
		f.offer(t, jobs(p, delivery.FromIngress, "c", 0, 600))
		before := inLane()
		if before < 50 || before > 150 {
			t.Fatalf("%d of 600 went to the lane", before)
		}
		time.Sleep(time.Second)
		f.offer(t, jobs(p, delivery.FromIngress, "c", 600, 50))
		exactly(t, inLane()-before, 50, "behind the backlog went to the lane")
		time.Sleep(2 * knownAfter)
		before = inLane()
		f.offer(t, jobs(p, delivery.FromIngress, "c", 650, 50))
		exactly(t, inLane()-before, 0, "went to the lane long after")
	})
}

// TestNextJobsStay: a queue as long as may wait here is sent whole, though its last jobs are a little late: in the lane they
// would be behind all others.
func TestNextJobsStay(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("jobs/0"), delivery.FromIngress, "c", 0, 500))
		for _, down := range []bool{false, true, false} { // a moment without slots
			f.store.setDown(down)
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToLane, delivery.ReasonOverflow), 0, "went to the lane")
		exactly(t, f.count("c"), 500, "sent")
	})
}
