package progress

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// restFor is how long a campaign must have nothing left, with the same count, until its jobs are counted in the log: all daemons save
	// meanwhile.
	restFor = 10 * time.Second
	// unsaved is how much of its time a killed daemon may not have saved. A larger difference has another cause.
	unsaved = 10 * time.Second
	// recountWithin bounds a count, and recountAgain is how long the same campaign is not counted again.
	recountWithin = time.Minute
	recountAgain  = 2 * time.Minute
)

// recounts mend the counts of campaigns whose last jobs a killed daemon has settled and not saved: without that, they would be nearly done for
// ever. Once such a campaign has nothing left, what was published of it is counted in the log. They belong to the daemon that leads.
type recounts struct {
	log    *slog.Logger
	count  func(ctx context.Context, campaign string) (jobs int64, to map[string]int64, err error) // nil: nothing is mended
	killed map[string]bool                                                                         // campaigns that a killed daemon was sending
	rest   map[string]rest
	asked  map[string]time.Time // when a campaign was counted last
	wanted chan recount
}

// rest is that a campaign has had nothing left since a time.
type rest struct {
	settled int64
	since   time.Time
}

// recount is a campaign to be counted, with what is known of it.
type recount struct {
	campaign *delivery.Campaign
	settled  int64
}

// most returns how many jobs of a campaign a killed daemon may not have saved.
func most(c *delivery.Campaign) int64 { return c.Rate.UnitsIn(unsaved) }

// died notes what the daemons were sending that have ended without a drain.
func (r *recounts) died(parts []reported, byHash map[uint64]*delivery.Campaign) {
	for i := range parts {
		p := &parts[i]
		if p.fresh() || r.count == nil || len(p.Nodes) == 0 || !p.Nodes[0].Ready {
			continue
		}
		for campaign := range p.Tallies {
			if c := byHash[campaign]; c != nil {
				r.killed[c.ID] = true
			}
		}
	}
}

// look finds a campaign that may lack something, and rests.
func (r *recounts) look(now time.Time, campaigns map[string]*delivery.Campaign, left func(*delivery.Campaign) int64, settled func(id string) int64) {
	resting := map[string]rest{}
	for id, c := range campaigns {
		n := settled(id)
		lacks := c.ExpectedTotal - n
		if r.count == nil || left(c) > 0 || c.ExpectedTotal > 0 && lacks <= 0 || !r.killed[id] && (n == 0 || lacks > most(c)) {
			continue
		}
		is, known := r.rest[id]
		if !known || is.settled != n {
			is = rest{settled: n, since: now}
		}
		resting[id] = is
		if now.Sub(is.since) < restFor || now.Sub(r.asked[id]) < recountAgain {
			continue
		}
		select {
		case r.wanted <- recount{c, n}:
			r.asked[id] = now
			delete(r.killed, id)
		default: // one at a time
		}
	}
	maps.DeleteFunc(r.asked, func(_ string, at time.Time) bool { return now.Sub(at) >= recountAgain })
	r.rest = resting
}

// suspects returns the campaigns that may lack something: those of killed daemons, and those that expect a number of jobs.
func (r *recounts) suspects(s *delivery.Snapshot, watched map[string]*delivery.Campaign) map[string]*delivery.Campaign {
	list := map[string]*delivery.Campaign{}
	for id, c := range watched {
		if c.ExpectedTotal > 0 {
			list[id] = c
		}
	}
	for id := range r.killed {
		if c := s.Campaign(id); c != nil {
			list[id] = c
		} else {
			delete(r.killed, id)
		}
	}
	return list
}

// run counts until ctx ends.
func (r *recounts) run(ctx context.Context, leads func() bool, store Store) {
	for {
		select {
		case one := <-r.wanted:
			if err := r.mend(ctx, one, leads, store); err != nil {
				r.log.Debug("what was published of a campaign cannot be counted", "campaign", one.campaign.ID, "error", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// mend adds what is missing, unless the campaign has gone on meanwhile.
func (r *recounts) mend(ctx context.Context, one recount, leads func() bool, store Store) error {
	ctx, cancel := context.WithTimeout(ctx, recountWithin)
	defer cancel()
	id := one.campaign.ID
	jobs, to, err := r.count(ctx, id)
	if err != nil {
		return err
	}
	if total := one.campaign.ExpectedTotal; total > 0 {
		jobs = min(jobs, total)
	}
	missing := jobs - one.settled
	now, err := store.LoadSettled(ctx, []string{id})
	if err != nil || missing <= 0 || missing > most(one.campaign) || !leads() || now[id].Total() != one.settled {
		return err
	}
	list := []delivery.Progress{{Campaign: id, Settled: delivery.Settled{delivery.OutcomeDelivered: missing}}}
	of, err := store.LoadSettledOf(ctx, slices.Collect(maps.Keys(to)))
	if err != nil {
		return err
	}
	for destination, jobs := range to { // as far as they have jobs of this campaign only: others hide what is missing
		if lacks := jobs - of[destination].Total(); lacks > 0 && lacks <= most(one.campaign) {
			list = append(list, delivery.Progress{Destination: destination, Settled: delivery.Settled{delivery.OutcomeDelivered: lacks}})
		}
	}
	r.log.Info("jobs that a killed daemon had delivered and not saved are counted", "campaign", id, "jobs", missing)
	return store.SaveProgress(ctx, list)
}

// stepDown forgets all: another daemon counts.
func (r *recounts) stepDown() {
	r.rest = nil
	clear(r.killed)
}

// ids returns the campaigns of killed daemons.
func (r *recounts) ids() []string { return slices.Sorted(maps.Keys(r.killed)) }
