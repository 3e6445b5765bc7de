//go:build e2e

package test

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// Daemons that send to a destination which answers after 200 ms on average, each with 64 calls: 320 jobs a second. The
// answers differ, since calls that all begin and end at the same time would make seconds uneven.
const (
	mostDaemons   = 8
	scaleCalls    = 64
	scaleAnswer   = 200 * time.Millisecond
	scaleSpread   = 50 * time.Millisecond
	perDaemon     = scaleCalls * int(time.Second/scaleAnswer)
	scaleRate     = 5000 // of the campaign: more than nine daemons can send
	scaleInterval = 8 * time.Second
	joinInterval  = 20 * time.Second
	joinStep      = 100 * time.Millisecond // between the seconds that are looked at
)

// joins are the numbers of daemons that another one joins. With eight, the last ones of a machine may wait for its processors.
var joins = []int{4, mostDaemons}

// scaleCampaigns are the numbers of campaigns that share 5,000 jobs a second.
var scaleCampaigns = []int{1, 10, 100, 1000, 10_000}

// scaleRows are the figures of `make scale`, in the order of the table.
func scaleRows() (rows []speedRow) {
	for n := 1; n <= mostDaemons; n *= 2 {
		rows = append(rows, speedRow{
			name: fmt.Sprintf("daemons-%d", n), what: fmt.Sprintf("%d daemons x 64 calls", n), unit: "/s",
			yardstick: "all calls", bound: 0.95,
		})
	}
	for _, n := range joins {
		rows = append(rows,
			speedRow{
				name: fmt.Sprintf("join-%d-used", n), what: fmt.Sprintf("a daemon joins %d: until it uses 95 %% of its calls", n),
				unit: "s", bound: 5, atMost: true,
			},
			speedRow{
				name: fmt.Sprintf("join-%d-others", n), what: "worst second of another daemon meanwhile", unit: "/s",
				yardstick: "its rate before", bound: 0.95,
			},
			speedRow{
				name: fmt.Sprintf("join-%d-alone", n), what: "worst second before the join", unit: "/s",
				yardstick: "its rate then",
			})
	}
	for _, n := range scaleCampaigns {
		what := fmt.Sprintf("%d campaigns", n)
		rows = append(rows,
			speedRow{name: fmt.Sprintf("backlogs-%d-cpu", n), what: what + ": CPU of a job", unit: "µs"},
			speedRow{name: fmt.Sprintf("backlogs-%d-reads", n), what: "records read for a job", bound: 5, atMost: true},
			speedRow{name: fmt.Sprintf("backlogs-%d-memory", n), what: "peak memory", unit: "MiB"},
			speedRow{name: fmt.Sprintf("backlogs-%d-least", n), what: "least share of a rate", unit: "%", bound: 95},
		)
	}
	const among = "5,000/s among 10,000 x 1/s"
	return append(rows,
		speedRow{name: "among-fast", what: among + ": the fast one", unit: "/s", yardstick: "its rate", bound: 0.98},
		speedRow{name: "among-slow", what: "the others together", unit: "/s", yardstick: "their rates", bound: 0.95},
		speedRow{name: "among-least", what: "the slowest of them", unit: "%", yardstick: "its rate", bound: 0.95},
		speedRow{name: "beside-steady", what: "20/s while 600,000 jobs of 10,000 campaigns come at once", unit: "/s", yardstick: "its rate", bound: 0.9},
		speedRow{name: "beside-taken", what: "until these are in lanes", unit: "s"},
	)
}

// TestScale measures how pacer grows with daemons and campaigns, and prints one table. With PLOTS in the environment it
// also draws.
func TestScale(t *testing.T) {
	table := newSpeedTable(scaleRows())
	defer table.publish(t, "scale", "daemons", "join", "backlogs-cpu", "backlogs-reads", "backlogs-memory")
	inRounds(t, table, 1, []speedFigure{
		{"daemons", measureDaemons}, {"backlogs", measureBacklogs}, {"among", measureAmong}, {"beside", measureBeside},
	})
	plotBacklogs(t, table)
}

// measureDaemons: one to eight daemons send the backlog of one campaign; then a ninth joins.
func measureDaemons(t *testing.T, table *speedTable) {
	target, s, daemons := newFleet(t, 1, scaleCalls, scaleAnswer)
	target.spread = scaleSpread
	s.campaigns("counted", "active", []string{"c"}, func(int) float64 { return scaleRate })
	interval := scaledTime(t, scaleInterval)
	settle := max(2*time.Second, interval/2)
	const jobs = 600_000 // about twice of what is sent, so that no lane runs dry
	s.publishOf("c", jobs, nil)
	s.await(3*time.Minute, "the overflow", func() bool { return s.committed(s.ingress) > jobs*99/100 })
	grows := plotLine{name: "measured"}
	for n := 1; ; n++ {
		time.Sleep(settle)
		from := target.now()
		time.Sleep(interval)
		rate := float64(target.between(-1, from, from+interval)) / interval.Seconds()
		if n&(n-1) == 0 { // the plot has the others
			table.add(t, fmt.Sprintf("daemons-%d", n), speedSample{
				Figure: rate, Yardstick: float64(n * perDaemon), Note: s.shares(target, daemons, from, interval),
			})
		}
		grows.at = append(grows.at, [2]float64{float64(n), rate})
		if slices.Contains(joins, n) {
			daemons = append(daemons, measureJoin(t, table, target, s, n))
		}
		if n == mostDaemons {
			break
		}
		if len(daemons) > n {
			continue
		}
		daemons = append(daemons, s.startCounted(target, n))
		s.awaitWhole(n+1, daemons[n])
	}
	(&plot{
		title: "One campaign with a backlog, answers in 200 ms, 64 calls a daemon", x: "daemons", y: "jobs a second",
		lines: []plotLine{
			grows, {name: "calls / 200 ms", dashed: true, at: [][2]float64{{1, float64(perDaemon)}, {mostDaemons, float64(mostDaemons * perDaemon)}}},
		},
	}).write(t, "daemons.svg")
	target.check(t, false)
	if target.count() >= jobs {
		t.Error("the backlog ended before the measuring")
	}
}

// measureJoin: a daemon joins others that send with all their calls. The same time before the join is the yardstick.
func measureJoin(t *testing.T, table *speedTable, target *counter, s *stack, others int) *daemon {
	t.Helper()
	time.Sleep(joinInterval)
	began := target.now()
	next := s.startCounted(target, others)
	next.awaitReady(30 * time.Second)
	ready := target.now()
	time.Sleep(time.Until(target.began.Add(began + joinInterval)))

	used := joinInterval
	for at := began; at+time.Second <= began+joinInterval; at += joinStep {
		if target.between(others, at, at+time.Second) >= perDaemon*95/100 {
			used = at + time.Second - began
			break
		}
	}
	table.add(t, fmt.Sprintf("join-%d-used", others), speedSample{
		Figure: used.Seconds(), Note: fmt.Sprintf("ready %.1f s after its start", (ready - began).Seconds()),
	})
	table.add(t, fmt.Sprintf("join-%d-others", others), worstSecond(target, others, began, began))
	table.add(t, fmt.Sprintf("join-%d-alone", others), worstSecond(target, others, began, began-joinInterval))
	if others == mostDaemons {
		picture := &plot{title: fmt.Sprintf("A daemon joins %d others under load", others), x: "seconds from its start", y: "jobs in the second around"}
		for i := range others + 1 {
			l := plotLine{name: fmt.Sprintf("daemon %d", i+1)}
			for at := began - joinInterval/4; at+time.Second <= began+joinInterval; at += joinStep {
				l.at = append(l.at, [2]float64{(at + time.Second/2 - began).Seconds(), float64(target.between(i, at, at+time.Second))})
			}
			picture.lines = append(picture.lines, l)
		}
		picture.write(t, "join.svg")
	}
	return next
}

// worstSecond returns the lowest second of any daemon in the interval from an instant on, as a part of that daemon's rate before the
// join.
func worstSecond(target *counter, daemons int, join, from time.Duration) speedSample {
	worst := speedSample{Figure: 1}
	for i := range daemons {
		was := float64(target.between(i, join-joinInterval, join)) / joinInterval.Seconds()
		for at := from; at+time.Second <= from+joinInterval; at += joinStep {
			if n := float64(target.between(i, at, at+time.Second)); worst.Yardstick == 0 || n/was < worst.Figure/worst.Yardstick {
				worst = speedSample{Figure: n, Yardstick: was, Note: fmt.Sprintf("daemon %d, from second %.1f on", i+1, (at - join).Seconds())}
			}
		}
	}
	return worst
}
