package progress

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// Board is what all daemons have reported lately. Make one with ReadBoard. It is immutable.
type Board struct {
	at      time.Time
	totals  map[uint64]total
	where   map[uint64][]int // lanes in which jobs of a campaign wait
	inLanes *inLanes
	count   int          // of lanes, as far as is known
	read    map[int]bool // lanes whose daemon runs; false: it ran no more
	daemons int          // that run
	unread  map[int]bool // lanes that their daemon does not read
	stuck   map[uint64]note
	holds   map[uint64]note
	kafka   time.Time // since when it answers no daemon; zero: it answers one, or that is not known

	counter string // who counts what was sent; the counts of another begin elsewhere
	sent    map[uint64]int64
	denied  map[uint64]int64 // asks, by windowHash; counted as sent is
	late    lateness
	nodes   []Node
	sinks   []SinkReport
}

// total is the sum over all daemons for a campaign.
type total struct {
	memory
	waiting int64 // jobs, those in memory and those in lanes
}

// ready returns how many jobs could be sent at once, at least.
func (t total) ready() int64 { return max(0, t.waiting-t.Early-t.InHand) }

// meanWeight returns the mean weight of the jobs in memory, 1 if there are none.
func (t total) meanWeight() float64 {
	if t.Jobs <= 0 || t.Units < t.Jobs {
		return 1
	}
	return float64(t.Units) / float64(t.Jobs)
}

// ReadBoard reads what the daemons have left at the exchange: the last summary, or their parts if nobody has made one lately.
func ReadBoard(ctx context.Context, x *RedisExchange) (*Board, error) {
	last, err := x.last(ctx)
	if err != nil {
		return nil, err
	}
	if s, err := decodePart(last.Summary); err == nil && last.Age < freshFor {
		b := newBoard(time.Now().Add(-last.Age), s)
		b.counter = last.Leader
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
	b := &Board{
		at: now, totals: s.totals(), where: map[uint64][]int{}, inLanes: s.inLanes(), read: map[int]bool{}, daemons: s.Daemons,
		unread: map[int]bool{}, stuck: byCampaign(s.Stuck), holds: byCampaign(s.Holds),
		late: s.Late, nodes: s.Nodes, sinks: s.Sinks, sent: byHash(s.Sent), denied: byHash(s.Denied),
	}
	b.kafka = kafkaAway(s.Nodes)
	for _, l := range s.Lanes.Lanes {
		b.read[l.Lane], b.count = true, max(b.count, l.Lane+1)
		for _, w := range l.Waiting {
			b.where[w.Campaign] = append(b.where[w.Campaign], l.Lane)
		}
	}
	for _, lane := range s.Silent {
		b.read[lane] = false
	}
	for _, lane := range s.Lanes.Unreadable {
		b.unread[lane], b.count = true, max(b.count, lane+1)
	}
	return b
}

// kafkaAway returns since when none of the daemons has had an answer of Kafka; zero: one has.
func kafkaAway(nodes []Node) (since time.Time) {
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

func byHash(list []count) map[uint64]int64 {
	m := make(map[uint64]int64, len(list))
	for _, one := range list {
		m[one.Of] = one.N
	}
	return m
}

func byCampaign(list []note) map[uint64]note {
	m := make(map[uint64]note, len(list))
	for _, n := range list {
		m[n.Campaign] = n
	}
	return m
}

// totals adds up what the summary says of each campaign.
func (p *part) totals() map[uint64]total {
	totals := make(map[uint64]total, len(p.Memory))
	for _, m := range p.Memory {
		totals[m.Campaign] = total{m, m.Direct}
	}
	for _, l := range p.Lanes.Lanes {
		for _, w := range l.Waiting {
			t := totals[w.Campaign]
			t.waiting += w.Jobs
			totals[w.Campaign] = t
		}
	}
	return totals
}

// At returns when the daemons knew this.
func (b *Board) At() time.Time { return b.at }

// Nodes returns the daemons that run, as far as they describe themselves, and how many run.
func (b *Board) Nodes() (list []Node, running int) { return b.nodes, b.daemons }

// Sinks returns what the daemons tell of their sinks, in the order of their names.
func (b *Board) Sinks() []SinkReport { return b.sinks }

// Failure returns the last failure of a sink; zero: none is known.
func (b *Board) Failure(sink string) (last delivery.Failure) {
	for i := range b.sinks {
		if b.sinks[i].Sink == sink {
			return b.sinks[i].Failure
		}
	}
	return last
}

// Late returns how many jobs are late by lack of capacity, and by their destination.
func (b *Board) Late() (capacity, destination int64) { return b.late.capacity(), b.late.Destination }

// Counter returns who counts what was sent; counts of different ones cannot be compared. "" is nobody.
func (b *Board) Counter() string { return b.counter }

// Sent returns the units of the campaign that all daemons have sent since the counter began; ok is false of a campaign that has
// sent nothing for half a minute.
func (b *Board) Sent(campaign string) (units int64, ok bool) {
	units, ok = b.sent[delivery.CampaignHash(campaign)]
	return units, ok
}

// Denied returns how many asks a window of a quota has reduced or denied, over all daemons, since the counter began; ok is false of one
// that has denied none for half a minute.
func (b *Board) Denied(quota string, span time.Duration) (asks int64, ok bool) {
	asks, ok = b.denied[windowHash(quota, span)]
	return asks, ok
}

// Of returns what is known of one campaign. The snapshot has the names of others.
func (b *Board) Of(c *delivery.Campaign, s *delivery.Snapshot) *hold.Board {
	hash := delivery.CampaignHash(c.ID)
	all := b.totals[hash]
	out := &hold.Board{Daemons: b.daemons, Waiting: all.waiting, InMemory: all.Jobs, Early: all.Early, InHand: all.InHand, Kafka: b.kafka, LanesRead: true}
	out.Lanes = slices.Sorted(slices.Values(b.where[hash]))
	for _, lane := range out.Lanes {
		out.LanesRead = out.LanesRead && b.read[lane]
	}
	if len(b.unread) > 0 {
		order := delivery.OrderOfLanes(c.ID, b.count)
		_, end := delivery.LanesFor(all.waiting, b.inLanes.large, b.inLanes.huge, b.count)
		for i := range end { // nobody knows what waits there
			if lane := order.Lane(i); b.unread[lane] {
				out.Unread, out.Lanes = append(out.Unread, lane), append(out.Lanes, lane)
			}
		}
	}
	if all.Turn > 0 {
		out.Turn = time.UnixMicro(all.Turn)
	}
	if n, ok := b.stuck[hash]; ok {
		out.Stuck = &hold.Stuck{Cause: n.Cause, By: nameOf(n.By, s)}
	}
	if n, ok := b.holds[hash]; ok {
		out.Held, out.Since = n.Cause, time.UnixMicro(n.Since)
		if n.Cause.Stall() { // only the leader has watched for long enough to tell
			out.Idle = b.at.Sub(out.Since)
		}
	}
	return out
}

// nameOf returns the id of the campaign with this hash, "(unknown)" if it is not in the catalog, and "" for none.
func nameOf(hash uint64, s *delivery.Snapshot) string {
	if hash == 0 {
		return ""
	}
	if s != nil {
		for id := range s.Campaigns {
			if delivery.CampaignHash(id) == hash {
				return id
			}
		}
	}
	return delivery.UnknownCampaign
}
