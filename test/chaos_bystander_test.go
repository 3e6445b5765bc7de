package test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// bystander is a campaign that no case is about: its jobs wait in a lane of its own from the beginning, and go to a
// receiver of its own. Whatever breaks, it is to be sent at its rate, except while a shared service is down.
type bystander struct {
	*receiver

	rate   float64
	lane   int
	jobs   int
	filled int64           // records that it has in the topic of lanes
	gone   map[string]bool // of its jobs, with the lanes
	pauses []pause         // while nothing is asked of it
}

// pause is a span that does not count: from one time of the receiver to another, and then until the bystander's next job, at most for the
// recovery.
type pause struct {
	from, to int64
	recovery time.Duration
}

const (
	bystanderID = "bystander"
	// forever is the end of a pause that has not ended.
	forever = math.MaxInt64
	// groupRecovery is how long the group may need after an outage of Kafka or the death of a daemon: the session of a dead
	// member has to expire (10 s), then the others have to join.
	groupRecovery = 15 * time.Second
	// storeRecovery is how long daemons may need to find a quota store that is back.
	storeRecovery = 5 * time.Second
	// rebalance is how long nothing is asked after a daemon comes or goes in order: partitions have no owner for a moment of
	// that.
	rebalance = 3 * time.Second
	// rebuild is how long nothing is asked after the quota store has lost its data: nothing is granted for a second.
	rebuild = 2 * time.Second
)

// world makes the case's stack, with the bystander and its backlog.
func (c *chaos) world(t *testing.T, o stackOptions) {
	t.Helper()
	b := &bystander{receiver: newReceiver(t), rate: 10, lane: o.lanes, jobs: 600, gone: map[string]bool{}}
	if c.full {
		b.jobs = 6000
	}
	if b.lane == 0 {
		b.lane = defaultLanes
	}
	o.lanes = b.lane + 1
	o.sinks += fmt.Sprintf("\n  %s: {type: http, url: %q}", bystanderID, b.url)
	c.stack = newStack(t, o)
	c.bystander = b
	c.watch()
	t.Cleanup(c.silence.end)
	c.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ($1, $2, $1)`, bystanderID, b.rate)
	b.fill(c, b.list(0))
	b.pauses = []pause{{to: forever, recovery: groupRecovery}} // until the first daemon
}

// list are its jobs from a number on.
func (b *bystander) list(first int) []job {
	return ofCampaign(bystanderID, first, b.jobs-first)
}

// fill writes jobs into its lane.
func (b *bystander) fill(c *chaos, jobs []job) {
	c.t.Helper()
	for some := range slices.Chunk(jobs, 2000) {
		c.intoLane(b.lane, some)
		b.filled += int64(len(some))
	}
}

// refill gives the bystander, whose lane was emptied, other jobs instead of those that it had left.
func (b *bystander) refill(c *chaos) {
	c.t.Helper()
	accepted := b.acceptedIDs()
	for _, j := range b.list(0) {
		if !accepted[j.id] {
			b.gone[j.id] = true
		}
	}
	first := b.jobs
	b.jobs, b.filled = b.jobs+len(b.gone), 0
	b.fill(c, b.list(first))
	c.silence.publishes(b.list(first))
}

// pause begins a pause.
func (b *bystander) pause(recovery time.Duration) {
	b.pauses = append(b.pauses, pause{from: b.now(), to: forever, recovery: recovery})
}

// resume ends the pause that has no end yet, if there is one.
func (b *bystander) resume() {
	for i, p := range b.pauses {
		if p.to == forever {
			b.pauses[i].to = b.now()
		}
	}
}

// spare asks nothing for a span from now on.
func (b *bystander) spare(span time.Duration) {
	now := b.now()
	b.pauses = append(b.pauses, pause{from: now, to: now + span.Microseconds()})
}

// share returns the bystander's rate outside of its pauses, as a part of the set rate, and the measured time. A single slot that passed
// while the machine stalled counts as used.
func (b *bystander) share() (share float64, span time.Duration) {
	list := b.arrivals("")
	end := b.now()
	left := b.jobs
	for id := range b.acceptedIDs() {
		if !b.gone[id] {
			left--
		}
	}
	if left == len(b.gone) {
		end = list[len(list)-1].at // nothing was left
	}
	at, sum := int64(0), 0
	spacing, stalled := int64(1e6/b.rate), b.blur()
	asked := func(from, to int64) {
		if to = min(to, end); to <= from {
			return
		}
		span += time.Duration(to-from) * time.Microsecond
		for i, a := range list {
			if a.at < from || a.at >= to {
				continue
			}
			sum++
			if i+1 == len(list) {
				continue
			}
			for slot := a.at + spacing; slot < min(to, list[i+1].at-spacing/2); slot += spacing {
				if stalled(slot) > (transit + lateTolerance).Microseconds() {
					sum++ // the machine let it pass
				}
			}
		}
	}
	for _, p := range b.pauses {
		asked(at, p.from)
		at = max(at, p.to)
		if p.recovery == 0 || p.to == forever {
			continue
		}
		recovered := p.to + p.recovery.Microseconds()
		for _, a := range list {
			if a.at >= p.to {
				recovered = min(recovered, a.at)
				break
			}
		}
		at = max(at, recovered)
	}
	asked(at, end)
	return float64(sum) / (b.rate * span.Seconds()), span
}

// shared runs what happens while a service that all campaigns need is down, or its data are gone.
func (c *chaos) shared(recovery time.Duration, damage func()) {
	c.t.Helper()
	c.bystander.pause(recovery)
	damage()
	c.bystander.resume()
}

// still pauses the bystander in the catalog for as long as f measures what waiting costs.
func (c *chaos) still(f func()) {
	c.t.Helper()
	c.shared(time.Second, func() {
		c.setStatus(bystanderID, "paused")
		time.Sleep(time.Second)
		f()
		c.setStatus(bystanderID, "active")
	})
}

// judge fills the bystander's part of the row. The short form, which runs beside other tests, expects no more than that
// it was not stopped.
func (c *chaos) judge() {
	c.t.Helper()
	share, span := c.bystander.share()
	c.t.Logf("the bystander was sent at %.1f %% of its rate in %s", 100*share, span.Round(time.Millisecond))
	c.row.bystander = -1
	least, within := 0.5, 3*time.Second
	if c.full {
		least, within = 0.99, time.Second
	}
	if span < within {
		return
	}
	c.row.bystander = min(share, 1)
	if (least-share)*c.bystander.rate*span.Seconds() > 1 { // a span begins and ends between two jobs
		c.t.Errorf("the bystander was sent at %.1f %% of its rate", 100*share)
		c.gaps()
	}
}

// gaps logs where the bystander was not sent.
func (c *chaos) gaps() {
	list, stalled := c.bystander.arrivals(""), c.bystander.blur()
	for i := 1; i < len(list); i++ {
		if gap := float64(list[i].at-list[i-1].at) / 1e6; gap > 1.5/c.bystander.rate {
			c.t.Logf("nothing of the bystander for %.2f s from %.2f s on; the machine's stalls explain %.2f s", gap,
				float64(list[i-1].at)/1e6, float64(stalled(list[i-1].at+int64(1e6/c.bystander.rate)))/1e6)
		}
	}
	for _, p := range c.bystander.pauses {
		c.t.Logf("nothing was asked of it from %.2f s to %.2f s", float64(p.from)/1e6, float64(min(p.to, c.bystander.now()))/1e6)
	}
}

// eachOpen is the stack's without the bystander's jobs.
func (c *chaos) eachOpen(f func(topic string, r delivery.Record)) {
	c.t.Helper()
	c.stack.eachOpen(func(topic string, r delivery.Record) {
		if r.Header("pacer-campaign") != bystanderID {
			f(topic, r)
		}
	})
}

// written is the stack's without the bystander's jobs.
func (c *chaos) written(topic string) int64 {
	c.t.Helper()
	n := c.stack.written(topic)
	if topic == requeue.LaneTopic(c.prefix) {
		n -= c.bystander.filled
	}
	return n
}

// since counts the bystander's arrivals of the last moments.
func (b *bystander) since(ago time.Duration) (n int) {
	from := b.now() - ago.Microseconds()
	for _, a := range b.arrivals("") {
		if a.at >= from {
			n++
		}
	}
	return n
}
