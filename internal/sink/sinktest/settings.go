package sinktest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
)

// Problems expects that good settings have no problem, and that each change makes the one problem that begins with its key; "" is for
// none. A problem is one line, and neither it nor the settings, however they are printed or logged, tell the secrets hunter22 and
// opensesame.
func Problems[C interface{ Problems() []string }](t *testing.T, good func() C, changes map[string]func(C)) {
	t.Helper()
	if p := good().Problems(); len(p) > 0 {
		t.Errorf("without a change: %q", p)
	}
	for want, change := range changes {
		c := good()
		change(c)
		p := c.Problems()
		if want == "" && len(p) > 0 || want != "" && (len(p) != 1 || !strings.HasPrefix(p[0], want) || strings.Contains(p[0], "\n")) {
			t.Errorf("%q, want %q", p, want)
		}
		text := fmt.Sprintf("%s %v %+v %#v %v", p, c, c, c, slog.AnyValue(c).Resolve())
		if strings.Contains(text, "hunter22") || strings.Contains(text, "opensesame") {
			t.Errorf("%s: a secret is in %s", want, text)
		}
	}
}

// Checks expects that the check of a sink with each change has an error that begins with its key and tells neither secret; "" is for none.
func Checks[C any, S interface{ Check(context.Context) error }](t *testing.T, open func(change func(C)) S, changes map[string]func(C)) {
	t.Helper()
	for want, change := range changes {
		err := open(change).Check(t.Context())
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%v, want %q", err, want)
		}
		if err != nil && (strings.Contains(err.Error(), "hunter22") || strings.Contains(err.Error(), "opensesame")) {
			t.Errorf("a secret is in %q", err)
		}
	}
}

// Serve runs a sink until the test ends, and closes it.
func Serve[S interface {
	Run(context.Context) error
	Close() error
}](t *testing.T, s S, err error) S {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = s.Close()
	})
	return s
}

// Eventually waits for what happens beside the test.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// delivers is a sink, or what is like it.
type delivers interface {
	Deliver(context.Context, *delivery.Job, *base.Exchange) delivery.Result
}

// Deliver delivers a job, and expects a result of the class.
func Deliver(t testing.TB, s delivers, job *delivery.Job, want delivery.ResultClass) {
	t.Helper()
	if res := s.Deliver(t.Context(), job, nil); res.Class != want {
		t.Errorf("%s: %+v, want %s", job.ID, res, want)
	}
}

// All delivers jobs at once, and returns the results in their order.
func All(t testing.TB, s delivers, jobs []*delivery.Job) []delivery.Result {
	t.Helper()
	results := make([]delivery.Result, len(jobs))
	var calls sync.WaitGroup
	for i, j := range jobs {
		calls.Go(func() { results[i] = s.Deliver(t.Context(), j, nil) })
	}
	calls.Wait()
	return results
}
