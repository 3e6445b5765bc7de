package progress

import (
	"cmp"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// summary is what all daemons know together: a part with the sums of their parts, of each lane the count that is valid,
// and what holds campaigns. It has no lists of what sinks answer, for which it says more.
type summary struct {
	part
	daemons int   // that run
	silent  []int // lanes whose daemon runs no more
	said    []remoteFact
}

// remoteFact is what one daemon says to the others.
type remoteFact struct {
	about subject
	hash  uint64 // of the sink or the campaign
	by    uint64 // hash of the daemon that says it
	// when it was so, in milliseconds before the summary was made; since when, in microseconds since the Unix epoch, of
	// refusals; 0 of questions.
	when int64
}

// subject is what a daemon says something about.
type subject byte

// The subjects. The numbers are stored.
const (
	aboutAsks    subject = iota + 1 // a campaign of which others may know better
	aboutTaken                      // a campaign whose jobs were taken
	aboutWorks                      // a sink that works
	aboutUntried                    // a sink that takes no jobs, while some wait that have not been tried
	aboutRefused                    // a campaign that is held for refusals
	lastSubject  = aboutRefused
)

// factSet collects what daemons say: of each thing the best word of two daemons, so that each daemon finds that of another.
type factSet map[remoteFact][2]remoteFact // by about and hash

func (s factSet) add(one remoteFact) {
	key := remoteFact{about: one.about, hash: one.hash}
	best, known := s[key]
	switch {
	case !known:
		best = [2]remoteFact{one, {}}
	case one.when < best[0].when:
		best = [2]remoteFact{one, best[0]}
	case best[1].about == 0 || one.when < best[1].when:
		best[1] = one
	}
	s[key] = best
}

// hear adds what a daemon says in its part.
func (s factSet) hear(p *reported) {
	by, age := delivery.CampaignHash(p.daemon), p.age.Milliseconds()
	for _, hash := range p.asks {
		s.add(remoteFact{aboutAsks, hash, by, 0})
	}
	for about, list := range map[subject][]seen{aboutTaken: p.taken, aboutWorks: p.works, aboutUntried: p.untried} {
		for _, one := range list {
			s.add(remoteFact{about, one.hash, by, age + one.ago})
		}
	}
	for _, n := range p.stuck {
		if n.cause == hold.Refused {
			s.add(remoteFact{aboutRefused, n.campaign, by, n.since})
		}
	}
}

// list returns what was said, at most maxAnswers times about each subject.
func (s factSet) list() (list []remoteFact) {
	count := map[subject]int{}
	for _, best := range s {
		for _, one := range best {
			if one.about != 0 && count[one.about] < maxAnswers {
				count[one.about]++
				list = append(list, one)
			}
		}
	}
	slices.SortFunc(list, func(a, b remoteFact) int { return cmp.Or(cmp.Compare(a.about, b.about), cmp.Compare(a.hash, b.hash)) })
	return list
}
