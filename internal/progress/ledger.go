package progress

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// ledger writes progress to the catalog.
type ledger struct {
	store   Store
	log     *slog.Logger
	saved   map[string]delivery.Settled // the part of this daemon's tallies that the catalog has
	loaded  map[string]delivery.Settled // settled jobs of all daemons in the catalog, of campaigns with an expected total, and of those that a killed daemon was sending
	outlook map[string]delivery.Outlook // to be saved
	kept    map[string]delivery.Outlook // as stored in the catalog
	asked   bool                        // the catalog was asked which outlooks other leaders have stored
	outage  retry.Outage                // of the store
}

func newLedger(store Store, log *slog.Logger) ledger {
	return ledger{
		store: store, log: log, saved: map[string]delivery.Settled{}, outlook: map[string]delivery.Outlook{},
		kept: map[string]delivery.Outlook{},
	}
}

// settled returns the number of the campaign's jobs with a final outcome, as last loaded.
func (l *ledger) settled(campaign string) int64 { return l.loaded[campaign].Total() }

// foresee records the outlooks that differ from the stored ones: the leader writes them for all daemons.
func (l *ledger) foresee(now time.Time, figures map[string]figure) {
	for id, f := range figures {
		if id == delivery.UnknownCampaign {
			continue
		}
		o := delivery.Outlook{Backlog: f.backlog}
		if f.known && f.eta > 0 {
			o.DoneAt = now.Add(time.Duration(f.eta*float64(time.Second)) + time.Second - 1).Truncate(time.Second) // up, as times to come are shown
		}
		before, ok := l.kept[id]
		if ok && o.Backlog == before.Backlog && near(o.DoneAt, before.DoneAt, f.eta) {
			delete(l.outlook, id)
			continue
		}
		l.outlook[id] = o
	}
	for id, kept := range l.kept {
		if _, ok := figures[id]; ok {
			continue
		}
		if kept == (delivery.Outlook{}) {
			delete(l.kept, id)
			delete(l.outlook, id)
		} else {
			l.outlook[id] = delivery.Outlook{} // it has no jobs, or is gone
		}
	}
}

// stepDown forgets the stored outlooks: another leader may write them meanwhile.
func (l *ledger) stepDown() {
	clear(l.outlook)
	clear(l.kept)
	l.asked = false
}

// near reports whether two instants that lie ahead seconds in the future are equal for display.
func near(a, b time.Time, ahead float64) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && b.IsZero()
	}
	return math.Abs(a.Sub(b).Seconds()) <= 2+ahead/100
}

// save adds what was settled since the last call. After an error it is retried at the next call; an addition that was
// made despite the error is then made twice.
func (l *ledger) save(ctx context.Context, tallies []delivery.Tally, known func(string) bool) {
	with, without := l.changes(tallies, known)
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	for _, list := range [][]delivery.Progress{without, with} {
		if len(list) == 0 {
			continue
		}
		if err := l.store.SaveProgress(ctx, list); err != nil {
			if !errors.Is(err, context.Canceled) && l.outage.Failed() {
				l.log.Warn("progress of campaigns cannot be saved; trying again", "error", err)
			}
			return
		}
		l.note(list)
	}
	l.outage.Worked()
}

// changes returns what the catalog does not have yet, of campaigns with a new outlook and of the others.
func (l *ledger) changes(tallies []delivery.Tally, known func(string) bool) (with, without []delivery.Progress) {
	l.track(tallies)
	settled := map[string]delivery.Settled{}
	for _, tally := range tallies {
		more := tally.Settled.Minus(l.saved[tally.Campaign])
		if more.Total() == 0 || !known(tally.Campaign) {
			continue
		}
		settled[tally.Campaign] = more
		if _, ok := l.outlook[tally.Campaign]; !ok {
			without = append(without, delivery.Progress{Campaign: tally.Campaign, Settled: more})
		}
	}
	for id, o := range l.outlook {
		with = append(with, delivery.Progress{Campaign: id, Settled: settled[id], Outlook: &o})
	}
	return with, without
}

// track forgets what was saved of tallies that are gone or have restarted: those of deleted campaigns.
func (l *ledger) track(tallies []delivery.Tally) {
	saved := make(map[string]delivery.Settled, len(l.saved))
	for _, tally := range tallies {
		if s, ok := l.saved[tally.Campaign]; ok && s.Total() <= tally.Settled.Total() {
			saved[tally.Campaign] = s
		}
	}
	l.saved = saved
}

// note records what the catalog has.
func (l *ledger) note(list []delivery.Progress) {
	for _, p := range list {
		if p.Settled.Total() > 0 {
			l.saved[p.Campaign] = l.saved[p.Campaign].Plus(p.Settled)
		}
		if p.Outlook != nil {
			l.kept[p.Campaign] = *p.Outlook
			delete(l.outlook, p.Campaign)
		}
	}
}

// load reads the settled jobs of all daemons, of the campaigns with an expected total, which are among the campaigns given, and of others. A
// daemon that has begun to lead reads the outlooks that are stored as well: those of campaigns that have no jobs any more are
// out of date.
func (l *ledger) load(ctx context.Context, campaigns map[string]*delivery.Campaign, leads bool, others []string) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if leads && !l.asked {
		stored, err := l.store.LoadOutlooks(ctx)
		if err != nil {
			l.log.Debug("the outlooks of campaigns are not known", "error", err)
		}
		l.asked = err == nil
		for id, o := range stored {
			if _, ok := l.kept[id]; !ok {
				l.kept[id] = o
			}
		}
	}
	expected := len(others) > 0
	for _, c := range campaigns {
		expected = expected || c.ExpectedTotal > 0
	}
	if !expected {
		l.loaded = nil
		return
	}
	if loaded, err := l.store.LoadSettled(ctx, others); err == nil {
		l.loaded = loaded
	} else {
		l.log.Debug("the counts of settled jobs are not up to date", "error", err)
	}
}
