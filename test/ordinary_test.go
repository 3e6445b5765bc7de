//go:build alerts

package test

import (
	"fmt"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// TestOrdinaryLoad runs two daemons for an hour (LOAD=duration) under ordinary load. There is live traffic, a push every quarter of an
// hour, a provider's contract below its limit, and a partner that is slow and sometimes refuses. There are jobs for later, changed rates,
// a pause and a rolling upgrade. All rules of deploy/ are evaluated with their own times, and none may fire. Every job arrives.
func TestOrdinaryLoad(t *testing.T) {
	span := time.Hour
	if text := os.Getenv("LOAD"); text != "" {
		var err error
		if span, err = time.ParseDuration(text); err != nil || span < 10*time.Minute {
			t.Fatalf("LOAD is %q; give a duration of at least 10m, as in 1h", text)
		}
	}
	s := newStack(t, stackOptions{partitions: 6})
	last := func(a arrival) string { return a.id[len(a.id)-2:] }
	s.receiver.answer = func(a arrival) (int, time.Duration) {
		if a.campaign == "webhooks" && last(a) == "07" && a.attempt == 1 {
			return http.StatusServiceUnavailable, 0
		}
		return http.StatusOK, 0
	}
	s.receiver.takes = func(a arrival) time.Duration {
		if a.campaign == "webhooks" && last(a) == "08" {
			return 2 * time.Second
		}
		return 20 * time.Millisecond
	}
	rates := map[string]int{"news": 50, "webhooks": 30, "codes": 2, "receipts": 2, "reminders": 2}
	for id, rate := range rates {
		s.campaign(id, float64(rate)*1.5)
	}
	const push, every = 15, 15 * time.Minute
	s.campaign("push", push)
	s.quota("contract", "closed", "300/1m", "20000/1h", "400000/1d")
	s.under("contract", "codes", "receipts")
	daemons := s.fleet("one", "two")
	w := newWatcher(t, 1, daemons[0].listen, daemons[1].listen)

	began, published := time.Now(), map[string]int{}
	next := func(campaign string, n int, headers ...kafka.Header) (jobs []job) {
		for range n {
			jobs = append(jobs, job{campaign: campaign, id: fmt.Sprintf("%s-%06d", campaign, published[campaign]), headers: headers})
			published[campaign]++
		}
		return jobs
	}
	var done [6]bool
	once := func(i int, share float64, act func()) {
		if !done[i] && time.Since(began) > time.Duration(share*float64(span)) {
			done[i] = true
			act()
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for pushed := began.Add(-every); time.Since(began) < span; <-tick.C {
		later := header("pacer-not-before", time.Now().Add(3*time.Minute).Format(time.RFC3339))
		jobs := next("reminders", rates["reminders"], later)
		for _, id := range []string{"news", "webhooks", "codes", "receipts"} {
			jobs = append(jobs, next(id, rates[id])...)
		}
		if left := span - time.Since(began); time.Since(pushed) >= every {
			pushed = pushed.Add(every)
			jobs = append(jobs, next("push", int(push*0.7*min(every, left).Seconds()))...)
		}
		s.publish(jobs)

		once(0, 0.2, func() { s.run("campaign", "set", "news", "--rate", "120") })
		once(1, 0.3, func() { s.run("campaign", "pause", "push") })
		once(2, 0.35, func() { s.run("campaign", "resume", "push") })
		once(3, 0.5, func() { daemons[0].upgrade() })
		once(4, 0.6, func() { daemons[1].upgrade() })
		once(5, 0.7, func() { s.run("campaign", "set", "news", "--rate", "75") })
	}
	for id, n := range published {
		s.await(10*time.Minute, "all jobs of "+id, func() bool {
			got, _ := s.receiver.accepted(id)
			return got == n
		})
		if _, again := s.receiver.accepted(id); again > 0 {
			t.Errorf("%d jobs of %s were sent twice", again, id)
		}
	}
	if dead := s.dead(); len(dead) > 0 {
		t.Errorf("dead letters: %v", dead)
	}

	length := time.Since(began).Round(time.Second)
	for _, scraped := range w.query(fmt.Sprintf(`count_over_time(up{job="pacer"}[%s]) < %d`, length, int(0.95*length.Seconds()/15))) {
		t.Errorf("scraped too seldom: %v", scraped)
	}
	fired, err := w.ask(fmt.Sprintf(`max_over_time(ALERTS{alertstate="firing"}[%s])`, length))
	if err != nil || len(fired) > 0 {
		t.Errorf("alerts fired under ordinary load: %v %v", fired, err)
	}
	pending, err := w.ask(fmt.Sprintf(`max_over_time(ALERTS[%s])`, length))
	t.Logf("%s, %v jobs; for some time it was near to: %v %v", length, published, pending, err)
}

// upgrade stops the daemon in order and starts it again at the same address.
func (d *daemon) upgrade() {
	d.s.t.Helper()
	d.stop()
	d.launch()
	d.awaitReady(30 * time.Second)
}
