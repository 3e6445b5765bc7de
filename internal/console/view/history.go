package view

import (
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// HistoryStep is the time between two points of a history.
	HistoryStep = 10 * time.Second
	// HistoryKept is how far a history goes back.
	HistoryKept = time.Hour
	// maxHistories bounds the campaigns whose history is kept: with an hour of each, 17 MB.
	maxHistories = 1000
)

// EveryCampaign is the id under which History keeps the sums over all campaigns.
const EveryCampaign = ""

// Point is a campaign, or all of them, at one moment of its history.
type Point struct {
	At      time.Time `json:"at"`
	Allowed float64   `json:"allowed" doc:"units per second that its schedule allowed"`
	Sent    float64   `json:"sent" doc:"units per second that all daemons sent, since the point before"`
	Backlog int64     `json:"backlog" doc:"jobs that waited in lanes and in memory"`
}

// Past is what is known of the last hour of a campaign.
type Past struct {
	Since  time.Time `json:"since,omitzero" doc:"when this process began to look, or how far back it was asked for: before, nothing is known; absent: it has seen nothing yet"`
	Kept   bool      `json:"kept" doc:"false: it had neither a backlog nor anything sent, or this process keeps as many campaigns as it can"`
	Points []Point   `json:"points" doc:"one in ten seconds, the oldest first; none for the time in which the daemons could not be asked"`
}

// History keeps the last hour of the campaigns that have something to send, as this process has seen it: another one may know more.
// Safe for concurrent use.
type History struct {
	before *Fleet    // what the last points are of; nil: not known
	at     time.Time // when these were made

	mu    sync.Mutex // guards what follows
	since time.Time  // when it began; zero before the first points
	kept  map[string][]Point
}

func (p *Point) idle() bool { return p.Sent == 0 && p.Backlog == 0 }

// Of returns the points of a campaign since an instant.
func (h *History) Of(campaign string, since time.Time) *Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	points, kept := h.kept[campaign]
	past := &Past{Kept: kept, Points: []Point{}}
	switch {
	case h.since.IsZero(): // nothing was recorded
	case h.since.After(since):
		past.Since = h.since.UTC().Truncate(time.Second)
	default:
		past.Since = since.UTC().Truncate(time.Second)
	}
	for _, p := range points {
		if !p.At.Before(since) {
			past.Points = append(past.Points, p)
		}
	}
	return past
}

// add adds the points of one moment. A campaign that does nothing any more is followed as long as something is known of it.
func (h *History) add(now time.Time, all map[string]Point) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since, h.kept = now, map[string][]Point{}
	}
	oldest := now.Add(-HistoryKept)
	if h.since.Before(oldest) {
		h.since = oldest
	}
	for id, m := range all {
		switch list, kept := h.kept[id]; {
		case kept:
			h.kept[id] = append(list, m)
		case !m.idle() && len(h.kept) < maxHistories:
			h.kept[id] = append(make([]Point, 0, HistoryKept/HistoryStep+8), m)
		}
	}
	for id, list := range h.kept {
		list = slices.DeleteFunc(list, func(p Point) bool { return p.At.Before(oldest) })
		if h.kept[id] = list; !slices.ContainsFunc(list, func(p Point) bool { return !p.idle() }) {
			delete(h.kept, id) // an hour without anything to tell
		}
	}
}

// record adds the points of a state, a step after those before. Only Run calls it.
func (h *History) record(s *State) {
	e := s.known
	if e.now.Sub(h.at) < HistoryStep-watchedEvery/2 {
		return
	}
	since := &evidence{fleet: e.fleet, earlier: h.before}
	h.before, h.at = e.fleet, e.now
	all := make(map[string]Point, len(s.Campaigns))
	for _, c := range s.Campaigns {
		if sent := since.sent(c.ID); sent != nil {
			all[c.ID] = Point{e.now.UTC().Truncate(time.Second), c.Allowed, *sent, *c.Backlog}
		}
	}
	sum := Point{At: e.now.UTC().Truncate(time.Second), Allowed: s.Allowed}
	for _, p := range all {
		sum.Sent, sum.Backlog = sum.Sent+p.Sent, sum.Backlog+p.Backlog
	}
	if len(all) > 0 {
		all[EveryCampaign] = sum
		h.add(e.now, all)
	}
}

// History returns what is known of the last hours of campaigns.
func (l *Watcher) History() *History { return &l.past }

// allowed returns the units per second that the schedule of a campaign allows.
func allowed(c *delivery.Campaign, now time.Time) float64 {
	if c.Status != delivery.StatusActive || c.Invalid != "" || !c.Active(now) || c.Ended(now) {
		return 0
	}
	rate, _, _ := c.RateAt(now)
	return rate.PerSecond()
}
