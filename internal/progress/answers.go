package progress

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// Answering knows what sinks answer to this daemon, and learns what they answer to the others.
type Answering interface {
	// Answers returns what sinks lately answered; of campaigns only what was asked for.
	Answers(ctx context.Context, asked []string) (delivery.Answers, error)
	// Elsewhere is told what they answer to the other daemons.
	Elsewhere(e delivery.Elsewhere)
}

// passedIn is how long a part may take to reach the exchange: what it says was seen may have been seen that much earlier.
const passedIn = 500 * time.Millisecond

// answers passes on what sinks answer. Which campaigns are taken is passed on only if another daemon asks, so that
// nothing is while all goes well.
type answers struct {
	of    Answering
	asked []string // by the other daemons
}

// add adds to the part what sinks answer to this daemon.
func (a *answers) add(ctx context.Context, p *part) error {
	mine, err := a.of.Answers(ctx, a.asked)
	if err != nil {
		return err
	}
	now := time.Now()
	for _, id := range mine.Asks {
		p.asks = append(p.asks, delivery.CampaignHash(id))
	}
	ago := func(list []seen, at map[string]time.Time) []seen {
		for id, t := range at {
			list = append(list, seen{delivery.CampaignHash(id), now.Sub(t).Milliseconds()})
		}
		return list
	}
	p.taken, p.works, p.untried = ago(p.taken, mine.Taken), ago(p.works, mine.Works), ago(p.untried, mine.Untried)
	return nil
}

// hear tells this daemon what the others know, and notes what they ask.
func (a *answers) hear(parts []reported, daemon string, byHash map[uint64]*delivery.Campaign, sinks []string) {
	now := time.Now()
	e := delivery.Elsewhere{
		Works: map[string]time.Time{}, Taken: map[string]time.Time{}, Untried: map[string]time.Time{}, Refused: map[string]time.Time{},
	}
	sinkOf := map[uint64]string{}
	for _, id := range sinks {
		sinkOf[delivery.CampaignHash(id)] = id
	}
	latest := func(at map[string]time.Time, id string, s seen, age time.Duration) {
		if t := now.Add(-age - time.Duration(s.ago)*time.Millisecond - passedIn); id != "" && t.After(at[id]) {
			at[id] = t
		}
	}
	asked := map[string]bool{}
	for i := range parts {
		p := &parts[i]
		if p.daemon == daemon || !p.fresh() {
			continue
		}
		for _, s := range p.works {
			latest(e.Works, sinkOf[s.hash], s, p.age)
		}
		for _, s := range p.untried {
			latest(e.Untried, sinkOf[s.hash], s, p.age)
		}
		for _, s := range p.taken {
			if c := byHash[s.hash]; c != nil {
				latest(e.Taken, c.ID, s, p.age)
			}
		}
		for _, n := range p.stuck {
			if c := byHash[n.campaign]; c != nil && n.cause == hold.Refused {
				e.Refused[c.ID] = time.UnixMicro(n.since)
			}
		}
		for _, hash := range p.asks {
			if c := byHash[hash]; c != nil && len(asked) < maxAnswers {
				asked[c.ID] = true
			}
		}
	}
	a.asked = a.asked[:0]
	for id := range asked {
		a.asked = append(a.asked, id)
	}
	slices.Sort(a.asked)
	a.of.Elsewhere(e)
}
