package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/delivery"
)

const (
	maxBenchDaemons = benchPartitions
	maxBenchSeconds = 600
	// benchSlow is the largest rate of those that share one long run: one a second says nothing in ten seconds.
	benchSlow = 150
	// benchFast is the largest rate that the sink "" sends over HTTP: beyond, it would be the network that is measured.
	benchFast = 10_000
)

// DefaultBenchRates are the rates of the grid, per second.
var DefaultBenchRates = []string{"1", "2.5", "10", "150", "1000", "10000", "50000"}

// BenchPaceFlags are the flags of `bench pace`.
type BenchPaceFlags struct {
	Rates       []string // per second
	Daemons     []int
	Seconds     int    // of the window of each rate
	SlowSeconds int    // of the window that rates up to 150/s share
	Sink        string // http, discard, or "" for http up to 10,000/s and discard beyond
}

// validate returns the rates in ascending order.
func (f *BenchPaceFlags) validate() ([]delivery.Rate, error) {
	switch {
	case len(f.Rates) == 0:
		return nil, usagef("--rates: give at least one, such as 1000")
	case len(f.Daemons) == 0:
		return nil, usagef("--daemons: give at least one number, such as 1,3")
	case !slices.Contains([]string{"", "http", "discard"}, f.Sink):
		return nil, usagef("--sink %q must be http or discard", f.Sink)
	}
	for _, n := range f.Daemons {
		if n < 1 || n > maxBenchDaemons {
			return nil, usagef("--daemons %d must lie between 1 and %d", n, maxBenchDaemons)
		}
	}
	for _, flag := range []struct {
		name    string
		seconds int
	}{{"seconds", f.Seconds}, {"slow-seconds", f.SlowSeconds}} {
		if err := validBenchSeconds(flag.name, flag.seconds); err != nil {
			return nil, err
		}
	}
	rates, slow := make([]delivery.Rate, 0, len(f.Rates)), 0.0
	for _, text := range f.Rates {
		rate, err := benchRate(text)
		if err != nil {
			return nil, err
		}
		seconds := f.Seconds
		if slowRate(rate) {
			seconds, slow = f.SlowSeconds, slow+rate.PerSecond()
		}
		if err := benchFits(rate.PerSecond(), seconds); err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	if jobs := slow * float64(f.SlowSeconds+2) * benchReserve; jobs > benchLead {
		return nil, usagef("--slow-seconds %d: %.0f jobs of the rates up to %d/s are more than %d, what can wait at once; "+
			"use fewer seconds or rates", f.SlowSeconds, jobs, benchSlow, benchLead)
	}
	slices.SortFunc(rates, func(a, b delivery.Rate) int {
		return int(a.N*b.Per - b.N*a.Per) // both in lowest terms: products of thousands and millions
	})
	return slices.Compact(rates), nil
}

func validBenchSeconds(flag string, seconds int) error {
	if seconds < 2 || seconds > maxBenchSeconds {
		return usagef("--%s %d must lie between 2 and %d", flag, seconds, maxBenchSeconds)
	}
	return nil
}

// benchFits tells whether so much can be published and remembered.
func benchFits(perSecond float64, seconds int) error {
	if jobs := perSecond * float64(seconds+2) * benchReserve; jobs > benchMaxJobs {
		return usagef("%.0f jobs are more than %d; use a lower rate or fewer seconds", jobs, benchMaxJobs)
	}
	return nil
}

func benchRate(text string) (delivery.Rate, error) {
	micros, period, err := delivery.ParseRate(text)
	if err != nil {
		return delivery.Rate{}, UsageError{err}
	}
	rate, err := delivery.NewRate(micros, period)
	switch {
	case err != nil:
		return rate, UsageError{err}
	case rate.PerSecond() < 0.5:
		return rate, usagef("rate %s is too low to be measured in minutes; use 0.5 or more", text)
	}
	return rate, nil
}

func slowRate(r delivery.Rate) bool { return r.PerSecond() <= benchSlow }

// benchReport is what every measurement says.
type benchReport struct {
	OK      bool           `json:"ok"`
	Streams []bench.Stream `json:"streams,omitempty"`
	Facts   []bench.Fact   `json:"facts,omitempty"`
}

// judge sums up whether every bound was met.
func (r *benchReport) judge() {
	r.OK = true
	for i := range r.Streams {
		r.OK = r.OK && len(r.Streams[i].Misses) == 0
	}
	for _, f := range r.Facts {
		r.OK = r.OK && f.OK
	}
}

// print writes the report: as JSON, of which value is the whole, or as tables.
func (r *benchReport) print(in Invocation, value any) error {
	if in.JSON {
		return writeJSON(in.Stdout, value)
	}
	if _, err := fmt.Fprint(in.Stdout, bench.StreamTable(r.Streams)+bench.FactTable(r.Facts)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// say tells on standard error how far a measurement is.
func (st *benchStage) say(format string, args ...any) {
	(&printer{w: st.in.Stderr}).line("bench: "+format, args...)
}

// withBench makes a stage, measures on it, removes it again and prints the report. It is ErrNotOK when a bound was not
// met.
func (in Invocation) withBench(ctx context.Context, daemons int, measure func(*benchStage) (*benchReport, error)) error {
	report, err := in.onStage(ctx, daemons, measure)
	if err != nil {
		return err
	}
	if err := report.print(in, report); err != nil {
		return err
	}
	return report.verdict()
}

// verdict is ErrNotOK when a bound was not met.
func (r *benchReport) verdict() error {
	if !r.OK {
		return ErrNotOK
	}
	return nil
}

// onStage measures on a stage that is made before and removed after.
func (in Invocation) onStage(ctx context.Context, daemons int, measure func(*benchStage) (*benchReport, error)) (*benchReport, error) {
	st, err := in.openBench(ctx, daemons)
	if err != nil {
		return nil, err
	}
	report, err := measure(st)
	if err != nil && ctx.Err() != nil {
		err = errors.New("interrupted; nothing is left behind")
	}
	st.say("removing what was made")
	if err := errors.Join(err, st.close(ctx)); err != nil {
		return nil, err
	}
	report.judge()
	return report, nil
}

// BenchStream is `pacer bench` alone: one rate, with one report.
func BenchStream(ctx context.Context, in Invocation, flags *BenchPaceFlags) error {
	rates, err := flags.validate()
	if err != nil {
		return err
	}
	report, err := in.onStage(ctx, flags.Daemons[0], func(st *benchStage) (*benchReport, error) {
		streams, err := st.grid(ctx, flags.Daemons[0], rates, flags)
		return &benchReport{Streams: streams}, err
	})
	if err != nil {
		return err
	}
	if err := report.print(in, report.Streams[0]); err != nil {
		return err
	}
	return report.verdict()
}

// BenchPace is `pacer bench pace`: the grid of rates and numbers of daemons.
func BenchPace(ctx context.Context, in Invocation, flags *BenchPaceFlags) error {
	rates, err := flags.validate()
	if err != nil {
		return err
	}
	return in.withBench(ctx, slices.Max(flags.Daemons), func(st *benchStage) (*benchReport, error) {
		report := &benchReport{}
		for _, n := range flags.Daemons {
			streams, err := st.grid(ctx, n, rates, flags)
			if err != nil {
				return nil, err
			}
			report.Streams = append(report.Streams, streams...)
		}
		return report, nil
	})
}

// grid measures all rates with so many daemons: the slow ones at once, then each fast one alone.
func (st *benchStage) grid(ctx context.Context, daemons int, rates []delivery.Rate, flags *BenchPaceFlags) ([]bench.Stream, error) {
	var plan []*benchRun
	var all []benchCampaign
	for _, rate := range rates {
		c := benchCampaign{id: fmt.Sprintf("%g-%d", rate.PerSecond(), daemons), rate: rate, sink: benchSink(flags.Sink, rate)}
		all = append(all, c)
		if last := len(plan) - 1; slowRate(rate) && last >= 0 {
			plan[last].campaigns = append(plan[last].campaigns, c)
			continue
		}
		seconds := flags.Seconds
		if slowRate(rate) {
			seconds = flags.SlowSeconds
		}
		plan = append(plan, &benchRun{st: st, campaigns: []benchCampaign{c}, window: time.Duration(seconds) * time.Second})
	}
	runs, err := st.perform(ctx, daemons, all, plan)
	if err != nil {
		return nil, err
	}
	var streams []bench.Stream
	for i, run := range runs {
		for c := range run.Loads {
			s := run.Stream(c)
			s.Name, s.Sink = "pace", strings.TrimPrefix(plan[i].campaigns[c].sink, "bench")
			s.JudgeRate()
			s.JudgeShape()
			streams = append(streams, s)
		}
	}
	return streams, nil
}

func benchSink(asked string, rate delivery.Rate) string {
	if asked == "discard" || asked == "" && rate.PerSecond() > benchFast {
		return benchDiscard
	}
	return benchHTTP
}

// perform makes the runs of a plan one after the other with so many daemons, which are stopped then.
func (st *benchStage) perform(ctx context.Context, daemons int, campaigns []benchCampaign, plan []*benchRun) ([]*bench.Run, error) {
	st.owners = make(map[string]benchOwner, len(campaigns))
	if err := st.create(ctx, campaigns); err != nil {
		return nil, err
	}
	if err := st.launch(ctx, daemons); err != nil {
		return nil, err
	}
	runs := make([]*bench.Run, 0, len(plan))
	for _, r := range plan {
		st.say("%s, %s on %d daemons", r.describe(), r.window, daemons)
		if err := r.perform(ctx); err != nil {
			return nil, err
		}
		runs = append(runs, &r.run)
	}
	if err := st.stop(ctx); err != nil {
		return nil, err
	}
	if err := st.collect(plan); err != nil {
		return nil, err
	}
	return runs, st.waiting(ctx, runs)
}

// describe names the rates of a run.
func (r *benchRun) describe() string {
	if n := len(r.campaigns); n > maxDescribed {
		return fmt.Sprintf("%d campaigns at %s", n, r.campaigns[0].rate)
	}
	var rates []string
	for _, c := range r.campaigns {
		rates = append(rates, c.rate.String())
	}
	return strings.Join(rates, ", ")
}

// maxDescribed is how many rates fit a line.
const maxDescribed = 12
