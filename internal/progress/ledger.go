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
	store Store
	log   *slog.Logger
	saved map[counted]delivery.Settled // the part of this daemon's tallies that the catalog has
	*outlooks
	outage    retry.Outage // of the store, as the last write found it
	spreading retry.Outage // of writing rates
	ended     chan write   // the write that is under way, once it has ended; nil: none is
}

// outlooks are what a daemon reads and writes of campaigns and destinations while it leads.
type outlooks struct {
	foreseen map[counted]delivery.Outlook // as of the last exchange; nil: there was none
	at       time.Time                    // of that exchange
	kept     map[counted]delivery.Outlook // as stored in the catalog
	asked    bool                         // the catalog was asked which outlooks other leaders have stored
	rates    map[string]int64             // that spread campaigns until their finish_by, those that are to change
	// loaded is the settled jobs of all daemons in the catalog, of campaigns with an expected total, and of those that a killed daemon was
	// sending; nil: they were not read yet.
	loaded map[string]delivery.Settled
}

// write is what one write is to do, and what came of it.
type write struct {
	outlooks *outlooks              // those of the ledger when it began
	add      [2][]delivery.Progress // of campaigns and destinations without and with a new outlook
	rates    map[string]int64
	ask      bool // read the outlooks that are stored; after the write: they were read
	settled  bool // read the settled jobs, also of these others
	others   []string

	saved  []delivery.Progress
	stored []delivery.Progress
	loaded map[string]delivery.Settled
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

func newOutlooks() *outlooks { return &outlooks{kept: map[counted]delivery.Outlook{}} }

// settled returns the number of the campaign's jobs with a final outcome, as last loaded.
func (l *ledger) settled(campaign string) int64 { return l.loaded[campaign].Total() }

// knows reports whether it is known how many of the jobs that the campaign expects are settled.
func (l *ledger) knows(c *delivery.Campaign) bool { return c.ExpectedTotal == 0 || l.loaded != nil }

// outlook is what the catalog is told of the campaign.
func (f *figure) outlook(now time.Time) delivery.Outlook {
	o := delivery.Outlook{Backlog: f.backlog}
	if f.known && f.eta > 0 {
		o.DoneAt = now.Add(time.Duration(f.eta*float64(time.Second)) + time.Second - 1).Truncate(time.Second) // up, as times to come are shown
	}
	return o
}

// changed returns the outlooks that differ from the stored ones: the leader writes them for all daemons.
func (l *outlooks) changed() map[counted]delivery.Outlook {
	changed := map[counted]delivery.Outlook{}
	for of, o := range l.foreseen {
		before, ok := l.kept[of]
		if !ok || o.Backlog != before.Backlog || !near(o.DoneAt, before.DoneAt, o.DoneAt.Sub(l.at).Seconds()) {
			changed[of] = o
		}
	}
	for of, kept := range l.kept {
		if _, ok := l.foreseen[of]; ok || l.foreseen == nil {
			continue
		}
		if kept == (delivery.Outlook{}) {
			delete(l.kept, of)
		} else {
			changed[of] = delivery.Outlook{} // it has no jobs, or is gone
		}
	}
	return changed
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

// begin returns a write of what the catalog does not have yet. That of a daemon that leads reads the settled jobs of all daemons, of the campaigns
// with an expected total, which are among the campaigns given, and of others. If it has begun to lead, it reads the outlooks that are stored as
// well: those of campaigns that have no jobs any more are out of date.
func (l *ledger) begin(tallies []delivery.Tally, answers map[string][]delivery.Answer, s *delivery.Snapshot, campaigns map[string]*delivery.Campaign, leads bool, others []string) write {
	w := write{outlooks: l.outlooks, rates: l.rates, ask: leads && !l.asked, settled: len(others) > 0, others: others}
	w.add[1], w.add[0] = l.changes(tallies, answers, s)
	l.rates = nil
	for _, c := range campaigns {
		w.settled = w.settled || leads && c.ExpectedTotal > 0
	}
	if w.settled {
		w.loaded = l.loaded // unless there is news
	}
	return w
}

// perform carries out a write. After an error, what was to be added is added by the next one; an addition that was made despite the error
// is then made twice, so it is not cut short when ctx ends.
func (l *ledger) perform(ctx context.Context, w *write) {
	l.spread(ctx, w.rates)
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
	if err != nil {
		if l.outage.Failed() {
			l.log.Warn("progress of campaigns and destinations cannot be saved; trying again", "error", err)
		}
	} else if away, over := l.outage.Worked(); over {
		l.log.Info("progress of campaigns and destinations is saved again", "away", away.Round(time.Second))
	}
	call, cancel = context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if w.ask {
		if w.stored, err = l.store.LoadOutlooks(call); err != nil {
			w.ask = false
			l.log.Debug("the outlooks that are stored are not known", "error", err)
		}
	}
	if w.settled {
		if loaded, err := l.store.LoadSettled(call, w.others); err == nil {
			w.loaded = loaded
		} else {
			l.log.Debug("the counts of settled jobs are not up to date", "error", err)
		}
	}
}

// spread writes rates. Those that are not written are computed again.
func (l *ledger) spread(ctx context.Context, rates map[string]int64) {
	if len(rates) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	if err := l.store.SpreadCampaigns(call, rates); err == nil {
		l.spreading.Worked()
	} else if ctx.Err() == nil && l.spreading.Failed() {
		l.log.Warn("rates that spread campaigns until their finish_by cannot be written; trying again, the last ones stay", "error", err)
	}
}

// changes returns what the catalog does not have yet, of campaigns and destinations with a new outlook and of the others. Answers are lost if
// they cannot be saved.
func (l *ledger) changes(tallies []delivery.Tally, answers map[string][]delivery.Answer, s *delivery.Snapshot) (with, without []delivery.Progress) {
	l.track(tallies)
	settled, outlooks := map[counted]delivery.Settled{}, l.changed()
	for _, tally := range tallies {
		of := counted{tally.Campaign, tally.Destination}
		more := tally.Settled.Minus(l.saved[of])
		if more.Total() == 0 && len(answers[of.destination]) == 0 || !of.known(s) {
			continue
		}
		settled[of] = more
		if _, ok := outlooks[of]; !ok {
			without = append(without, delivery.Progress{Campaign: of.campaign, Destination: of.destination, Settled: more, Answers: answers[of.destination]})
		}
	}
	for of, o := range outlooks {
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
		}
	}
	w.outlooks.asked = w.outlooks.asked || w.ask
	for _, p := range w.stored {
		of := counted{p.Campaign, p.Destination}
		if _, ok := w.outlooks.kept[of]; !ok {
			w.outlooks.kept[of] = *p.Outlook
		}
	}
	w.outlooks.loaded = w.loaded
}
