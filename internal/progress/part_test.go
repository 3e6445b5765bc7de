package progress

import (
	"reflect"
	"slices"
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
			late:  lateness{jobs: number(rt, "late")},
			lanes: delivery.LanesBacklog{Generation: rapid.Int32Range(0, 1<<30).Draw(rt, "generation")},
		}
		p.late.destination = rapid.Int64Range(0, p.late.jobs).Draw(rt, "destination")
		for lane := range rapid.IntRange(0, 4).Draw(rt, "lanes") {
			l := delivery.LaneBacklog{Lane: lane}
			for range rapid.IntRange(0, 4).Draw(rt, "waiting") {
				l.Waiting = append(l.Waiting, delivery.CampaignCount{Campaign: hash(rt, "of"), Jobs: number(rt, "jobs")})
			}
			p.lanes.Lanes = append(p.lanes.Lanes, l)
		}
		for range rapid.IntRange(0, 4).Draw(rt, "held") {
			p.held = append(p.held, heldCampaign{hash(rt, "of"), number(rt, "direct"), number(rt, "jobs"), number(rt, "units")})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "sent") {
			p.sent = append(p.sent, sent{hash(rt, "of"), number(rt, "units")})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "stuck") {
			p.stuck = append(p.stuck, note{hash(rt, "of"), hold.Blocked, number(rt, "since"), hash(rt, "by")})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "holds") {
			p.holds = append(p.holds, note{hash(rt, "of"), rapid.SampledFrom(hold.Causes).Draw(rt, "cause"), number(rt, "since"), 0})
		}
		for range rapid.IntRange(0, 4).Draw(rt, "answers") {
			p.inHand = append(p.inHand, sent{hash(rt, "of"), number(rt, "jobs")})
			p.early = append(p.early, sent{hash(rt, "of"), number(rt, "jobs")})
			p.denied = append(p.denied, sent{hash(rt, "window"), number(rt, "asks")})
			p.turns = append(p.turns, sent{hash(rt, "of"), number(rt, "turn")})
			p.lanes.Unreadable = append(p.lanes.Unreadable, rapid.IntRange(0, 1000).Draw(rt, "lane"))
		}
		for range rapid.IntRange(0, 2).Draw(rt, "nodes") {
			text := rapid.StringN(0, 10, 40).Draw
			p.nodes = append(p.nodes, Node{
				Name: text(rt, "name"), Host: text(rt, "host"), Address: text(rt, "address"), Version: text(rt, "version"),
				State: text(rt, "state"), Started: at(rt, "started"), Ready: rapid.Bool().Draw(rt, "ready"),
				Revision: number(rt, "revision"), Lanes: rapid.IntRange(0, 9).Draw(rt, "partitions"), InFlight: number(rt, "in flight"),
				Queued: number(rt, "queued"),
			})
			if away := number(rt, "without kafka"); away%2 > 0 {
				p.nodes[len(p.nodes)-1].KafkaAway = time.UnixMicro(away)
			}
		}
		p.sinks = drawReports(rt, p.nodes)
		b := p.encode()
		got, err := decodePart(b)
		if err != nil || !reflect.DeepEqual(got, p) {
			rt.Fatalf("%+v, %v; want %+v", got, err, p)
		}
		if got, err := decodePart(b[:rapid.IntRange(0, len(b)-1).Draw(rt, "cut")]); err == nil {
			rt.Fatalf("a part of %d bytes, cut, is read as %+v", len(b), got)
		}
		for what, other := range map[string][]byte{"longer": append(slices.Clone(b), 0), "of another version": append([]byte{partVersion + 1}, b[1:]...)} {
			if got, err := decodePart(other); err == nil {
				rt.Fatalf("one that is %s is read as %+v", what, got)
			}
		}
	})
}

// drawReports gives the nodes reports, and returns those of their sinks.
func drawReports(rt *rapid.T, nodes []Node) (sinks []SinkReport) {
	number := rapid.Int64Range(0, 1<<40).Draw
	micros := func(what string) time.Duration {
		return time.Duration(rapid.Int64Range(0, 60_000_000).Draw(rt, what)) * time.Microsecond
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
		r := &nodes[i].Report
		r.Gauges = Gauges{Ingress: 3, Timers: 2, Stalled: 1, Buffered: number(rt, "bytes"), BufferMost: number(rt, "most"), Quantum: micros("quantum")}
		r.Used, r.Forfeited, r.Late50, r.Late99 = number(rt, "used"), float64(number(rt, "forfeited"))/1000, micros("half"), micros("most")
		for _, s := range sinks {
			r.Sinks = append(r.Sinks, SinkCalls{s.Sink, number(rt, "in flight"), number(rt, "most")})
		}
	}
	return sinks
}

// Bytes from outside never panic and never cost more memory than they are worth.
func FuzzPart(f *testing.F) {
	f.Add([]byte{partVersion, 0, 0, 3, 1, 7, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 0})
	f.Add([]byte{partVersion, 0, 0, 0, 0xff, 0xff, 0x03})
	f.Add([]byte{partVersion + 1})
	f.Add((&part{nodes: []Node{{Name: "a"}}, sinks: []SinkReport{{Sink: "b"}}}).encode())
	f.Add((&summary{daemons: 3, silent: []int{4}}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePart(b); err == nil {
			(&merger{}).merge([]reported{{part: p}})
		}
		if s, err := decodeSummary(b); err == nil {
			newBoard(time.Now(), s)
		}
	})
}

// TestSum: a lane counts once, as reported by its latest reader; memory counts while its daemon
// lives.
func TestSum(t *testing.T) {
	part := func(daemon string, age time.Duration, generation int32, direct int64, lanes map[int]int64) reported {
		p := &part{lanes: delivery.LanesBacklog{Generation: generation}, held: []heldCampaign{{1, direct, direct + 2, 3 * (direct + 2)}}}
		for lane, jobs := range lanes {
			p.lanes.Lanes = append(p.lanes.Lanes, delivery.LaneBacklog{
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
			if got.jobs > 0 && got.meanWeight() != 3 {
				t.Errorf("mean weight %f, want 3", got.meanWeight())
			}
		})
	}
}

func TestSummariesComeBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &summary{daemons: rapid.IntRange(0, 256).Draw(rt, "daemons"), silent: rapid.SliceOfN(rapid.IntRange(0, 1000), 1, 4).Draw(rt, "silent")}
		s.late.jobs = rapid.Int64Range(0, 1<<50).Draw(rt, "late")
		s.sent = []sent{{rapid.Uint64().Draw(rt, "campaign"), 7}}
		b := s.encode()
		if got, err := decodeSummary(b); err != nil || !reflect.DeepEqual(got, s) {
			rt.Fatalf("%+v, %v; want %+v", got, err, s)
		}
		if got, err := decodeSummary(b[:rapid.IntRange(0, len(b)-1).Draw(rt, "cut")]); err == nil {
			rt.Fatalf("cut, it is read as %+v", got)
		}
	})
}
