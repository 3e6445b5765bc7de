package progress

import (
	"maps"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// combine computes the figures of all campaigns, and shows them.
func (t *Tracker) combine(board *Board, listed, shown map[string]*delivery.Campaign) {
	sent, waiting := t.sentSince(board), map[*delivery.Campaign]Todo{}
	for hash, total := range board.totals {
		if c := t.byHash[hash]; c != nil {
			if todo := t.todo(c, total); todo.Jobs > 0 {
				waiting[c] = todo
			}
		}
	}
	windows := t.opt.Windows()
	f := newForecast(board.At, waiting, windows)
	t.updateHolds(f, board, listed, sent)
	t.holds.show(shown)
	figures := t.figures(f, shown, board.totals, t.compare(f, board.totals, sent))
	t.metrics.show(figures, t.late)
	t.ledger.foreseen, t.ledger.at = t.foreseen(f, figures, listed, board), board.At
	t.holds.say(board.At)
	t.spread(f, windows, listed, board.totals)
	left := func(c *delivery.Campaign) int64 { return board.totals[delivery.CampaignHash(c.ID)].backlog().Total() }
	t.recounts.look(board.At, t.recounts.suspects(t.snapshot, t.watched), left, t.ledger.settled)
}

// sentSince returns the units that need no slot any more since it was called last, by campaign: all daemons have sent them, or settled their jobs unsent.
func (t *Tracker) sentSince(board *Board) map[uint64]int64 {
	sent := make(map[uint64]int64, len(board.Tallies))
	for campaign, sum := range board.Tallies {
		done := sum.Sent + sum.Unsent
		sent[campaign], t.sent[campaign] = done-t.sent[campaign], done
	}
	return sent
}

// figures computes the figures of the campaigns that have series of their own, and the sums of all others. late has the late jobs by campaign.
func (t *Tracker) figures(f *forecast, shown map[string]*delivery.Campaign, totals map[uint64]total, late map[string]int64) map[string]figure {
	figures := make(map[string]figure, len(shown)+2)
	for id, c := range shown {
		one := t.figure(f, c, totals[delivery.CampaignHash(id)])
		one.late = late[id]
		figures[id] = one
	}
	var unknown, others figure
	for hash, total := range totals {
		switch c := t.byHash[hash]; {
		case c == nil:
			unknown.backlog = unknown.backlog.Plus(total.backlog())
		case shown[c.ID] == nil:
			others.backlog, others.late = others.backlog.Plus(total.backlog()), others.late+late[c.ID]
		}
	}
	figures[delivery.UnknownCampaign] = unknown
	if !t.everything() && t.opt.Show != ShowAll { // without ShowAll, others may have jobs
		figures[Others] = others
	}
	return figures
}

// foreseen returns the outlooks to be saved: of campaigns, also of those without series of their own, and of destinations.
func (t *Tracker) foreseen(f *forecast, figures map[string]figure, listed map[string]*delivery.Campaign, board *Board) map[counted]delivery.Outlook {
	all := make(map[counted]delivery.Outlook, len(listed)+len(board.AtDestinations))
	for id, c := range listed {
		one, known := figures[id]
		if !known {
			one = t.figure(f, c, board.totals[delivery.CampaignHash(id)])
		}
		all[counted{campaign: id}] = one.outlook(board.At)
	}
	for id, n := range board.AtDestinations {
		if of := (counted{destination: id}); of.known(t.snapshot) {
			all[of] = delivery.Outlook{Backlog: delivery.Backlog{Waiting: n}}
		}
	}
	return all
}

// figure computes the figure of one campaign.
func (t *Tracker) figure(f *forecast, c *delivery.Campaign, all total) figure {
	todo := t.todo(c, all)
	if !t.ledger.knows(c) {
		return figure{backlog: all.backlog()}
	}
	if todo.Jobs == 0 {
		return figure{backlog: all.backlog(), known: true}
	}
	at, ok := f.doneUnder(c, todo, c.Quotas)
	if a, held := t.holds.of(c.ID); held {
		ok = ok && (!a.Until.IsZero() || a.Cause == hold.Quota || a.Cause == hold.Share) // otherwise it is not known when it goes on
		if a.Cause == hold.Turn {                                                        // the forecast begins at once
			at = a.Until.Add(at.Sub(f.now))
		}
		at = latest(at, a.Until)
	}
	if at = latest(at, todo.Due); !ok || !f.near(at) {
		return figure{backlog: all.backlog()}
	}
	return figure{backlog: all.backlog(), eta: at.Sub(f.now).Seconds(), known: true}
}

// todo returns what a campaign has still to send, including the jobs that are expected, once it is known how many of them are settled.
func (t *Tracker) todo(c *delivery.Campaign, all total) Todo {
	here := all.waiting + all.moving
	jobs := here
	if c.ExpectedTotal > 0 && t.ledger.knows(c) {
		jobs = max(jobs, c.ExpectedTotal-t.ledger.settled(c.ID))
	}
	return Todo{float64(jobs), here == 0, all.meanWeight(), all.due()}
}

// compare compares what was sent with what should have been, and sums up the late jobs. It returns those of each campaign that
// has any.
func (t *Tracker) compare(f *forecast, totals map[uint64]total, sent map[uint64]int64) map[string]int64 {
	byCampaign := map[string]int64{}
	dt := min(f.now.Sub(t.at), 5*exchangeEvery)
	if t.at.IsZero() {
		dt = 0
	}
	t.at, t.late = f.now, Lateness{}
	for hash, all := range totals {
		c := t.byHash[hash]
		if c == nil || all.ready() == 0 {
			continue
		}
		rate := f.rates[c]
		if f.waits(c) {
			rate = 0
		}
		a, held := t.holds.of(c.ID)
		d := t.debts[hash].after(dt, lagReading{
			rate: rate, sent: float64(sent[hash]), ready: float64(all.ready()) * all.meanWeight(), destination: held && a.Cause.Destination(),
		})
		t.debts[hash] = d
		if rate > 0 {
			late := d.late(rate, all.meanWeight())
			t.late.Jobs, t.late.Destination = t.late.Jobs+late.Jobs, t.late.Destination+late.Destination
			if late.Jobs > 0 {
				byCampaign[c.ID] = late.Jobs
			}
		}
	}
	for hash, d := range t.debts {
		if totals[hash].ready() == 0 {
			t.debts[hash] = d.after(dt, lagReading{})
		}
	}
	maps.DeleteFunc(t.debts, func(hash uint64, d debt) bool { return totals[hash].ready() == 0 && d.planned < 0.01 })
	return byCampaign
}
