package pacer

import (
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

func blocking(id string, perSecond int64) delivery.Campaign {
	c := campaign(id, perSecond)
	c.Overflow = delivery.OverflowBlock
	return c
}

// hand offers the jobs in pieces, as a reader of ingress does: what is refused is offered again after word of room, and
// nothing else meanwhile. It returns what is left when patience is over.
func (f *fleet) hand(t *testing.T, src *partition, list []*delivery.Job, patience time.Duration) (left []*delivery.Job) {
	t.Helper()
	deadline := time.Now().Add(patience)
	var refused []*delivery.Job
	for (len(list) > 0 || len(refused) > 0) && time.Now().Before(deadline) {
		rooms := src.counts().rooms
		piece := refused
		if len(piece) == 0 {
			n := min(len(list), 500)
			piece, list = list[:n], list[n:]
		}
		var err error
		if refused, err = f.daemons[0].Offer(t.Context(), piece); err != nil {
			t.Fatalf("offer: %v", err)
		}
		for len(refused) > 0 && src.counts().rooms == rooms && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
	}
	return append(refused, list...)
}

// order lists the ids of a campaign's jobs as they were sent.
func (f *fleet) order(campaign string) (ids []string) {
	for _, a := range f.receiver.history() {
		if a.campaign == campaign {
			ids = append(ids, a.id)
		}
	}
	return ids
}

func idsOf(list []*delivery.Job) (ids []string) {
	for _, j := range list {
		ids = append(ids, j.ID)
	}
	return ids
}

// TestBlockKeepsJobsWhereTheyAre: what does not fit is refused and never moved; all of it is sent at the rate, in order.
func TestBlockKeepsJobsWhereTheyAre(t *testing.T) {
	one(t, newBook(blocking("c", 100)), nil, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "c", 0, 3000)
		began := time.Now()
		exactly(t, len(f.hand(t, src, list, time.Minute)), 0, "refused after a minute")
		time.Sleep(3 * time.Second)
		atMost(t, time.Since(began), 34*time.Second, "until all are sent")
		if got := f.order("c"); !slices.Equal(got, idsOf(list)) {
			t.Errorf("%d sent, not all or out of order", len(got))
		}
		exactly(t, len(f.outboxes[0].all()), 0, "jobs were moved")
		atMost(t, src.counts().twice, 0, "settled twice")
	})
}

// TestBlockKnowsNoAge: a job waits for its turn for as long as it takes.
func TestBlockKnowsNoAge(t *testing.T) {
	testservices.Simulation(t)
	slow := blocking("slow", 1)
	slow.Rate = delivery.Rate{N: 1, Per: time.Hour.Microseconds()}
	one(t, newBook(slow), nil, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "slow", 0, 40)
		f.refuses(t, 24, list)
		f.daemons[0].Relieve(source{src, delivery.FromIngress}, 100)
		time.Sleep(5*time.Hour + time.Minute)
		within(t, f.count("slow"), 5, 7, "sent in five hours")
		exactly(t, len(f.outboxes[0].all()), 0, "jobs were moved")
	})
}

// TestBlockPausedAndResumed: jobs of a paused campaign are neither sent nor moved, however long; they go on at
// once, in order.
func TestBlockPausedAndResumed(t *testing.T) {
	one(t, newBook(blocking("c", 100), campaign("other", 50)), nil, func(t *testing.T, f *fleet) {
		src, other := newPartition("in/0"), newPartition("in/1")
		list := jobs(src, delivery.FromIngress, "c", 0, 500)
		f.refuses(t, 300, list)
		time.Sleep(500 * time.Millisecond)
		paused := as(delivery.StatusPaused, blocking("c", 100))
		f.book.set(paused)
		time.Sleep(100 * time.Millisecond)
		sent, rooms := f.count("c"), src.counts().rooms
		f.offer(t, jobs(other, delivery.FromIngress, "other", 0, 100))
		time.Sleep(3 * time.Hour)
		exactly(t, f.count("c"), sent, "sent while paused")
		if c := src.counts(); c.settled != sent || c.released != 200-sent || c.rooms != rooms {
			t.Errorf("paused: %+v, %d sent", c, sent)
		}
		exactly(t, f.inMemory(t), delivery.MemoryJobs{}, "in memory while paused")
		exactly(t, f.count("other"), 100, "sent by the other campaign")
		again := f.refuses(t, 500-sent, list[sent:])
		f.book.set(blocking("c", 100))
		again = f.hand(t, src, again, 300*time.Millisecond)
		within(t, f.count("c")-sent, 20, 35, "sent in 300 ms after the resume")
		exactly(t, len(f.hand(t, src, again, 10*time.Second)), 0, "refused")
		time.Sleep(3 * time.Second)
		if got := f.order("c"); !slices.Equal(got, idsOf(list)) {
			t.Errorf("%d of 500 sent, not all or out of order: %v", len(got), got)
		}
		exactly(t, len(f.outboxes[0].all()), 0, "jobs were moved")
	})
}

// TestBlockGivesUp: jobs that were refused, or in the queue when the campaign was paused, are read again when it does not keep them any more. They
// settle as cancelled, or go to the lane.
func TestBlockGivesUp(t *testing.T) {
	paused := as(delivery.StatusPaused, blocking("c", 10))
	laned := paused
	laned.Overflow = delivery.OverflowLane
	for outcome, next := range map[delivery.Outcome]delivery.Campaign{
		delivery.OutcomeCancelled: as(delivery.StatusCancelled, paused), delivery.OutcomeRequeued: laned,
	} {
		one(t, newBook(blocking("c", 10)), nil, func(t *testing.T, f *fleet) {
			src := newPartition("in/0")
			list := jobs(src, delivery.FromIngress, "c", 0, 60)
			taken := len(list) - f.offer(t, list)
			time.Sleep(450 * time.Millisecond)
			f.book.set(paused)
			time.Sleep(time.Hour)
			sent, rooms := f.count("c"), src.counts().rooms
			f.book.set(next)
			time.Sleep(50 * time.Millisecond)
			if n := src.counts(); n.rooms == rooms || n.released != taken-sent || sent > 6 {
				t.Errorf("%s: %+v, %d sent of %d", outcome, n, sent, taken)
			}
			exactly(t, f.offer(t, list[sent:]), 0, "%s: refused", outcome)
			exactly(t, src.count(outcome), len(list)-sent, "%s, %d sent", outcome, sent)
		})
	}
}

// TestBlockHighPriority: high-priority jobs pass those that are refused, by a share of the queue that is theirs.
func TestBlockHighPriority(t *testing.T) {
	one(t, newBook(blocking("c", 100)), nil, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "c", 0, 400)
		for _, i := range []int{250, 399} {
			list[i].Priority = delivery.PriorityHigh
		}
		refused := f.refuses(t, 198, list)
		for _, j := range refused {
			if j.Priority == delivery.PriorityHigh {
				t.Errorf("%s was refused", j.ID)
			}
		}
		time.Sleep(200 * time.Millisecond)
		if got := f.order("c"); !slices.Contains(got, "in/0/250") || !slices.Contains(got, "in/0/399") {
			t.Errorf("not sent first: %v", got)
		}
	})
}

// TestBlockRetriesStayInTimers: a job that comes back from a timer while its campaign is held goes to a timer again.
func TestBlockRetriesStayInTimers(t *testing.T) {
	c := as(delivery.StatusPaused, blocking("c", 100))
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		src := newPartition("timer/0")
		exactly(t, f.offer(t, jobs(src, delivery.FromTimer, "c", 0, 10)), 0, "refused: a timer is shared by all")
		exactly(t, f.outboxes[0].count(delivery.ToTimer, delivery.ReasonOverflow), 10, "in a timer: %+v", f.outboxes[0].all())
	})
}

// TestBlockTellsOfRoomLater: also of a campaign whose queue was idle for long, since it has a backlog in a lane that
// another daemon reads.
func TestBlockTellsOfRoomLater(t *testing.T) {
	one(t, newBook(blocking("c", 10)), nil, func(t *testing.T, f *fleet) {
		src := newPartition("in/0")
		list := jobs(src, delivery.FromIngress, "c", 0, 10)
		f.offer(t, list)
		c := as(delivery.StatusPaused, blocking("c", 10))
		f.book.set(c)
		time.Sleep(time.Second)
		c.Status = delivery.StatusActive
		f.book.setBacklog("c", 1000)
		f.book.set(c)
		sent := f.count("c")
		list = f.hand(t, src, list[sent:], 2*idleQueue)
		f.book.setBacklog("c", 0)
		f.hand(t, src, list, drainedFor+2*time.Second)
		time.Sleep(2 * time.Second)
		exactly(t, src.counts().settled, 10, "settled")
	})
}
