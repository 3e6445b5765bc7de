package pacer

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// held counts the jobs of a lane in memory.
func (p *partition) held(offered, refused int) int {
	c := p.counts()
	return offered - refused - c.settled - c.released
}

// yield is what a daemon is asked to do while lanes wait for memory.
func (f *fleet) yield(times int) {
	for range times {
		f.daemons[0].Yield()
		time.Sleep(yieldEvery)
	}
}

const yieldEvery = 250 * time.Millisecond // between two calls of Yield

// A campaign whose sink's gate is closed for an hour gives its lane jobs back when lanes wait for memory, and asks for
// them again just before the gate opens. One that can send keeps its jobs meanwhile.
func TestYieldOfACampaignThatWaits(t *testing.T) {
	waits, sends := campaign("waits", 1000), campaign("sends", 100)
	waits.Sink, sends.Sink = "first", "second"
	believe := func(o *Options) { o.MaxRetryAfter = map[string]time.Duration{"first": time.Hour} }
	one(t, newBook(waits, sends), believe, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(answering(delivery.Result{Class: delivery.Throttled, RetryAfter: time.Hour}, func(j *delivery.Job) bool {
			return j.Campaign == "waits"
		}))
		closed, open := newPartition("lanes/0"), newPartition("lanes/1")
		refused := f.offer(t, jobs(closed, delivery.FromLane, "waits", 0, 4000))
		time.Sleep(5 * time.Minute) // the next probe is minutes away
		f.offer(t, jobs(open, delivery.FromLane, "sends", 0, 200))
		f.yield(1)
		atMost(t, closed.held(4000, refused), 1, "jobs stay in memory for an hour, %d were refused", refused)
		atMost(t, open.counts().released, 0, "jobs were given back of a campaign that can send")
		exactly(t, f.offer(t, jobs(closed, delivery.FromLane, "waits", 4000, 10)), 10, "further jobs refused")
		time.Sleep(50 * time.Minute)
		atMost(t, closed.counts().rooms, 5, "times asked for while the gate is closed")
		f.receiver.setAnswer(nil)
		time.Sleep(time.Hour)
		atLeast(t, closed.counts().rooms, 1, "times asked for when the gate opens")
		exactly(t, open.count(delivery.OutcomeDelivered), 200, "sent by the other campaign")
	})
}

// A campaign whose sink is much slower than its rate gives back what it does not send, and has its whole room again once
// the sink is fast.
func TestYieldOfASlowCampaign(t *testing.T) {
	testservices.Simulation(t)
	one(t, newBook(campaign("c", 1000)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 4
		f.receiver.setLatency(10 * time.Minute)
		lane := newPartition("lanes/0")
		refused := f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 4000))
		time.Sleep(5 * time.Second)
		before := lane.held(4000, refused)
		f.yield(1)
		atMost(t, lane.held(4000, refused), before/2+10, "of %d jobs are held after yielding once", before)
		f.yield(15)
		atMost(t, lane.held(4000, refused), 150, "jobs, those that have a slot, are held after yielding for long")
		rooms := lane.counts().rooms
		time.Sleep(time.Minute)
		atMost(t, lane.counts().rooms-rooms, 1, "times asked for without sending")
		f.receiver.setLatency(time.Millisecond)
		time.Sleep(10 * time.Minute)
		next := int64(10_000)
		for range 30 { // what a lane offers after Room
			next += 2000
			refused = f.offer(t, jobs(lane, delivery.FromLane, "c", next, 2000))
			time.Sleep(time.Second)
		}
		atLeast(t, 2000-refused, 900, "jobs taken at once, of a rate of 1,000 a second")
	})
}

// Jobs are counted by what they take, too: a campaign with large ones does not fill the memory.
func TestAQueueIsBoundedInBytes(t *testing.T) {
	for _, from := range []delivery.Place{delivery.FromLane, delivery.FromIngress} {
		one(t, newBook(campaign("c", 1000)), nil, func(t *testing.T, f *fleet) {
			f.receiver.setAnswer(always(delivery.Result{Class: delivery.Throttled, RetryAfter: 4 * time.Second}))
			src := newPartition("p/0")
			f.offer(t, jobs(src, from, "c", 0, 1))
			time.Sleep(100 * time.Millisecond) // the gate is closed
			list := jobs(src, from, "c", 1, 100)
			for _, j := range list {
				j.Size = 1 << 20
			}
			refused := f.offer(t, list)
			within(t, src.held(100, refused), 6, 8, "place %d: MiB held", from)
		})
	}
}
