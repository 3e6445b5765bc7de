package progress

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// readingsOf is what a daemon has counted after this number of answers of a sink, each after the time took, and as many forfeited slots.
func readingsOf(answers int, took time.Duration) Readings {
	var h metric.Histogram
	for range answers {
		h.Observe(took)
	}
	s := SinkReport{Sink: "receiver", InFlight: 3, Most: 256, Took: h.Counts()}
	s.Answers[delivery.Delivered] = float64(answers)
	return Readings{Figures: DaemonFigures{Ingress: 4}, Forfeited: uint64(answers), Lateness: h.Counts(), Sinks: []SinkReport{s}}
}

// TestReportsOfDestinations: those that answer most are told of, by themselves also where other ones come and go, and the sum of all daemons is.
func TestReportsOfDestinations(t *testing.T) {
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	reading := func(second int, shops ...int) (r Readings) {
		r = readingsOf(10*second, 40*time.Millisecond)
		for _, shop := range shops {
			one := r.Sinks[0]
			one.Of, one.InFlight = fmt.Sprint("shop-", shop), int64(shop)
			one.Answers[delivery.Delivered] = float64(second * shop)
			r.Sinks = append(r.Sinks, one)
		}
		return r
	}
	x, y, all := newRecent(start), newRecent(start), map[sinkKey]*SinkReport{}
	var told []SinkReport
	for second := range 120 {
		shops := []int{7}
		if second%20 < 10 {
			shops = []int{3, 7}
		}
		_, told = x.report(start.Add(time.Duration(second)*time.Second), reading(second, shops...))
	}
	if len(told) != 2 || told[0].Of != "" || told[1].Of != "shop-7" || math.Abs(told[1].Answers[delivery.Delivered]-7) > 0.2 {
		t.Fatalf("%+v", told)
	}
	many := make([]int, 150)
	for i := range many {
		many[i] = i + 1
	}
	addSinks(all, told)
	_, told = y.report(start.Add(10*time.Second), reading(10, many...))
	if addSinks(all, told); len(told) != 1+maxDestinations || told[1].Of != "shop-150" {
		t.Errorf("%d, then %s", len(told), told[1].Of)
	}
	sums := summed(all)
	if at := slices.IndexFunc(sums, func(s SinkReport) bool { return s.Of == "shop-100" }); at < 0 || sums[at].InFlight != 100 {
		t.Errorf("waiting for shop-100: %+v", sums)
	}
	addSinks(all, []SinkReport{{Sink: "receiver", Of: "shop-100", InFlight: 23}})
	if n := all[sinkKey{"receiver", "shop-100"}].InFlight; n != 123 {
		t.Errorf("%d wait in two daemons", n)
	}
	if sums[0].Of != "" || sums[0].Daemons != 2 || len(sums) != 1+maxDestinations {
		t.Errorf("%d: %+v", len(sums), sums[0])
	}
}

// TestReportsAreOfTheLastMinute: what was before does not count, and before the first minute is over it is what was since the start.
func TestReportsAreOfTheLastMinute(t *testing.T) {
	start := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	x := newRecent(start)
	r, sinks := x.report(start, Readings{})
	if r.LatenessP50 != nil || r.Forfeited != 0 || sinks != nil {
		t.Errorf("at the start: %+v, %+v", r, sinks)
	}
	n := 0
	for second := 1; second <= 600; second++ {
		if second <= 300 {
			n += 10
		}
		r, sinks = x.report(start.Add(time.Duration(second)*time.Second), readingsOf(n, 40*time.Millisecond))
		want := 10.0
		if second > 370 {
			want = 0
		}
		if second <= 300 || second > 370 {
			if r.Forfeited != want || sinks[0].Answers[delivery.Delivered] != want {
				t.Fatalf("second %d: %v forfeited and %v answers a second, want %v", second, r.Forfeited, sinks[0].Answers, want)
			}
			if late := r.LatenessP99; (late != nil) != (want > 0) || late != nil && math.Abs(*late-0.04) > 0.005 {
				t.Fatalf("second %d: late by %v", second, late)
			}
		}
	}
	if len(x.marks) > 15 {
		t.Errorf("%d readings are kept", len(x.marks))
	}
	if r.Ingress != 4 || !reflect.DeepEqual(r.Sinks, []SinkCalls{{"receiver", 3, 256}}) {
		t.Errorf("%+v", r)
	}
}

// TestReportsAreBounded: of hundreds of sinks with long names the first ones are told, in few bytes.
func TestReportsAreBounded(t *testing.T) {
	r := readingsOf(1000, time.Second)
	for i := range 500 {
		s := r.Sinks[0]
		s.Sink = fmt.Sprintf("%03d%s", i, strings.Repeat("W", 300))
		for class := range s.Answers {
			s.Answers[class] = 1e9
		}
		for cell := range s.Took {
			s.Took[cell] = 1e6
		}
		r.Sinks = append(r.Sinks, s)
	}
	x := newRecent(time.Now())
	p := &part{Nodes: []Daemon{{Name: "a"}}}
	p.Nodes[0].Figures, p.Sinks = x.report(time.Now(), r)
	b := p.encode()
	got, err := decodePart(b)
	if err != nil || len(got.Sinks) != maxSinks || len(got.Nodes[0].Figures.Sinks) != maxSinks {
		t.Errorf("%v: %d sinks", err, len(got.Sinks))
	}
	if len(b) > 48_000 {
		t.Errorf("%d bytes", len(b))
	}
}

// TestDaemonsReadEachOthersReports: rates and calls of a sink add up, its quantiles are those of all answers, and each daemon keeps its own;
// also beside one that reports nothing.
func TestDaemonsReadEachOthersReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		exchange, snapshot, answers := &table{parts: map[string]Left{}}, catalogOf(campaign("c", 100, 1)), 0
		var fleet []*member
		for i, took := range []time.Duration{10 * time.Millisecond, time.Second} {
			m := newMember(fmt.Sprint(i), exchange, newShelf(), snapshot)
			m.opt.Node = func() Daemon { return Daemon{Host: "h", Version: "dev"} }
			m.opt.Readings = func() Readings { return readingsOf(answers*(i+1), took) }
			fleet = append(fleet, m)
		}
		fleet = append(fleet, newMember("without", exchange, newShelf(), snapshot))
		time.Sleep(10 * time.Second)
		answers = 100
		for range 2 {
			for _, m := range fleet {
				m.exchange(t.Context())
			}
		}
		fleet[0].exchange(t.Context()) // which leads
		nodes, sinks := fleet[0].board.Load().Nodes, fleet[0].board.Load().Sinks
		if running := fleet[0].board.Load().Daemons; running != 3 || len(nodes) != 2 || len(sinks) != 1 {
			t.Fatalf("%d run: %+v, %+v", running, nodes, sinks)
		}
		slices.SortFunc(nodes, func(a, b Daemon) int { return cmp.Compare(*a.Figures.LatenessP50, *b.Figures.LatenessP50) })
		if less, late := *nodes[0].Figures.LatenessP99, *nodes[1].Figures.LatenessP99; math.Abs(late-1) > 1./8 || less > 0.012 {
			t.Errorf("late by %f s and %f s", less, late)
		}
		if own := nodes[1].Figures; own.Sinks[0].InFlight != 3 || own.Forfeited != 20 || nodes[1].Host != "h" || nodes[1].Version != "dev" {
			t.Errorf("%+v, %+v", nodes[1], own)
		}
		s := sinks[0]
		if s.Daemons != 2 || s.InFlight != 6 || s.Most != 512 || s.Answers[delivery.Delivered] != 30 || s.Took.Total() != 300 {
			t.Errorf("%+v", s)
		}
		if half, third := s.Took.Quantile(0.5), s.Took.Quantile(0.33); half < 800*time.Millisecond || third > 12*time.Millisecond {
			t.Errorf("half of the answers within %s, a third within %s", half, third)
		}
	})
}

// TestTheNewestFailureIsTold: of what several daemons tell of a sink.
func TestTheNewestFailureIsTold(t *testing.T) {
	now := time.Now()
	all := map[sinkKey]*SinkReport{}
	for _, ago := range []time.Duration{time.Minute, time.Second, time.Hour} {
		addSinks(all, []SinkReport{{Sink: "shop", Failure: delivery.Failure{At: now.Add(-ago), Detail: ago.String()}}, {Sink: "fine"}})
	}
	board := newBoard(now, &part{Sinks: summed(all)})
	if last := board.Failure("shop", ""); last.Detail != "1s" || board.Failure("fine", "") != (delivery.Failure{}) || board.Failure("other", "") != (delivery.Failure{}) {
		t.Errorf("%+v", last)
	}
}

// TestWhatCannotBeReadIsLoggedOnce: a daemon of another version leaves its part, or leads; what the others report counts.
func TestWhatCannotBeReadIsLoggedOnce(t *testing.T) {
	exchange, _ := overRedis(t)
	snapshot := catalogOf(campaign("c", 100, 1))
	var log strings.Builder
	m := newMember("m", exchange, newShelf(), snapshot)
	m.log = slog.New(slog.NewTextHandler(&log, nil))
	other := func(_ []Left) []byte { return []byte("newer") }
	for range 3 { // m leads
		m.exchange(t.Context())
		if _, err := exchange.Swap(t.Context(), "newer", []byte("newer"), other); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "which cannot be read"); n != 1 || !strings.Contains(log.String(), "daemon newer: ") || m.Fleet() != 1 {
		t.Errorf("logged %d times, %d daemons: %s", n, m.Fleet(), log.String())
	}
	log.Reset()
	f := newMember("f", exchange, newShelf(), snapshot)
	f.log = m.log
	if err := exchange.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := exchange.Swap(t.Context(), "newer", []byte("newer"), other); err != nil {
			t.Fatal(err)
		}
		f.exchange(t.Context())
	}
	if n := strings.Count(log.String(), "which cannot be read"); n != 1 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}
