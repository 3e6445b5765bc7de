package app

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/delivery"
)

const (
	stormDaemons = 3
	stormWindow  = 10 * time.Second
	stormChanges = 100
	stormFirst   = 1000 // per second, until the first change
	stormLowest  = 50
	stormHighest = 5000
	// stormGap is the longest stretch without a job: what a change takes to act, and the spacing of the lowest rate,
	// with as much again for the machine.
	stormGap = 250 * time.Millisecond
)

// BenchStormFlags are the flags of `bench storm`.
type BenchStormFlags struct {
	Seed uint64 // of the rates; the same seed makes the same storm
}

// storm is a plan of changes of one campaign's rate, and what became of it.
type storm struct {
	st      *benchStage
	rates   []int64         // per second, the first before the window begins
	after   []time.Duration // of each but the first, from the beginning of the window
	changes []bench.RateChange
}

// newStorm draws the changes: rates whose logarithms are even, at instants that are even in their tenth of a second.
func newStorm(seed uint64) *storm {
	random := rand.New(rand.NewPCG(seed, stormChanges))
	s := &storm{rates: []int64{stormFirst}}
	step := stormWindow / stormChanges
	for i := range stormChanges {
		s.after = append(s.after, time.Duration(i)*step+time.Duration(random.Int64N(int64(step))))
		s.rates = append(s.rates, int64(stormLowest*math.Pow(stormHighest/stormLowest, random.Float64())))
	}
	return s
}

// units is how many jobs the plan sends in the window.
func (s *storm) units() (n float64) {
	at := time.Duration(0)
	for i, next := range append(s.after[:len(s.after):len(s.after)], stormWindow) {
		n += float64(s.rates[i]) * (next - at).Seconds()
		at = next
	}
	return n
}

// BenchStorm is `pacer bench storm`: a hundred random changes of a rate in ten seconds.
func BenchStorm(ctx context.Context, in Invocation, flags *BenchStormFlags) error {
	return in.withBench(ctx, stormDaemons, func(st *benchStage) (*benchReport, error) {
		s := newStorm(flags.Seed)
		s.st = st
		campaigns := []benchCampaign{{id: "storm", rate: delivery.PerSecond(stormFirst), sink: benchHTTP}}
		run := &benchRun{st: st, campaigns: campaigns, window: stormWindow, during: s.blow}
		run.jobs = func(_ *benchCampaign, elapsed time.Duration) float64 {
			return stormFirst*(elapsed+benchWarmUp).Seconds() + benchReserve*s.units() + stormHighest
		}
		runs, err := st.perform(ctx, stormDaemons, campaigns, []*benchRun{run})
		if err != nil {
			return nil, err
		}
		return s.report(runs[0]), nil
	})
}

// blow makes the changes. A rate counts from before it is written, and the one before it until after that and until its
// last slots may have been used.
func (s *storm) blow(ctx context.Context) error {
	began := time.Now()
	s.changes = []bench.RateChange{{Rate: delivery.PerSecond(s.rates[0])}}
	for i, after := range s.after {
		if !waitUntil(ctx, began.Add(after)) {
			return nil // whoever cancelled says why
		}
		before := time.Since(s.st.epoch)
		if err := s.st.setRate(ctx, "storm", s.rates[i+1]); err != nil {
			return err
		}
		at := before
		if s.rates[i+1] < s.rates[i] {
			at = time.Since(s.st.epoch) + bench.LateTolerance // slots before the change may be used so late
		}
		s.changes = append(s.changes, bench.RateChange{At: at, Rate: delivery.PerSecond(s.rates[i+1])})
	}
	if !waitUntil(ctx, began.Add(stormWindow)) {
		return nil
	}
	// What is left goes at the highest rate, after the window.
	s.changes = append(s.changes, bench.RateChange{At: time.Since(s.st.epoch), Rate: delivery.PerSecond(stormHighest)})
	return s.st.setRate(ctx, "storm", stormHighest)
}

// setRate changes a rate as an operator would.
func (st *benchStage) setRate(ctx context.Context, campaign string, perSecond int64) error {
	_, err := st.db.Exec(ctx, `UPDATE pacer.campaigns SET send_rate = $2, send_per = '1 second' WHERE id = $1`, campaign, perSecond)
	if err != nil {
		return fmt.Errorf("change the rate: %w", err)
	}
	return nil
}

// report says whether the stream stayed below the rates in force and never stood still. It is pure.
func (s *storm) report(run *bench.Run) *benchReport {
	line := bench.NewTimeline(s.changes, 0)
	due := line.Units(run.Window.To) - line.Units(run.Window.From)
	cut := run.Window.Cut(run.Events)
	distinct, duplicates := bench.Tally(run.Events, run.Loads)
	times := bench.Times(run.Events)
	return &benchReport{Facts: []bench.Fact{
		bench.Told("changes of the rate", float64(len(s.changes)-2), ""),
		bench.Told("jobs in the window", float64(len(cut)), ""),
		bench.Told("jobs of those that the rates gave", percentOf*float64(len(cut))/due, "%"),
		bench.AtMost("worst rolling second above the largest rate in it x 1.02 + 1",
			max(0, bench.RollingExcess(times, s.changes, time.Second)), 0, "jobs"),
		bench.AtMost("longest stretch without a job", run.Window.LongestGap(times).Seconds()*1000,
			float64(stormGap.Milliseconds()), "ms"),
		bench.AtMost("jobs lost", float64(run.Published()-run.Loads[0].Waiting-distinct), 0, ""),
		bench.AtMost("jobs sent twice", float64(duplicates), 0, ""),
	}}
}
