package pacer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestJobsGoInTheOrderThatIsAskedFor: the weights and the lengths in an ask are those of the jobs that take the slots.
func TestJobsGoInTheOrderThatIsAskedFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := newQueue("c")
		for range rapid.IntRange(1, 40).Draw(rt, "jobs") {
			j := &delivery.Job{Weight: rapid.Int64Range(1, 5).Draw(rt, "weight"), Reading: delivery.Reading{From: delivery.FromLane}}
			switch rapid.IntRange(0, 5).Draw(rt, "rank") {
			case 0:
				j.Priority = delivery.PriorityHigh
			case 1, 2:
				j.From = delivery.FromTimer
			}
			q.put(rank(j), j)
			if rapid.IntRange(0, 3).Draw(rt, "go") == 0 {
				q.remove(q.head())
			}
		}
		var asked, went []*delivery.Job
		q.each(func(j *delivery.Job) bool { asked = append(asked, j); return true })
		for !q.empty() {
			j := q.head()
			q.remove(j)
			went = append(went, j)
		}
		if !slices.Equal(asked, went) || q.units != 0 || q.heavy != 0 {
			rt.Fatalf("%d asked for, %d went, or in another order; %d units left", len(asked), len(went), q.units)
		}
	})
}

// TestWhatFailedIsForgottenInTheEnd: a queue that gets no more jobs is kept while the outcome of its last jobs matters, and no longer,
// except while its campaign is held.
func TestWhatFailedIsForgottenInTheEnd(t *testing.T) {
	at := func(hours float64) instant { return instant{local: int64(hours * 3600e6)} }
	for name, tt := range map[string]struct {
		of            func(q *queue)
		keeps, forget float64 // hours
	}{
		"nothing":             {func(*queue) {}, 0, 0.1},
		"failures":            {func(q *queue) { q.circuit.fail(failure{job: &delivery.Job{}}, at(1).local) }, 24.9, 25.1},
		"a refusal":           {func(q *queue) { q.circuit.refused(heldRefusals, at(1).local) }, 24.9, 25.1},
		"as long as is asked": {func(q *queue) { q.circuit.openUntil = at(40).local }, 39.9, 40.1},
		"held": {func(q *queue) {
			for range heldRefusals {
				q.circuit.refused(heldRefusals, at(1).local)
			}
		}, 10_000, 0},
	} {
		q := newQueue("c")
		q.campaign = &delivery.Campaign{}
		tt.of(q)
		if tt.keeps > 0 && q.idle(at(tt.keeps)) || tt.forget > 0 && !q.idle(at(tt.forget)) {
			t.Errorf("%s: dropped after %v hours: %v, after %v: %v", name, tt.keeps, q.idle(at(tt.keeps)), tt.forget, q.idle(at(tt.forget)))
		}
	}
}

// TestTimeHeapAgreesWithAMap: after any sequence of changes the earliest is first, and every item knows its position.
func TestTimeHeapAgreesWithAMap(t *testing.T) {
	type item struct{ index int }
	rapid.Check(t, func(rt *rapid.T) {
		h := timeHeap[*item]{index: func(i *item) *int { return &i.index }}
		items, at := make([]item, 20), map[*item]int64{}
		for i := range items {
			items[i].index = -1
		}
		for range rapid.IntRange(1, 200).Draw(rt, "steps") {
			i := &items[rapid.IntRange(0, len(items)-1).Draw(rt, "item")]
			switch rapid.IntRange(0, 4).Draw(rt, "step") {
			case 0, 1, 2:
				at[i] = rapid.Int64Range(0, 30).Draw(rt, "at")
				h.set(i, at[i])
			case 3:
				h.remove(i)
				delete(at, i)
			case 4:
				if h.len() > 0 {
					first := h.first().at
					if i = h.pop(); at[i] != first || i.index != -1 {
						rt.Fatalf("popped one at %d (index %d), want one at %d", at[i], i.index, first)
					}
					delete(at, i)
				}
			}
			earliest := int64(31)
			for i, due := range at {
				if earliest = min(earliest, due); h.entries[i.index] != (timed[*item]{due, i}) {
					rt.Fatalf("an item at %d does not know where it is", due)
				}
			}
			if h.len() != len(at) || h.len() > 0 && h.first().at != earliest {
				rt.Fatalf("%d items, want %d; the first at %d, want %d", h.len(), len(at), h.first().at, earliest)
			}
		}
	})
}

// TestManyQueuesAreMaintainedBitByBit: with more queues than fit into one turn, each has its turn again and again, and those that stay
// empty are forgotten, all but the one in use.
func TestManyQueuesAreMaintainedBitByBit(t *testing.T) {
	testservices.Simulation(t)
	const queues = 2*maintainBit + 7
	b := newBook(campaign("used", 1))
	for i := range queues {
		c := campaign(fmt.Sprint("c", i), 1000)
		c.Revision, c.Status = 1, delivery.StatusActive
		b.snapshot.Campaigns[c.ID] = &c
	}
	one(t, b, nil, func(t *testing.T, f *fleet) {
		ingress, p := newPartition("jobs/0"), f.daemons[0]
		var list []*delivery.Job
		for i := range queues {
			list = append(list, jobs(ingress, delivery.FromIngress, fmt.Sprint("c", i), int64(i), 1)...)
		}
		f.offer(t, list)
		time.Sleep(5 * time.Second)
		if sent := len(f.receiver.history()); sent != queues || len(p.queues.list) != queues {
			t.Fatalf("%d of %d jobs sent, %d queues", sent, queues, len(p.queues.list))
		}
		for i := range 10 {
			f.offer(t, jobs(ingress, delivery.FromIngress, "used", int64(queues+i), 1))
			time.Sleep(idleQueue / 5)
		}
		if len(p.queues.list) != 1 || len(p.queues.byID) != 1 || p.queues.list[0] != p.queues.byID["used"] || p.queues.list[0].place != 0 {
			t.Errorf("%d and %d queues remembered, want the one in use", len(p.queues.list), len(p.queues.byID))
		}
	})
}

// TestWhichJobProbesABreaker: one without an attempt, if there is one that weighs as little as the first; the first while nothing is open.
func TestWhichJobProbesABreaker(t *testing.T) {
	for _, c := range []struct {
		tripped bool
		weight  int64 // of the job without an attempt
		want    string
	}{{false, 1, "tried"}, {true, 1, "untried"}, {true, 2, "tried"}} {
		q := newQueue("c")
		q.circuit.tripped = c.tripped
		q.put(rankReturned, &delivery.Job{ID: "tried", Weight: 1, History: delivery.History{Attempt: 1}})
		q.put(rankOther, &delivery.Job{ID: "untried", Weight: c.weight})
		if got := q.candidate().ID; got != c.want {
			t.Errorf("tripped %t, weight %d: %s, want %s", c.tripped, c.weight, got, c.want)
		}
	}
}
