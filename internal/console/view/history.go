package view

import (
	"context"
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
	// maxHistories bounds the campaigns whose history is kept: with an hour of each, 12 MB.
	maxHistories = 1000
	// shareOfRecording is how many times as long as making points takes there is until the next ones.
	shareOfRecording = 50
)

// Point is a campaign at one moment of its history.
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
	mu    sync.Mutex // guards what follows
	since time.Time  // when it began; zero before the first points
	kept  map[string][]moment
}

// moment is a Point as it is kept.
type moment struct {
	at, backlog   int64 // seconds since the Unix epoch, jobs
	allowed, sent float64
}

func (m *moment) idle() bool { return m.sent == 0 && m.backlog == 0 }

// Of returns the points of a campaign since an instant.
func (h *History) Of(campaign string, since time.Time) *Past {
	h.mu.Lock()
	defer h.mu.Unlock()
	moments, kept := h.kept[campaign]
	past := &Past{Kept: kept, Points: []Point{}}
	switch {
	case h.since.IsZero(): // nothing was recorded
	case h.since.After(since):
		past.Since = h.since.UTC().Truncate(time.Second)
	default:
		past.Since = since.UTC().Truncate(time.Second)
	}
	for _, m := range moments {
		if at := time.Unix(m.at, 0).UTC(); !at.Before(since) {
			past.Points = append(past.Points, Point{At: at, Allowed: m.allowed, Sent: m.sent, Backlog: m.backlog})
		}
	}
	return past
}

// add adds the points of one moment. A campaign that does nothing any more is followed as long as something is known of it.
func (h *History) add(now time.Time, all map[string]moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.since.IsZero() {
		h.since, h.kept = now, map[string][]moment{}
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
			h.kept[id] = append(make([]moment, 0, HistoryKept/HistoryStep+8), m)
		}
	}
	for id, list := range h.kept {
		list = slices.DeleteFunc(list, func(m moment) bool { return m.at < oldest.Unix() })
		if h.kept[id] = list; !slices.ContainsFunc(list, func(m moment) bool { return !m.idle() }) {
			delete(h.kept, id) // an hour without anything to tell
		}
	}
}

// Record adds a point to the history of each campaign at each step, until ctx ends. It asks only for what the daemons have exchanged.
func (l *Looker) Record(ctx context.Context) {
	if l.sources.Fleet == nil {
		return
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	var before *Fleet
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		before = l.record(ctx, before)
		took := time.Since(began)
		timer.Reset(max(HistoryStep-took, shareOfRecording*took))
	}
}

// record adds the points of this moment, and returns what the fleet has sent until now; nil if that is not known.
func (l *Looker) record(ctx context.Context, before *Fleet) *Fleet {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	snapshot := l.sources.Snapshot()
	fleet, err := l.sources.Fleet(ctx)
	if err != nil || snapshot == nil {
		return nil
	}
	if before == nil {
		return fleet
	}
	e := &evidence{now: time.Now(), fleet: fleet, earlier: before}
	all := make(map[string]moment, len(snapshot.Campaigns))
	for id, c := range snapshot.Campaigns {
		if sent := e.sent(id); sent != nil {
			all[id] = moment{at: e.now.Unix(), allowed: allowed(c, e.now), sent: *sent, backlog: fleet.Of(c, snapshot).Waiting}
		}
	}
	l.past.add(e.now, all)
	return fleet
}

// History returns what is known of the last hours of campaigns.
func (l *Looker) History() *History { return &l.past }

// allowed returns the units per second that the schedule of a campaign allows.
func allowed(c *delivery.Campaign, now time.Time) float64 {
	if c.Status != delivery.StatusActive || c.Invalid != "" || !c.Active(now) || c.Ended(now) {
		return 0
	}
	rate, _, _ := c.RateAt(now)
	return rate.PerSecond()
}
