package test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

const (
	stormDaemons = 3
	stormWindow  = 10 * time.Second
	stormChanges = 100
	stormFirst   = 1000 // per second, until the first change
	stormLowest  = 50
	stormHighest = 5000
	// stormGap is the longest interval without a job: the time that a change takes to act, plus the spacing of the lowest rate, plus as
	// much again as tolerance for the machine.
	stormGap = 250 * time.Millisecond

	stallBegins = 3 * time.Second // into the window
	stallLasts  = 2 * time.Second
	// stallBurst is how long after a stall missed jobs would be sent at once.
	stallBurst = 100 * time.Millisecond
	// stallBlur is how much closer together requests sent in an interval may have arrived.
	stallBlur       = 10 * time.Millisecond
	minStalledShare = 0.97

	minCampaignRate  = 0.98 // of its rate, for every one of many campaigns
	manyBinsWithin10 = 0.99 // of the 100 ms bins
	maxManyMiB       = 1024
	maxManyCores     = 1.0
)

// stormy is a plan of changes of one campaign's rate, and their times.
type stormy struct {
	rates   []int64            // per second, the first before the window begins
	after   []time.Duration    // of each but the first, from the beginning of the window
	changes []count.RateChange // as they bound what may be sent: with the tolerance for slots that are used late
	inForce []count.RateChange // as they were made
}

// newStorm draws the changes: rates with uniform logarithms, at uniform instants within each tenth of a second.
func newStorm(seed uint64) *stormy {
	random := rand.New(rand.NewPCG(seed, stormChanges))
	s := &stormy{rates: []int64{stormFirst}, changes: rateChanges(stormFirst), inForce: rateChanges(stormFirst)}
	step := stormWindow / stormChanges
	for i := range stormChanges {
		s.after = append(s.after, time.Duration(i)*step+time.Duration(random.Int64N(int64(step))))
		s.rates = append(s.rates, int64(stormLowest*math.Pow(stormHighest/stormLowest, random.Float64())))
	}
	return s
}

// units returns how many jobs the plan sends in the window.
func (s *stormy) units() (n float64) {
	at := time.Duration(0)
	for i, next := range append(slices.Clone(s.after), stormWindow) {
		n += float64(s.rates[i]) * (next - at).Seconds()
		at = next
	}
	return n
}

// blow makes the changes: set sets a rate, now is the clock of the measurement. The rest is sent at the highest rate, after the window.
func (s *stormy) blow(now func() time.Duration, set func(rate int64) error) error {
	began := now()
	for i, after := range append(slices.Clone(s.after), stormWindow) {
		time.Sleep(began + after - now())
		was, is := s.rates[i], int64(stormHighest)
		if i < len(s.after) {
			is = s.rates[i+1]
		}
		before := now()
		if err := set(is); err != nil {
			return err
		}
		s.changed(was, is, before, now())
	}
	return nil
}

// changed notes a change that was made between two instants. A rate counts from before it is written, and the one before it until after
// that and until its last slots may have been used.
func (s *stormy) changed(was, is int64, before, after time.Duration) {
	c := count.RateChange{At: after, Rate: delivery.PerSecond(is)}
	s.inForce = append(s.inForce, c)
	if c.At = before; is < was {
		c.At = after + count.LateTolerance // slots before the change may be used this late
	}
	s.changes = append(s.changes, c)
}

// share is how much of what the rates gave was sent in the window, in per cent.
func (s *stormy) share(run *paceRun) float64 {
	line := count.NewTimeline(s.inForce, 0)
	due := line.Units(run.window.To) - line.Units(run.window.From)
	return 100 * float64(run.stream(0).Jobs) / due
}

// facts checks that the stream stayed below the rates in force and never stopped. It is pure.
func (s *stormy) facts(run *paceRun) []paceFact {
	stream := run.stream(0)
	longest, last := time.Duration(0), run.window.From
	var times []time.Duration
	for _, e := range run.events {
		if times = append(times, e.at); run.window.Holds(e.at) {
			longest, last = max(longest, e.at-last), e.at
		}
	}
	longest = max(longest, run.window.To-last)
	return []paceFact{
		told("changes of the rate", float64(len(s.changes)-2), ""),
		told("jobs in the window", float64(stream.Jobs), ""),
		told("jobs of those that the rates gave", s.share(run), "%"),
		atMost("worst rolling second above the largest rate in it x 1.02 + 1", max(0, rollingExcess(times, s.changes, time.Second)), 0, "jobs"),
		atMost("longest stretch without a job", longest.Seconds()*1000, float64(stormGap.Milliseconds()), "ms"),
		atMost("jobs lost", float64(stream.Lost), 0, ""),
		atMost("jobs sent twice", float64(stream.Duplicates), 0, ""),
	}
}

// rollingExcess returns by how many units the worst rolling span exceeds the bound: the largest rate in force within it, times its length
// and the tolerance for late slots, plus one. A rate counts for count.ChangeGrace longer than it is in force. The result is at most 0 if
// the bound holds, and minus infinity without arrivals, which are ascending.
func rollingExcess(arrivals []time.Duration, changes []count.RateChange, span time.Duration) float64 {
	line := count.NewTimeline(changes, span+count.ChangeGrace)
	worst, first := math.Inf(-1), 0
	for last, at := range arrivals {
		for at-arrivals[first] >= span {
			first++
		}
		worst = max(worst, float64(last-first+1)-line.Rate(at)*span.Seconds()*rollingTolerance-1)
	}
	return worst
}

// freeze suspends a daemon for a while in the window, and returns when it was suspended.
func (d *daemon) freeze(now func() time.Duration) (frozen count.Interval, err error) {
	time.Sleep(stallBegins)
	if err := d.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return frozen, err
	}
	frozen.From = now()
	time.Sleep(stallLasts)
	frozen.To = now()
	return frozen, d.cmd.Process.Signal(syscall.SIGCONT)
}

// stallFacts returns the effects of a stall on the stream. It is pure.
func stallFacts(run *paceRun, frozen count.Interval) []paceFact {
	stream := run.stream(0)
	about := fmt.Sprintf("one of %d daemons suspended: ", run.daemons)
	if run.daemons == 1 {
		about = "the only daemon suspended: "
	}
	within := func(w count.Interval) (times []time.Duration) {
		for _, e := range run.events {
			if w.Holds(e.at) {
				times = append(times, e.at)
			}
		}
		return times
	}
	burst := count.MaxRolling(within(count.Interval{From: frozen.To, To: frozen.To + time.Second}), stallBurst)
	facts := []paceFact{
		told(about+"for", frozen.Length().Seconds(), "s"),
		told(about+"jobs in its last second", float64(len(within(count.Interval{From: frozen.To - time.Second, To: frozen.To}))), ""),
		atMost(about+"most jobs in a rolling second", float64(stream.MaxRolling1s), stream.Rate*rollingTolerance+1, ""),
		atMost(about+"most jobs in 100 ms of the second after", float64(burst),
			stream.Rate*(stallBurst+count.LateTolerance+stallBlur).Seconds()+1, ""),
		atMost(about+"jobs lost", float64(stream.Lost), 0, ""),
		atMost(about+"jobs sent twice", float64(stream.Duplicates), 0, ""),
	}
	if run.daemons > 1 {
		share := float64(len(within(frozen))) / (stream.Rate * frozen.Length().Seconds())
		facts = append(facts, atLeast(about+"rate of the others meanwhile", 100*share, 100*minStalledShare, "%"))
	}
	return facts
}

// campaignsReport compares many campaigns of one rate with their bounds, each of them and together. It is pure.
func campaignsReport(run *paceRun) *paceReport {
	s := run.stream(-1)
	s.Sink = "discard"
	s.judgeBound()
	rate := run.loads[0].rate
	want := rate * s.Seconds
	times := make([][]time.Duration, len(run.loads))
	for _, e := range run.events {
		if run.window.Holds(e.at) {
			times[e.campaign] = append(times[e.campaign], e.at)
		}
	}
	slowest, below, fullest := s.Jobs, 0, 0
	for _, own := range times {
		slowest, fullest = min(slowest, len(own)), max(fullest, count.MaxRolling(own, time.Second))
		if float64(len(own))+1 < minCampaignRate*want { // the window may cut a spacing
			below++
		}
	}
	return &paceReport{Streams: []paceStream{s}, Facts: []paceFact{
		told("campaigns", float64(len(run.loads)), ""),
		told("jobs of the slowest campaign, of those due", 100*float64(slowest)/want, "%"),
		atMost(fmt.Sprintf("campaigns more than a job below %g %% of their rate", 100*minCampaignRate), float64(below), 0, ""),
		atMost("most jobs of a campaign in a rolling second", float64(fullest), rate*rollingTolerance+1, ""),
		atLeast("100 ms bins within 10 % of the mean", 100*s.binsWithin(0.10), 100*manyBinsWithin10, "%"),
		atMost("memory", s.RSSMiB, maxManyMiB, "MiB"),
		atMost("processors", run.cpu.Seconds()/s.Seconds, maxManyCores, "cores"),
	}}
}
