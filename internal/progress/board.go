package progress

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// Board is what all daemons have reported lately. Make one with ReadBoard. It is immutable.
type Board struct {
	at      time.Time
	parts   []reported
	totals  map[uint64]total
	readers map[int]*reported
	first   *reported    // the leader; nil if no daemon runs
	daemons int          // that run
	unread  map[int]bool // lanes that their daemon does not read
	stuck   map[uint64]note
	holds   map[uint64]note
}

// ReadBoard reads what the daemons have left at the exchange.
func ReadBoard(ctx context.Context, x *RedisExchange) (*Board, error) {
	left, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	return newBoard(time.Now(), decode(left)), nil
}

func newBoard(now time.Time, parts []reported) *Board {
	b := &Board{
		at: now, parts: parts, totals: sum(parts), readers: laneReaders(parts), first: leader(parts),
		unread: map[int]bool{}, stuck: map[uint64]note{}, holds: map[uint64]note{},
	}
	for i := range parts {
		p := &parts[i]
		if !p.fresh() {
			continue
		}
		b.daemons++
		for _, lane := range p.lanes.Held {
			b.unread[lane] = true
		}
		for _, n := range p.stuck {
			if before, ok := b.stuck[n.campaign]; !ok || n.since < before.since {
				b.stuck[n.campaign] = n
			}
		}
	}
	if b.first != nil {
		for _, n := range b.first.holds {
			b.holds[n.campaign] = n
		}
	}
	return b
}

// Of returns what is known of one campaign. The snapshot has the names of others.
func (b *Board) Of(c *delivery.Campaign, s *delivery.Snapshot) *hold.Board {
	hash := delivery.CampaignHash(c.ID)
	all := b.totals[hash]
	out := &hold.Board{Daemons: b.daemons, Waiting: all.waiting, InMemory: all.jobs, InHand: all.inHand, LanesRead: true}
	for _, lane := range c.Lanes {
		r := b.readers[lane]
		out.LanesRead = out.LanesRead && r != nil && r.fresh()
		if b.unread[lane] {
			out.Unread = append(out.Unread, lane)
		}
	}
	if n, ok := b.stuck[hash]; ok {
		out.Stuck = &hold.Stuck{Cause: n.cause, By: nameOf(n.by, s)}
	}
	if n, ok := b.holds[hash]; ok {
		out.Held, out.Since = n.cause, time.UnixMicro(n.since)
		if n.cause.Stall() { // only the leader has watched for long enough to tell
			out.Idle = b.at.Sub(out.Since)
		}
	}
	return out
}

// stripes returns what waits in each lane of the campaigns with several of which something waits. Lanes that no daemon
// reads are left out.
func (b *Board) stripes(campaigns map[uint64]*delivery.Campaign) map[uint64]map[int]int64 {
	all := map[uint64]map[int]int64{}
	for i := range b.parts {
		p := &b.parts[i]
		for _, l := range p.lanes.Lanes {
			if b.readers[l.Lane] != p {
				continue
			}
			for _, w := range l.Waiting {
				if c := campaigns[w.Campaign]; c == nil || len(c.Lanes) < 2 {
					continue
				}
				if all[w.Campaign] == nil {
					all[w.Campaign] = map[int]int64{}
				}
				all[w.Campaign][l.Lane] = w.Jobs
			}
		}
	}
	for hash, waiting := range all {
		for _, lane := range campaigns[hash].Lanes {
			if _, counted := waiting[lane]; !counted && b.readers[lane] != nil {
				waiting[lane] = 0
			}
		}
	}
	return all
}

// nameOf returns the id of the campaign with this hash, "(unknown)" if it is not in the catalog.
func nameOf(hash uint64, s *delivery.Snapshot) string {
	if s != nil {
		for id := range s.Campaigns {
			if delivery.CampaignHash(id) == hash {
				return id
			}
		}
	}
	return delivery.UnknownCampaign
}
