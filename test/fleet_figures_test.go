package test

import (
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/progress"
)

// ask reads something of the API of a daemon.
func (d *daemon) ask(path string, into any) {
	d.s.t.Helper()
	d.s.unmarshal(string(d.body("/api/v1"+path)), into)
}

// TestFiguresOfTheFleet: two daemons tell what they have sent to a receiver that is slow and fails some jobs, as each of them shows, and `pacer top`. The
// receiver counts; a figure is what it was up to four seconds ago, over the time since its daemon started, or a minute; that of
// each class is of the same time.
func TestFiguresOfTheFleet(t *testing.T) {
	t.Parallel()
	const jobs, slow, old = 3000, 60 * time.Millisecond, 4 * time.Second
	s := newStack(t, stackOptions{partitions: 4, lanes: 4, settings: `retry: {initial: 500ms}`})
	s.receiver.answersAfter("", slow)
	s.receiver.fails(http.StatusInternalServerError, func(a arrival) bool { return strings.HasSuffix(a.id, "7") && a.attempt <= 1 })
	s.campaign("spring", 300)
	began := time.Now()
	daemons := s.fleet("a", "b")
	s.publish(ofCampaign("spring", 0, jobs))
	most := int64(0)
	var fleet struct{ Daemons []progress.Daemon }
	var sinks struct{ Sinks []*view.Sink }
	s.await(20*time.Second, "top to show the rate", func() bool { // daemons exchange their figures every second or two
		var frame struct {
			Ready     bool
			Campaigns []struct {
				Sent float64 `json:"sent_per_second"`
			}
		}
		s.unmarshal(s.run("top", "--json", "--interval", "1s"), &frame)
		return frame.Ready && len(frame.Campaigns) == 1 && frame.Campaigns[0].Sent >= 100
	})
	s.await(time.Minute, "all jobs to be sent", func() bool {
		daemons[0].ask("/sinks", &sinks)
		if f := sinks.Sinks[0].Figures; f != nil {
			most = max(most, f.InFlight)
		}
		accepted, _ := s.receiver.accepted("spring")
		return accepted == jobs
	})
	var ok, failed float64
	for _, a := range s.receiver.arrivals("spring") {
		if a.status == http.StatusOK {
			ok++
		} else {
			failed++
		}
	}
	for _, d := range daemons {
		s.await(30*time.Second, "what was counted last is told", func() bool {
			d.ask("/sinks", &sinks)
			f := sinks.Sinks[0].Figures
			return f != nil && f.Daemons == 2 && f.InFlight == 0 && f.Answers["delivered"] >= 0.99*ok/time.Since(began).Seconds()
		})
		d.ask("/daemons", &fleet)
		longest := time.Since(began)
		shortest := longest
		ingress, lanes, timers, used := 0, 0, 0, 0
		for i := range fleet.Daemons {
			one := &fleet.Daemons[i]
			f := one.Figures
			if f == nil {
				t.Fatalf("%s tells no figures", one.Name)
			}
			shortest = min(shortest, max(time.Since(one.Started)-old, time.Second), time.Minute)
			ingress, lanes, timers = ingress+f.Ingress, lanes+one.Lanes, timers+f.Timers
			if f.LatenessP99 != nil {
				used++
			}
			if f.Stalled != 0 || f.BufferMost == 0 || f.Quantum < 0.025 || len(f.Sinks) != len(sinks.Sinks) || f.Sinks[0].Most == 0 {
				t.Errorf("%+v", f)
			}
		}
		if len(fleet.Daemons) != 2 || ingress != 4 || lanes != 4 || timers == 0 || used == 0 {
			t.Errorf("%d daemons read %d partitions, %d lanes and %d timers, %d have used slots", len(fleet.Daemons), ingress, lanes, timers, used)
		}
		f := sinks.Sinks[0].Figures
		for class, n := range map[string]float64{"delivered": ok, "temporary": failed} {
			if got := f.Answers[class]; got < 0.99*n/longest.Seconds() || got > 1.01*n/shortest.Seconds() {
				t.Errorf("%s: %.2f a second, of %v in %s to %s", class, got, n, shortest, longest)
			}
		}
		if share := f.Answers["temporary"] / f.Answers["delivered"]; math.Abs(share-failed/ok) > 0.15*failed/ok {
			t.Errorf("%.3f failures for each success, of %v and %v", share, failed, ok)
		}
		if f.P50 == nil || *f.P50 < slow.Seconds()*7/8 || *f.P99 < *f.P50 {
			t.Errorf("p50 and p99 are wrong: %+v", f)
		}
	}
	var listed []view.Sink
	var frame struct {
		Fleet struct {
			Late      *float64 `json:"slot_lateness_p99_seconds"`
			Forfeited *float64 `json:"slots_forfeited_per_second"`
		}
	}
	for into, text := range map[any]string{&listed: s.run("sink", "list", "--json"), &frame: s.run("top", "--server", "http://"+daemons[0].listen, "--json", "--interval", "100ms")} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	if len(listed) != 1 || listed[0].Figures == nil || listed[0].Figures.Daemons != 2 || listed[0].Figures.P50 == nil || frame.Fleet.Late == nil || frame.Fleet.Forfeited == nil {
		t.Errorf("listed %+v; %+v", listed, frame)
	}
	if table := s.run("sink", "list"); !strings.Contains(table, " delivered, ") || !strings.Contains(table, " temporary ") {
		t.Error(table)
	}
	if most == 0 { // of 300 a second that take 60 ms each
		t.Error("none was in flight at any time")
	}
}
