package test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

// Bounds on a stream.
const (
	paceBin          = 100 * time.Millisecond // the width of the bins that measure evenness
	rollingTolerance = 1.02                   // how much a rolling second may exceed its rate: late_tolerance
	minAchieved      = 0.995                  // of rate x time
	evenRate         = 1000                   // from this rate per second on, bins are judged
	evenShare        = 0.99                   // this share of the bins
	evenWithin       = 0.05                   // must deviate by no more than this
	evenWorst        = 0.20                   // and none by more than this
	maxLatenessMS    = 10
	maxUnfairness    = 0.05
	fairJobs         = 300 // from this many jobs on, shares are judged; with fewer, one job makes a difference
)

// paceLoad is the number of jobs of one campaign in a measurement.
type paceLoad struct {
	id        string
	rate      float64 // per second
	published int
	waiting   int // jobs that did not arrive and are still in the broker, waiting or as dead letters
}

// paceEvent is one job as seen by its receiver.
type paceEvent struct {
	at       time.Duration // since the measurement's epoch
	campaign int           // index of the load
	job      int           // number of the job among those of the campaign
	daemon   int           // the daemon that sent it
}

// paceRun contains the results of daemons that sent the jobs of some campaigns.
type paceRun struct {
	loads   []paceLoad
	daemons int
	window  count.Interval // the interval that is judged: in it, every campaign had jobs all the time
	events  []paceEvent    // of the whole run, in order of time

	cpu      time.Duration // of all daemons, in the window
	mib      float64       // the largest resident set of a daemon
	scripts  float64       // calls of scripts in Redis, in the window
	requeued int64         // records written to lanes and timers
}

// paceStream is one row of a report: a stream of jobs, its figures in the window, and the bounds that it missed.
type paceStream struct {
	Rate                 float64   `json:"rate"` // per second
	Daemons              int       `json:"daemons"`
	Sink                 string    `json:"sink"`
	Jobs                 int       `json:"jobs"`
	Seconds              float64   `json:"seconds"`
	CPUSecondsPerMillion float64   `json:"cpu_seconds_per_million"`
	RSSMiB               float64   `json:"rss_mib"`
	AchievedOverTarget   float64   `json:"achieved_over_target"`
	MaxRolling1s         int       `json:"max_rolling_1s"` // of the whole run, as are Lost and Duplicates
	LatenessP50MS        float64   `json:"slot_lateness_p50_ms"`
	LatenessP99MS        float64   `json:"slot_lateness_p99_ms"`
	RedisCommandsPerJob  float64   `json:"redis_commands_per_job"`
	RequeuesPerJob       float64   `json:"requeues_per_job"`
	Lost                 int       `json:"lost"`
	Duplicates           int       `json:"duplicates"`
	Bins                 []float64 `json:"bins_100ms"` // deviations from the mean
	Shares               []float64 `json:"shares"`     // of the jobs, by daemon
	Misses               []string  `json:"misses"`     // the bounds that were not met

	campaigns int
}

// published is the number of jobs of all campaigns.
func (r *paceRun) published() (n int) {
	for _, l := range r.loads {
		n += l.published
	}
	return n
}

// sort puts the events in order of time.
func (r *paceRun) sort() {
	slices.SortStableFunc(r.events, func(a, b paceEvent) int { return cmp.Compare(a.at, b.at) })
}

// stream measures one campaign of the run, or all (-1) as one stream. Lateness is that of each campaign's own stream.
func (r *paceRun) stream(campaign int) paceStream {
	seconds := r.window.Length().Seconds()
	s := paceStream{Daemons: r.daemons, Seconds: seconds, RSSMiB: r.mib, Shares: make([]float64, r.daemons)}
	s.Bins = make([]float64, r.window.Length()/paceBin)
	var all, late []time.Duration
	inWindow, published, missing := 0, 0, 0
	seen, times := make([][]bool, len(r.loads)), make([][]time.Duration, len(r.loads))
	of := func(c int) bool { return campaign < 0 || c == campaign }
	for i, l := range r.loads {
		seen[i], published = make([]bool, l.published), published+l.published
		if of(i) {
			s.Rate, s.campaigns, missing = s.Rate+l.rate, s.campaigns+1, missing+l.published-l.waiting
		}
	}
	for _, e := range r.events {
		held := r.window.Holds(e.at)
		if held {
			inWindow++
		}
		if !of(e.campaign) {
			continue
		}
		all = append(all, e.at)
		if seen[e.campaign][e.job] {
			s.Duplicates++
		} else {
			missing--
		}
		seen[e.campaign][e.job] = true
		if held {
			s.Jobs++
			s.Shares[e.daemon]++
			times[e.campaign] = append(times[e.campaign], e.at)
			if bin := int((e.at - r.window.From) / paceBin); bin < len(s.Bins) {
				s.Bins[bin]++
			}
		}
	}
	for i := range times {
		late = append(late, count.Lateness(times[i], count.NewTimeline(rateChanges(r.loads[i].rate), 0))...)
	}
	for i := range s.Shares {
		s.Shares[i] /= float64(max(1, s.Jobs))
	}
	mean := float64(s.Jobs) / (seconds * float64(time.Second/paceBin))
	for i, n := range s.Bins {
		s.Bins[i] = count.Round(math.Abs(n-mean)/max(mean, 1), 4)
	}
	s.CPUSecondsPerMillion = r.cpu.Seconds() / float64(max(1, inWindow)) * 1e6
	s.AchievedOverTarget = float64(s.Jobs) / (s.Rate * seconds)
	s.MaxRolling1s = count.MaxRolling(all, time.Second)
	s.LatenessP50MS = count.Percentile(late, 0.50).Seconds() * 1000
	s.LatenessP99MS = count.Percentile(late, 0.99).Seconds() * 1000
	s.RedisCommandsPerJob = r.scripts / float64(max(1, inWindow))
	s.RequeuesPerJob = float64(r.requeued) / float64(max(1, published))
	s.Lost = max(0, missing)
	return s
}

// rateChanges are those of a rate, per second, that stays.
func rateChanges(perSecond float64) []count.RateChange {
	rate, _ := delivery.NewRate(int64(math.Round(perSecond*1e6)), time.Second) // one of 0 has no slots
	return []count.RateChange{{Rate: rate}}
}

// aboveRate is the fullest rolling second less rate + 1; below 0 when under it.
func (s *paceStream) aboveRate() float64 { return float64(s.MaxRolling1s) - s.Rate - 1 }

// binsWithin is the share of the bins that deviate from the mean by at most a share of it.
func (s *paceStream) binsWithin(share float64) float64 {
	within := 0
	for _, deviation := range s.Bins {
		if deviation <= share+1e-9 {
			within++
		}
	}
	return float64(within) / float64(max(1, len(s.Bins)))
}

func (s *paceStream) worstBin() float64 { return slices.Max(append(s.Bins, 0)) }

// unfairness is the largest deviation of a daemon from an equal share, as a part of that share.
func (s *paceStream) unfairness() (worst float64) {
	for _, share := range s.Shares {
		worst = max(worst, math.Abs(share*float64(len(s.Shares))-1))
	}
	return worst
}

// missIf adds a bound if it was not met.
func (s *paceStream) missIf(missed bool, format string, args ...any) {
	if missed {
		s.Misses = append(s.Misses, fmt.Sprintf(format, args...))
	}
}

// judgeBound checks what no stream may do: send too much, lose a job, send one twice. Each of its campaigns may have one job above its
// rate in a rolling second.
func (s *paceStream) judgeBound() {
	most := s.Rate*rollingTolerance + float64(s.campaigns)
	s.missIf(float64(s.MaxRolling1s) > most, "%d in a rolling second, want at most %.1f", s.MaxRolling1s, most)
	s.missIf(s.Lost > 0, "%d jobs are lost", s.Lost)
	s.missIf(s.Duplicates > 0, "%d jobs were sent again", s.Duplicates)
}

// judge compares the stream with its rate, from below and above. It also checks that a fast stream is even, that one of 1,000/s is on
// time, and that the daemons' shares are equal.
func (s *paceStream) judge() {
	// A window cuts through the spacing at both of its ends, which accounts for one job more or less.
	s.missIf(float64(s.Jobs)+1 < minAchieved*s.Rate*s.Seconds, "%.2f %% of the rate, want %.1f %%", 100*s.AchievedOverTarget, 100*minAchieved)
	s.judgeBound()
	if s.Rate >= evenRate {
		within, worst := s.binsWithin(evenWithin), s.worstBin()
		s.missIf(within < evenShare, "%.1f %% of the 100 ms bins within %.0f %%, want %.0f %%", 100*within, 100*evenWithin, 100*evenShare)
		s.missIf(worst > evenWorst, "a 100 ms bin %.0f %% off, want at most %.0f %%", 100*worst, 100*evenWorst)
	}
	s.missIf(s.Rate == evenRate && s.LatenessP99MS > maxLatenessMS, "slots used %.1f ms late (p99), want at most %d", s.LatenessP99MS, maxLatenessMS)
	off := s.unfairness()
	s.missIf(s.Jobs >= fairJobs && off > maxUnfairness, "a daemon's share is %.1f %% off, want at most %.0f %%", 100*off, 100*maxUnfairness)
}

// paceFact is one measured value and its bound.
type paceFact struct {
	Name     string  `json:"name"`
	Measured float64 `json:"measured"`
	Unit     string  `json:"unit"`
	Want     string  `json:"want"` // "" if there is no bound
	OK       bool    `json:"ok"`
}

// told returns a fact without a bound.
func told(name string, measured float64, unit string) paceFact {
	return paceFact{Name: name, Measured: count.Round(measured, 3), Unit: unit, OK: true}
}

// atMost returns a fact with an upper bound.
func atMost(name string, measured, bound float64, unit string) paceFact {
	f := told(name, measured, unit)
	f.Want, f.OK = fmt.Sprintf("at most %g", count.Round(bound, 3)), measured <= bound
	return f
}

// atLeast returns a fact with a lower bound.
func atLeast(name string, measured, bound float64, unit string) paceFact {
	f := told(name, measured, unit)
	f.Want, f.OK = fmt.Sprintf("at least %g", count.Round(bound, 3)), measured >= bound
	return f
}

// paceReport is the result of every measurement.
type paceReport struct {
	OK      bool         `json:"ok"`
	Streams []paceStream `json:"streams,omitempty"`
	Facts   []paceFact   `json:"facts,omitempty"`
}

func (r *paceReport) judge() {
	missed := slices.ContainsFunc(r.Streams, func(s paceStream) bool { return len(s.Misses) > 0 })
	r.OK = !missed && !slices.ContainsFunc(r.Facts, func(f paceFact) bool { return !f.OK })
}

// String is the report in Markdown: streams, the bounds that they did not meet, and facts.
func (r *paceReport) String() string {
	met := map[bool]string{true: "yes", false: "**no**"}
	var b, misses strings.Builder
	if len(r.Streams) > 0 {
		b.WriteString("| rate/s | daemons | sink | s | jobs | of rate | max in 1 s | above rate + 1 | bins within 5 % | worst bin | late p50 | " +
			"late p99 | shares off | CPU s/1M | MiB | Redis/job | requeued | lost | twice | met |\n" +
			"| ---: | ---: | --- |" + strings.Repeat(" ---: |", 17) + "\n")
	}
	for i := range r.Streams {
		s := &r.Streams[i]
		bins, shares := " | ", ""
		if s.Rate >= evenRate { // bins say something only if each has many jobs
			bins = fmt.Sprintf("%.1f %% | %.1f %%", 100*s.binsWithin(evenWithin), 100*s.worstBin())
		}
		if s.Daemons >= 2 && s.Jobs >= fairJobs { // and shares only of enough jobs
			shares = fmt.Sprintf("%.1f %%", 100*s.unfairness())
		}
		fmt.Fprintf(&b, "| %g | %d | %s | %g | %d | %.2f %% | %d | %+.1f | %s | %.2f ms | %.2f ms | %s | %.0f | %.0f | %.3f | %.3f | %d | %d | %s |\n",
			s.Rate, s.Daemons, s.Sink, s.Seconds, s.Jobs, 100*s.AchievedOverTarget, s.MaxRolling1s, s.aboveRate(), bins, s.LatenessP50MS,
			s.LatenessP99MS, shares, s.CPUSecondsPerMillion, s.RSSMiB, s.RedisCommandsPerJob, s.RequeuesPerJob, s.Lost, s.Duplicates,
			met[len(s.Misses) == 0])
		if len(s.Misses) > 0 {
			fmt.Fprintf(&misses, "- %g/s on %d daemons: %s\n", s.Rate, s.Daemons, strings.Join(s.Misses, "; "))
		}
	}
	if misses.Len() > 0 {
		b.WriteString("\nNot met:\n\n" + misses.String() + "\n")
	}
	if len(r.Facts) > 0 {
		b.WriteString("| measured | | | bound | met |\n| --- | ---: | --- | --- | --- |\n")
	}
	for _, f := range r.Facts {
		verdict := ""
		if f.Want != "" {
			verdict = met[f.OK]
		}
		fmt.Fprintf(&b, "| %s | %g | %s | %s | %s |\n", f.Name, f.Measured, f.Unit, f.Want, verdict)
	}
	return b.String()
}
