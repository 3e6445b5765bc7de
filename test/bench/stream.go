package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/demo/count"
)

// Bounds on a stream.
const (
	minAchieved   = 0.995 // of rate x time
	evenRate      = 1000  // from this rate per second on, bins of 100 ms are judged
	evenShare     = 0.99  // this share of the bins
	evenWithin    = 0.05  // must deviate by no more than this
	evenWorst     = 0.20  // and none by more than this
	maxLateness   = 10 * time.Millisecond
	maxUnfairness = 0.05
	fairJobs      = 300 // from this many jobs on, shares are judged; with fewer, one job makes a difference
)

// Run contains the results of daemons that sent the loads of some campaigns.
type Run struct {
	Loads   []Load // by Event.Campaign
	Daemons int
	Window  Interval // the interval that is judged: in it, every campaign had jobs all the time
	Events  []Event  // of the whole run, in order of time

	CPU      time.Duration // of all daemons, in the window
	RSS      int64         // bytes, the largest value observed for one daemon
	Scripts  int64         // calls of scripts in Redis, in the window
	Requeued int64         // records written to lanes and timers
}

// Figures are the numbers of one stream.
type Figures struct {
	Jobs                 int     `json:"jobs"` // in the window, like all fields but MaxRolling1s, Lost and Duplicates
	Seconds              float64 `json:"seconds"`
	JobsPerSecond        float64 `json:"jobs_per_second"`
	CPUSecondsPerMillion float64 `json:"cpu_seconds_per_million"`
	RSSMiB               float64 `json:"rss_mib"`
	AchievedOverTarget   float64 `json:"achieved_over_target"`
	MaxRolling1s         int     `json:"max_rolling_1s"`
	BinsMaxOverMean      float64 `json:"bins_100ms_max_over_mean"`
	LatenessP50MS        float64 `json:"slot_lateness_p50_ms"`
	LatenessP99MS        float64 `json:"slot_lateness_p99_ms"`
	RedisCommandsPerJob  float64 `json:"redis_commands_per_job"`
	RequeuesPerJob       float64 `json:"requeues_per_job"`
	Lost                 int     `json:"lost"`
	Duplicates           int     `json:"duplicates"`
}

// Stream is one row of a report: the requested stream, its figures, and the bounds that it missed.
type Stream struct {
	Name    string  `json:"name"`
	Rate    float64 `json:"rate"` // per second
	Daemons int     `json:"daemons"`
	Sink    string  `json:"sink"`
	Figures
	AboveRate    float64   `json:"above_rate_plus_1"`   // the fullest rolling second less rate + 1; below 0 when under it
	BinsWithin5  float64   `json:"bins_100ms_within_5"` // share of the bins that deviate by 5 % at most
	BinsWithin10 float64   `json:"bins_100ms_within_10"`
	BinsWorst    float64   `json:"bins_100ms_worst"` // the largest deviation from the mean
	Shares       []float64 `json:"shares"`           // of the jobs in the window, by daemon
	Misses       []string  `json:"misses"`           // the bounds that were not met

	campaigns int // number of campaigns in it
}

// Stream measures one campaign of the run.
func (r *Run) Stream(campaign int) Stream {
	own := slices.DeleteFunc(slices.Clone(r.Events), func(e Event) bool { return int(e.Campaign) != campaign })
	load := r.Loads[campaign]
	loads := make([]Load, len(r.Loads))
	loads[campaign] = load
	s := r.measure(own, loads)
	s.Name = load.ID
	return s
}

// Together measures all campaigns of the run as one stream. Lateness is computed for each campaign's own stream.
func (r *Run) Together() Stream { return r.measure(r.Events, r.Loads) }

// measure measures the events of loads; loads that are left out are zero.
func (r *Run) measure(events []Event, loads []Load) Stream {
	cut := r.Window.Cut(events)
	even := EvennessOf(r.Window.Bins(cut))
	distinct, duplicates := Tally(events, loads)
	rate, missing, campaigns := 0.0, -distinct, 0
	times := TimesPerCampaign(cut, len(loads))
	var late []time.Duration
	for i, l := range loads {
		if !l.Rate.Zero() {
			campaigns++
			late = append(late, count.Lateness(times[i], count.NewTimeline([]count.RateChange{{Rate: l.Rate}}, 0))...)
		}
		rate += l.Rate.PerSecond()
		missing += l.Published - l.Waiting
	}
	seconds := r.Window.Length().Seconds()
	all := max(1, len(r.Window.Cut(r.Events)))
	s := Stream{
		Rate: rate, Daemons: r.Daemons, campaigns: campaigns,
		Figures: Figures{
			Jobs: len(cut), Seconds: seconds, JobsPerSecond: count.Round(float64(len(cut))/seconds, 3),
			CPUSecondsPerMillion: count.Round(r.CPU.Seconds()/float64(all)*1e6, 2), RSSMiB: count.Round(float64(r.RSS)/(1<<20), 1),
			AchievedOverTarget:  count.Round(float64(len(cut))/(rate*seconds), 5),
			MaxRolling1s:        count.MaxRolling(Times(events), time.Second),
			BinsMaxOverMean:     count.Round(even.MaxOverMean, 4),
			LatenessP50MS:       milliseconds(count.Percentile(late, 0.50)),
			LatenessP99MS:       milliseconds(count.Percentile(late, 0.99)),
			RedisCommandsPerJob: count.Round(float64(r.Scripts)/float64(all), 5),
			RequeuesPerJob:      count.Round(float64(r.Requeued)/float64(max(1, r.Published())), 5),
			Lost:                max(0, missing), Duplicates: duplicates,
		},
		BinsWithin5: count.Round(even.Within(0.05), 4), BinsWithin10: count.Round(even.Within(0.10), 4),
		BinsWorst: count.Round(even.Worst, 4), Shares: Shares(cut, r.Daemons),
	}
	s.AboveRate = count.Round(float64(s.MaxRolling1s)-rate-1, 3)
	for i := range s.Shares {
		s.Shares[i] = count.Round(s.Shares[i], 5)
	}
	return s
}

// Published returns the number of published jobs.
func (r *Run) Published() (n int) {
	for _, l := range r.Loads {
		n += l.Published
	}
	return n
}

// MissIf adds a bound if it was not met.
func (s *Stream) MissIf(missed bool, format string, args ...any) {
	if missed {
		s.Misses = append(s.Misses, fmt.Sprintf(format, args...))
	}
}

// JudgeRate compares the stream with its rate, from below and above.
func (s *Stream) JudgeRate() {
	// A window cuts through the spacing at both of its ends, which accounts for one job more or less.
	s.MissIf(float64(s.Jobs)+1 < minAchieved*s.Rate*s.Seconds,
		"%.2f %% of the rate, want %.1f %%", 100*s.AchievedOverTarget, 100*minAchieved)
	s.JudgeBound()
}

// JudgeBound checks what no stream may do: send too much, lose a job, send one twice. Each of its campaigns may have
// one job above its rate in a rolling second.
func (s *Stream) JudgeBound() {
	most := s.Rate*RollingTolerance + float64(s.campaigns)
	s.MissIf(float64(s.MaxRolling1s) > most, "%d in a rolling second, want at most %.1f", s.MaxRolling1s, most)
	s.MissIf(s.Lost > 0, "%d jobs are lost", s.Lost)
	s.MissIf(s.Duplicates > 0, "%d jobs were sent again", s.Duplicates)
}

// JudgeShape checks that a fast stream is even, that one of 1,000/s is on time, and that the daemons' shares are
// equal.
func (s *Stream) JudgeShape() {
	if s.Rate >= evenRate {
		s.MissIf(s.BinsWithin5 < evenShare,
			"%.1f %% of the 100 ms bins within %.0f %%, want %.0f %%", 100*s.BinsWithin5, 100*evenWithin, 100*evenShare)
		s.MissIf(s.BinsWorst > evenWorst, "a 100 ms bin %.0f %% off, want at most %.0f %%", 100*s.BinsWorst, 100*evenWorst)
	}
	s.MissIf(s.Rate == evenRate && s.LatenessP99MS > milliseconds(maxLateness),
		"slots used %.1f ms late (p99), want at most %.0f", s.LatenessP99MS, milliseconds(maxLateness))
	off := Unfairness(s.Shares)
	s.MissIf(s.Jobs >= fairJobs && off > maxUnfairness,
		"a daemon's share is %.1f %% off, want at most %.0f %%", 100*off, 100*maxUnfairness)
}

func milliseconds(d time.Duration) float64 {
	return count.Round(float64(d)/float64(time.Millisecond), 3)
}
