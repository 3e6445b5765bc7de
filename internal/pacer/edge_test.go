package pacer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAHeavierJobComesToTheFront: a high-priority job heavier than the slots held jumps in front of a queue that is in the slot heap.
func TestAHeavierJobComesToTheFront(t *testing.T) {
	one(t, newBook(campaign("c", 20)), nil, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 20))
		time.Sleep(320 * time.Millisecond) // some slots are held (the horizon is 75 ms, one slot each 50 ms)
		list := jobs(newPartition("in/1"), delivery.FromIngress, "c", 0, 1)
		list[0].Priority, list[0].Weight = delivery.PriorityHigh, 3
		f.offer(t, list)
		time.Sleep(3 * time.Second)
		exactly(t, f.count("c"), 21, "sent")
	})
}

// TestSlotsOfExpiredJobsAreGivenBack: the queue runs empty with slots left, because its jobs expired on their way to the sink. Later jobs, fewer than
// the stale slots, are never sent, and the sink's room stays reduced.
func TestSlotsOfExpiredJobsAreGivenBack(t *testing.T) {
	one(t, newBook(campaign("c", 1000)), nil, func(t *testing.T, f *fleet) {
		list := jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 60)
		for _, j := range list {
			j.ExpiresAt = time.Now().Add(3 * time.Millisecond) // granted within a ms, expired when the slots come
		}
		f.offer(t, list)
		time.Sleep(2 * time.Second)
		before := f.count("c")
		f.offer(t, jobs(newPartition("lane/1"), delivery.FromLane, "c", 0, 5))
		time.Sleep(2 * time.Minute)
		exactly(t, f.count("c")-before, 5, "later jobs sent in two minutes")
	})
}

// scripted answers takes with nothing until told otherwise, slowly.
type scripted struct {
	*client
	mu   sync.Mutex
	none bool
}

func (s *scripted) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	s.mu.Lock()
	none := s.none
	s.mu.Unlock()
	if !none {
		return s.client.Take(ctx, asks)
	}
	time.Sleep(50 * time.Millisecond)
	reply := delivery.TakeReply{Clocks: []delivery.ShardClock{{Now: s.now()}}, Items: make([]delivery.Granted, len(asks))}
	for i := range asks {
		reply.Items[i] = delivery.Granted{Competitors: 2, GrantedAt: s.now(), NextAt: s.now() + 50_000, Bound: delivery.BindRate}
	}
	return reply, nil
}

// TestAChangeDuringAnEmptyTake: a take that granted nothing is under way while the campaign's rate changes.
func TestAChangeDuringAnEmptyTake(t *testing.T) {
	var s *scripted
	adjust := func(o *Options) {
		s = &scripted{client: o.Limiter.(*client), none: true}
		o.Limiter = s
	}
	one(t, newBook(campaign("c", 10)), adjust, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 10))
		time.Sleep(30 * time.Millisecond) // the take is under way
		f.book.set(campaign("c", 100))
		s.mu.Lock()
		s.none = false
		s.mu.Unlock()
		time.Sleep(2 * time.Minute)
		exactly(t, f.count("c"), 10, "sent in two minutes after the rate was raised")
	})
}

// strict wants every refund to say whose slots it gives back.
type strict struct {
	*client
	t *testing.T
}

func (s strict) Refund(ctx context.Context, grants []delivery.Grant) error {
	for _, r := range grants {
		if r.From.Campaign == nil {
			s.t.Error("a refund without a campaign")
			return nil
		}
	}
	return s.client.Refund(ctx, grants)
}

// TestACampaignDeletedDuringATake: a campaign is deleted while a take of it is under way. Its slots are handed back under the campaign
// that asked for them.
func TestACampaignDeletedDuringATake(t *testing.T) {
	b := newBook(campaign("c", 1000))
	one(t, b, func(o *Options) { o.Limiter = strict{o.Limiter.(*client), t} }, func(t *testing.T, f *fleet) {
		f.store.latency = uniform(3, 20*time.Millisecond, 0)
		f.offer(t, jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 500))
		time.Sleep(30 * time.Millisecond) // the take, begun at 12.5 ms, is answered at 52.5 ms
		b.remove("c")
		time.Sleep(time.Second)
	})
}

// TestAFreeCallIsPassedOn: the only free call goes to a queue that cannot use it; another one blocked on the same sink is forgotten.
func TestAFreeCallIsPassedOn(t *testing.T) {
	one(t, newBook(campaign("a", 100), campaign("b", 100), campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 1
		f.receiver.setLatency(time.Second)
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "a", 0, 1))
		time.Sleep(300 * time.Millisecond) // a's call is under way
		list := jobs(newPartition("lane/1"), delivery.FromLane, "b", 0, 1)
		list[0].ExpiresAt = time.Now().Add(500 * time.Millisecond) // while it waits for a free call
		f.offer(t, list)
		time.Sleep(200 * time.Millisecond) // b is blocked
		f.offer(t, jobs(newPartition("lane/2"), delivery.FromLane, "c", 0, 1))
		time.Sleep(time.Minute)
		exactly(t, f.count("c"), 1, "c's job sent in a minute, as the sink is idle")
	})
}

// TestAFreeCallIsNotLostToAGate: settle wakes b for the free call, then the answer (429) closes the gate and b's slots are handed back: the free
// call is forgotten, and c stays blocked. If no other campaign sends on the sink (a and b are paused), c waits for ever.
func TestAFreeCallIsNotLostToAGate(t *testing.T) {
	one(t, newBook(campaign("a", 100), campaign("b", 100), campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 1
		f.receiver.setLatency(time.Second)
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Throttled, RetryAfter: time.Second}))
		for _, id := range []string{"a", "b", "c"} {
			f.offer(t, jobs(newPartition("lane/"+id), delivery.FromLane, id, 0, 1))
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(700 * time.Millisecond) // a was refused; the gate is closed
		f.receiver.setAnswer(nil)
		for _, id := range []string{"a", "b"} {
			f.book.set(as(delivery.StatusPaused, campaign(id, 100)))
		}
		time.Sleep(time.Minute)
		exactly(t, f.count("c"), 1, "c's job sent in a minute, as the gate is open and the sink idle")
	})
}

// TestRoomIsSharedInOneTake: campaigns that ask in one take share the room of their sink.
func TestRoomIsSharedInOneTake(t *testing.T) {
	var list []delivery.Campaign
	names := make([]string, 50)
	for i := range names {
		names[i] = string(rune('A'+i/10)) + string(rune('0'+i%10))
		list = append(list, campaign(names[i], 500))
	}
	one(t, newBook(list...), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 10
		f.receiver.setLatency(50 * time.Millisecond) // 200 a second
		f.daemons[0].inbox.do(func(now instant) {
			for _, id := range names {
				f.daemons[0].place(jobs(newPartition("lane/"+id), delivery.FromLane, id, 0, 50), now)
			}
		})
		var most int64
		for range 1000 {
			time.Sleep(time.Millisecond)
			f.daemons[0].inbox.do(func(instant) {
				s := f.daemons[0].sinkByID("default")
				most = max(most, s.granted)
			})
			synctest.Wait()
		}
		atMost(t, most, 800, "slots are taken at once, which cannot be used; 750 are what a call of a millisecond would allow")
		atLeast(t, len(f.receiver.history()), 190, "sent in a second; the sink could take 200")
	})
}

// TestSlotsOfAJobThatALoweredLimitRefusesAreGivenBack: a limit is lowered below the weight of the only job of a campaign, which has its slots by
// then. Another campaign on the same sink goes on as before.
func TestSlotsOfAJobThatALoweredLimitRefusesAreGivenBack(t *testing.T) {
	with := func(revision, limit int64) delivery.Campaign {
		return under("a", 100, delivery.Quota{ID: "q", Revision: revision, Windows: []delivery.Window{{Span: time.Minute, Limit: limit}}})
	}
	one(t, newBook(with(1, 200), campaign("b", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 20
		f.receiver.setLatency(time.Second)
		f.offer(t, heavyJobs(newPartition("lane/0"), delivery.FromLane, "a", 0, 60, 60))
		granted := func() (units int64) {
			units, _ = inTurn(t.Context(), f.daemons[0], func(instant) int64 { return f.daemons[0].queues.byID["a"].granted })
			return units
		}
		for time.Sleep(100 * time.Millisecond); granted() == 0; { // the first has gone
			time.Sleep(time.Millisecond)
		}
		f.book.set(with(2, 20))
		time.Sleep(time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToDead, delivery.ReasonOverweight), 1, "dead letters")
		f.push(t, jobs(newPartition("lane/1"), delivery.FromLane, "b", 0, 150))
		time.Sleep(10 * time.Second)
		atLeast(t, f.count("b"), 140, "sent of the other campaign; the sink takes 20 a second")
	})
}

// TestManyJobsWithOneTime: jobs in memory that may be sent from the same moment on are placed in several turns, so that slots come due in between.
func TestManyJobsWithOneTime(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		const many = 3 * perTurn
		list, at := jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, many), time.Now().Add(time.Second)
		for _, j := range list {
			j.NotBefore = at
		}
		f.offer(t, list)
		p, left := f.daemons[0], make(chan int, 1)
		p.inbox.do(func(instant) {
			time.Sleep(1100 * time.Millisecond)
			p.inbox.do(func(instant) { left <- p.aside.waits.len() })
		})
		exactly(t, <-left, many-perTurn, "jobs that are not placed after a turn")
		time.Sleep(time.Second)
		after, _ := inTurn(t.Context(), p, func(instant) int { return p.aside.waits.len() })
		exactly(t, after, 0, "jobs that are not placed in the end")
	})
}
