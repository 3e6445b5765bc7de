package view

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/progress"
)

const (
	// closeFor is how old an answer about one campaign may be: of a page that is watched it is asked for once a second.
	closeFor = 2 * time.Second
	// changesFor is how old a list of changes may be while the catalog has the revision that it had: what is counted of a quota is
	// corrected without a new one.
	changesFor = 10 * time.Second
	// usageFor is how old it may be what was used of a quota, of a page that is watched.
	usageFor = 5 * time.Second
	// shutFor is how old it may be which destinations are disabled: there may be a million.
	shutFor = 10 * time.Second
	// closedFor is how old the list of destinations may be whose gates are closed: there may be ten thousand.
	closedFor = 3 * time.Second
	// mostShut is how many destinations that are disabled are listed.
	mostShut = 5
)

// Senders returns which daemons send a campaign; nil if that is not known.
func (l *Watcher) Senders(ctx context.Context, id string) []progress.Sender {
	row := l.sources.Snapshot().Campaign(id)
	if row == nil || l.sources.Senders == nil {
		return nil
	}
	senders, _ := cached(ctx, l.cache, question{kind: "senders", about: id, fresh: closeFor}, func(ctx context.Context) ([]progress.Sender, error) {
		return l.sources.Senders(ctx, row)
	})
	return senders
}

// Detailed returns a campaign of the state with its senders. It returns nil for an unknown campaign.
func (l *Watcher) Detailed(ctx context.Context, s *State, id string) *Campaign {
	shown := s.Campaign(id)
	if shown == nil {
		return nil
	}
	c := *shown
	if !s.known.storeDown {
		c.Senders = l.Senders(ctx, id)
	}
	if c.FinishBy != nil {
		late, _ := s.late.LoadOrStore(id, sync.OnceValue(func() string {
			if p, err := s.Plan(id, WhatIf{}); err == nil && p.Late != nil {
				return "campaign " + id + " " + p.Late.String()
			}
			return ""
		}))
		c.Late = late.(func() string)()
	}
	c.LastFailure, c.Note = c.lastFailure, orZero(s.known.rows[id]).Note
	return &c
}

// Preview returns what the schedule of a campaign allows from now on, and whether that ends early.
func (l *Watcher) Preview(id string, now time.Time) (phases []Phase, cut bool) {
	if row := l.sources.Snapshot().Campaign(id); row != nil {
		return Preview(row, now)
	}
	return nil, false
}

// Recent returns the last changes of what is selected, for those who may see all of them or not, as some may have just been made.
func (l *Watcher) Recent(ctx context.Context, of catalog.ChangesOf, all bool) ([]catalog.Change, error) {
	revision := int64(0)
	if s := l.sources.Snapshot(); s != nil {
		revision = s.Revision
	}
	return cached(ctx, l.cache, question{kind: "changes", about: fmt.Sprintf("%d %t %+v", revision, all, of), fresh: changesFor}, func(ctx context.Context) ([]catalog.Change, error) {
		return l.sources.Changes(ctx, of)
	})
}

// Usage returns what was used of a quota lately, in steps of whole minutes.
func (l *Watcher) Usage(ctx context.Context, quota string, last, step time.Duration) ([]catalog.Usage, error) {
	return cached(ctx, l.cache, question{kind: "usage", about: fmt.Sprintf("%s %s %s", quota, last, step), fresh: usageFor}, func(ctx context.Context) ([]catalog.Usage, error) {
		now := time.Now()
		return l.sources.Usage(ctx, quota, now.Add(-last), now.Truncate(time.Minute), step)
	})
}

// Replays returns the replays, the newest first: those of this process as they are now, and those of others as the database had them lately.
func (l *Watcher) Replays(ctx context.Context) []replay.Job {
	booked, _ := cached(ctx, l.cache, question{kind: "replays", fresh: closeFor}, l.sources.Replays.Booked) // the rest is known without them
	return l.sources.Replays.List(booked)
}

// Shut are the disabled and failing destinations.
type Shut struct {
	List    []*delivery.Destination // the last ones that were disabled
	All     int                     // how many are disabled
	Failed  []*delivery.Destination // those that have failed for longest
	Failing int                     // how many fail
}

// Shut returns the disabled and failing destinations of the catalog in memory.
func (l *Watcher) Shut(ctx context.Context) Shut {
	shut, _ := cached(ctx, l.cache, question{kind: "shut", fresh: shutFor}, func(context.Context) (shut Shut, err error) {
		snapshot := l.sources.Snapshot()
		if snapshot == nil {
			return shut, ErrAsking
		}
		for _, e := range snapshot.Destinations {
			switch {
			case e.Disabled():
				shut.All++
				keep(&shut.List, e, func(a, b *delivery.Destination) int { return cmp.Compare(b.DisabledAt, a.DisabledAt) })
			case e.FailingSince != 0:
				shut.Failing++
				keep(&shut.Failed, e, func(a, b *delivery.Destination) int { return cmp.Compare(a.FailingSince, b.FailingSince) })
			}
		}
		return shut, nil
	})
	return shut
}

// keep keeps a destination if it is among the first mostShut.
func keep(list *[]*delivery.Destination, e *delivery.Destination, order func(a, b *delivery.Destination) int) {
	i, _ := slices.BinarySearchFunc(*list, e, func(a, b *delivery.Destination) int { return cmp.Or(order(a, b), cmp.Compare(a.ID, b.ID)) })
	if i < mostShut {
		*list = slices.Insert(*list, i, e)
		*list = (*list)[:min(len(*list), mostShut)]
	}
}

// GatesOf returns the closed gates of a destination, of each sink.
func (l *Watcher) GatesOf(ctx context.Context, id string) (list []delivery.Gate) {
	closed := l.Closed(ctx)
	for _, sink := range slices.Sorted(maps.Keys(closed)) {
		for _, g := range closed[sink] {
			if g.Destination == id {
				list = append(list, g)
			}
		}
	}
	return list
}

// Closed returns the destinations whose gates are closed, by sink; nil if that is not known.
func (l *Watcher) Closed(ctx context.Context) map[string][]delivery.Gate {
	if l.sources.Closed == nil {
		return nil
	}
	closed, err := cached(ctx, l.cache, question{kind: "closed", fresh: closedFor}, l.sources.Closed)
	if err != nil {
		return nil
	}
	return closed
}
