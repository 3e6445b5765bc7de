package view

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/deadletter"
)

const (
	// lettersFor is how old what is known of dead letters may be: to look for them takes thousands of records of Kafka. While a page is
	// watched they are looked for again after half of it.
	lettersFor = time.Minute
	// LettersWithin bounds a look for them.
	LettersWithin = 10 * time.Second
	// LettersOf is how far back they are counted.
	LettersOf = time.Hour
)

// Found are the dead letters that a page shows.
type Found struct {
	Letters
	At time.Time // when they were looked for
}

// FindLetters returns dead letters, as they were found last, and has them looked for again if that is long ago; anew: also if it was some
// seconds ago. The error is ErrAsking while nobody has found them yet.
func (l *Looker) FindLetters(ctx context.Context, f LetterFilter, anew bool) (Found, error) {
	if l.sources.Letters == nil {
		return Found{}, Fault(catalog.ErrForbidden, "Dead letters cannot be read here.")
	}
	about, fresh := fmt.Sprintf("%+v", f), lettersFor/2
	if last := l.found.last(about); anew || last.err != nil { // what has failed may soon be found
		fresh = closeFor
	}
	return l.found.of(ctx, about, fresh, func(ctx context.Context) (Found, error) {
		letters, err := l.sources.Letters(ctx, f)
		return Found{letters, time.Now()}, err
	})
}

// WholeLetter returns one dead letter. The error is ErrAsking while it has not been read yet.
func (l *Looker) WholeLetter(ctx context.Context, at deadletter.Place) (*WholeLetter, error) {
	if l.sources.Letter == nil {
		return nil, Fault(catalog.ErrForbidden, "Dead letters cannot be read here.")
	}
	about, fresh := fmt.Sprint(at), lettersFor/2 // but for whether it was replayed, it never changes
	if last := l.whole.last(about); last.err != nil {
		fresh = closeFor
	}
	return l.whole.of(ctx, about, fresh, func(ctx context.Context) (*WholeLetter, error) { return l.sources.Letter(ctx, at) })
}

// Dead is how many jobs have died lately.
type Dead struct {
	At      time.Time // zero: they were not counted yet
	Counts  []LetterCount
	Letters int
	More    bool // not all were counted: the newest ones were
	Err     error
}

// Of returns the counts of one campaign.
func (d *Dead) Of(campaign string) (list []LetterCount) {
	for _, count := range d.Counts {
		if count.Campaign == campaign {
			list = append(list, count)
		}
	}
	return list
}

// lately counts dead letters while somebody wants to know.
type lately struct {
	look   func(context.Context, LetterFilter) (Letters, error) // besides those of people, who may look at most two at a time
	wanted chan struct{}                                        // holds one while they are to be counted

	mu   sync.Mutex // guards last
	last Dead
}

// Dead returns how many jobs have died within the last hour, as it was counted last, and has them counted again if that was long ago: it
// takes thousands of records of Kafka, and nobody waits for it.
func (l *Looker) Dead() Dead {
	l.letters.mu.Lock()
	defer l.letters.mu.Unlock()
	if time.Since(l.letters.last.At) > lettersFor {
		select {
		case l.letters.wanted <- struct{}{}:
		default: // they are to be counted
		}
	}
	return l.letters.last
}

// CountDead counts the dead letters of the last hour, while somebody wants to know, until ctx ends.
func (l *Looker) CountDead(ctx context.Context) {
	if l.letters.look == nil {
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.letters.wanted:
		}
		l.letters.mu.Lock()
		recent := time.Since(l.letters.last.At) < lettersFor
		l.letters.mu.Unlock()
		if !recent {
			l.countDead(ctx)
		}
	}
}

func (l *Looker) countDead(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, LettersWithin)
	defer cancel()
	found, err := l.letters.look(ctx, LetterFilter{Last: LettersOf, Limit: 1})
	dead := Dead{At: time.Now(), Counts: found.Counts, More: found.More, Err: err}
	for _, count := range found.Counts {
		dead.Letters += count.Letters
	}
	l.letters.mu.Lock()
	defer l.letters.mu.Unlock()
	l.letters.last = dead
}
