package main

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// steady is a run of one campaign that kept its rate for ten seconds, its jobs dealt out to the daemons in turn.
func steady(rate int64, daemons int) *Run {
	spacing := time.Second / time.Duration(rate)
	n := int(10 * rate)
	run := &Run{
		Loads: []Load{{ID: "c", Rate: delivery.PerSecond(rate), Published: n}}, Daemons: daemons,
		Window: Interval{From: sec, To: 9 * sec}, Events: events(even(0, spacing, n)),
	}
	for i := range run.Events {
		run.Events[i].Daemon = int8(i % daemons)
	}
	return run
}

func judged(r *Run) Stream {
	s := r.Stream(0)
	s.JudgeRate()
	s.JudgeShape()
	return s
}

func TestASteadyStreamMeetsEveryBound(t *testing.T) {
	run := steady(1000, 3)
	run.CPU, run.RSS, run.Scripts, run.Requeued = 800*ms, 50<<20, 400, 100
	s := judged(run)
	if len(s.Misses) > 0 {
		t.Fatalf("misses %q", s.Misses)
	}
	want := Figures{
		Jobs: 8000, Seconds: 8, JobsPerSecond: 1000, CPUSecondsPerMillion: 100, RSSMiB: 50, AchievedOverTarget: 1,
		MaxRolling1s: 1000, BinsMaxOverMean: 1, RedisCommandsPerJob: 0.05, RequeuesPerJob: 0.01,
	}
	if s.Figures != want {
		t.Errorf("figures %+v, want %+v", s.Figures, want)
	}
	if s.AboveRate != -1 || s.BinsWithin5 != 1 || len(s.Shares) != 3 {
		t.Errorf("stream %+v", s)
	}
}

// Each way to break a stream is noticed, and nothing else is said of it.
func TestBrokenStreamsAreNoticed(t *testing.T) {
	for _, c := range []struct {
		name    string
		rate    int64
		daemons int
		spoil   func(r *Run)
		miss    string
		alone   bool // no other bound is broken by it
	}{
		{"too few", 100, 1, func(r *Run) {
			r.Events, r.Loads[0].Waiting = thinned(r.Events, 50), 20
		}, "of the rate", true},
		{"too many at once", 100, 1, func(r *Run) {
			for i := 500; i < 510; i++ {
				r.Events[i].At = r.Events[500].At
			}
			r.Events = append(r.Events[:490:490], r.Events[500:]...) // and a gap before, so that the average holds
			r.Loads[0].Waiting = 10
			for i := range r.Events[490:] {
				r.Events[490+i].At -= 100 * ms
			}
		}, "rolling second", true},
		{"a lost job", 100, 1, func(r *Run) {
			r.Events = r.Events[:len(r.Events)-1]
		}, "1 jobs are lost", true},
		{"a job sent again", 100, 1, func(r *Run) {
			r.Events[999].Job = 998
			r.Loads[0].Waiting = 1
		}, "1 jobs were sent again", true},
		{"uneven bins", 1000, 1, func(r *Run) {
			for i := range r.Events {
				if at := r.Events[i].At % (200 * ms); at >= 90*ms && at < 100*ms {
					r.Events[i].At += 10 * ms
				}
			}
			Sort(r.Events)
		}, "bins within 5 %", false},
		{"one bin empty", 1000, 1, func(r *Run) {
			for i := 4970; i < 5030; i++ {
				r.Events[i].At = r.Events[5030].At
			}
		}, "want at most 20 %", false},
		{"late", 1000, 1, func(r *Run) {
			for i := range r.Events {
				if i%500 < 30 { // the first of these wait for the last
					r.Events[i].At = r.Events[i-i%500+29].At
				}
			}
		}, "late (p99)", false},
		{"unfair", 100, 3, func(r *Run) {
			for i := range r.Events {
				if i%30 == 0 {
					r.Events[i].Daemon = 1
				}
			}
		}, "share is 10", true},
	} {
		run := steady(c.rate, c.daemons)
		c.spoil(run)
		s := judged(run)
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
func thinned(list []Event, n int) (rest []Event) {
	for i, e := range list {
		if i%n != 0 {
			rest = append(rest, e)
		}
	}
	return rest
}

func TestTablesMarkWhatIsNotMet(t *testing.T) {
	good, bad := judged(steady(1000, 1)), judged(steady(1000, 1))
	bad.MissIf(true, "this and that")
	text := StreamTable([]Stream{good, bad})
	if strings.Count(text, "**no**") != 1 || !strings.Contains(text, "- 1000/s on 1 daemons: this and that") {
		t.Errorf("table:\n%s", text)
	}
	text = FactTable([]Fact{Told("told", 1, "s"), AtMost("low", 1, 2, ""), AtLeast("short", 1, 2, ""), AtMost("high", 3, 2, "")})
	if strings.Count(text, "**no**") != 2 || strings.Count(text, "yes") != 1 {
		t.Errorf("table:\n%s", text)
	}
	if StreamTable(nil)+FactTable(nil) != "" {
		t.Error("tables of nothing")
	}
}
