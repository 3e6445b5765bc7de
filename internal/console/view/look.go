package view

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

const (
	// freshFor is how old a state may be: all that look within it are shown the same, however many they are.
	freshFor = 900 * time.Millisecond
	// shareOfTime is how many times as long as computing a state takes it is shown, for at most freshMost: with 100,000
	// campaigns looking must not cost a daemon its processor.
	shareOfTime = 20
	freshMost   = 10 * time.Second
	// recordsFor is how old the counts of the database may be, and lookWithin bounds a look at each source.
	recordsFor = 5 * time.Second
	lookWithin = 2 * time.Second
	// staleMost is how old a state may be that is shown while the next one is computed.
	staleMost = freshMost + lookWithin
	// rateOver is over how long rates are measured.
	rateOver = 5 * time.Second
)

// Looker looks at the sources for everyone who wants to see the State: at most once a second, only while somebody does, and
// never twice at the same time. Safe for concurrent use.
type Looker struct {
	sources Sources
	past    History

	mu       sync.Mutex // guards what follows; never held while looking
	last     *State
	lookedAt time.Time     // when last was complete: sources that hang must not make it old at once
	took     time.Duration // to compute it
	looking  chan struct{} // closed when the look that is under way is over; nil if there is none

	// What pages show beside the state.
	senders  answers[[]Sender]
	waits    answers[map[string]hold.Wait]
	claims   answers[[]Claim]
	changes  answers[[]Change]
	outlooks answers[*Outlook]
	stores   answers[[]Store]
	shut     answers[Shut]
	closed   answers[map[string][]delivery.DestinationGate]
	letters  lately

	// Only the look that is under way uses these.
	fleets   []*Fleet // of the last seconds, the oldest first
	counts   counts
	readOnly string // why nothing can be changed
}

// counts are what the database has counted of campaigns.
type counts struct {
	records map[string]Record // read last
	err     error             // of the last try
	triedAt time.Time         // when that was over
}

// NewLooker makes a Looker; it starts nothing.
func NewLooker(sources Sources) *Looker {
	l := &Looker{}
	l.letters.look, l.letters.wanted = sources.Letters, make(chan struct{}, 1)
	sources.Letters, sources.Letter = LimitLooks(sources.Letters), LimitLooks(sources.Letter)
	l.sources = sources
	return l
}

// Sources returns where the Looker looks.
func (l *Looker) Sources() *Sources { return &l.sources }

// Look returns the current state. What cannot be asked is left out, and State.Faults says so. While somebody else looks, the
// last state is current, unless it is older than staleMost: then Look waits for that of the other, or until ctx ends.
func (l *Looker) Look(ctx context.Context) *State {
	for {
		state, wait := l.current()
		switch {
		case state != nil:
			return state
		case wait == nil:
			return l.look(ctx)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return &State{Faults: []string{}}
		}
	}
}

// Campaign returns a campaign of the current state with its settings as the database has them at this moment, which may be some
// seconds newer: their revision is the one to change it at. Without an answer of the database they are those of the state. nil:
// there is no such campaign.
func (l *Looker) Campaign(ctx context.Context, id string) *Campaign {
	shown := l.Close(ctx, l.Look(ctx), id)
	if shown == nil {
		return nil
	}
	c := *shown
	if l.sources.Changer == nil {
		return &c
	}
	now, err := l.sources.Changer.Settings(ctx, id)
	if err != nil {
		return &c
	}
	c.Revision, c.Status, c.Rate, c.PriorityWeight, c.Burst, c.Overflow = now.Revision, now.Status, now.Rate, now.PriorityWeight, now.Burst, now.Overflow
	c.Quotas, c.MaxInFlight, c.ActiveHours, c.TimeZone, c.Ramp, c.ExpectedTotal = now.Quotas, int(now.MaxInFlight), now.ActiveHours, now.TimeZone, now.Ramp, now.ExpectedTotal
	c.PausedUntil, c.StartsAt, c.EndsAt = parseInstant(now.PausedUntil), parseInstant(now.StartsAt), parseInstant(now.EndsAt)
	c.RampSince, c.JobTTL = now.RampSince, now.JobTTL
	c.Sink, _ = l.sources.Sink(now.Sink)
	return &c
}

// Change returns a change by its number. The error is ErrNotFound, or that the database does not answer.
func (l *Looker) Change(ctx context.Context, number int64) (*Change, error) {
	if number < 1 || number == math.MaxInt64 || l.sources.Records == nil {
		return nil, Fault(ErrNotFound, "There is no such change, or none is known here.")
	}
	list, err := l.sources.Records.Changes(ctx, ChangesOf{Before: number + 1, Limit: 1})
	if err == nil && (len(list) == 0 || list[0].Number != number) {
		err = Fault(ErrNotFound, "There is no change %d; the oldest ones are removed.", number)
	}
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

// parseInstant is the opposite of Instant.
func parseInstant(text string) *time.Time {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil // there is none
	}
	return &t
}

// current returns the last state if that is good enough, or what to wait for. If it returns neither, the caller must look.
func (l *Looker) current() (state *State, wait <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := time.Since(l.lookedAt)
	if l.last != nil && (age < min(max(freshFor, shareOfTime*l.took), freshMost) || l.looking != nil && age < staleMost) {
		return l.last, nil
	}
	if l.looking != nil {
		return nil, l.looking
	}
	l.looking = make(chan struct{})
	return nil, nil
}

// look looks, for all who wait. It goes on, for lookWithin at most, when whoever asked first has left.
func (l *Looker) look(ctx context.Context) *State {
	var state *State
	var took time.Duration
	defer func() { // also if a source panics: the next one tries again
		l.mu.Lock()
		defer l.mu.Unlock()
		if state != nil {
			l.last, l.lookedAt, l.took = state, time.Now(), took
		}
		close(l.looking)
		l.looking = nil
	}()
	e := l.gather(context.WithoutCancel(ctx), time.Now())
	asked := time.Now()
	state = l.state(e)
	took = time.Since(asked)
	return state
}

// gather asks all sources side by side.
func (l *Looker) gather(ctx context.Context, now time.Time) *evidence {
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	e := &evidence{now: now, snapshot: l.sources.Snapshot()}
	var fleetErr, gatesErr, windowsErr error
	var all errgroup.Group
	if l.sources.Fleet != nil {
		all.Go(func() error { e.fleet, fleetErr = l.sources.Fleet(ctx); return nil })
	}
	if l.sources.Gates != nil {
		all.Go(func() error { e.gates, gatesErr = l.sources.Gates(ctx); return nil })
	}
	if l.sources.Windows != nil && e.snapshot != nil {
		all.Go(func() error {
			var states []delivery.WindowState
			states, windowsErr = l.sources.Windows(ctx, quotasOf(e.snapshot))
			if states != nil { // otherwise nothing is known
				e.windows = hold.Windows(states)
			}
			return nil
		})
	}
	if l.sources.Records != nil && now.Sub(l.counts.triedAt) >= recordsFor {
		all.Go(func() error {
			var read map[string]Record
			if read, l.counts.err = l.sources.Records.Campaigns(ctx); l.counts.err == nil {
				l.counts.records = read
			}
			if l.sources.ReadOnly != nil {
				if why, err := l.sources.ReadOnly(ctx); err == nil {
					l.readOnly = why
				}
			}
			l.counts.triedAt = time.Now() // also of a failure: a database that hangs is not asked each time
			return nil
		})
	}
	_ = all.Wait() // the errors are kept
	for _, fault := range []struct {
		what string
		err  error
	}{{"redis, for what daemons report", fleetErr}, {"redis, for gates", gatesErr}, {"redis, for quotas", windowsErr}, {"PostgreSQL, for counts", l.counts.err}} {
		if fault.err != nil {
			e.faults = append(e.faults, fmt.Sprintf("%s: %s", fault.what, fault.err))
		}
	}
	e.records, e.storeDown, e.readOnly = l.counts.records, fleetErr != nil, l.readOnly
	if gatesErr != nil {
		e.gates = nil
	}
	if fleetErr != nil {
		e.fleet, e.windows = nil, nil
	}
	e.earlier = l.remember(e.fleet, now)
	return e
}

// remember keeps what the fleet says for some seconds, and returns what it said some seconds ago; nil if that is not known.
func (l *Looker) remember(f *Fleet, now time.Time) *Fleet {
	if f != nil && (len(l.fleets) == 0 || f.At.After(l.fleets[len(l.fleets)-1].At.Add(freshFor/2))) {
		l.fleets = append(l.fleets, f)
	}
	for len(l.fleets) > 0 && now.Sub(l.fleets[0].At) > 3*rateOver {
		l.fleets = l.fleets[1:]
	}
	for len(l.fleets) > 2 && now.Sub(l.fleets[1].At) >= rateOver {
		l.fleets = l.fleets[1:]
	}
	if len(l.fleets) < 2 {
		return nil
	}
	return l.fleets[0]
}

func quotasOf(s *delivery.Snapshot) []*delivery.Quota {
	list := make([]*delivery.Quota, 0, len(s.Quotas))
	for _, q := range s.Quotas {
		list = append(list, q)
	}
	return list
}
