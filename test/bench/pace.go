package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

const (
	maxDaemons = ingressPartitions
	maxSeconds = 600
	// maxSlowRate is the largest rate of the campaigns that share one long run: at low rates, ten seconds show little.
	maxSlowRate = 150
	// maxHTTPRate is the largest rate that the sink "" sends over HTTP: at higher rates the network would be measured.
	maxHTTPRate = 10_000
)

// DefaultRates are the rates of the grid, in jobs per second.
var DefaultRates = []string{"1", "2.5", "10", "150", "1000", "10000", "50000"}

// PaceFlags are the flags of `bench pace`.
type PaceFlags struct {
	Rates       []string // per second
	Daemons     []int
	Seconds     int    // of the window of each rate
	SlowSeconds int    // of the window that rates up to 150/s share
	Sink        string // http, discard, or "" for http up to 10,000/s and discard beyond
}

// validate returns the rates in ascending order.
func (f *PaceFlags) validate() ([]delivery.Rate, error) {
	switch {
	case len(f.Rates) == 0:
		return nil, fmt.Errorf("--rates: give at least one, such as 1000")
	case len(f.Daemons) == 0:
		return nil, fmt.Errorf("--daemons: give at least one number, such as 1,3")
	case !slices.Contains([]string{"", "http", "discard"}, f.Sink):
		return nil, fmt.Errorf("--sink %q must be http or discard", f.Sink)
	}
	for _, n := range f.Daemons {
		if n < 1 || n > maxDaemons {
			return nil, fmt.Errorf("--daemons %d must lie between 1 and %d", n, maxDaemons)
		}
	}
	if err := cmp.Or(validSeconds("seconds", f.Seconds), validSeconds("slow-seconds", f.SlowSeconds)); err != nil {
		return nil, err
	}
	rates, slow := make([]delivery.Rate, 0, len(f.Rates)), 0.0
	for _, text := range f.Rates {
		rate, err := parseRate(text)
		if err != nil {
			return nil, err
		}
		seconds := f.Seconds
		if slowRate(rate) {
			seconds, slow = f.SlowSeconds, slow+rate.PerSecond()
		}
		if err := fits(rate.PerSecond(), seconds); err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	if jobs := slow * float64(f.SlowSeconds+2) * reserve; jobs > leadJobs {
		return nil, fmt.Errorf("--slow-seconds %d: %.0f jobs of the rates up to %d/s are more than %d, what can wait at once; "+
			"use fewer seconds or rates", f.SlowSeconds, jobs, maxSlowRate, leadJobs)
	}
	slices.SortFunc(rates, func(a, b delivery.Rate) int {
		return int(a.N*b.Per - b.N*a.Per) // both in lowest terms: products of thousands and millions
	})
	return slices.Compact(rates), nil
}

func validSeconds(flag string, seconds int) error {
	if seconds < 2 || seconds > maxSeconds {
		return fmt.Errorf("--%s %d must lie between 2 and %d", flag, seconds, maxSeconds)
	}
	return nil
}

// fits reports whether that many jobs can be published and remembered.
func fits(perSecond float64, seconds int) error {
	if jobs := perSecond * float64(seconds+2) * reserve; jobs > maxJobs {
		return fmt.Errorf("%.0f jobs are more than %d; use a lower rate or fewer seconds", jobs, maxJobs)
	}
	return nil
}

func parseRate(text string) (delivery.Rate, error) {
	micros, period, err := notation.ParseRate(text)
	if err != nil {
		return delivery.Rate{}, err
	}
	rate, err := delivery.NewRate(micros, period)
	switch {
	case err != nil:
		return rate, err
	case rate.PerSecond() < 0.5:
		return rate, fmt.Errorf("rate %s is too low to be measured in minutes; use 0.5 or more", text)
	}
	return rate, nil
}

func slowRate(r delivery.Rate) bool { return r.PerSecond() <= maxSlowRate }

// Report is the result of every measurement.
type Report struct {
	OK      bool     `json:"ok"`
	Streams []Stream `json:"streams,omitempty"`
	Facts   []Fact   `json:"facts,omitempty"`
}

func (r *Report) judge() {
	missed := slices.ContainsFunc(r.Streams, func(s Stream) bool { return len(s.Misses) > 0 })
	r.OK = !missed && !slices.ContainsFunc(r.Facts, func(f Fact) bool { return !f.OK })
}

// String returns the report as tables.
func (r *Report) String() string { return StreamTable(r.Streams) + FactTable(r.Facts) }

// Options are the options common to all measurements.
type Options struct {
	Daemon  string    // the program that is measured
	Config  string    // configuration file of the services; "" if the environment has all settings
	Environ []string  // of the configuration, and of the daemons
	Stderr  io.Writer // gets progress lines
}

// services reads the configuration of the services.
func (o *Options) services() (*config.Config, *slog.Logger, error) {
	from := config.Source{Path: o.Config, Explicit: o.Config != "", Environ: o.Environ}
	cfg, _, err := config.LoadFor(from, config.NeedKafka, config.NeedRedis, config.NeedPostgres)
	if err != nil {
		return nil, nil, err
	}
	return cfg, cfg.Log.Logger(o.Stderr), nil
}

// say writes a progress line to standard error.
func (st *environment) say(format string, args ...any) {
	_, _ = fmt.Fprintf(st.options.Stderr, "bench: "+format+"\n", args...) // an error changes nothing
}

// measure runs a measurement in an environment that is made before and removed after it.
func (o *Options) measure(ctx context.Context, daemons int, measure func(*environment) (*Report, error)) (*Report, error) {
	st, err := open(ctx, o, daemons)
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

// Pace is `bench pace`: the grid of rates and numbers of daemons.
func Pace(ctx context.Context, o *Options, flags *PaceFlags) (*Report, error) {
	rates, err := flags.validate()
	if err != nil {
		return nil, err
	}
	return o.measure(ctx, slices.Max(flags.Daemons), func(st *environment) (*Report, error) {
		report := &Report{}
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

// grid measures all rates with a number of daemons: the slow ones together, then each fast one alone.
func (st *environment) grid(ctx context.Context, daemons int, rates []delivery.Rate, flags *PaceFlags) ([]Stream, error) {
	var plan []*trial
	for _, rate := range rates {
		c := campaign{id: fmt.Sprintf("%g-%d", rate.PerSecond(), daemons), rate: rate, sink: sinkFor(flags.Sink, rate)}
		if last := len(plan) - 1; slowRate(rate) && last >= 0 {
			plan[last].campaigns = append(plan[last].campaigns, c)
			continue
		}
		seconds := flags.Seconds
		if slowRate(rate) {
			seconds = flags.SlowSeconds
		}
		plan = append(plan, &trial{st: st, campaigns: []campaign{c}, window: time.Duration(seconds) * time.Second})
	}
	runs, err := st.perform(ctx, daemons, plan...)
	if err != nil {
		return nil, err
	}
	var streams []Stream
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

func sinkFor(asked string, rate delivery.Rate) string {
	if asked == "discard" || asked == "" && rate.PerSecond() > maxHTTPRate {
		return sinkDiscard
	}
	return sinkHTTP
}

// perform makes the runs of a plan one after the other with a number of daemons, and then stops the daemons.
func (st *environment) perform(ctx context.Context, daemons int, plan ...*trial) ([]*Run, error) {
	st.owners = make(map[string]owner)
	var campaigns []campaign
	for _, r := range plan {
		campaigns = append(campaigns, r.campaigns...)
	}
	if err := st.launch(ctx, daemons, campaigns); err != nil {
		return nil, err
	}
	runs := make([]*Run, 0, len(plan))
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

// describe lists the rates of a run.
func (r *trial) describe() string {
	if n := len(r.campaigns); n > maxDescribed {
		return fmt.Sprintf("%d campaigns at %s", n, r.campaigns[0].rate)
	}
	var rates []string
	for _, c := range r.campaigns {
		rates = append(rates, c.rate.String())
	}
	return strings.Join(rates, ", ")
}

// maxDescribed is the number of rates that fit into a line.
const maxDescribed = 12
