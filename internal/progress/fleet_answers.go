package progress

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Answering knows what sinks answer to this daemon, and learns what they answer to the others.
type Answering interface {
	// Answers returns what sinks lately answered; of campaigns only what was asked for.
	Answers(ctx context.Context, asked []string) (delivery.Answers, error)
	// FleetAnswers is told what they answer to the other daemons.
	SetFleetAnswers(e delivery.FleetAnswers)
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

// hear tells this daemon what the others said when a summary was made that is of this age, and notes what they ask.
func (a *answers) hear(said []remoteFact, age time.Duration, daemon string, byHash map[uint64]*delivery.Campaign, sinks []string) {
	now, me := time.Now(), delivery.CampaignHash(daemon)
	e := delivery.FleetAnswers{
		Works: map[string]time.Time{}, Taken: map[string]time.Time{}, Untried: map[string]time.Time{}, Refused: map[string]time.Time{},
	}
	sinkOf := map[uint64]string{}
	for _, id := range sinks {
		sinkOf[delivery.CampaignHash(id)] = id
	}
	asked := map[string]bool{}
	for _, s := range said {
		name := ""
		if s.about == aboutWorks || s.about == aboutUntried {
			name = sinkOf[s.hash]
		} else if c := byHash[s.hash]; c != nil {
			name = c.ID
		}
		if s.by == me || name == "" {
			continue
		}
		switch s.about {
		case aboutWorks:
			latest(e.Works, name, s.at(now.Add(-age)))
		case aboutUntried:
			latest(e.Untried, name, s.at(now.Add(-age)))
		case aboutTaken:
			latest(e.Taken, name, s.at(now.Add(-age)))
		case aboutRefused:
			e.Refused[name] = time.UnixMicro(s.when)
		case aboutAsks:
			asked[name] = true
		}
	}
	a.asked = a.asked[:0]
	for id := range asked {
		a.asked = append(a.asked, id)
	}
	slices.Sort(a.asked)
	a.of.SetFleetAnswers(e)
}

// at returns when it was so, or somewhat earlier, by a summary that was made then.
func (s *remoteFact) at(made time.Time) time.Time {
	return made.Add(-time.Duration(s.when)*time.Millisecond - passedIn)
}

func latest(at map[string]time.Time, name string, t time.Time) {
	if t.After(at[name]) {
		at[name] = t
	}
}
