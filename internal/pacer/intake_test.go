package pacer

import (
	"slices"
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
