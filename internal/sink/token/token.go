// Package token keeps an access token fresh, so that those who need it do not wait for it.
package token

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// A source that is reachable again is noticed within ten seconds, whether it refused connections or did not answer.
	fetchTimeout = 8 * time.Second
	maxUnreached = 2 * time.Second // between fetches while it cannot be reached
	maxAsked     = 5 * time.Minute // that a source may ask to wait

	defaultLife = time.Hour // of a token that does not say
	maxLife     = 365 * 24 * time.Hour
	minWait     = time.Second // between two tokens
	calm        = time.Minute // a token that was not refused for so long has worked
)

// back is how long to wait after fetches that failed, and after tokens that were refused at once.
var back = retry.Backoff{Initial: minWait, Max: 30 * time.Second}

// Token is what was fetched.
type Token struct {
	Value string
	Life  time.Duration // 0: not said
}

// Error is why there is no token.
type Error struct {
	Class      delivery.ResultClass // of deliveries that need one: Misconfigured or Unreachable
	Status     int                  // of the answer, if there was one
	RetryAfter time.Duration        // that the answer asks to wait; 0: not said
	Detail     string               // one line, without secrets
}

// Error implements error.
func (e *Error) Error() string { return e.Detail }

// Current is a token, or why there is none. It never changes. One that is empty stands for the first token, which is being fetched.
type Current struct {
	Value    string
	Header   []string // the value of the header Authorization
	Err      *Error   // why there is no token; the others are empty
	expires  time.Time
	replaced chan struct{} // closed when another one has taken its place
}

func (h *Current) empty() bool { return h.Value == "" && h.Err == nil }

// Options configure a Source.
type Options struct {
	Fetch       func(ctx context.Context) (Token, error) // called by one goroutine, with a timeout
	Logger      *slog.Logger
	Destination string // for log lines
}

// Source keeps a token: Run fetches it, again when four fifths of its life have passed, and once for each token that was
// refused. It is safe for concurrent use. Only the first fetch is waited for.
type Source struct {
	opt   Options
	now   atomic.Pointer[Current] // written by Run
	wake  chan *Current           // it was refused; nil: what it is fetched with has changed
	fails retry.Outage
}

// New makes a Source, which has no token before Run.
func New(opt Options) *Source {
	s := &Source{opt: opt, wake: make(chan *Current, 1)}
	s.now.Store(&Current{replaced: make(chan struct{})})
	return s
}

// Get returns the token, or why there is none: Err is set then. While one is being fetched without which there is none, it
// waits for it, at most until ctx ends, and returns nil in that case.
func (s *Source) Get(ctx context.Context) *Current {
	for {
		h := s.now.Load()
		if !h.empty() {
			return h
		}
		select {
		case <-h.replaced:
		case <-ctx.Done():
			return nil
		}
	}
}

// Call makes a call with the token, or returns what is known without one. Call and token together take at most the timeout. A token that
// was refused is fetched anew. A nil Source has none, and the call needs none.
func (s *Source) Call(
	ctx context.Context, timeout time.Duration, call func(ctx context.Context, held *Current) delivery.Result, refused func(*delivery.Result) bool,
) delivery.Result {
	if s == nil {
		return call(ctx, nil)
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	held, none := s.need(ctx, limited)
	if none != nil {
		return *none
	}
	res := call(limited, held)
	if refused(&res) {
		s.Refused(held)
	}
	return res
}

// need returns the token for a delivery, or the result of the delivery without one. It waits as Get does, at most until limited
// ends, which is when the delivery has to end; ctx is the context of its caller.
func (s *Source) need(ctx, limited context.Context) (*Current, *delivery.Result) {
	h := s.Get(limited)
	switch {
	case h == nil && ctx.Err() != nil:
		return nil, &delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before there was an access token"}
	case h == nil:
		return nil, &delivery.Result{Class: delivery.Unreachable, Detail: "no access token in time"}
	case h.Err != nil:
		return nil, &delivery.Result{Class: h.Err.Class, Status: h.Err.Status, Detail: h.Err.Detail}
	case !h.Valid(time.Now()):
		return nil, &delivery.Result{Class: delivery.Unreachable, Detail: "the access token has expired, and there is no other yet"}
	}
	return h, nil
}

// Valid reports whether the token may be used at now.
func (h *Current) Valid(now time.Time) bool { return h.Err == nil && now.Before(h.expires) }

// Refused says that the destination does not accept the token. It is fetched anew, once for all who say so, and used until then: the
// refusal may be about one job.
func (s *Source) Refused(h *Current) {
	if h != s.now.Load() {
		return
	}
	select {
	case s.wake <- h:
	default:
	}
}

// Renew says that what tokens are fetched with has changed, which counts more than a refusal. The token is used until there is another.
func (s *Source) Renew() {
	select {
	case <-s.wake:
	default:
	}
	select {
	case s.wake <- nil:
	default:
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
		refused++
		if wait = back.Delay(refused) - time.Since(fetched); wait <= 0 {
			continue
		}
		if retry.Sleep(ctx, wait) != nil {
			return
		}
	}
}

// rest waits until the token is to be fetched again; stale if it was refused before, or is one of before a change.
func (s *Source) rest(ctx context.Context, wait time.Duration) (stale bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case refused := <-s.wake:
			if refused == nil || refused == s.now.Load() {
				return true
			}
		case <-ctx.Done():
			return false
		case <-timer.C:
			return false
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
		s.hold(&Current{Value: t.Value, Header: []string{"Bearer " + t.Value}, expires: begun.Add(life)})
		if _, over := s.fails.Worked(); over {
			s.opt.Logger.Info("the access token of a sink is fetched again", "destination", s.opt.Destination)
		}
		return max(life*4/5, minWait)
	}
	if s.fails.Failed() {
		s.opt.Logger.Warn("the access token of a sink cannot be fetched; it is tried again", "destination", s.opt.Destination, "error", err)
	}
	e, known := errors.AsType[*Error](err)
	if !known {
		e = &Error{Class: delivery.Unreachable, Detail: "no access token: " + err.Error()}
	}
	if !s.now.Load().Valid(time.Now()) {
		s.hold(&Current{Err: e})
	}
	wait = back.Delay(s.fails.Failures())
	if e.Class == delivery.Unreachable {
		wait = min(wait, maxUnreached)
	}
	return max(wait, min(e.RetryAfter, maxAsked))
}

func (s *Source) hold(h *Current) {
	h.replaced = make(chan struct{})
	close(s.now.Swap(h).replaced)
}
