package progress

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// ledger writes progress to the catalog. A write runs beside the loop that exchanges figures, one at a time: the store may take seconds.
type ledger struct {
	store  Store
	log    *slog.Logger
	saved  map[string]delivery.Settled // the part of this daemon's tallies that the catalog has
	loaded map[string]delivery.Settled // settled jobs of all daemons in the catalog, of campaigns with an expected total, and of those that a killed daemon was sending
	*outlooks
	outage retry.Outage // of the store, as the last write found it
	ended  chan write   // the write that is under way, once it has ended; nil: none is
}

// outlooks are those that a daemon writes while it leads.
type outlooks struct {
	outlook map[string]delivery.Outlook // to be saved
	kept    map[string]delivery.Outlook // as stored in the catalog
	asked   bool                        // the catalog was asked which outlooks other leaders have stored
}

// write is what one write is to do, and what came of it.
type write struct {
	add      [2][]delivery.Progress // of campaigns without and with a new outlook
	outlooks *outlooks              // those of the ledger when it began
	ask      bool                   // read the outlooks that are stored
	settled  bool                   // read the settled jobs, also of these others
	others   []string

	saved  []delivery.Progress
	stored map[string]delivery.Outlook
	loaded map[string]delivery.Settled
	asked  bool
	failed bool // the settled jobs could not be read
}

func newLedger(store Store, log *slog.Logger) ledger {
	return ledger{store: store, log: log, saved: map[string]delivery.Settled{}, outlooks: newOutlooks()}
}

func newOutlooks() *outlooks {
	return &outlooks{outlook: map[string]delivery.Outlook{}, kept: map[string]delivery.Outlook{}}
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

// stepDown forgets the outlooks: another leader may write them meanwhile.
func (l *ledger) stepDown() { l.outlooks = newOutlooks() }

// near reports whether two instants that lie ahead seconds in the future are equal for display.
func near(a, b time.Time, ahead float64) bool {
	if a.IsZero() || b.IsZero() {
		return a.IsZero() && b.IsZero()
	}
	return math.Abs(a.Sub(b).Seconds()) <= 2+ahead/100
}

// begin returns a write of what the catalog does not have yet. It is to read the settled jobs of all daemons, of the campaigns with an expected
// total, which are among the campaigns given, and of others. That of a daemon that has begun to lead reads the outlooks that are stored as
// well: those of campaigns that have no jobs any more are out of date.
func (l *ledger) begin(tallies []delivery.Tally, known func(string) bool, campaigns map[string]*delivery.Campaign, leads bool, others []string) write {
	w := write{outlooks: l.outlooks, ask: leads && !l.asked, settled: len(others) > 0, others: others}
	w.add[1], w.add[0] = l.changes(tallies, known)
	for _, c := range campaigns {
		w.settled = w.settled || c.ExpectedTotal > 0
	}
	return w
}

// perform carries out a write. After an error, what was to be added is added by the next one; an addition that was made despite the error
// is then made twice, so it is not cut short when ctx ends.
func (l *ledger) perform(ctx context.Context, w *write) {
	call, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	var err error
	for _, list := range w.add {
		if len(list) == 0 || err != nil {
			continue
		}
		if err = l.store.SaveProgress(call, list); err == nil {
			w.saved = append(w.saved, list...)
		}
	}
	if err == nil {
		l.outage.Worked()
	} else if l.outage.Failed() {
		l.log.Warn("progress of campaigns cannot be saved; trying again", "error", err)
	}
	call, cancel = context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if w.ask {
		if w.stored, err = l.store.LoadOutlooks(call); err != nil {
			l.log.Debug("the outlooks of campaigns are not known", "error", err)
		}
		w.asked = err == nil
	}
	if w.settled {
		if w.loaded, err = l.store.LoadSettled(call, w.others); err != nil {
			l.log.Debug("the counts of settled jobs are not up to date", "error", err)
		}
		w.failed = err != nil
	}
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

// note records what came of a write. Of a daemon that does not lead any more, or does again, it says nothing about outlooks.
func (l *ledger) note(w write) {
	for _, p := range w.saved {
		if p.Settled.Total() > 0 {
			l.saved[p.Campaign] = l.saved[p.Campaign].Plus(p.Settled)
		}
		if p.Outlook != nil {
			w.outlooks.kept[p.Campaign] = *p.Outlook
			if w.outlooks.outlook[p.Campaign] == *p.Outlook {
				delete(w.outlooks.outlook, p.Campaign)
			}
		}
	}
	w.outlooks.asked = w.outlooks.asked || w.asked
	for id, o := range w.stored {
		if _, ok := w.outlooks.kept[id]; !ok {
			w.outlooks.kept[id] = o
		}
	}
	if !w.failed {
		l.loaded = w.loaded
	}
}
