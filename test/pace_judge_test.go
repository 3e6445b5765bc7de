package test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

// even is n arrivals, one every spacing from 0 on.
func even(spacing time.Duration, n int) []time.Duration {
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = time.Duration(i) * spacing
	}
	return times
}

// steadyRun is a run of one campaign that kept its rate for ten seconds, its jobs dealt out to the daemons in turn.
func steadyRun(rate, daemons int) *paceRun {
	run := &paceRun{
		loads: []paceLoad{{id: "c", rate: float64(rate), published: 10 * rate}}, daemons: daemons,
		window: count.Interval{From: sec, To: 9 * sec},
	}
	for i, at := range even(sec/time.Duration(rate), 10*rate) {
		run.events = append(run.events, paceEvent{at: at, job: i, daemon: i % daemons})
	}
	return run
}

func judgedStream(r *paceRun) paceStream {
	s := r.stream(0)
	s.judge()
	return s
}

func TestASteadyStreamMeetsEveryBound(t *testing.T) {
	run := steadyRun(1000, 3)
	run.cpu, run.mib, run.scripts, run.requeued = 800*ms, 50, 400, 100
	s := judgedStream(run)
	shares, bins := s.Shares, s.Bins
	s.Shares, s.Bins = nil, nil
	want := paceStream{
		Rate: 1000, Daemons: 3, Jobs: 8000, Seconds: 8, CPUSecondsPerMillion: 100, RSSMiB: 50, AchievedOverTarget: 1,
		MaxRolling1s: 1000, RedisCommandsPerJob: 0.05, RequeuesPerJob: 0.01, campaigns: 1,
	}
	if !reflect.DeepEqual(s, want) {
		t.Errorf("stream %+v, want %+v", s, want)
	}
	if s.aboveRate() != -1 || len(bins) != 80 || slices.Max(bins) > 0 || len(shares) != 3 {
		t.Errorf("%g above the rate, bins %v, shares %v", s.aboveRate(), bins, shares)
	}
}

// Each way to break a stream is noticed, and nothing else is said of it.
func TestBrokenStreamsAreNoticed(t *testing.T) {
	for _, c := range []struct {
		name    string
		rate    int
		daemons int
		spoil   func(r *paceRun)
		miss    string
		alone   bool // no other bound is broken by it
	}{
		{"too few", 100, 1, func(r *paceRun) {
			r.events, r.loads[0].waiting = thinned(r.events, 50), 20
		}, "of the rate", true},
		{"too many at once", 100, 1, func(r *paceRun) {
			for i := 500; i < 510; i++ {
				r.events[i].at = r.events[500].at
			}
			r.events = append(r.events[:490:490], r.events[500:]...) // and a gap before, so that the average holds
			r.loads[0].waiting = 10
			for i := range r.events[490:] {
				r.events[490+i].at -= 100 * ms
			}
		}, "rolling second", true},
		{"a lost job", 100, 1, func(r *paceRun) {
			r.events = r.events[:len(r.events)-1]
		}, "1 jobs are lost", true},
		{"a job sent again", 100, 1, func(r *paceRun) {
			r.events[999].job = 998
			r.loads[0].waiting = 1
		}, "1 jobs were sent again", true},
		{"uneven bins", 1000, 1, func(r *paceRun) {
			for i := range r.events {
				if at := r.events[i].at % (200 * ms); at >= 90*ms && at < 100*ms {
					r.events[i].at += 10 * ms
				}
			}
			r.sort()
		}, "bins within 5 %", false},
		{"one bin empty", 1000, 1, func(r *paceRun) {
			for i := 4970; i < 5030; i++ {
				r.events[i].at = r.events[5030].at
			}
		}, "want at most 20 %", false},
		{"late", 1000, 1, func(r *paceRun) {
			for i := range r.events {
				if i%500 < 30 { // the first of these wait for the last
					r.events[i].at = r.events[i-i%500+29].at
				}
			}
		}, "late (p99)", false},
		{"unfair", 100, 3, func(r *paceRun) {
			for i := range r.events {
				if i%30 == 0 {
					r.events[i].daemon = 1
				}
			}
		}, "share is 10", true},
	} {
		run := steadyRun(c.rate, c.daemons)
		c.spoil(run)
		s := judgedStream(run)
		found := false
		for _, miss := range s.Misses {
			found = found || strings.Contains(miss, c.miss)
		}
		if !found || c.alone && len(s.Misses) != 1 {
			t.Errorf("%s: misses %q, want one with %q", c.name, s.Misses, c.miss)
		}
	}
}

// thinned is without every nth event.
func thinned(list []paceEvent, n int) (rest []paceEvent) {
	for i, e := range list {
		if i%n != 0 {
			rest = append(rest, e)
		}
	}
	return rest
}

func TestReportsMarkWhatIsNotMet(t *testing.T) {
	good, bad := judgedStream(steadyRun(1000, 1)), judgedStream(steadyRun(1000, 1))
	bad.missIf(true, "this and that")
	text := (&paceReport{Streams: []paceStream{good, bad}}).String()
	if strings.Count(text, "**no**") != 1 || !strings.Contains(text, "- 1000/s on 1 daemons: this and that") {
		t.Errorf("table:\n%s", text)
	}
	report := &paceReport{Facts: []paceFact{told("told", 1, "s"), atMost("low", 1, 2, ""), atLeast("short", 1, 2, ""), atMost("high", 3, 2, "")}}
	if text = report.String(); strings.Count(text, "**no**") != 2 || strings.Count(text, "yes") != 1 {
		t.Errorf("table:\n%s", text)
	}
}

// misses are the names of the facts that are out of bounds.
func misses(facts []paceFact) (names []string) {
	for _, f := range facts {
		if !f.OK {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestStormReport(t *testing.T) {
	stream := func(rate int, from, to time.Duration) *paceRun {
		run := &paceRun{daemons: 1, loads: []paceLoad{{rate: 100, published: 100_000}}, window: count.Interval{To: 10 * sec}}
		for at := from; at < to; at += sec / time.Duration(rate) {
			run.events = append(run.events, paceEvent{at: at, job: len(run.events)})
		}
		run.loads[0].waiting = run.loads[0].published - len(run.events)
		return run
	}
	changes := []count.RateChange{{Rate: delivery.PerSecond(100)}, {At: 5 * sec, Rate: delivery.PerSecond(100)}, {At: 10 * sec, Rate: delivery.PerSecond(100)}}
	for _, c := range []struct {
		name string
		run  *paceRun
		miss string
	}{
		{"as it should be", stream(100, 0, 10*sec), ""},
		{"above the rate", stream(110, 0, 10*sec), "above the largest rate"},
		{"standing still", stream(100, 300*ms, 10*sec), "without a job"},
	} {
		got := misses((&stormy{changes: changes, inForce: changes}).facts(c.run))
		if (len(got) == 0) != (c.miss == "") || len(got) > 1 || len(got) == 1 && !strings.Contains(got[0], c.miss) {
			t.Errorf("%s: misses %q", c.name, got)
		}
	}
}

// TestStormIsMeasuredByItsRates: a stream that follows the rates as they are changed has sent all that they gave. The tolerance of late
// slots bounds the sent units. It does not extend the time of the earlier rate.
func TestStormIsMeasuredByItsRates(t *testing.T) {
	for seed := range uint64(5) {
		s := newStorm(seed)
		run := &paceRun{daemons: 1, loads: []paceLoad{{rate: 100, published: 100_000}}, window: count.Interval{To: stormWindow}}
		at, rate, next := time.Duration(0), s.rates[0], 0
		for units := 0.0; at < stormWindow; at += ms / 100 {
			if next < len(s.after) && at >= s.after[next] {
				s.changed(rate, s.rates[next+1], at, at)
				next++
				rate = s.rates[next]
			}
			if units += float64(rate) * (ms / 100).Seconds(); units >= 1 {
				units--
				run.events = append(run.events, paceEvent{at: at, job: len(run.events)})
			}
		}
		for _, f := range s.facts(run) {
			if f.Name == "jobs of those that the rates gave" && math.Abs(f.Measured-100) > 0.5 {
				t.Errorf("seed %d: %.1f %% of what the rates gave", seed, f.Measured)
			}
		}
	}
}

func TestCampaignsReport(t *testing.T) {
	run := func(starved int) *paceRun {
		r := &paceRun{daemons: 1, window: count.Interval{From: 0, To: 20 * sec}, cpu: 10 * sec, mib: 100}
		for c := range 200 {
			r.loads = append(r.loads, paceLoad{rate: 5, published: 100})
			for i := range 100 {
				if c == starved && i%10 == 0 {
					r.loads[c].waiting++
					continue
				}
				at := time.Duration(i)*200*ms + time.Duration(c)*ms
				r.events = append(r.events, paceEvent{at: at, campaign: c, job: i})
			}
		}
		r.sort()
		return r
	}
	if report := campaignsReport(run(-1)); len(misses(report.Facts)) > 0 || len(report.Streams[0].Misses) > 0 {
		t.Errorf("misses %q %q", misses(report.Facts), report.Streams[0].Misses)
	}
	if got := misses(campaignsReport(run(17)).Facts); len(got) != 1 || !strings.Contains(got[0], "below 98 % of their rate") {
		t.Errorf("a starved campaign: misses %q", got)
	}
	slow := run(-1)
	slow.cpu, slow.mib = 21*sec, 2048
	if got := misses(campaignsReport(slow).Facts); len(got) != 2 {
		t.Errorf("too dear: misses %q", got)
	}
}

func TestStallFacts(t *testing.T) {
	run := func(daemons int, keep func(i int, at time.Duration) bool) *paceRun {
		r := &paceRun{daemons: daemons, window: count.Interval{To: 10 * sec}, loads: []paceLoad{{rate: 1000, published: 10_000}}}
		for i := range 10_000 {
			if at := time.Duration(i) * ms; keep(i, at) {
				r.events = append(r.events, paceEvent{at: at, job: i, daemon: i % daemons})
			} else {
				r.loads[0].waiting++
			}
		}
		return r
	}
	frozen := count.Interval{From: 3 * sec, To: 5 * sec}
	silent := func(_ int, at time.Duration) bool { return at < 3*sec || at >= 5*sec }
	if got := misses(stallFacts(run(1, silent), frozen)); len(got) > 0 {
		t.Errorf("a daemon that is suspended sends nothing: misses %q", got)
	}
	burst := run(1, silent)
	for i := range 100 { // of what was missed, at once
		burst.events = append(burst.events, paceEvent{at: 5 * sec, job: 3000 + i})
	}
	burst.loads[0].waiting -= 100
	burst.sort()
	if got := misses(stallFacts(burst, frozen)); len(got) != 2 {
		t.Errorf("a burst: misses %q", got)
	}
	third := func(i int, at time.Duration) bool { return silent(i, at) || i%3 != 0 }
	if got := misses(stallFacts(run(3, third), frozen)); len(got) != 1 || !strings.Contains(got[0], "rate of the others") {
		t.Errorf("the others do not step in: misses %q", got)
	}
}

func TestRollingExcess(t *testing.T) {
	at := func(at time.Duration, rate int64) count.RateChange {
		return count.RateChange{At: at, Rate: delivery.PerSecond(rate)}
	}
	lowered := []count.RateChange{at(0, 200), at(sec, 100)}
	for _, c := range []struct {
		name    string
		times   []time.Duration
		changes []count.RateChange
		ok      bool
	}{
		{"even", even(10*ms, 300), []count.RateChange{at(0, 100)}, true},
		{"a stall's worth more", append(even(10*ms, 100), 990*ms, 990*ms), []count.RateChange{at(0, 100)}, true},
		{"more than that", append(even(10*ms, 100), 990*ms, 990*ms, 990*ms, 990*ms), []count.RateChange{at(0, 100)}, false},
		{"the old rate counts while it is in the second", even(5*ms, 210), lowered, true},
		{"but not for ever", even(5*ms, 500), lowered, false},
		{"raised before its time", even(5*ms, 200), []count.RateChange{at(0, 100), at(3*sec, 200)}, false},
	} {
		if got := rollingExcess(c.times, c.changes, sec); (got <= 0) != c.ok {
			t.Errorf("%s: excess %g, want within the bound: %v", c.name, got, c.ok)
		}
	}
	if got := rollingExcess(nil, lowered, sec); !math.IsInf(got, -1) {
		t.Errorf("of nothing: %g", got)
	}
}
