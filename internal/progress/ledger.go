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
	saved  map[counted]delivery.Settled // the part of this daemon's tallies that the catalog has
	loaded map[string]delivery.Settled  // settled jobs of all daemons in the catalog, of campaigns with an expected total, and of those that a killed daemon was sending
	*outlooks
	outage retry.Outage // of the store, as the last write found it
	ended  chan write   // the write that is under way, once it has ended; nil: none is
}

// outlooks are those that a daemon writes while it leads.
type outlooks struct {
	outlook map[counted]delivery.Outlook // to be saved
	kept    map[counted]delivery.Outlook // as stored in the catalog
	asked   bool                         // the catalog was asked which outlooks other leaders have stored
}

// write is what one write is to do, and what came of it.
type write struct {
	add      [2][]delivery.Progress // of campaigns and destinations without and with a new outlook
	outlooks *outlooks              // those of the ledger when it began
	ask      bool                   // read the outlooks that are stored
	settled  bool                   // read the settled jobs, also of these others
	others   []string

	saved  []delivery.Progress
	stored []delivery.Progress
	loaded map[string]delivery.Settled
	asked  bool
	failed bool // the settled jobs could not be read
}

// counted is a campaign or a destination.
type counted struct{ campaign, destination string }

// known reports whether it is in the catalog.
func (c counted) known(s *delivery.Snapshot) bool {
	return s.Campaign(c.campaign) != nil || c.campaign == "" && s.Destination(c.destination) != nil
}

func newLedger(store Store, log *slog.Logger) ledger {
	return ledger{store: store, log: log, saved: map[counted]delivery.Settled{}, outlooks: newOutlooks()}
}

func newOutlooks() *outlooks {
	return &outlooks{outlook: map[counted]delivery.Outlook{}, kept: map[counted]delivery.Outlook{}}
}

// settled returns the number of the campaign's jobs with a final outcome, as last loaded.
func (l *ledger) settled(campaign string) int64 { return l.loaded[campaign].Total() }

// outlook is what the catalog is told of the campaign.
func (f *figure) outlook(now time.Time) delivery.Outlook {
	o := delivery.Outlook{Backlog: f.backlog}
	if f.known && f.eta > 0 {
		o.DoneAt = now.Add(time.Duration(f.eta*float64(time.Second)) + time.Second - 1).Truncate(time.Second) // up, as times to come are shown
	}
	return o
}

// foresee records the outlooks that differ from the stored ones: the leader writes them for all daemons.
func (l *ledger) foresee(now time.Time, outlooks map[counted]delivery.Outlook) {
	for of, o := range outlooks {
		before, ok := l.kept[of]
		if ok && o.Backlog == before.Backlog && near(o.DoneAt, before.DoneAt, o.DoneAt.Sub(now).Seconds()) {
			delete(l.outlook, of)
			continue
		}
		l.outlook[of] = o
	}
	for of, kept := range l.kept {
		if _, ok := outlooks[of]; ok {
			continue
		}
		if kept == (delivery.Outlook{}) {
			delete(l.kept, of)
			delete(l.outlook, of)
		} else {
			l.outlook[of] = delivery.Outlook{} // it has no jobs, or is gone
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
func (l *ledger) begin(tallies []delivery.Tally, answers map[string][]delivery.Answer, s *delivery.Snapshot, campaigns map[string]*delivery.Campaign, leads bool, others []string) write {
	w := write{outlooks: l.outlooks, ask: leads && !l.asked, settled: len(others) > 0, others: others}
	w.add[1], w.add[0] = l.changes(tallies, answers, s)
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
		l.log.Warn("progress of campaigns and destinations cannot be saved; trying again", "error", err)
	}
	call, cancel = context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if w.ask {
		if w.stored, err = l.store.LoadOutlooks(call); err != nil {
			l.log.Debug("the outlooks that are stored are not known", "error", err)
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

// changes returns what the catalog does not have yet, of campaigns and destinations with a new outlook and of the others. Answers are lost if
// they cannot be saved.
func (l *ledger) changes(tallies []delivery.Tally, answers map[string][]delivery.Answer, s *delivery.Snapshot) (with, without []delivery.Progress) {
	l.track(tallies)
	settled := map[counted]delivery.Settled{}
	for _, tally := range tallies {
		of := counted{tally.Campaign, tally.Destination}
		more := tally.Settled.Minus(l.saved[of])
		if more.Total() == 0 && len(answers[of.destination]) == 0 || !of.known(s) {
			continue
		}
		settled[of] = more
		if _, ok := l.outlook[of]; !ok {
			without = append(without, delivery.Progress{Campaign: of.campaign, Destination: of.destination, Settled: more, Answers: answers[of.destination]})
		}
	}
	for of, o := range l.outlook {
		with = append(with, delivery.Progress{Campaign: of.campaign, Destination: of.destination, Settled: settled[of], Outlook: &o, Answers: answers[of.destination]})
	}
	return with, without
}

// track forgets what was saved of tallies that are gone or have restarted: those of deleted campaigns, and of destinations without jobs lately.
func (l *ledger) track(tallies []delivery.Tally) {
	saved := make(map[counted]delivery.Settled, len(l.saved))
	for _, tally := range tallies {
		of := counted{tally.Campaign, tally.Destination}
		if s, ok := l.saved[of]; ok && s.Total() <= tally.Settled.Total() {
			saved[of] = s
		}
	}
	l.saved = saved
}

// note records what came of a write. Of a daemon that does not lead any more, or does again, it says nothing about outlooks.
func (l *ledger) note(w write) {
	for _, p := range w.saved {
		of := counted{p.Campaign, p.Destination}
		if p.Settled.Total() > 0 {
			l.saved[of] = l.saved[of].Plus(p.Settled)
		}
		if p.Outlook != nil {
			w.outlooks.kept[of] = *p.Outlook
			if w.outlooks.outlook[of] == *p.Outlook {
				delete(w.outlooks.outlook, of)
			}
		}
	}
	w.outlooks.asked = w.outlooks.asked || w.asked
	for _, p := range w.stored {
		of := counted{p.Campaign, p.Destination}
		if _, ok := w.outlooks.kept[of]; !ok {
			w.outlooks.kept[of] = *p.Outlook
		}
	}
	if !w.failed {
		l.loaded = w.loaded
	}
}
