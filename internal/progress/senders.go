package progress

import (
	"cmp"
	"context"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// Sender is a daemon that takes part in sending a campaign: it reads some of its lanes, or has jobs of it.
type Sender struct {
	Daemon   string `json:"daemon"`
	Lanes    []int  `json:"lanes,omitempty" doc:"lanes of the campaign that it reads"` // ascending
	InMemory int64  `json:"in_memory" doc:"jobs"`
	InFlight int64  `json:"in_flight" doc:"jobs that the sink has been given and has not answered"`
}

// ReadSenders reads from what each daemon has left at the exchange which of them send a campaign, in the order of their names.
func ReadSenders(ctx context.Context, x *RedisExchange, c *delivery.Campaign) ([]Sender, error) {
	_, left, err := x.read(ctx)
	if err != nil {
		return nil, err
	}
	parts, _ := decode(left) // as in ReadBoard
	return sendersOf(parts, c), nil
}

func sendersOf(parts []reported, c *delivery.Campaign) (senders []Sender) {
	hash, readers := delivery.CampaignHash(c.ID), laneReaders(parts)
	for i := range parts {
		p := &parts[i]
		if !p.fresh() {
			continue
		}
		s := Sender{Daemon: p.daemon}
		for _, l := range p.Lanes.Lanes {
			if readers[l.Lane] == p && slices.ContainsFunc(l.Waiting, func(w delivery.CampaignCount) bool { return w.Campaign == hash }) {
				s.Lanes = append(s.Lanes, l.Lane)
			}
		}
		slices.Sort(s.Lanes)
		s.InMemory, s.InFlight = p.Memory[hash].Jobs, p.Memory[hash].InHand
		if len(s.Lanes) > 0 || s.InMemory > 0 || s.InFlight > 0 {
			senders = append(senders, s)
		}
	}
	slices.SortFunc(senders, func(a, b Sender) int { return cmp.Compare(a.Daemon, b.Daemon) })
	return senders
}
