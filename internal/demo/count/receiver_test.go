package count

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

// startReceiver runs a receiver until the test ends.
func startReceiver(t *testing.T, options ReceiverOptions) *Receiver {
	t.Helper()
	options.Log = slog.New(slog.DiscardHandler)
	r, err := Listen(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	return r
}

// post sends one job and returns the answer; its body is closed.
func post(t *testing.T, url, campaign, job string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("pacer-campaign", campaign)
	req.Header.Set("Idempotency-Key", job)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return res
}

func TestReceiverWritesDownWhatItAnswered(t *testing.T) {
	r := startReceiver(t, ReceiverOptions{Paths: map[string]Behaviour{"/a": {}, "/broken": {ErrorEvery: 1}}})
	before := r.Now()
	for _, job := range []string{"j1", "j2", "j1"} {
		if res := post(t, r.URL("/a"), "spring", job); res.StatusCode != http.StatusOK {
			t.Fatalf("status %d for %s", res.StatusCode, job)
		}
	}
	for i, want := range []int{500, 200} { // only the first request of a job fails
		if res := post(t, r.URL("/broken"), "autumn", "k"); res.StatusCode != want {
			t.Fatalf("request %d: status %d, want %d", i, res.StatusCode, want)
		}
	}
	if res := post(t, r.URL("/elsewhere"), "spring", "j9"); res.StatusCode != http.StatusNotFound {
		t.Fatalf("an unknown path answered %d", res.StatusCode)
	}
	journals := r.Journals()
	if len(journals) != 2 || len(journals["autumn"].Arrivals) != 2 {
		t.Fatalf("journals %+v", journals)
	}
	spring := journals["spring"]
	if len(spring.Jobs) != 2 || len(spring.Arrivals) != 3 || spring.Arrivals[2].Job != 0 {
		t.Fatalf("spring: %+v", spring)
	}
	last := before
	for _, a := range spring.Arrivals {
		if a.At < last || a.At > r.Now() || !a.Accepted() {
			t.Fatalf("arrival %+v after %s", a, last)
		}
		last = a.At
	}
	if got := r.Accepted(); got["spring"] != 3 || got["autumn"] != 1 {
		t.Fatalf("accepted %v", got)
	}
}

func TestReceiverThrottles(t *testing.T) {
	d := &destination{behaviour: Behaviour{ThrottleEvery: 3 * time.Second, RetryAfter: time.Second}}
	var closed []int
	for ms := 0; ms < 8000; ms += 500 {
		if status, _ := d.answer(0, 2, time.Duration(ms)*time.Millisecond); status == http.StatusTooManyRequests {
			closed = append(closed, ms)
		}
	}
	if got, want := fmt.Sprint(closed), "[3000 3500 6000 6500]"; got != want {
		t.Fatalf("throttled at %s, want %s", got, want)
	}
}

func TestReceiverSendsRetryAfterAndRemembersTheClosedStretch(t *testing.T) {
	r := startReceiver(t, ReceiverOptions{Paths: map[string]Behaviour{
		"/p": {ThrottleEvery: 2 * time.Second, RetryAfter: time.Second},
	}})
	d := r.destinations["/p"]
	d.mu.Lock()
	d.started = true // as if the first request had come two seconds ago
	d.mu.Unlock()
	res := post(t, r.URL("/p"), "partner", "j")
	if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" {
		t.Fatalf("status %d, Retry-After %q", res.StatusCode, res.Header.Get("Retry-After"))
	}
	journals := r.Journals()
	closed, arrivals := journals["partner"].Closed, journals["partner"].Arrivals
	if len(closed) != 1 || closed[0].To-closed[0].From < time.Second || closed[0].From != arrivals[0].At {
		t.Fatalf("closed %v, arrivals %v", closed, arrivals)
	}
}

func TestReceiverRecordsASenderThatHungUp(t *testing.T) {
	r := startReceiver(t, ReceiverOptions{Paths: map[string]Behaviour{
		"/slow": {MinLatency: time.Minute, MaxLatency: time.Minute},
	}})
	ctx, cancel := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL("/slow"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("pacer-campaign", "c")
	req.Header.Set("Idempotency-Key", "j")
	go func() {
		defer cancel()
		for { // hang up once the request is known to have arrived
			if journals := r.Journals(); len(journals) == 1 || ctx.Err() != nil {
				return
			}
		}
	}()
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
		t.Fatal("the request was answered")
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		if journals := r.Journals(); journals["c"].Arrivals[0].Status == statusClientGone {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("not recorded")
		}
	}
}

func TestOneInSoManyJobsFailsAtFirst(t *testing.T) {
	d, failed := &destination{behaviour: Behaviour{ErrorEvery: 200}}, []int{}
	for job := range 600 {
		for nth := 1; nth <= 2; nth++ {
			if status, _ := d.answer(job, nth, 0); status != http.StatusOK {
				failed = append(failed, job)
			}
		}
	}
	if got := fmt.Sprint(failed); got != "[100 300 500]" {
		t.Fatalf("jobs %s fail", got)
	}
}
