package progress

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

func TestPartsComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hash := rapid.Uint64().Draw
		number := rapid.Int64Range(0, 1<<50).Draw
		at := func(rt *rapid.T, what string) time.Time {
			return time.UnixMicro(rapid.Int64Range(1, 1<<50).Draw(rt, what))
		}
		p := &part{
			Late:  Lateness{Jobs: number(rt, "late")},
			Lanes: delivery.LanesBacklog{Generation: rapid.Int32Range(0, 1<<30).Draw(rt, "generation")},
		}
		p.Late.Destination = rapid.Int64Range(0, p.Late.Jobs).Draw(rt, "destination")
		for lane := range rapid.IntRange(0, 4).Draw(rt, "lanes") {
			l := delivery.LaneBacklog{Lane: lane}
			for range rapid.IntRange(0, 4).Draw(rt, "waiting") {
				l.Waiting = append(l.Waiting, delivery.CampaignCount{Campaign: hash(rt, "of"), Jobs: number(rt, "jobs")})
			}
			p.Lanes.Lanes = append(p.Lanes.Lanes, l)
		}
		for range rapid.IntRange(0, 4).Draw(rt, "held") {
			p.Memory = append(p.Memory, memory{
				hash(rt, "of"), number(rt, "direct"), number(rt, "timed"), number(rt, "jobs"), number(rt, "units"), number(rt, "in hand"),
				number(rt, "retrying"), number(rt, "early"), number(rt, "turn"), number(rt, "due"),
			})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "sent") {
			p.Tallies = append(p.Tallies, tally{hash(rt, "of"), number(rt, "units"), number(rt, "settled")})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "stuck") {
			p.Stuck = append(p.Stuck, note{hash(rt, "of"), hold.Refused, number(rt, "since"), rapid.SampledFrom([]string{"", "elm"}).Draw(rt, "destination")})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "holds") {
			p.Holds = append(p.Holds, note{hash(rt, "of"), rapid.SampledFrom(hold.Causes).Draw(rt, "cause"), number(rt, "since"), ""})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "answers") {
			p.Lanes.Unreadable = append(p.Lanes.Unreadable, rapid.IntRange(0, 1000).Draw(rt, "lane"))
		}
		for range rapid.IntRange(0, 2).Draw(rt, "nodes") {
			text := rapid.StringN(0, 10, 40).Draw
			p.Nodes = append(p.Nodes, Daemon{
				Name: text(rt, "name"), Host: text(rt, "host"), Address: text(rt, "address"), Version: text(rt, "version"),
				State: text(rt, "state"), Started: at(rt, "started"), Ready: rapid.Bool().Draw(rt, "ready"),
				Revision: number(rt, "revision"), Lanes: rapid.IntRange(0, 9).Draw(rt, "partitions"), InFlight: number(rt, "in flight"),
				Queued: number(rt, "queued"),
			})
			if away := number(rt, "without kafka"); away%2 > 0 {
				p.Nodes[len(p.Nodes)-1].KafkaAway = time.UnixMicro(away)
			}
		}
		p.Sinks = drawReports(rt, p.Nodes)
		p.Daemons, p.Silent = rapid.IntRange(0, 256).Draw(rt, "daemons"), rapid.SliceOfN(rapid.IntRange(0, 1000), 1, 4).Draw(rt, "silent")
		b := p.encode()
		got, err := decodePart(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			rt.Fatalf("%+v, %v; want %+v", got, err, p)
		}
		if got, err := decodePart(b[:rapid.IntRange(0, len(b)-1).Draw(rt, "cut")]); err == nil {
			rt.Fatalf("a part of %d bytes, cut, is read as %+v", len(b), got)
		}
	})
}

// drawReports gives the nodes reports, and returns those of their sinks.
func drawReports(rt *rapid.T, nodes []Daemon) (sinks []SinkReport) {
	number := rapid.Int64Range(0, 1<<40).Draw
	seconds := func(what string) *float64 {
		s := float64(rapid.Int64Range(1, 60_000_000).Draw(rt, what)) / 1e6
		return &s
	}
	for i := range rapid.IntRange(0, 3).Draw(rt, "sinks") {
		s := SinkReport{Sink: strconv.Itoa(i), Daemons: 2, InFlight: number(rt, "in flight"), Most: number(rt, "most")}
		if at := number(rt, "failed at"); at%2 > 0 {
			s.Failure = delivery.Failure{At: time.UnixMicro(at), Detail: rapid.StringN(0, 10, 40).Draw(rt, "failure")}
		}
		for class := range s.Answers {
			s.Answers[class] = float64(number(rt, "answers")) / 1000
		}
		for _, cell := range rapid.SliceOfN(rapid.IntRange(0, len(s.Took)-1), 0, 5).Draw(rt, "cells") {
			s.Took[cell] = rapid.Uint64Range(0, 1<<32-1).Draw(rt, "count")
		}
		sinks = append(sinks, s)
	}
	for i := range nodes {
		r := &DaemonFigures{Ingress: 3, Timers: 2, Stalled: 1, BufferBytes: number(rt, "bytes"), BufferMost: number(rt, "most"), Quantum: *seconds("quantum")}
		nodes[i].Figures = r
		r.Forfeited, r.LatenessP50, r.LatenessP99 = float64(number(rt, "forfeited"))/1000, seconds("half"), seconds("most")
		for _, s := range sinks {
			r.Sinks = append(r.Sinks, SinkCalls{s.Sink, number(rt, "in flight"), number(rt, "most")})
		}
	}
	return sinks
}

// Bytes from outside never panic and never cost more memory than they are worth.
func FuzzPart(f *testing.F) {
	f.Add([]byte{1, 2})
	f.Add((&part{Nodes: []Daemon{{Name: "a"}}, Sinks: []SinkReport{{Sink: "b"}}}).encode())
	f.Add((&part{Daemons: 3, Silent: []int{4}, Memory: []memory{{Campaign: 1, Jobs: 2}}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePart(b); err == nil {
			(&merger{}).merge([]reported{{part: p}})
			newBoard(time.Now(), p)
		}
	})
}

// TestSum: a lane counts once, as reported by its latest reader; memory counts while its daemon
// lives.
func TestSum(t *testing.T) {
	part := func(daemon string, age time.Duration, generation int32, direct int64, lanes map[int]int64) reported {
		p := &part{Lanes: delivery.LanesBacklog{Generation: generation}, Memory: []memory{{Campaign: 1, Direct: direct, Jobs: direct + 2, Units: 3 * (direct + 2)}}}
		for lane, jobs := range lanes {
			p.Lanes.Lanes = append(p.Lanes.Lanes, delivery.LaneBacklog{
				Lane: lane, Waiting: []delivery.CampaignCount{{Campaign: 1, Jobs: jobs}},
			})
		}
		return reported{part: p, daemon: daemon, age: age}
	}
	for name, tc := range map[string]struct {
		parts []reported
		want  int64
	}{
		"nobody":                {nil, 0},
		"two, a lane each":      {[]reported{part("a", 0, 1, 5, map[int]int64{0: 100}), part("b", 0, 1, 7, map[int]int64{1: 200})}, 312},
		"killed, not yet taken": {[]reported{part("a", 0, 1, 5, map[int]int64{0: 100}), part("b", time.Minute, 1, 7, map[int]int64{1: 200})}, 305},
		"killed, taken over": {
			[]reported{part("a", 0, 2, 5, map[int]int64{0: 90, 1: 210}), part("b", 20*time.Second, 1, 7, map[int]int64{1: 200})}, 305,
		},
		"one has not joined again yet": {
			[]reported{part("a", 0, 2, 0, map[int]int64{0: 90, 1: 210}), part("b", 0, 1, 0, map[int]int64{1: 200})}, 300,
		},
		"the group was made anew": {
			[]reported{part("a", 0, 1, 0, map[int]int64{0: 90}), part("a'", time.Minute, 70, 0, map[int]int64{0: 200})}, 90,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := (&merger{}).merge(tc.parts).totals()[1]
			if got.waiting != tc.want {
				t.Errorf("%d wait, want %d", got.waiting, tc.want)
			}
			if got.Jobs > 0 && got.meanWeight() != 3 {
				t.Errorf("mean weight %f, want 3", got.meanWeight())
			}
		})
	}
}
