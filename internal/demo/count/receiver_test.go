package count

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// startReceiver runs a receiver until the test ends.
func startReceiver(t *testing.T, options ReceiverOptions) *Receiver {
	t.Helper()
	options.Log = slog.New(slog.DiscardHandler)
	options.MaxRequests = cmp.Or(options.MaxRequests, 100)
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
	r := startReceiver(t, ReceiverOptions{Paths: map[string]Behaviour{"/a": {}, "/broken": {ErrorShare: 1}}})
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
	journals, dropped := r.Journals()
	if dropped != 0 || len(journals) != 2 || len(journals["autumn"].Arrivals) != 2 {
		t.Fatalf("journals %+v, dropped %d", journals, dropped)
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
		if status, _ := d.answer("j", 2, time.Duration(ms)*time.Millisecond); status == http.StatusTooManyRequests {
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
	post(t, r.URL("/p"), "partner", "j2") // within the stretch: it grows, and stays one
	journals, _ := r.Journals()
	closed, arrivals := journals["partner"].Closed, journals["partner"].Arrivals
	if len(closed) != 1 || closed[0].To-closed[0].From < time.Second || closed[0].From != arrivals[0].At {
		t.Fatalf("closed %v, arrivals %v", closed, arrivals)
	}
}

func TestReceiverBoundsItsMemory(t *testing.T) {
	r := startReceiver(t, ReceiverOptions{Paths: map[string]Behaviour{"/a": {}}, MaxRequests: 5})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { post(t, r.URL("/a"), "c", fmt.Sprint(i)) })
	}
	wg.Wait()
	journals, dropped := r.Journals()
	if len(journals["c"].Arrivals) != 5 || dropped != 3 {
		t.Fatalf("%d remembered, %d dropped", len(journals["c"].Arrivals), dropped)
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
			if journals, _ := r.Journals(); len(journals) == 1 || ctx.Err() != nil {
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
		if journals, _ := r.Journals(); journals["c"].Arrivals[0].Status == statusClientGone {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("not recorded")
		}
	}
}

func TestUnluckyPicksTheShare(t *testing.T) {
	n := 0
	for i := range 20_000 {
		if unlucky(fmt.Sprintf("partner-%d", i), 0.01) {
			n++
		}
	}
	if n < 150 || n > 250 {
		t.Fatalf("%d of 20,000 at 1 %%", n)
	}
}

func TestUnion(t *testing.T) {
	got := union([]Interval{{5, 7}, {1, 3}, {3, 4}, {6, 6}, {9, 10}})
	if want := "[{1ns 4ns} {5ns 7ns} {9ns 10ns}]"; fmt.Sprint(got) != want {
		t.Fatalf("got %v, want %s", got, want)
	}
}
