package view

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/notation"
)

const (
	// A state is computed every watchedEvery for all viewers together, and every idleEvery without viewers once all sources answer, so that
	// the first one need not wait. That of more than mostAhead campaigns is only kept for viewers: of 100,000 it takes a second and 200 MB.
	watchedEvery = time.Second
	idleEvery    = 10 * time.Second
	mostAhead    = 2_000
	// watchedFor is how long after a request a page counts as open: pages without a script reload every ten seconds.
	watchedFor = 30 * time.Second
	// shareOfTime is how many times as long as computing a state takes it is shown, for at most idleEvery: with 100,000 campaigns
	// looking must cost neither a daemon its processor, nor the database.
	shareOfTime = 20
	// sourceTimeout bounds a look at each source.
	sourceTimeout = 2 * time.Second
	// StaleAfter is how old a state gets at most while the sources answer, and this process has the time to ask them.
	StaleAfter = idleEvery + 2*sourceTimeout
)

// Watcher looks at the sources for everyone who wants to see the State, and never twice at the same time. Run does so ahead of those who
// look, so that none of them waits for a source. Safe for concurrent use.
type Watcher struct {
	sources Sources
	letters func(context.Context, LetterFilter) (Letters, error) // besides those of people, who may look at most two at a time
	wanted  chan struct{}                                        // holds one when somebody looks again
	cache   *cache

	mu      sync.Mutex    // guards what follows; never held while looking
	took    time.Duration // to compute the last state
	askedAt time.Time     // when somebody has looked last

	// Only the look that is under way uses these.
	fleets []*Fleet // of the last seconds, the oldest first
	counts counts
}

// NewWatcher makes a Watcher; it starts nothing.
func NewWatcher(sources Sources) *Watcher {
	sources.complete()
	l := &Watcher{wanted: make(chan struct{}, 1), cache: newCache(cmp.Or(sources.Patience, waitFor)), letters: sources.Letters}
	sources.Letters, sources.Letter, sources.Job = replay.Limited(sources.Letters), replay.Limited(sources.Letter), replay.Limited(sources.Job)
	l.sources = sources
	return l
}

// Sources returns where the Watcher looks.
func (l *Watcher) Sources() *Sources { return &l.sources }

// Run has a state computed again and again until ctx ends. At the end it ends what is being
// asked for, and waits for that, but not for sources that hang; nothing is asked for after it.
func (l *Watcher) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-l.wanted:
		}
		if ctx.Err() != nil {
			l.cache.end()
			return
		}
		began := time.Now()
		answered, _ := l.ask(ctx, false)
		select {
		case <-answered:
		case <-ctx.Done():
		}
		pause := l.pause()
		timer.Reset(max(pause-time.Since(began), pause/2)) // sources that are slow have a rest, too
	}
}

// pause returns the time from one state to the next.
func (l *Watcher) pause() time.Duration {
	switch last, _ := l.last(); {
	case l.watched():
	case last != nil && len(last.Faults) == 0, last == nil && l.sources.Snapshot() != nil: // or none is kept
		return idleEvery
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.age()
}

// age is the largest age of a state while a page is open. Under mu.
func (l *Watcher) age() time.Duration { return min(max(watchedEvery, shareOfTime*l.took), idleEvery) }

// watched reports whether a page is open.
func (l *Watcher) watched() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.askedAt) < watchedFor
}

// Look returns the last state, which Run keeps fresh. Sources that did not answer are left out and named in State.Faults. Look waits only
// where there is no state at all: for that of who looks just now, or until ctx ends. Without Run, a call that finds too old a state
// computes a new one.
func (l *Watcher) Look(ctx context.Context) *State {
	l.asked()
	last, at := l.last()
	if last != nil && time.Since(at) < StaleAfter {
		return last
	}
	answered, mine := l.ask(ctx, false)
	if last != nil && !mine && answered != nil {
		return last
	}
	return l.wait(ctx, answered)
}

// Fresh is Look for programs, which ask once. Without a recent request it waits for a new state, but not for sources that hang.
func (l *Watcher) Fresh(ctx context.Context) *State {
	unwatched := l.asked()
	last, at := l.last()
	l.mu.Lock()
	most := 2 * l.age()
	if l.sources.Patience > 0 {
		most = watchedEvery / 2 // the requests of one command
	}
	l.mu.Unlock()
	if last != nil && unwatched < most && time.Since(at) < most {
		return last
	}
	ctx, cancel := context.WithTimeout(ctx, l.within()+time.Second)
	defer cancel()
	answered, _ := l.ask(ctx, false)
	next := l.wait(ctx, answered)
	if ctx.Err() != nil {
		return cmp.Or(last, next)
	}
	return next
}

// Renew has a new state computed, and returns when there is one, or ctx ends, or a source hangs: what was changed before the call is in it.
func (l *Watcher) Renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, l.within())
	defer cancel()
	if l.sources.Refresh != nil {
		l.sources.Refresh(ctx)
	}
	for mine := false; !mine && ctx.Err() == nil; {
		var answered <-chan struct{}
		if answered, mine = l.ask(ctx, true); answered == nil {
			return
		}
		l.wait(ctx, answered)
	}
}

// stateQuestion is what a state is the answer to. The last one is shown however old it is.
var stateQuestion = question{kind: "state", keep: math.MaxInt64}

// last returns the last state, nil if there is none, and when it was complete: sources that hang must not make it old at once.
func (l *Watcher) last() (state *State, at time.Time) {
	last := l.cache.last(stateQuestion)
	state, _ = last.value.(*State)
	return state, last.at
}

// ask has a state computed, as cache.ask does; anew also of what the database has counted lately.
func (l *Watcher) ask(ctx context.Context, anew bool) (answered <-chan struct{}, mine bool) {
	q := stateQuestion
	q.within = l.within()
	return l.cache.ask(ctx, q, func(ctx context.Context) (any, error) { return l.look(ctx, anew), nil })
}

// wait waits for the state that is being computed. At the end of ctx, or of the Watcher, it returns one that says that nothing is known.
func (l *Watcher) wait(ctx context.Context, answered <-chan struct{}) *State {
	for answered != nil && ctx.Err() == nil {
		select {
		case <-answered:
			if last, _ := l.last(); last != nil {
				return last
			}
			answered, _ = l.ask(ctx, true) // that was before anybody looked
		case <-ctx.Done():
		}
	}
	return l.state(&evidence{now: time.Now(), faults: []string{"no source has answered this process yet"}})
}

// within bounds the wait for a source.
func (l *Watcher) within() time.Duration { return cmp.Or(l.sources.Patience, sourceTimeout) }

// Campaign returns a campaign of the current state with its settings as the database has them at this moment, which may be some
// seconds newer: their revision is the one to change it at. Without an answer of the database they are those of the state. The error is
// catalog.ErrNotFound, or why it is not known whether there is one.
func (l *Watcher) Campaign(ctx context.Context, id string) (*Campaign, error) {
	c := l.Detailed(ctx, l.Fresh(ctx), id)
	row, err := l.sources.Campaign(ctx, id)
	switch {
	case errors.Is(err, catalog.ErrNotFound): // also where the state has it still
		return nil, catalog.UnknownCampaign(id)
	case err != nil && c != nil:
		return c, nil
	case err != nil && l.sources.Catalog == nil:
		return nil, catalog.UnknownCampaign(id)
	case err != nil:
		return nil, err
	}
	if c == nil || c.Revision < row.Revision { // it has been changed a moment ago
		l.Renew(ctx)
		if c = l.Detailed(ctx, l.Look(ctx), id); c == nil {
			return nil, errUnread
		}
	}
	c.as(row)
	c.Sink, _ = l.sources.Sink(row.Sink)
	return c, nil
}

// Quota returns a quota of the current state. The errors are those of Campaign.
func (l *Watcher) Quota(ctx context.Context, id string) (*Quota, error) {
	shown := l.Fresh(ctx).Quota(id)
	now, err := l.sources.Quota(ctx, id)
	switch {
	case errors.Is(err, catalog.ErrNotFound):
		return nil, err
	case err != nil && shown != nil:
		return shown, nil
	case err != nil && l.sources.Catalog == nil:
		return nil, catalog.Fault(catalog.ErrNotFound, "there is no quota %s", notation.Shorten(id))
	case err != nil:
		return nil, err
	}
	if shown == nil || shown.Revision < now.Revision { // it has been changed a moment ago
		l.Renew(ctx)
		if shown = l.Look(ctx).Quota(id); shown == nil {
			return nil, errUnread
		}
	}
	q := *shown
	q.UpdatedAt = now.UpdatedAt
	return &q, nil
}

// With returns the current state with a campaign, which may have been created a moment ago. The errors are those of Campaign.
func (l *Watcher) With(ctx context.Context, id string) (*State, error) {
	state := l.Fresh(ctx)
	if state.Campaign(id) != nil {
		return state, nil
	}
	if _, err := l.Campaign(ctx, id); err != nil {
		return nil, err
	}
	return l.Look(ctx), nil
}

// asked notes a request and returns the time since the one before.
func (l *Watcher) asked() (unwatched time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	unwatched = now.Sub(l.askedAt)
	if unwatched >= watchedFor {
		select {
		case l.wanted <- struct{}{}:
		default:
		}
	}
	l.askedAt = now
	return unwatched
}

// look looks, for all; anew also at what the database has counted lately. It takes sourceTimeout at most. If nobody looks,
// and a state would cost much or have no campaigns yet, it only remembers what rates are measured from, and returns nil.
func (l *Watcher) look(ctx context.Context, anew bool) *State {
	fresh := countsIdle
	switch s := l.sources.Snapshot(); {
	case anew:
		fresh = 0
	case l.watched():
		fresh = min(max(countsFor, shareOfTime*l.counts.took), countsIdle)
	case s == nil || len(s.Campaigns) > mostAhead:
		if l.sources.Fleet != nil {
			fleet, _ := l.sources.Fleet(ctx)
			l.remember(fleet, time.Now())
		}
		return nil
	}
	e := l.gather(ctx, time.Now(), fresh)
	asked := time.Now()
	state := l.state(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = time.Since(asked)
	return state
}
