package progress

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// Board is what all daemons have reported lately: the last summary, looked up by campaign. Make one with ReadBoard. It is immutable.
type Board struct {
	part
	At      time.Time // when the daemons knew this
	Counter string    // who counts what was sent; the counts of another begin elsewhere. "" is nobody

	totals      map[uint64]total
	where       map[uint64][]int // lanes in which jobs of a campaign wait
	large, huge int              // how many campaigns have such backlogs in lanes
	lanes       int              // as far as is known
	kafka       time.Time        // since when it answers no daemon; zero: it answers one, or that is not known
}

// total is the sum over all daemons for a campaign.
type total struct {
	memory
	waiting int64 // jobs, those of ingress and timers and those in lanes
	moving  int64 // further jobs, which are counted in no partition for a moment
}

// inLanes returns how many of the jobs wait in lanes.
func (t total) inLanes() int64 { return t.waiting - t.Direct }

// ready returns how many jobs could be sent at once, at least.
func (t total) ready() int64 { return max(0, t.waiting-t.early()-t.InHand) }

// early returns how many jobs have a time that has not come.
func (t total) early() int64 { return t.Early + t.Timed }

// due returns before when the last of the jobs in timers is not sent.
func (t total) due() (at time.Time) {
	if t.Due > 0 {
		at = time.UnixMicro(t.Due)
	}
	return at
}

// backlog divides what waits. What daemons report of it is up to a second apart, so a part may seem larger than the whole.
func (t total) backlog() delivery.Backlog {
	all := t.waiting + t.moving
	inFlight := min(t.InHand, all)
	retrying := min(t.Retrying, all-inFlight)
	return delivery.Backlog{Waiting: all - inFlight - retrying, Retrying: retrying, InFlight: inFlight}
}

// meanWeight returns the mean weight of the jobs in memory, 1 if there are none.
func (t total) meanWeight() float64 {
	if t.Jobs <= 0 || t.Units < t.Jobs {
		return 1
	}
	return float64(t.Units) / float64(t.Jobs)
}

// ReadBoard reads what the daemons have left at the exchange: the last summary, or their parts if none was made lately.
func ReadBoard(ctx context.Context, x *RedisExchange) (*Board, error) {
	last, err := x.last(ctx)
	if err != nil {
		return nil, err
	}
	if s, err := decodePart(last.Summary); err == nil && last.Age < freshFor {
		b := newBoard(time.Now().Add(-last.Age), s)
		b.Counter = last.Leader
		return b, nil
	}
	_, left, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	parts, _ := decode(left) // the daemon that leads logs what cannot be read
	return newBoard(time.Now(), (&merger{}).merge(parts)), nil
}

func newBoard(now time.Time, s *part) *Board {
	b := &Board{part: *s, At: now, totals: s.totals(), where: map[uint64][]int{}, kafka: kafkaAway(s.Nodes)}
	for _, t := range b.totals {
		if t.inLanes() >= delivery.LargeBacklog {
			b.large++
		}
		if t.inLanes() >= delivery.HugeBacklog {
			b.huge++
		}
	}
	for _, l := range s.Lanes.Lanes {
		b.lanes = max(b.lanes, l.Lane+1)
		for _, w := range l.Waiting {
			b.where[w.Campaign] = append(b.where[w.Campaign], l.Lane)
		}
	}
	for _, lane := range s.Lanes.Unreadable {
		b.lanes = max(b.lanes, lane+1)
	}
	return b
}

// kafkaAway returns since when none of the daemons has had an answer of Kafka; zero: one has.
func kafkaAway(nodes []Daemon) (since time.Time) {
	for i := range nodes {
		if nodes[i].KafkaAway.IsZero() {
			return time.Time{}
		}
		if nodes[i].KafkaAway.After(since) {
			since = nodes[i].KafkaAway
		}
	}
	return since
}

// totals adds up what the summary says of each campaign.
func (p *part) totals() map[uint64]total {
	totals := make(map[uint64]total, len(p.Memory))
	for campaign, m := range p.Memory {
		totals[campaign] = total{memory: m, waiting: m.Direct}
	}
	for _, l := range p.Lanes.Lanes {
		for _, w := range l.Waiting {
			t := totals[w.Campaign]
			t.waiting += w.Jobs
			totals[w.Campaign] = t
		}
	}
	for campaign, jobs := range p.Moving {
		t := totals[campaign]
		t.moving = jobs
		totals[campaign] = t
	}
	return totals
}

// Failure returns the last failure of a destination of a sink, or of a sink without destinations; zero: none is known.
func (b *Board) Failure(sink, of string) (last delivery.Failure) {
	for i := range b.Sinks { // sinks come first
		if s := &b.Sinks[i]; s.Sink == sink && s.Of == of {
			last = s.Failure
		} else if s.Sink == sink && of == "" {
			return delivery.Failure{} // which may be a stranger's
		}
	}
	return last
}

// Sent returns the units of the campaign that all daemons have sent since the counter began; ok is false of a campaign that has
// sent nothing for half a minute.
func (b *Board) Sent(campaign string) (units int64, ok bool) {
	sum, ok := b.Tallies[delivery.CampaignHash(campaign)]
	return sum.Sent, ok
}

// Of returns what is known of one campaign.
func (b *Board) Of(c *delivery.Campaign) *hold.Board {
	hash := delivery.CampaignHash(c.ID)
	all := b.totals[hash]
	out := &hold.Board{
		Daemons: b.Daemons, Backlog: all.backlog(), InMemory: all.Jobs, Weight: all.meanWeight(), Due: all.due(), Early: all.early() + all.moving, InHand: all.InHand,
		Kafka: b.kafka, LanesRead: true, Stuck: b.Stuck[hash].Cause, Destination: b.Stuck[hash].Destination,
	}
	out.Lanes = slices.Sorted(slices.Values(b.where[hash]))
	for _, lane := range out.Lanes {
		out.LanesRead = out.LanesRead && !slices.Contains(b.Silent, lane)
	}
	if len(b.Lanes.Unreadable) > 0 {
		order := delivery.OrderOfLanes(c.ID, b.lanes)
		_, end := delivery.LanesFor(all.waiting, b.large, b.huge, b.lanes)
		for i := range end { // nobody knows what waits there
			if lane := order.Lane(i); slices.Contains(b.Lanes.Unreadable, lane) {
				out.Unread, out.Lanes = append(out.Unread, lane), append(out.Lanes, lane)
			}
		}
	}
	if all.Turn > 0 {
		out.Turn = time.UnixMicro(all.Turn)
	}
	if n, ok := b.Holds[hash]; ok {
		out.Held, out.Since = n.Cause, time.UnixMicro(n.Since)
		if n.Cause.Stall() { // only the leader has watched for long enough to tell
			out.Idle = b.At.Sub(out.Since)
		}
	}
	return out
}
