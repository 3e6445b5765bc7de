package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/retry"
)

const (
	stormDaemons = 3
	stormWindow  = 10 * time.Second
	stormChanges = 100
	stormFirst   = 1000 // per second, until the first change
	stormLowest  = 50
	stormHighest = 5000
	// stormGap is the longest interval without a job: the time that a change takes to act, plus the spacing of the
	// lowest rate, plus as much again as tolerance for the machine.
	stormGap = 250 * time.Millisecond
)

// storm is a plan of changes of one campaign's rate, and their times.
type storm struct {
	st      *environment
	rates   []int64            // per second, the first before the window begins
	after   []time.Duration    // of each but the first, from the beginning of the window
	changes []count.RateChange // as they bound what may be sent: with the tolerance for slots that are used late
	inForce []count.RateChange // as they were made
}

// newStorm draws the changes: rates with uniform logarithms, at uniform instants within each tenth of a second.
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

// units returns how many jobs the plan sends in the window.
func (s *storm) units() (n float64) {
	at := time.Duration(0)
	for i, next := range append(s.after[:len(s.after):len(s.after)], stormWindow) {
		n += float64(s.rates[i]) * (next - at).Seconds()
		at = next
	}
	return n
}

// Storm is `bench storm`: a hundred random changes of a rate in ten seconds.
func Storm(ctx context.Context, o *Options, seed uint64) (*Report, error) {
	return o.measure(ctx, stormDaemons, func(st *environment) (*Report, error) {
		s := newStorm(seed)
		s.st = st
		campaigns := []campaign{{id: "storm", rate: delivery.PerSecond(stormFirst), sink: sinkHTTP}}
		run := &trial{st: st, campaigns: campaigns, window: stormWindow, during: s.blow}
		run.jobs = func(_ *campaign, elapsed time.Duration) float64 {
			return stormFirst*(elapsed+warmUp).Seconds() + reserve*s.units() + stormHighest
		}
		runs, err := st.perform(ctx, stormDaemons, run)
		if err != nil {
			return nil, err
		}
		return s.report(runs[0]), nil
	})
}

// blow makes the changes. A rate counts from before it is written, and the one before it until after that and until
// its last slots may have been used.
func (s *storm) blow(ctx context.Context) error {
	began := time.Now()
	s.begin()
	for i, after := range s.after {
		if retry.Sleep(ctx, time.Until(began.Add(after))) != nil {
			return nil // the caller returns the error of ctx
		}
		before := time.Since(s.st.epoch)
		if err := s.st.setRate(ctx, "storm", s.rates[i+1]); err != nil {
			return err
		}
		s.changed(s.rates[i], s.rates[i+1], before, time.Since(s.st.epoch))
	}
	if retry.Sleep(ctx, time.Until(began.Add(stormWindow))) != nil {
		return nil
	}
	// The rest is sent at the highest rate, after the window.
	end := time.Since(s.st.epoch)
	s.changed(stormHighest, stormHighest, end, end)
	return s.st.setRate(ctx, "storm", stormHighest)
}

// begin notes the first rate.
func (s *storm) begin() {
	s.changes = []count.RateChange{{Rate: delivery.PerSecond(s.rates[0])}}
	s.inForce = slices.Clone(s.changes)
}

// changed notes a change that was made between two instants.
func (s *storm) changed(was, is int64, before, after time.Duration) {
	c := count.RateChange{At: after, Rate: delivery.PerSecond(is)}
	s.inForce = append(s.inForce, c)
	if c.At = before; is < was {
		c.At = after + count.LateTolerance // slots before the change may be used this late
	}
	s.changes = append(s.changes, c)
}

// setRate changes a rate as an operator would.
func (st *environment) setRate(ctx context.Context, campaign string, perSecond int64) error {
	_, err := st.db.Exec(ctx, `UPDATE pacer.campaigns SET send_rate = $2, send_per = '1 second' WHERE id = $1`, campaign, perSecond)
	if err != nil {
		return fmt.Errorf("change the rate: %w", err)
	}
	return nil
}

// report checks that the stream stayed below the rates in force and never stopped. It is pure.
func (s *storm) report(run *Run) *Report {
	line := count.NewTimeline(s.inForce, 0)
	due := line.Units(run.Window.To) - line.Units(run.Window.From)
	cut := run.Window.Cut(run.Events)
	distinct, duplicates := Tally(run.Events, run.Loads)
	times := Times(run.Events)
	return &Report{Facts: []Fact{
		Told("changes of the rate", float64(len(s.changes)-2), ""),
		Told("jobs in the window", float64(len(cut)), ""),
		Told("jobs of those that the rates gave", percentOf*float64(len(cut))/due, "%"),
		AtMost("worst rolling second above the largest rate in it x 1.02 + 1",
			max(0, RollingExcess(times, s.changes, time.Second)), 0, "jobs"),
		AtMost("longest stretch without a job", run.Window.LongestGap(times).Seconds()*1000,
			float64(stormGap.Milliseconds()), "ms"),
		AtMost("jobs lost", float64(run.Published()-run.Loads[0].Waiting-distinct), 0, ""),
		AtMost("jobs sent twice", float64(duplicates), 0, ""),
	}}
}
