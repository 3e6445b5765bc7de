package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

const (
	// BinWidth is the width of the bins that measure a stream's evenness.
	BinWidth = 100 * time.Millisecond
	// RollingTolerance is how much a rolling second may exceed its rate, as a part of it: late_tolerance.
	RollingTolerance = 1.02
)

// Load is the number of jobs of one campaign in a measurement.
type Load struct {
	ID        string
	Rate      delivery.Rate
	Published int
	Waiting   int // jobs that did not arrive and are still in the broker, waiting or as dead letters
}

// Event is one job as seen by its receiver.
type Event struct {
	At       time.Duration // since the measurement's epoch
	Campaign int32         // index of the campaign
	Job      int32         // number of the job among those published for the campaign
	Daemon   int8          // the daemon that sent it
}

// Sort sorts events by time.
func Sort(events []Event) {
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
}

// Times returns the instants of events, in their order.
func Times(events []Event) []time.Duration {
	times := make([]time.Duration, len(events))
	for i, e := range events {
		times[i] = e.At
	}
	return times
}

// Interval is an interval of time since the measurement's epoch: From inclusive, To exclusive.
type Interval struct{ From, To time.Duration }

// Length returns the length of the interval.
func (w Interval) Length() time.Duration { return w.To - w.From }

// Cut returns the events in the window; events are in order of time.
func (w Interval) Cut(events []Event) []Event {
	at := func(e Event, at time.Duration) int { return cmp.Compare(e.At, at) }
	from, _ := slices.BinarySearchFunc(events, w.From, at)
	to, _ := slices.BinarySearchFunc(events, w.To, at)
	return events[from:max(from, to)]
}

// Bins counts events per BinWidth of the window; a shorter last bin is left out.
func (w Interval) Bins(events []Event) []int {
	bins := make([]int, max(0, int(w.Length()/BinWidth)))
	for _, e := range events {
		if i := int((e.At - w.From) / BinWidth); e.At >= w.From && i < len(bins) {
			bins[i]++
		}
	}
	return bins
}

// Evenness describes how far bins are from their mean.
type Evenness struct {
	MaxOverMean float64 // the fullest bin
	Worst       float64 // the largest deviation, as a share of the mean
	deviations  []float64
}

// EvennessOf computes the evenness of bins. Without any events there is no deviation.
func EvennessOf(bins []int) Evenness {
	var e Evenness
	sum := 0
	for _, n := range bins {
		sum += n
	}
	if sum == 0 {
		return e
	}
	mean := float64(sum) / float64(len(bins))
	for _, n := range bins {
		e.deviations = append(e.deviations, math.Abs(float64(n)-mean)/mean)
	}
	e.Worst, e.MaxOverMean = slices.Max(e.deviations), float64(slices.Max(bins))/mean
	return e
}

// Within returns the share of bins that deviate from the mean by at most a share of it; 1 without bins.
func (e Evenness) Within(share float64) float64 {
	if len(e.deviations) == 0 {
		return 1
	}
	n := 0
	for _, d := range e.deviations {
		if d <= share+1e-9 {
			n++
		}
	}
	return float64(n) / float64(len(e.deviations))
}

// Shares returns which share of the events each of n daemons sent; nil without events.
func Shares(events []Event, n int) []float64 {
	if len(events) == 0 {
		return nil
	}
	shares := make([]float64, n)
	for _, e := range events {
		shares[e.Daemon] += 1 / float64(len(events))
	}
	return shares
}

// Unfairness returns the largest deviation from an equal share, as a part of that share.
func Unfairness(shares []float64) float64 {
	worst := 0.0
	for _, s := range shares {
		worst = max(worst, math.Abs(s*float64(len(shares))-1))
	}
	return worst
}

// TimesPerCampaign returns the instants of the events of each of n campaigns, in their order.
func TimesPerCampaign(events []Event, n int) [][]time.Duration {
	times := make([][]time.Duration, n)
	for _, e := range events {
		times[e.Campaign] = append(times[e.Campaign], e.At)
	}
	return times
}

// Tally returns how many of the jobs of the loads arrived, and how many arrivals were repeats.
func Tally(events []Event, loads []Load) (distinct, duplicates int) {
	seen := make([][]bool, len(loads))
	for c, l := range loads {
		seen[c] = make([]bool, l.Published)
	}
	for _, e := range events {
		if seen[e.Campaign][e.Job] {
			duplicates++
			continue
		}
		seen[e.Campaign][e.Job] = true
		distinct++
	}
	return distinct, duplicates
}

// LongestGap returns the longest part of the window without an event.
func (w Interval) LongestGap(times []time.Duration) time.Duration {
	longest, last := time.Duration(0), w.From
	for _, at := range times {
		if at >= w.To {
			break
		}
		if at > w.From {
			longest = max(longest, at-last)
			last = at
		}
	}
	return max(longest, w.To-last)
}

// RollingExcess returns by how many units the worst rolling span exceeds the bound: the largest rate in force within
// it, times its length and the tolerance for late slots, plus one. A rate counts for count.ChangeGrace longer than it is in
// force. The result is at most 0 if the bound holds, and minus infinity without arrivals, which are ascending.
func RollingExcess(arrivals []time.Duration, changes []count.RateChange, span time.Duration) float64 {
	line := count.NewTimeline(changes, span+count.ChangeGrace)
	worst, first := math.Inf(-1), 0
	for last, at := range arrivals {
		for at-arrivals[first] >= span {
			first++
		}
		rate := line.Rate(at)
		worst = max(worst, float64(last-first+1)-rate*span.Seconds()*RollingTolerance-1)
	}
	return worst
}
