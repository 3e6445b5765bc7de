// Package token keeps an access token fresh, so that those who need it do not wait for it.
package token

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	fetchTimeout = 10 * time.Second
	defaultLife  = time.Hour // of a token that does not say
	maxLife      = 365 * 24 * time.Hour
	minWait      = time.Second // between two tokens
	calm         = time.Minute // a token that was not refused for so long has worked
)

// back is how long to wait after fetches that failed, and after tokens that were refused at once.
var back = retry.Backoff{Initial: minWait, Max: 30 * time.Second}

// Token is what was fetched.
type Token struct {
	Value string
	Life  time.Duration // 0: not said
}

// Held is a token, or why there is none. It never changes.
type Held struct {
	Value   string
	Header  []string // the value of the header Authorization
	Err     error    // there is no token; the others are empty
	expires time.Time
}

// Options configure a Source.
type Options struct {
	Fetch       func(ctx context.Context) (Token, error) // called by one goroutine, with a timeout
	Logger      *slog.Logger
	Destination string // for log lines
}

// Source keeps a token: Run fetches it, again when four fifths of its life have passed, and once for each token that was
// refused. It is safe for concurrent use. Nobody waits for a fetch but those who come before the first has ended.
type Source struct {
	opt   Options
	now   atomic.Pointer[Held] // nil until the first fetch has ended; written by Run
	first chan struct{}        // closed then
	stale atomic.Pointer[Held] // the one that is to be replaced, if it is still the one that is held
	bad   atomic.Pointer[Held] // the last one that was refused
	wake  retry.Signal
	fails retry.Outage
}

// New makes a Source, which has no token before Run.
func New(opt Options) *Source {
	return &Source{opt: opt, first: make(chan struct{}), wake: retry.NewSignal()}
}

// Get returns the token, or why there is none: Err is set then. It waits for the first fetch, at most until ctx ends, and
// returns nil in that case.
func (s *Source) Get(ctx context.Context) *Held {
	if h := s.now.Load(); h != nil {
		return h
	}
	select {
	case <-s.first:
		return s.now.Load()
	case <-ctx.Done():
		return nil
	}
}

// Valid tells whether the token may be used at now.
func (h *Held) Valid(now time.Time) bool { return h.Err == nil && now.Before(h.expires) }

// Refused says that the destination does not accept the token. It is fetched anew, once for all who say so.
func (s *Source) Refused(h *Held) {
	s.bad.Store(h)
	s.replace(h)
}

func (s *Source) replace(h *Held) {
	if s.now.Load() == h {
		s.stale.Store(h)
		s.wake.Send()
	}
}

// Renew says that what tokens are fetched with has changed.
func (s *Source) Renew() {
	if h := s.now.Load(); h != nil {
		s.replace(h)
	}
}

// Run fetches tokens until ctx ends.
func (s *Source) Run(ctx context.Context) {
	refused := 0 // tokens in a row, each soon after it was fetched
	for {
		wait := s.fetch(ctx)
		if ctx.Err() != nil {
			return
		}
		fetched := time.Now()
		if !s.rest(ctx, wait) {
			refused = 0
			continue
		}
		if time.Since(fetched) >= calm {
			refused = 0
		}
		if refused++; retry.Sleep(ctx, back.Delay(refused)-time.Since(fetched)) != nil {
			return
		}
	}
}

// rest waits until the token is to be fetched again; stale if it was refused before.
func (s *Source) rest(ctx context.Context, wait time.Duration) (stale bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
		case <-s.wake:
			if s.stale.Load() == s.now.Load() {
				return true
			}
		}
	}
}

// fetch fetches a token, and returns when to do so again. One that is valid stays when no other can be fetched.
func (s *Source) fetch(ctx context.Context) (wait time.Duration) {
	limited, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	begun := time.Now()
	t, err := s.opt.Fetch(limited)
	if ctx.Err() != nil {
		return 0
	}
	if err == nil {
		life := min(t.Life, maxLife)
		if life <= 0 {
			life = defaultLife
		}
		s.hold(&Held{Value: t.Value, Header: []string{"Bearer " + t.Value}, expires: begun.Add(life)})
		if _, over := s.fails.Worked(); over {
			s.opt.Logger.Info("the access token of a sink is fetched again", "destination", s.opt.Destination)
		}
		return max(life*4/5, minWait)
	}
	if s.fails.Failed() {
		s.opt.Logger.Warn("the access token of a sink cannot be fetched; it is tried again", "destination", s.opt.Destination, "error", err)
	}
	if h := s.now.Load(); h == nil || !h.Valid(time.Now()) || h == s.bad.Load() {
		s.hold(&Held{Err: err})
	}
	return back.Delay(s.fails.Failures())
}

func (s *Source) hold(h *Held) {
	if s.now.Swap(h) == nil {
		close(s.first)
	}
}
