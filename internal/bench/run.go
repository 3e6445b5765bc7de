package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Bounds that a stream is held to.
const (
	minAchieved   = 0.995 // of rate x time
	evenRate      = 1000  // from this many per second on, bins of 100 ms are judged
	evenShare     = 0.99  // so many of the bins
	evenWithin    = 0.05  // deviate by no more than this
	evenWorst     = 0.20  // and none by more than this
	maxLateness   = 10 * time.Millisecond
	maxUnfairness = 0.05
	fairJobs      = 300 // from this many jobs on, shares are judged: one job more or less is little then
)

// Load is what one campaign had to send.
type Load struct {
	ID        string
	Rate      delivery.Rate
	Published int
	Waiting   int // jobs that did not arrive and are still in the broker, as waiting or as dead letters
}

// Run is all that is known of daemons that sent the loads of some campaigns.
type Run struct {
	Loads   []Load // by Event.Campaign
	Daemons int
	Window  Window  // what is judged: in it, every campaign had jobs all the time
	Events  []Event // of the whole run, in order of time

	CPU      time.Duration // of all daemons, in the window
	RSS      int64         // bytes, the most that one daemon was seen to have
	Scripts  int64         // calls of scripts in Redis, in the window
	Requeued int64         // records written to lanes and timers
}

// Figures are the numbers of one stream.
type Figures struct {
	Jobs                 int     `json:"jobs"` // in the window, as everything but MaxRolling1s, Lost and Duplicates
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

// Stream is one row of a report: what was asked for, what became of it, and what of that is out of bounds.
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

	campaigns int // that it is made of
}

// Stream measures one campaign of the run.
func (r *Run) Stream(campaign int) Stream {
	own := slices.DeleteFunc(slices.Clone(r.Events), func(e Event) bool { return int(e.Campaign) != campaign })
	load := r.Loads[campaign]
	loads := make([]Load, len(r.Loads))
	loads[campaign] = load
	s := r.measure(own, loads)
	s.Name = load.ID
	late := Lateness(Times(r.Window.Cut(own)), NewTimeline([]RateChange{{Rate: load.Rate}}, 0))
	s.setLateness(late)
	return s
}

// Together measures all campaigns of the run as one stream. Lateness is that of each campaign's own stream.
func (r *Run) Together() Stream {
	s := r.measure(r.Events, r.Loads)
	times := TimesPerCampaign(r.Window.Cut(r.Events), len(r.Loads))
	var late []time.Duration
	for i, l := range r.Loads {
		late = append(late, Lateness(times[i], NewTimeline([]RateChange{{Rate: l.Rate}}, 0))...)
	}
	s.setLateness(late)
	return s
}

// measure computes everything but lateness of the events of loads; a load that is left out is the zero one.
func (r *Run) measure(events []Event, loads []Load) Stream {
	cut := r.Window.Cut(events)
	even := EvennessOf(r.Window.Bins(cut))
	distinct, duplicates := Tally(events, loads)
	rate, missing, campaigns := 0.0, -distinct, 0
	for _, l := range loads {
		if !l.Rate.Zero() {
			campaigns++
		}
		rate += l.Rate.PerSecond()
		missing += l.Published - l.Waiting
	}
	seconds := r.Window.Seconds()
	all := max(1, len(r.Window.Cut(r.Events)))
	s := Stream{
		Rate: rate, Daemons: r.Daemons, campaigns: campaigns,
		Figures: Figures{
			Jobs: len(cut), Seconds: seconds, JobsPerSecond: Round(float64(len(cut))/seconds, 3),
			CPUSecondsPerMillion: Round(r.CPU.Seconds()/float64(all)*1e6, 2), RSSMiB: Round(float64(r.RSS)/(1<<20), 1),
			AchievedOverTarget:  Round(float64(len(cut))/(rate*seconds), 5),
			MaxRolling1s:        MaxRolling(Times(events), time.Second),
			BinsMaxOverMean:     Round(even.MaxOverMean, 4),
			RedisCommandsPerJob: Round(float64(r.Scripts)/float64(all), 5),
			RequeuesPerJob:      Round(float64(r.Requeued)/float64(max(1, r.Published())), 5),
			Lost:                max(0, missing), Duplicates: duplicates,
		},
		BinsWithin5: Round(even.Within(0.05), 4), BinsWithin10: Round(even.Within(0.10), 4),
		BinsWorst: Round(even.Worst, 4), Shares: Shares(cut, r.Daemons),
	}
	s.AboveRate = Round(float64(s.MaxRolling1s)-rate-1, 3)
	for i := range s.Shares {
		s.Shares[i] = Round(s.Shares[i], 5)
	}
	return s
}

// Published is how many jobs there were.
func (r *Run) Published() (n int) {
	for _, l := range r.Loads {
		n += l.Published
	}
	return n
}

func (s *Stream) setLateness(late []time.Duration) {
	s.LatenessP50MS = milliseconds(Percentile(late, 0.50))
	s.LatenessP99MS = milliseconds(Percentile(late, 0.99))
}

// Miss adds a bound that was not met.
func (s *Stream) Miss(format string, args ...any) {
	s.Misses = append(s.Misses, fmt.Sprintf(format, args...))
}

// JudgeRate holds the stream to its rate: enough, and never too much.
func (s *Stream) JudgeRate() {
	// A window cuts through the spacing at both of its ends: one job more or less is not the stream's doing.
	if want := minAchieved * s.Rate * s.Seconds; float64(s.Jobs)+1 < want {
		s.Miss("%.2f %% of the rate, want %.1f %%", 100*s.AchievedOverTarget, 100*minAchieved)
	}
	s.JudgeBound()
}

// JudgeBound holds the stream to what no stream may do: send too much, lose a job, send one twice. Each of its campaigns
// may have one job above its rate in a rolling second.
func (s *Stream) JudgeBound() {
	if most := s.Rate*RollingTolerance + float64(s.campaigns); float64(s.MaxRolling1s) > most {
		s.Miss("%d in a rolling second, want at most %.1f", s.MaxRolling1s, most)
	}
	if s.Lost > 0 {
		s.Miss("%d jobs are lost", s.Lost)
	}
	if s.Duplicates > 0 {
		s.Miss("%d jobs were sent again", s.Duplicates)
	}
}

// JudgeShape holds a fast stream to being even, one of 1,000/s to being on time, and daemons to equal shares.
func (s *Stream) JudgeShape() {
	if s.Rate >= evenRate {
		if s.BinsWithin5 < evenShare {
			s.Miss("%.1f %% of the 100 ms bins within %.0f %%, want %.0f %%", 100*s.BinsWithin5, 100*evenWithin, 100*evenShare)
		}
		if s.BinsWorst > evenWorst {
			s.Miss("a 100 ms bin %.0f %% off, want at most %.0f %%", 100*s.BinsWorst, 100*evenWorst)
		}
	}
	if s.Rate == evenRate && s.LatenessP99MS > milliseconds(maxLateness) {
		s.Miss("slots used %.1f ms late (p99), want at most %.0f", s.LatenessP99MS, milliseconds(maxLateness))
	}
	if off := Unfairness(s.Shares); s.Jobs >= fairJobs && off > maxUnfairness {
		s.Miss("a daemon's share is %.1f %% off, want at most %.0f %%", 100*off, 100*maxUnfairness)
	}
}

func milliseconds(d time.Duration) float64 { return Round(float64(d)/float64(time.Millisecond), 3) }

// Round keeps so many digits behind the point, for people and reports.
func Round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
