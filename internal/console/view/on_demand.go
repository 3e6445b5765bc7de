package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/progress"
)

const (
	// waitFor is how long a page waits for an answer of its own: three of them, and the page is there within a tenth of a second.
	waitFor = 20 * time.Millisecond
	// closeFor is how old an answer about one campaign may be: of a page that is watched it is asked for once a second.
	closeFor = 2 * time.Second
	// changesFor is how old a list of changes may be while the catalog has the revision that it had: what is counted of a quota is
	// corrected without a new one.
	changesFor = 10 * time.Second
	// usageFor is how old it may be what was used of a quota, of a page that is watched.
	usageFor = 5 * time.Second
	// mostKept bounds the answers of one kind that are kept: as many as there are streams of pages.
	mostKept = 64
	// shutFor is how old it may be which destinations are disabled: there may be a million.
	shutFor = 10 * time.Second
	// closedFor is how old the list of destinations may be whose gates are closed: there may be ten thousand.
	closedFor = 3 * time.Second
	// mostShut is how many destinations that are disabled are listed.
	mostShut = 5
)

// onDemand are what pages show beside the state.
type onDemand struct {
	senders  answers[[]progress.Sender]
	waits    answers[map[string]hold.Wait]
	claims   answers[[]limits.Claim]
	changes  answers[[]Change]
	usages   answers[[]catalog.Usage]
	outlooks answers[*Outlook]
	shut     answers[Shut]
	closed   answers[map[string][]delivery.DestinationGate]
	found    answers[Found]
	whole    answers[*WholeLetter]
}

// newOnDemand makes asides whose questions are among the errands.
func newOnDemand(e *background) *onDemand {
	return &onDemand{
		senders: answers[[]progress.Sender]{errands: e}, waits: answers[map[string]hold.Wait]{errands: e}, claims: answers[[]limits.Claim]{errands: e},
		changes: answers[[]Change]{errands: e}, usages: answers[[]catalog.Usage]{errands: e}, outlooks: answers[*Outlook]{errands: e},
		shut: answers[Shut]{errands: e}, closed: answers[map[string][]delivery.DestinationGate]{errands: e},
		found: answers[Found]{errands: e, within: LettersWithin, keptFor: lettersFor}, whole: answers[*WholeLetter]{errands: e, within: LettersWithin, keptFor: lettersFor},
	}
}

// answers are what pages ask for beside the state, by what it is about. One at a time is asked for. Whoever comes meanwhile, and whoever
// has waited for waitFor, does with the last answer, or without.
type answers[T any] struct {
	errands *background   // where questions are asked
	within  time.Duration // bounds a question; 0: lookWithin
	keptFor time.Duration // how long an answer is kept; 0: StaleAfter
	asking  sync.Mutex    // held while one is asked for

	mu   sync.Mutex // guards what follows; never held while asking
	kept map[string]answered[T]
}

type answered[T any] struct {
	at    time.Time
	value T
	err   error
}

// ErrAsking means that there is no answer yet: it is being asked for, or somebody else asks just now.
var ErrAsking = errors.New("it is being asked for")

// of returns the answer to a question, which may be as old as fresh. One that has failed is not asked for again at once either.
func (a *answers[T]) of(ctx context.Context, about string, fresh time.Duration, ask func(context.Context) (T, error)) (T, error) {
	last := a.last(about)
	if time.Since(last.at) < fresh || !a.asking.TryLock() {
		return last.value, last.err
	}
	begun, done := make(chan struct{}), make(chan struct{})
	if !a.errands.start(ctx, cmp.Or(a.within, lookWithin), func(ctx context.Context) {
		defer close(done)
		close(begun)
		defer a.asking.Unlock()
		a.keep(about, func() (T, error) { return ask(ctx) })
	}) {
		a.asking.Unlock()
		return last.value, last.err
	}
	<-begun // a source is not slow because this process is
	select {
	case <-done:
	case <-time.After(waitFor):
	}
	last = a.last(about)
	return last.value, last.err
}

// keep keeps an answer.
func (a *answers[T]) keep(about string, ask func() (T, error)) {
	value, err := ask()
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(a.kept, func(_ string, one answered[T]) bool { return now.Sub(one.at) > cmp.Or(a.keptFor, StaleAfter) })
	if a.kept == nil {
		a.kept = map[string]answered[T]{}
	}
	if len(a.kept) >= mostKept {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(a.kept)), func(x, y string) int { return a.kept[x].at.Compare(a.kept[y].at) })
		delete(a.kept, oldest)
	}
	a.kept[about] = answered[T]{now, value, err}
}

// last returns what was answered last, unless it is too old.
func (a *answers[T]) last(about string) answered[T] {
	a.mu.Lock()
	defer a.mu.Unlock()
	one, known := a.kept[about]
	if !known || time.Since(one.at) > cmp.Or(a.keptFor, StaleAfter) {
		return answered[T]{err: ErrAsking}
	}
	return one
}

// Senders returns which daemons send a campaign; nil if that is not known.
func (l *Looker) Senders(ctx context.Context, id string) []progress.Sender {
	row := l.sources.Snapshot().Campaign(id)
	if row == nil || l.sources.Senders == nil {
		return nil
	}
	senders, err := l.senders.of(ctx, id, closeFor, func(ctx context.Context) ([]progress.Sender, error) { return l.sources.Senders(ctx, row) })
	if err != nil {
		return nil
	}
	return senders
}

// Close returns a campaign of the state with what is known of one only: who sends it, and whether a quota has too few units for it, which
// takes a question to each of its quotas. nil: there is no such campaign.
func (l *Looker) Close(ctx context.Context, s *State, id string) *Campaign {
	shown := s.Campaign(id)
	if shown == nil {
		return nil
	}
	c := *shown
	c.Senders = l.Senders(ctx, id)
	c.LastFailure = hold.LastFailure(s.known.fleet.failure(c.Sink))
	row := s.known.snapshot.Campaign(id)
	if l.sources.Claims == nil || len(row.Quotas) == 0 || s.known.storeDown {
		return &c
	}
	waits, err := l.waits.of(ctx, id, closeFor, func(ctx context.Context) (map[string]hold.Wait, error) { return Waits(ctx, l.sources.Claims, row) })
	if err == nil && len(waits) > 0 {
		l.judge(&c, s.known, row, waits)
	}
	return &c
}

// Preview returns what the schedule of a campaign allows from now on, and whether that ends early.
func (l *Looker) Preview(id string, now time.Time) (phases []Phase, cut bool) {
	if row := l.sources.Snapshot().Campaign(id); row != nil {
		return Preview(row, now, PreviewOf)
	}
	return nil, false
}

// Recent returns the last changes of what is selected, for those who may see all of them or not, as some may have just been made.
func (l *Looker) Recent(ctx context.Context, of catalog.ChangesOf, all bool) ([]Change, error) {
	if l.sources.Catalog == nil {
		return nil, errors.New("there is no database here, and so no record of changes")
	}
	revision := int64(0)
	if s := l.sources.Snapshot(); s != nil {
		revision = s.Revision
	}
	return l.changes.of(ctx, fmt.Sprintf("%d %t %+v", revision, all, of), changesFor, func(ctx context.Context) ([]Change, error) {
		return l.sources.Changes(ctx, of)
	})
}

// Usage returns what was used of a quota lately, in steps.
func (l *Looker) Usage(ctx context.Context, quota string, last, step time.Duration) ([]catalog.Usage, error) {
	if l.sources.Catalog == nil {
		return nil, errors.New("there is no database here, and so no ledger")
	}
	return l.usages.of(ctx, fmt.Sprintf("%s %s %s", quota, last, step), usageFor, func(ctx context.Context) ([]catalog.Usage, error) {
		now := time.Now()
		return l.sources.Catalog.UsageHistory(ctx, quota, now.Add(-last), now, step)
	})
}

// Stores returns which services answer.
func (l *Looker) Stores() []Store {
	if l.sources.Stores == nil {
		return nil
	}
	return l.sources.Stores()
}

// Shut are the destinations to which nothing is sent.
type Shut struct {
	List    []*delivery.Destination // the last ones that were disabled
	All     int                     // how many are disabled
	Failing int
}

// Shut returns the destinations to which nothing is sent, of the catalog in memory.
func (l *Looker) Shut(ctx context.Context) Shut {
	shut, _ := l.shut.of(ctx, "", shutFor, func(context.Context) (shut Shut, err error) {
		snapshot := l.sources.Snapshot()
		if snapshot == nil {
			return shut, ErrAsking
		}
		for _, e := range snapshot.Destinations {
			switch {
			case e.Disabled():
				shut.All++
				shut.keep(e)
			case e.FailingSince != 0:
				shut.Failing++
			}
		}
		return shut, nil
	})
	return shut
}

// keep keeps a destination if it was disabled later than others.
func (s *Shut) keep(e *delivery.Destination) {
	later := func(a, b *delivery.Destination) int {
		return cmp.Or(cmp.Compare(b.DisabledAt, a.DisabledAt), cmp.Compare(a.ID, b.ID))
	}
	i, _ := slices.BinarySearchFunc(s.List, e, later)
	if i < mostShut {
		s.List = slices.Insert(s.List, i, e)
		s.List = s.List[:min(len(s.List), mostShut)]
	}
}
