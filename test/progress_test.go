//go:build e2e

package test

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"
)

// shown is what a daemon's /metrics say of a campaign; NaN where they say nothing.
func (d *daemon) shown(metric, campaign string) float64 {
	d.s.t.Helper()
	client := http.Client{Timeout: 5 * time.Second}
	r, err := client.Get("http://" + d.listen + "/metrics")
	if err != nil {
		d.s.t.Fatalf("metrics of %s: %v", d.name, err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		d.s.t.Fatalf("metrics of %s: %v", d.name, err)
	}
	if sum, ok := sumOf(text, metric+`{campaign="`+campaign+`"`); ok {
		return sum
	}
	return math.NaN()
}

// shownBy returns what one of the daemons says, the largest value if several do.
func shownBy(metric, campaign string, daemons []*daemon) (most float64) {
	most = math.NaN()
	for _, d := range daemons {
		if v := d.shown(metric, campaign); !(v <= most) && !math.IsNaN(v) {
			most = v
		}
	}
	return most
}

// backlogs waits until the daemon that leads shows what really waits of each campaign, give or take what it sends in a second
// and a half: figures are a second old.
func (s *stack) backlogs(within time.Duration, published map[string]int, rates map[string]float64, daemons ...*daemon) {
	s.t.Helper()
	var said string
	deadline := time.Now().Add(within)
	for right := false; !right; time.Sleep(100 * time.Millisecond) {
		right, said = true, ""
		for id, n := range published {
			accepted, _ := s.receiver.accepted(id)
			waits, shows := float64(n-accepted), shownBy("pacer_campaign_backlog", id, daemons)
			if !(math.Abs(shows-waits) <= 1.5*rates[id]+1) {
				right = false
				said += " " + formatNumber(shows) + " are shown of " + id + ", " + formatNumber(waits) + " wait;"
			}
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("not within %s:%s", within, said)
		}
	}
}

func formatNumber(f float64) string {
	b, err := json.Marshal(math.Round(f))
	if err != nil {
		return "nothing"
	}
	return string(b)
}

// TestFigureBacklog: two campaigns share a lane; the figures are what really waits, also after the lane's
// reader was killed; the forecast comes true; the catalog keeps the count.
func TestFigureBacklog(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 4, lanes: 1})
	published := map[string]int{"big": 4000, "small": 900}
	rates := map[string]float64{"big": 100, "small": 20}
	for id, rate := range rates {
		s.campaign(id, rate)
	}
	s.sql(`UPDATE pacer.campaigns SET expected_total = 4000 WHERE id = 'big'`)
	a, b := s.start("a"), s.start("b")
	a.awaitReady(20 * time.Second)
	b.awaitReady(20 * time.Second)
	s.publish(mix(published))
	s.backlogs(10*time.Second, published, rates, a, b)
	both := []*daemon{a, b}
	for id, rate := range rates {
		eta, want := shownBy("pacer_campaign_eta_seconds", id, both), shownBy("pacer_campaign_backlog", id, both)/rate
		if !(math.Abs(eta-want) <= want/10) {
			t.Errorf("%s takes another %f s, want %f", id, eta, want)
		}
	}
	if late := a.samples("pacer_actionable_lag{") + b.samples("pacer_actionable_lag{"); late != 0 {
		t.Errorf("%f jobs are late of campaigns that keep their rate", late)
	}
	reader, other := a, b
	if !a.readsLane() {
		reader, other = b, a
	}
	if !reader.readsLane() {
		t.Fatal("neither daemon reads the lane")
	}
	reader.kill()
	s.await(25*time.Second, "the other to read the lane", other.readsLane)
	s.backlogs(10*time.Second, published, rates, other)
	left, began := other.shown("pacer_campaign_eta_seconds", "big"), time.Now()
	s.await(time.Minute, "the end of big", func() bool {
		accepted, _ := s.receiver.accepted("big")
		return accepted == published["big"]
	})
	if took := time.Since(began).Seconds(); math.Abs(took-left) > max(2, left/10) {
		t.Errorf("big was said to take another %f s and took %f", left, took)
	}
	s.await(15*time.Second, "an empty backlog", func() bool { return other.shown("pacer_campaign_backlog", "big") == 0 })
	if code := other.stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	var row struct {
		Progress struct {
			Delivered int
			Percent   float64
		}
	}
	if err := json.Unmarshal([]byte(s.run("campaign", "show", "big", "--json")), &row); err != nil {
		t.Fatal(err)
	}
	// The killed daemon took what it had sent since the last save with it: five seconds at the most, and one for the save.
	if got := row.Progress.Delivered; got < published["big"]-6*int(rates["big"]) || got > published["big"]+int(rates["big"]) {
		t.Errorf("the catalog has %d of %d delivered", got, published["big"])
	}
	if want := float64(row.Progress.Delivered) / 40; math.Abs(row.Progress.Percent-want) > 0.01 {
		t.Errorf("%f %%, want %f", row.Progress.Percent, want)
	}
}

// TestFigureLateJobs: only what could be sent and is not counts as late.
func TestFigureLateJobs(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 2, lanes: 4, sinks: `  gone: {type: http, url: "http://127.0.0.1:9/"}`})
	s.campaign("fine", 50)
	s.campaign("stuck", 100)
	s.sql(`UPDATE pacer.campaigns SET sink = 'gone' WHERE id = 'stuck'`)
	a, b := s.start("a"), s.start("b")
	a.awaitReady(20 * time.Second)
	b.awaitReady(20 * time.Second)
	s.publish(ofCampaign("fine", 0, 5000))
	s.backlogs(10*time.Second, map[string]int{"fine": 5000}, map[string]float64{"fine": 50}, a, b)
	late := func(more string) float64 { // one of them shows it
		return a.samples("pacer_actionable_lag{"+more) + b.samples("pacer_actionable_lag{"+more)
	}
	if n := late(""); n != 0 {
		t.Errorf("%f are late of a campaign that keeps its rate", n)
	}
	s.publish(ofCampaign("stuck", 0, 3000))
	s.await(20*time.Second, "jobs to be late", func() bool { return late("") > 200 })
	if byCapacity := late(`cause="capacity"}`); byCapacity > 100 { // of the time before the gate closed
		t.Errorf("%f jobs are late for lack of capacity, and their destination is gone", byCapacity)
	}
	s.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'stuck'`)
	s.await(10*time.Second, "nothing to be late that is paused", func() bool { return late("") == 0 })
	if eta := shownBy("pacer_campaign_eta_seconds", "stuck", []*daemon{a, b}); !math.IsNaN(eta) {
		t.Errorf("paused, and takes another %f s", eta)
	}
}

// readsLane reports whether the only lane is this daemon's, as it said last.
func (d *daemon) readsLane() (is bool) {
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, "joined the group") {
			is = strings.Contains(line, "lanes=1")
		}
	}
	return is
}

// TestHistoryAddsUp: through a restart of the daemon the history has what the receiver accepted, to one per cent.
func TestHistoryAddsUp(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 2})
	s.campaign("spring", 100)
	d := s.start("daemon")
	d.awaitReady(30 * time.Second)
	const jobs = 3000
	s.publish(mix(map[string]int{"spring": jobs}))
	accepted := func(n int) {
		t.Helper()
		s.await(60*time.Second, "jobs to be accepted", func() bool { got, _ := s.receiver.accepted("spring"); return got >= n })
	}
	accepted(800)
	if code := d.stop(); code != 0 {
		t.Fatalf("the daemon ended with %d", code)
	}
	d.launch()
	d.awaitReady(30 * time.Second)
	accepted(jobs)
	s.await(40*time.Second, "the history to have all of them", func() bool {
		var past struct {
			Points []struct{ Delivered, Failed, Allowed float64 }
		}
		d.ask("/campaigns/spring/history?last=1h", &past)
		sum := 0.0
		for _, p := range past.Points {
			if sum += p.Delivered; p.Failed != 0 || p.Allowed != 100 {
				t.Fatalf("%+v", p)
			}
		}
		return math.Abs(sum-jobs) <= jobs/100
	})
}
