package token

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// server hands out tokens.
type server struct {
	fetched atomic.Int32
	life    time.Duration
	failing atomic.Bool
	slow    time.Duration
}

var errDown = errors.New("down")

func (v *server) fetch(ctx context.Context) (Token, error) {
	n := v.fetched.Add(1)
	select {
	case <-time.After(v.slow):
	case <-ctx.Done():
		return Token{}, ctx.Err()
	}
	if v.failing.Load() {
		return Token{}, errDown
	}
	return Token{Value: fmt.Sprint("t", n), Life: v.life}, nil
}

// run runs a source in a bubble, until test returns.
func run(t *testing.T, fetch func(context.Context) (Token, error), test func(t *testing.T, s *Source, log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := New(Options{Fetch: fetch, Logger: slog.New(slog.NewTextHandler(&log, nil)), Destination: "x"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { s.Run(ctx); close(done) }()
		test(t, s, &log)
		cancel()
		<-done
	})
}

func (v *server) check(t *testing.T, when string, want int32) {
	t.Helper()
	synctest.Wait()
	if n := v.fetched.Load(); n != want {
		t.Errorf("%s: %d fetched, want %d", when, n, want)
	}
}

func TestTokenIsRenewedInTime(t *testing.T) {
	v := &server{life: 100 * time.Second, slow: time.Second}
	run(t, v.fetch, func(t *testing.T, s *Source, _ *bytes.Buffer) {
		if h := s.Get(t.Context()); h.Value != "t1" || h.Header[0] != "Bearer t1" || !h.Valid(time.Now()) { // waits
			t.Errorf("%+v", h)
		}
		time.Sleep(79 * time.Second)
		v.check(t, "after 79 s", 1)
		time.Sleep(1500 * time.Millisecond)
		v.check(t, "after 81 s", 2)
		if h := s.Get(t.Context()); h.Value != "t1" { // meanwhile
			t.Errorf("%+v", h)
		}
		time.Sleep(time.Second)
		if h := s.Get(t.Context()); h.Value != "t2" {
			t.Errorf("%+v", h)
		}
	})
	v = &server{}
	run(t, v.fetch, func(t *testing.T, _ *Source, _ *bytes.Buffer) {
		time.Sleep(47 * time.Minute)
		v.check(t, "of an unknown life, after 47 min", 1)
		time.Sleep(2 * time.Minute)
		v.check(t, "after 49 min", 2)
	})
}

// TestRefusedTokenIsReplacedOnce, however many say so, and ever more slowly when the next ones are refused as well.
func TestRefusedTokenIsReplacedOnce(t *testing.T) {
	v := &server{life: time.Hour}
	run(t, v.fetch, func(t *testing.T, s *Source, _ *bytes.Buffer) {
		time.Sleep(2 * time.Minute)
		h := s.Get(t.Context())
		for range 256 {
			s.Refused(h)
		}
		v.check(t, "refused", 2)
		s.Refused(h) // a late one
		time.Sleep(10 * time.Second)
		v.check(t, "late", 2)
		for range 10 * 60 { // every token is refused, ten times a second
			s.Refused(s.Get(t.Context()))
			time.Sleep(100 * time.Millisecond)
		}
		if n := v.fetched.Load(); n < 5 || n > 10 {
			t.Errorf("%d fetched in a minute", n)
		}
	})
}

// TestAChangeDuringAFetch: a token that was fetched with the secret of before is replaced, and no other is fetched for its refusal.
func TestAChangeDuringAFetch(t *testing.T) {
	v := &server{life: time.Hour, slow: 2 * time.Second}
	run(t, v.fetch, func(t *testing.T, s *Source, _ *bytes.Buffer) {
		time.Sleep(time.Second) // in the middle of the first fetch
		s.Renew()
		time.Sleep(1500 * time.Millisecond)
		h := s.Get(t.Context())
		if h.Value != "t1" {
			t.Errorf("%+v", h)
		}
		time.Sleep(time.Second) // in the middle of the second one
		v.check(t, "after the change", 2)
		s.Refused(h)
		time.Sleep(time.Minute)
		if h := s.Get(t.Context()); h.Value != "t2" {
			t.Errorf("%+v", h)
		}
		v.check(t, "afterwards", 2)
	})
}

// TestATokenIsNeeded: who needs the first one waits for it. One that a job was refused with serves all others until there is another.
func TestATokenIsNeeded(t *testing.T) {
	v := &server{life: time.Hour, slow: 2 * time.Second}
	run(t, v.fetch, func(t *testing.T, s *Source, _ *bytes.Buffer) {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, none := s.need(t.Context(), short); got != nil || none.Class != delivery.Unreachable {
			t.Errorf("%+v, %+v", got, none)
		}
		if got, none := s.need(short, short); got != nil || none.Class != delivery.Interrupted {
			t.Errorf("%+v, %+v", got, none)
		}
		for range 600 { // one in a second is refused, whatever the token
			got, none := s.need(t.Context(), t.Context())
			if none != nil || !got.Valid(time.Now()) {
				t.Fatalf("%+v, %+v", got, none)
			}
			s.Refused(got)
			time.Sleep(time.Second)
		}
		if n := v.fetched.Load(); n < 10 || n > 30 {
			t.Errorf("%d fetched in ten minutes", n)
		}
	})
}

func TestFailingFetch(t *testing.T) {
	v := &server{life: 100 * time.Second}
	v.failing.Store(true)
	run(t, v.fetch, func(t *testing.T, s *Source, log *bytes.Buffer) {
		down := delivery.Result{Class: delivery.Unreachable, Detail: "no access token: down"}
		if _, none := s.need(t.Context(), t.Context()); *none != down {
			t.Errorf("%+v", none)
		}
		v.failing.Store(false)
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		h := s.Get(t.Context())
		if h.Err != nil || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "level=INFO") {
			t.Errorf("%+v\n%s", h, log)
		}
		v.failing.Store(true)
		time.Sleep(90 * time.Second)
		if s.Get(t.Context()) != h || !h.Valid(time.Now()) {
			t.Error("a valid token was given up")
		}
		time.Sleep(60 * time.Second)
		if _, none := s.need(t.Context(), t.Context()); *none != down || h.Valid(time.Now()) {
			t.Errorf("%+v", none)
		}
		s.hold(h) // until the next fetch
		if got, none := s.need(t.Context(), t.Context()); got != nil || none.Class != delivery.Unreachable || !strings.Contains(none.Detail, "expired") {
			t.Errorf("%+v, %+v", got, none)
		}
		if n := v.fetched.Load(); n < 5 || n > 40 {
			t.Errorf("%d fetches", n)
		}
		v.failing.Store(false)
		s.Renew() // the secret was corrected
		time.Sleep(time.Minute)
		if got := s.Get(t.Context()); got.Err != nil {
			t.Errorf("%+v", got)
		}
	})
	hung := &server{slow: time.Hour}
	run(t, hung.fetch, func(t *testing.T, s *Source, _ *bytes.Buffer) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if h := s.Get(ctx); h != nil {
			t.Errorf("%+v", h)
		}
		time.Sleep(8 * time.Second)
		if h := s.Get(t.Context()); h == nil || !strings.HasSuffix(h.Err.Detail, context.DeadlineExceeded.Error()) {
			t.Errorf("%+v", h)
		}
	})
}

// TestASourceThatAsksToWait is not asked before, unless what tokens are fetched with has changed; nor is it believed for hours.
func TestASourceThatAsksToWait(t *testing.T) {
	var asked atomic.Int32
	fetch := func(context.Context) (Token, error) {
		asked.Add(1)
		return Token{}, &Error{Class: delivery.Unreachable, Status: 503, RetryAfter: time.Hour, Detail: "no"}
	}
	run(t, fetch, func(t *testing.T, s *Source, _ *bytes.Buffer) {
		after := func(wait time.Duration, want int32) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if n := asked.Load(); n != want {
				t.Errorf("asked %d times, want %d", n, want)
			}
		}
		after(4*time.Minute, 1)
		if _, none := s.need(t.Context(), t.Context()); *none != (delivery.Result{Class: delivery.Unreachable, Status: 503, Detail: "no"}) {
			t.Errorf("%+v", none)
		}
		s.Renew()
		after(4*time.Minute, 2)
		after(2*time.Minute, 3)
	})
}

// TestASourceThatHangsIsNoticedSoonAfterItsRepair: within ten seconds, after however long an outage.
func TestASourceThatHangsIsNoticedSoonAfterItsRepair(t *testing.T) {
	var repaired atomic.Bool
	v := &server{}
	hangs := func(ctx context.Context) (Token, error) {
		if !repaired.Load() {
			<-ctx.Done()
			return Token{}, ctx.Err()
		}
		return v.fetch(ctx)
	}
	for after := 10 * time.Minute; after < 11*time.Minute; after += 700 * time.Millisecond {
		repaired.Store(false)
		run(t, hangs, func(t *testing.T, s *Source, _ *bytes.Buffer) {
			time.Sleep(after)
			repaired.Store(true)
			time.Sleep(10*time.Second + time.Millisecond)
			if h := s.Get(t.Context()); h.Err != nil {
				t.Errorf("repaired after %s, and ten seconds later: %v", after, h.Err)
			}
		})
	}
}
