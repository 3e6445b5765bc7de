// Package hold says why a campaign sends nothing: what holds it, since when, until when, and what to do about it.
//
// Of is a pure function of what is known of a campaign. The daemons' progress, the commands and their tables all use it,
// so that they agree.
package hold

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// Cause is the kind of what holds a campaign, a label of metrics.
type Cause string

// The causes. Of several, the first in this order is the answer: those that only an operator ends come first.
const (
	None      Cause = ""
	Invalid   Cause = "invalid"   // its row cannot be used
	Cancelled Cause = "cancelled" // its jobs settle as cancelled
	Completed Cause = "completed" // its jobs expire
	Ended     Cause = "ended"     // its end has come: its jobs expire
	Paused    Cause = "paused"
	Rate      Cause = "rate"    // is 0
	Sink      Cause = "sink"    // is not configured
	Refused   Cause = "refused" // its sink refused many of its jobs in a row
	Daemons   Cause = "daemons" // none runs
	Start     Cause = "start"   // it has not begun
	Hours     Cause = "hours"   // it is outside its active hours
	Gate      Cause = "gate"    // of its sink is closed, or that of a destination, and nothing else is left to send
	Store     Cause = "store"   // the quota store does not answer
	Quota     Cause = "quota"   // is used up
	Failing   Cause = "failing" // its sink fails its jobs, and no others as far as is known
	Share     Cause = "share"   // nothing is sent for long, and a quota that it shares may be why
	Lane      Cause = "lane"    // its lane is not read, or its jobs do not come out of it
	Stalled   Cause = "stalled" // its jobs are in memory and none is sent, for no known reason

	Unreadable Cause = "unreadable" // its lane is not read: what was committed for it cannot be read
	Unanswered Cause = "unanswered" // its sink has jobs in hand and answers none

	Kafka Cause = "kafka" // does not answer
	Turn  Cause = "turn"  // its rate allows nothing for long: what was sent before, such as a heavy job, has used the slots
)

// Causes lists every cause in their order.
var Causes = []Cause{
	None, Invalid, Cancelled, Completed, Ended, Paused, Rate, Sink, Refused, Daemons, Start, Hours, Gate, Store, Quota, Failing,
	Share, Lane, Stalled, Unreadable, Unanswered, Kafka, Turn,
}

// Fault reports whether the cause is one that an operator did not intend.
func (c Cause) Fault() bool {
	switch c {
	case None, Cancelled, Completed, Ended, Paused, Rate, Start, Hours, Quota, Share, Turn:
		return false
	}
	return true
}

// Own reports whether the cause is a fault of the campaign itself, which keeps any job of it from being sent.
func (c Cause) Own() bool {
	return c == Invalid || c == Sink || c == Refused || c == Unreadable
}

// Stall reports whether all that is known is that nothing was sent for long.
func (c Cause) Stall() bool { return c == Share || c == Lane || c == Stalled || c == Unanswered }

// Destination reports whether the cause is what the campaign's destination answers, or that it does not.
func (c Cause) Destination() bool {
	return c == Gate || c == Refused || c == Failing
}

// Settles reports whether the campaign's jobs do not wait, but settle without being sent.
func (c Cause) Settles() bool { return c == Cancelled || c == Completed || c == Ended }

// Evidence is what is known of a campaign at one moment.
type Evidence struct {
	Now       time.Time
	Campaign  *delivery.Campaign // as in the catalog
	Sink      string             // the configured sink that its jobs go to; "" if it is not known
	SinkFault string             // why there is none
	Gates     []delivery.Gate    // those that are closed, as far as they are known
	Store     bool               // the quota store does not answer
	Ledger    bool               // jobs wait for the dedupe ledger, which is in the store
	// Windows are those of the quotas that answered a peek, by quota; nil if none was made.
	Windows map[string][]delivery.WindowState
	Board   *Board // nil: not known
	// Failure is the last one of Board.Destination, or else of a sink without destinations, of any campaign's job.
	Failure delivery.Failure
	// Stores is since when each shard of the quota store has its data, as far as that is known.
	Stores map[int]time.Time

	slow *delivery.Quota // which slows the campaign down, or may
}

// Board is what the daemons report of a campaign.
type Board struct {
	Daemons     int              // that run
	Kafka       time.Time        // since when it answers none of them, so that they read nothing; zero: it does, or that is not known
	Backlog     delivery.Backlog // jobs that are not settled
	InMemory    int64            // of these, those in memory
	Early       int64            // of these, jobs whose time has not come, or whose destination is closed
	Weight      float64          // of the jobs in memory, on average
	Due         time.Time        // before which the last of those in timers is not sent; zero: at once
	InHand      int64            // of these, jobs that its sink was given and has not answered
	Turn        time.Time        // when its rate next allows a job; zero: soon, or it is not known
	Lanes       []int            // where its backlog waits, ascending
	LanesRead   bool             // daemons read all of them
	Unread      []int            // of them, those that a daemon has, and cannot read what was committed for them
	Idle        time.Duration    // nothing was sent for that long; 0: something was lately, or it is not known
	Stuck       Cause            // Refused, Failing, or Gate of Destination, as the daemon has found out that sends its jobs; None: none of them
	Destination string           // that takes no jobs and keeps some of the campaign's
	Since       time.Time        // when Held began; zero: unknown
	Held        Cause            // what held it when that was last looked at
}

// stallAfter is how long nothing must have been sent to be taken for a stall, and stallSlots for how many slots.
const (
	stallAfter = 30 * time.Second
	stallSlots = 3
	// soon is how far off the next unit of a quota, or the end of a wait, may be that only slows a campaign down.
	soon = 2 * time.Second
)

// Of returns what holds the campaign. Where that is nothing, the answer's Cause is None.
func Of(e Evidence) Answer {
	a := e.find()
	a.failure = e.Failure
	a.Campaign, a.Until = e.Campaign.ID, notation.Until(a.Until)
	if b := e.Board; b != nil {
		a.Waiting = b.Backlog.Total()
		if a.Since.IsZero() && a.Cause != None && b.Held == a.Cause {
			a.Since = b.Since
		}
	}
	return a
}

func (e *Evidence) find() Answer {
	for _, look := range []func() Answer{e.row, e.schedule, e.outside, e.quota, e.reported} {
		if a := look(); a.Cause != None {
			return a
		}
	}
	return Answer{}
}

// row looks for what only a change of the row, of the configuration or of what runs ends.
func (e *Evidence) row() (a Answer) {
	c := e.Campaign
	switch {
	case c.Invalid != "":
		return Answer{Cause: Invalid, detail: c.Invalid}
	case c.Status == delivery.StatusCancelled:
		return Answer{Cause: Cancelled}
	case c.Status == delivery.StatusCompleted:
		return Answer{Cause: Completed}
	case c.Ended(e.Now):
		return Answer{Cause: Ended, Since: c.EndsAt}
	case c.Status == delivery.StatusPaused:
		return Answer{Cause: Paused, Until: c.PausedUntil}
	case c.Rate.Zero():
		return Answer{Cause: Rate}
	case e.SinkFault != "":
		return Answer{Cause: Sink, detail: e.SinkFault}
	case e.Board != nil && e.Board.Stuck == Refused:
		return Answer{Cause: Refused, sink: e.Sink}
	case e.Board != nil && e.Board.Daemons == 0:
		return Answer{Cause: Daemons}
	case e.Board != nil && !e.Board.Kafka.IsZero():
		return Answer{Cause: Kafka, Since: e.Board.Kafka}
	}
	return a
}

// schedule looks for what the passing of time ends.
func (e *Evidence) schedule() (a Answer) {
	c := e.Campaign
	if c.Active(e.Now) {
		return a
	}
	a.Cause, a.Until = Hours, e.Now
	if e.Now.Before(c.StartsAt) {
		a.Cause, a.Until = Start, c.StartsAt
	}
	if !c.Hours.Active(a.Until) {
		a.Until = c.Hours.NextChange(a.Until)
	}
	return a
}

// outside looks at the sink and the store.
func (e *Evidence) outside() (a Answer) {
	for _, g := range e.Gates {
		if g.Sink != e.Sink {
			continue
		}
		a = Answer{Cause: Gate, sink: e.Sink, gate: g.Cause, Since: g.Since}
		if g.Until.After(e.Now.Add(soon)) && g.Cause == delivery.GateThrottled {
			a.Until = g.Until
		}
		return a
	}
	if b := e.Board; b != nil && b.Stuck == Gate && b.Backlog.Total() > 0 {
		left := b.Backlog.Total() - b.Backlog.InFlight - b.Early
		if left <= 0 || b.Held == Gate && left <= int64(b.Daemons) { // each daemon tries one now and then
			return Answer{Cause: Gate, destination: b.Destination}
		}
	}
	if e.unanswered() {
		return Answer{Cause: Store}
	}
	return a
}

// unanswered reports whether the campaign waits for a store that does not answer.
func (e *Evidence) unanswered() bool {
	silent, closed, binding := e.Store, e.Store && e.Ledger, false
	for _, q := range e.Campaign.Keyed {
		closed = closed || q.Binds() && q.OnStoreFailure != delivery.PolicyOpen
	}
	for _, q := range e.Campaign.Quotas {
		if e.Windows != nil && q.Stored() { // of the shard that has the campaign
			silent = e.Windows[q.ID] == nil
		}
		if e.binds(q) {
			binding = binding || q.Stored()
			closed = closed || q.OnStoreFailure == "" || q.OnStoreFailure == delivery.PolicyClosed
		}
	}
	return silent && (closed || !binding)
}

// binds reports whether the quota limits the campaign: it may be rolled out to others.
func (e *Evidence) binds(q *delivery.Quota) bool { return q.Binds() && q.Covers(e.Campaign.ID) }

// Windows divides the states of windows by quota.
func Windows(states []delivery.WindowState) map[string][]delivery.WindowState {
	byQuota := map[string][]delivery.WindowState{}
	for _, w := range states {
		byQuota[w.Quota] = append(byQuota[w.Quota], w)
	}
	return byQuota
}

// SinkFault says why a campaign that names this sink, which is not configured, has none.
func SinkFault(name string) string {
	if name == "" {
		return "it names no sink, and there is no default_sink"
	}
	return "its sink " + name + " is not configured"
}

// quota looks for the window of a quota that nothing remains of for the longest time. A campaign without a job that could go needs none.
func (e *Evidence) quota() (a Answer) {
	for _, q := range e.Campaign.Quotas {
		if !e.binds(q) {
			continue
		}
		if q.Mode == delivery.ModeEventual || q.Spend == delivery.SpendEven {
			e.slow = q
		}
		for _, w := range e.Windows[q.ID] {
			if e.Board != nil && float64(w.Remaining) < e.Board.Weight {
				e.slow = q // a heavy job needs more than there is
			}
			if w.Window < 0 || w.Window >= len(q.Windows) || w.Remaining > 0 {
				continue
			}
			next := Answer{Cause: Quota, quota: q, window: q.Windows[w.Window]}
			if next.window.Limit > 0 {
				if since := e.Stores[q.Shard]; next.window.Span <= delivery.LongSpan && w.FreeAt < since.Add(2*next.window.Span).UnixMicro() {
					next.lost = since // what is used after that has passed leaves the window later
				}
				next.Until = time.UnixMicro(w.FreeAt)
				if !next.Until.After(e.Now.Add(soon)) {
					e.slow = q // and does not stop it
					continue
				}
			}
			if a.Cause == None || next.Until.IsZero() || !a.Until.IsZero() && next.Until.After(a.Until) {
				a = next
			}
		}
	}
	if e.Board != nil && e.Board.Backlog.Total() <= e.Board.Early {
		return Answer{}
	}
	return a
}

// reported looks at what the daemons report, and at what remains when nothing else explains that nothing is sent.
func (e *Evidence) reported() (a Answer) {
	b := e.Board
	if b == nil {
		return a
	}
	if n := len(b.Unread); n > 0 && n == len(b.Lanes) {
		return Answer{Cause: Unreadable, lanes: b.Unread}
	}
	if b.Stuck == Failing {
		return Answer{Cause: b.Stuck, sink: e.Sink}
	}
	if b.Backlog.Total() <= b.Early {
		return a
	}
	if left := b.Turn.Sub(e.Now); left > soon && (b.Idle+left >= e.patience() || b.Held == Turn) { // to the end of the wait
		return Answer{Cause: Turn, Until: b.Turn}
	}
	if b.Idle < e.patience() {
		return a
	}
	a = Answer{Cause: Stalled, Since: e.Now.Add(-b.Idle), lanes: b.Lanes, read: b.LanesRead}
	switch {
	case len(b.Unread) > 0:
		a.Cause, a.lanes = Unreadable, b.Unread
	case b.InHand > 0:
		a.Cause, a.sink, a.inHand = Unanswered, e.Sink, b.InHand
	case e.slow != nil:
		a.Cause, a.quota = Share, e.slow
	case b.InMemory == 0 && len(b.Lanes) > 0:
		a.Cause = Lane
	}
	return a
}

// patience is how long nothing may have been sent by a campaign that nothing holds.
func (e *Evidence) patience() time.Duration {
	rate, _, _ := e.Campaign.RateAt(e.Now)
	perSecond := rate.PerSecond()
	for _, q := range e.Campaign.Quotas {
		if !e.binds(q) {
			continue
		}
		for _, w := range q.Windows {
			perSecond = min(perSecond, float64(w.Limit)/w.Span.Seconds())
		}
	}
	if perSecond*stallAfter.Seconds() > stallSlots {
		return stallAfter
	}
	if perSecond <= 0 {
		return time.Duration(1<<63 - 1)
	}
	return time.Duration(min(stallSlots/perSecond, 1e9) * float64(time.Second))
}
