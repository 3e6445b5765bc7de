package app

import (
	"context"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/bench"
)

// Bounds of many campaigns in one daemon.
const (
	maxBenchCampaigns = 100_000
	minCampaignRate   = 0.98 // of its rate, for every campaign
	manyBinsWithin10  = 0.99 // of the 100 ms bins
	maxManyMiB        = 1024
	maxManyCores      = 1.0
	maxIdleCores      = 0.02
	idleSettle        = 3 * time.Second // from ready until the start is over
	percentOf         = 100
)

// BenchCampaignsFlags are the flags of `bench campaigns`.
type BenchCampaignsFlags struct {
	Campaigns int
	Rate      string // of each, per second
	Seconds   int
	Idle      bool // no jobs at all
}

// BenchCampaigns is `pacer bench campaigns`: very many campaigns in one daemon.
func BenchCampaigns(ctx context.Context, in Invocation, flags *BenchCampaignsFlags) error {
	if flags.Campaigns < 1 || flags.Campaigns > maxBenchCampaigns {
		return usagef("--campaigns %d must lie between 1 and %d", flags.Campaigns, maxBenchCampaigns)
	}
	if err := validBenchSeconds("seconds", flags.Seconds); err != nil {
		return err
	}
	rate, err := benchRate(flags.Rate)
	if err != nil {
		return err
	}
	if err := benchFits(rate.PerSecond()*float64(flags.Campaigns), flags.Seconds); err != nil && !flags.Idle {
		return err
	}
	campaigns := make([]benchCampaign, flags.Campaigns)
	for i := range campaigns {
		campaigns[i] = benchCampaign{id: fmt.Sprintf("c%d", i), rate: rate, sink: benchDiscard}
	}
	window := time.Duration(flags.Seconds) * time.Second
	return in.withBench(ctx, 1, func(st *benchStage) (*benchReport, error) {
		if flags.Idle {
			return st.idleCampaigns(ctx, campaigns, window)
		}
		runs, err := st.perform(ctx, 1, campaigns, []*benchRun{{st: st, campaigns: campaigns, window: window}})
		if err != nil {
			return nil, err
		}
		return campaignsReport(runs[0]), nil
	})
}

// campaignsReport holds many campaigns of one rate to their bounds, one by one and together. It is pure.
func campaignsReport(run *bench.Run) *benchReport {
	s := run.Together()
	s.Name, s.Sink = "campaigns", "discard"
	s.JudgeBound()
	slowest, below, most := s.Jobs, 0, 0
	rate := run.Loads[0].Rate.PerSecond()
	want := rate * run.Window.Seconds()
	for _, times := range bench.TimesPerCampaign(run.Window.Cut(run.Events), len(run.Loads)) {
		slowest = min(slowest, len(times))
		most = max(most, bench.MaxRolling(times, time.Second))
		if float64(len(times))+1 < minCampaignRate*want { // the window cuts through a spacing
			below++
		}
	}
	cores := run.CPU.Seconds() / run.Window.Seconds()
	return &benchReport{Streams: []bench.Stream{s}, Facts: []bench.Fact{
		bench.Told("campaigns", float64(len(run.Loads)), ""),
		bench.Told("jobs of the slowest campaign, of those due", percentOf*float64(slowest)/want, "%"),
		bench.AtMost(fmt.Sprintf("campaigns more than a job below %g %% of their rate", percentOf*minCampaignRate), float64(below), 0, ""),
		bench.AtMost("most jobs of a campaign in a rolling second", float64(most), rate*bench.RollingTolerance+1, ""),
		bench.AtLeast("100 ms bins within 10 % of the mean", percentOf*s.BinsWithin10, percentOf*manyBinsWithin10, "%"),
		bench.AtMost("memory", s.RSSMiB, maxManyMiB, "MiB"),
		bench.AtMost("processors", cores, maxManyCores, "cores"),
	}}
}

// idleCampaigns measures what campaigns cost that have no jobs.
func (st *benchStage) idleCampaigns(ctx context.Context, campaigns []benchCampaign, window time.Duration) (*benchReport, error) {
	if err := st.create(ctx, campaigns); err != nil {
		return nil, err
	}
	if err := st.launch(ctx, 1); err != nil {
		return nil, err
	}
	st.say("%d idle campaigns, %s on one daemon", len(campaigns), window)
	if !waitUntil(ctx, time.Now().Add(idleSettle)) {
		return nil, context.Cause(ctx)
	}
	r := &benchRun{st: st}
	before, err := r.cost()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := r.sample(ctx, began.Add(window)); err != nil {
		return nil, err
	}
	after, err := r.cost()
	if err != nil {
		return nil, err
	}
	cores := (after - before).Seconds() / time.Since(began).Seconds()
	return &benchReport{Facts: []bench.Fact{
		bench.Told("idle campaigns", float64(len(campaigns)), ""),
		bench.AtMost("processors", percentOf*cores, percentOf*maxIdleCores, "% of a core"),
		bench.AtMost("memory", float64(r.run.RSS)/(1<<20), maxManyMiB, "MiB"),
	}}, nil
}
