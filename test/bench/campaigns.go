package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/demo/count"
)

// Bounds of many campaigns in one daemon.
const (
	maxCampaigns     = 100_000
	minCampaignRate  = 0.98 // of its rate, for every campaign
	manyBinsWithin10 = 0.99 // of the 100 ms bins
	maxManyMiB       = 1024
	maxManyCores     = 1.0
	maxIdleCores     = 0.02
	idleSettle       = 3 * time.Second // after the daemon is ready, until the measurement begins
	percentOf        = 100
)

// CampaignsFlags are the flags of `bench campaigns`.
type CampaignsFlags struct {
	Campaigns int
	Rate      string // of each campaign, per second
	Seconds   int
	Idle      bool // no jobs at all
}

// Campaigns is `bench campaigns`: a large number of campaigns in one daemon.
func Campaigns(ctx context.Context, o *Options, flags *CampaignsFlags) (*Report, error) {
	if flags.Campaigns < 1 || flags.Campaigns > maxCampaigns {
		return nil, fmt.Errorf("--campaigns %d must lie between 1 and %d", flags.Campaigns, maxCampaigns)
	}
	if err := validSeconds("seconds", flags.Seconds); err != nil {
		return nil, err
	}
	rate, err := parseRate(flags.Rate)
	if err != nil {
		return nil, err
	}
	if err := fits(rate.PerSecond()*float64(flags.Campaigns), flags.Seconds); err != nil && !flags.Idle {
		return nil, err
	}
	campaigns := make([]campaign, flags.Campaigns)
	for i := range campaigns {
		campaigns[i] = campaign{id: fmt.Sprintf("c%d", i), rate: rate, sink: sinkDiscard}
	}
	window := time.Duration(flags.Seconds) * time.Second
	return o.measure(ctx, 1, func(st *environment) (*Report, error) {
		if flags.Idle {
			return st.idleCampaigns(ctx, campaigns, window)
		}
		runs, err := st.perform(ctx, 1, &trial{st: st, campaigns: campaigns, window: window})
		if err != nil {
			return nil, err
		}
		return campaignsReport(runs[0]), nil
	})
}

// campaignsReport compares many campaigns of one rate with their bounds, each of them and together. It is pure.
func campaignsReport(run *Run) *Report {
	s := run.Together()
	s.Name, s.Sink = "campaigns", "discard"
	s.JudgeBound()
	slowest, below, most := s.Jobs, 0, 0
	rate := run.Loads[0].Rate.PerSecond()
	want := rate * run.Window.Length().Seconds()
	for _, times := range TimesPerCampaign(run.Window.Cut(run.Events), len(run.Loads)) {
		slowest = min(slowest, len(times))
		most = max(most, count.MaxRolling(times, time.Second))
		if float64(len(times))+1 < minCampaignRate*want { // the window may cut a spacing
			below++
		}
	}
	cores := run.CPU.Seconds() / run.Window.Length().Seconds()
	return &Report{Streams: []Stream{s}, Facts: []Fact{
		Told("campaigns", float64(len(run.Loads)), ""),
		Told("jobs of the slowest campaign, of those due", percentOf*float64(slowest)/want, "%"),
		AtMost(fmt.Sprintf("campaigns more than a job below %g %% of their rate", percentOf*minCampaignRate), float64(below), 0, ""),
		AtMost("most jobs of a campaign in a rolling second", float64(most), rate*RollingTolerance+1, ""),
		AtLeast("100 ms bins within 10 % of the mean", percentOf*s.BinsWithin10, percentOf*manyBinsWithin10, "%"),
		AtMost("memory", s.RSSMiB, maxManyMiB, "MiB"),
		AtMost("processors", cores, maxManyCores, "cores"),
	}}
}

// idleCampaigns measures the cost of campaigns without jobs.
func (st *environment) idleCampaigns(ctx context.Context, campaigns []campaign, window time.Duration) (*Report, error) {
	if err := st.launch(ctx, 1, campaigns); err != nil {
		return nil, err
	}
	st.say("%d idle campaigns, %s on one daemon", len(campaigns), window)
	r := &trial{st: st, window: window}
	if err := r.pass(ctx, idleSettle); err != nil {
		return nil, err
	}
	cores := r.run.CPU.Seconds() / window.Seconds()
	return &Report{Facts: []Fact{
		Told("idle campaigns", float64(len(campaigns)), ""),
		AtMost("processors", percentOf*cores, percentOf*maxIdleCores, "% of a core"),
		AtMost("memory", float64(r.run.RSS)/(1<<20), maxManyMiB, "MiB"),
	}}, nil
}
