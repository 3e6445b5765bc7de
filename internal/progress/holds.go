package progress

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

const (
	// sayAfter is how long a campaign must have been held for the log to say so, and sayAgain how long the log does not
	// repeat it: a quota may be used up again and again.
	sayAfter = 10 * time.Second
	sayAgain = 10 * time.Minute
	// sayAtOnce bounds the campaigns that get lines of their own; thousands may be held from the same minute on.
	sayAtOnce = 10
)

// holds finds the campaigns that are held, shows them and writes the log. It belongs to the daemon that leads.
type holds struct {
	log    *slog.Logger
	since  map[hold.Cause]*series
	states series
	held   map[string]*holding
	moved  map[string]time.Time // when something was last sent, of campaigns with waiting jobs
	said   map[string]utterance
}

// holding is a campaign that is held.
type holding struct {
	answer hold.Answer
	shown  bool // jobs wait, or a fault keeps all that would come from being sent
}

// utterance is what the log last said of a campaign.
type utterance struct {
	cause hold.Cause
	at    time.Time
	over  bool // it also said that this is over
}

func newHolds(log *slog.Logger, r prometheus.Registerer) holds {
	states := promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_campaigns",
		Help: "Campaigns by what they do: sending or idle, or the cause for which they send nothing. Beyond 10,000 campaigns in the " +
			"catalog, those that have neither jobs nor a fault are left out.",
	}, []string{"state"})
	gauge := promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_campaign_held_since_timestamp_seconds",
		Help: "Since when the campaign sends nothing although jobs of it wait, or since when a fault of its own would keep them " +
			"from being sent, by cause; absent while it sends.",
	}, []string{"campaign", "cause"})
	since := map[hold.Cause]*series{}
	for _, cause := range hold.Causes[1:] {
		since[cause] = &series{gauge.MustCurryWith(prometheus.Labels{"cause": string(cause)}), map[string]float64{}}
	}
	h := holds{
		log: log, since: since, states: series{states, map[string]float64{}},
		held: map[string]*holding{}, moved: map[string]time.Time{}, said: map[string]utterance{},
	}
	h.states.set(inNoState())
	return h
}

// updateHolds finds out what holds each of the campaigns. sent is the units since the last update.
func (t *Tracker) updateHolds(f *forecast, board *Board, listed map[string]*delivery.Campaign, sent map[uint64]int64) {
	h, gates := &t.holds, t.opt.Gates()
	held, moved := make(map[string]*holding, len(h.held)), make(map[string]time.Time, len(h.moved))
	inState := inNoState()
	for id, c := range listed {
		e := hold.Evidence{Now: board.At, Campaign: c, Gates: gates, Windows: f.seen, Board: board.Of(c), Stores: t.snapshot.Stores}
		var ok bool
		if e.Sink, ok = t.opt.Sink(c.Sink); !ok {
			e.SinkFault = hold.SinkFault(c.Sink)
		}
		e.Failure = board.Failure(e.Sink, e.Board.Destination)
		sends := sent[delivery.CampaignHash(id)] > 0
		if e.Board.Backlog.Total() > 0 {
			at, known := h.moved[id]
			if !known {
				at = e.Now.Add(-e.Board.Idle) // as the daemon found that led until now
			}
			if sends || e.Board.Backlog.Total() <= e.Board.Early {
				at = e.Now
			}
			moved[id], e.Board.Idle = at, e.Now.Sub(at)
		}
		if before := h.held[id]; before != nil {
			e.Board.Held, e.Board.Since = before.answer.Cause, before.answer.Since
		}
		a := hold.Of(e)
		if e.Board.Backlog.Total() > 0 && a.Cause != hold.None && !a.Cause.Stall() {
			moved[id] = e.Now // it stalls only if nothing known holds it
		}
		inState[stateOf(a.Cause, sends || e.Board.Backlog.Total() > e.Board.Early)]++
		if a.Cause == hold.None || a.Cause.Settles() {
			continue
		}
		if a.Since.IsZero() {
			a.Since = e.Now
		}
		held[id] = &holding{answer: a, shown: a.Waiting > 0 || a.Cause.Own()}
	}
	h.held, h.moved = held, moved
	h.states.set(inState)
}

// States of campaigns that nothing holds.
const (
	stateSending = "sending"
	stateIdle    = "idle"
)

func stateOf(cause hold.Cause, sends bool) string {
	switch {
	case cause != hold.None:
		return string(cause)
	case sends:
		return stateSending
	}
	return stateIdle
}

// inNoState has all states, with no campaigns in them.
func inNoState() map[string]float64 {
	campaigns := map[string]float64{stateSending: 0, stateIdle: 0}
	for _, cause := range hold.Causes[1:] {
		campaigns[string(cause)] = 0
	}
	return campaigns
}

// of returns what holds the campaign.
func (h *holds) of(campaign string) (a hold.Answer, held bool) {
	if one := h.held[campaign]; one != nil {
		return one.answer, true
	}
	return a, false
}

// unanswered records that the store does not answer, so that what else is known is out of date. Campaigns that do not need it are sent.
func (h *holds) unanswered(now time.Time, catalog *delivery.Snapshot, ledger bool) {
	for id := range h.moved {
		a := hold.Answer{}
		if c := catalog.Campaign(id); c != nil {
			a = hold.Of(hold.Evidence{Now: now, Campaign: c, Store: true, Ledger: ledger})
		}
		switch before := h.held[id]; {
		case a.Cause == hold.None || a.Cause.Settles():
			delete(h.held, id)
		case before == nil || before.answer.Cause != a.Cause:
			a.Since = now
			h.held[id] = &holding{answer: a, shown: true}
		}
	}
}

// show sets the gauge of the campaigns that have series of their own.
func (h *holds) show(shown map[string]*delivery.Campaign) {
	values := map[hold.Cause]map[string]float64{}
	for id, one := range h.held {
		if cause := one.answer.Cause; one.shown && shown[id] != nil {
			if values[cause] == nil {
				values[cause] = map[string]float64{}
			}
			values[cause][id] = float64(one.answer.Since.UnixMilli()) / 1000
		}
	}
	for cause, since := range h.since {
		since.set(values[cause])
	}
}

// clear forgets and hides all.
func (h *holds) clear() {
	clear(h.held)
	h.show(nil)
	clear(h.moved)
	clear(h.said)
	h.states.set(inNoState())
}

// notes lists the campaigns that are held, for the other daemons and for commands.
func (h *holds) notes() map[uint64]note {
	notes := make(map[uint64]note, len(h.held))
	for id, one := range h.held {
		notes[delivery.CampaignHash(id)] = note{Cause: one.answer.Cause, Since: one.answer.Since.UnixMicro()}
	}
	return notes
}

// say writes to the log what holds campaigns, once they have been held for a while, and that they are held no longer.
func (h *holds) say(now time.Time) {
	var begun, over []string
	for id, one := range h.held {
		last := h.said[id]
		if one.shown && now.Sub(one.answer.Since) >= sayAfter && (last.cause != one.answer.Cause || last.over && now.Sub(last.at) >= sayAgain) {
			begun = append(begun, id)
			h.said[id] = utterance{cause: one.answer.Cause, at: now}
		}
	}
	for id, last := range h.said {
		switch one := h.held[id]; {
		case one != nil && one.shown:
		case !last.over:
			over = append(over, id)
			last.over = true
			h.said[id] = last
		case now.Sub(last.at) >= sayAgain:
			delete(h.said, id)
		}
	}
	slices.Sort(over)
	for _, id := range over[:min(len(over), sayAtOnce)] {
		h.log.Info("the campaign is held no longer", "campaign", id, "cause", h.said[id].cause)
	}
	if more := len(over) - sayAtOnce; more > 0 {
		h.log.Info("more campaigns are held no longer", "campaigns", more)
	}
	h.logHeld(begun)
}

// logHeld writes a line for each of the first of these campaigns, faults first, and one for the others.
func (h *holds) logHeld(ids []string) {
	rank := func(id string) int {
		cause := h.held[id].answer.Cause
		if cause.Fault() {
			return slices.Index(hold.Causes, cause) - len(hold.Causes)
		}
		return slices.Index(hold.Causes, cause)
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a, b)) })
	for _, id := range ids[:min(len(ids), sayAtOnce)] {
		a := h.held[id].answer
		why, remedy := a.Words()
		h.log.Log(context.Background(), level(a.Cause), "the campaign is held", "campaign", id, "cause", a.Cause, "why", why,
			"since", a.Since.UTC().Format(time.RFC3339), "waiting", a.Waiting, "remedy", remedy)
	}
	more := map[hold.Cause]int{}
	for _, id := range ids[min(len(ids), sayAtOnce):] {
		more[h.held[id].answer.Cause]++
	}
	for _, cause := range slices.Sorted(maps.Keys(more)) {
		h.log.Log(context.Background(), level(cause), "more campaigns are held; pacer campaign list shows them",
			"cause", cause, "campaigns", more[cause])
	}
}

// level is that of lines about campaigns that are held by a cause: what is meant to hold them is no warning.
func level(cause hold.Cause) slog.Level {
	if cause.Fault() {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
