package consumer

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// watchdog notices partitions that stand still though they could move on. kafka-go sends heart-beats whatever our own
// goroutines do, so nobody else would: such a partition would stay with this daemon, and its jobs wait, for ever.
//
// Every kind of progress has a mark that moves with it, and a condition under which it could be made:
//
//   - a fetch, or an offer to the handler, that has begun ends: both have deadlines;
//   - a reader fetches when there is something to read, room in the window and in the budget, and the broker answers for
//     the partition; or it goes on offering what a fetch brought, which an outage makes slow;
//   - the oldest open offset of ingress and timers is settled, unless the broker refuses commits or what is re-enqueued.
//     In lanes an offset stays open for as long as its campaign takes, and so does that of a campaign that blocks;
//   - the acknowledged version of a partition with changes moves when the broker answers commits;
//   - the committer comes round; a generation that has ended is let go.
//
// So a paused campaign, an empty partition, a full window or budget and a broker that does not answer are no stalls.
// One goroutine runs it for each generation. It takes the locks of the sources and so stops with them in a deadlock,
// which whoever asks watchState notices.
type watchdog struct {
	*shared
	opt    *Options
	commit *committer
	works  func() bool // whether the generation goes on
	vigils []*vigil    // of the committer's sources, in their order, and of the group
	last   time.Time   // look
}

func newWatchdog(d *shared, o *Options, c *committer, works func() bool) *watchdog {
	w := &watchdog{shared: d, opt: o, commit: c, works: works}
	for _, s := range c.sources {
		w.vigils = append(w.vigils, &vigil{name: s.where().String(), place: placeNames[s.place()]})
	}
	w.vigils = append(w.vigils, &vigil{name: "group " + o.Group, place: placeGroup})
	return w
}

// looksWithin is how often the watchdog looks within its patience.
const looksWithin = 8

// run looks until ctx ends.
func (w *watchdog) run(ctx context.Context) {
	defer w.end()
	tick := time.NewTicker(w.opt.Watchdog / looksWithin)
	defer tick.Stop()
	for {
		now := time.Now()
		w.look(now)
		w.state.looked(now, w.vigils)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// end forgets everything: nobody watches any more.
func (w *watchdog) end() {
	for _, v := range w.vigils {
		if v.found != nil {
			w.metrics.stalled.WithLabelValues(v.place).Dec()
		}
	}
	w.state.looked(time.Time{}, nil)
}

// look looks at everything once and tells what has changed.
func (w *watchdog) look(now time.Time) {
	// The process was suspended, or has had no CPU for long: then nothing could move in between.
	if gap := now.Sub(w.last); !w.last.IsZero() && gap > w.opt.Watchdog/2 {
		for _, v := range w.vigils {
			for f := range v.still {
				v.still[f].shift(gap)
			}
		}
	}
	w.last = now
	commit, working, keeps := w.commit.seen(), w.works(), w.keepers()
	p := w.tolerance()
	for i, s := range w.commit.sources {
		w.tell(w.vigils[i], w.vigils[i].look(now, w.see(s, commit, working, keeps), p))
	}
	var whole sight
	whole.note(faultRounds, commit.rounds, true, "the goroutine that commits, which does not come round")
	whole.note(faultDrain, 0, !working, "readers and the handler to let go of partitions that the group has taken away")
	group := w.vigils[len(w.vigils)-1]
	w.tell(group, group.look(now, whole, p))
}

// tolerance is how long each kind of standstill is borne. Jobs of a window may be open for as long as the handler may
// keep them before its own patience is over.
func (w *watchdog) tolerance() tolerance {
	age := w.opt.Watchdog
	return tolerance{
		faultStep: age, faultReader: age + w.opt.OpenAge, faultOpen: age + w.opt.OpenAge, faultCommit: age,
		faultRounds: age, faultDrain: age + w.opt.ShutdownTimeout,
	}
}

// keepers are the campaigns whose jobs may be open in ingress for any time. That is asked at every look, and not when a
// job is read: people change it while jobs wait.
func (w *watchdog) keepers() map[whose]bool {
	if w.opt.Blocking == nil {
		return nil
	}
	keeps := map[whose]bool{}
	for campaign := range w.opt.Blocking() {
		keeps[whoseIs(campaign)] = true
	}
	return keeps
}

// see looks at one partition.
func (w *watchdog) see(s tracked, commit commitState, working bool, keeps map[whose]bool) sight {
	name, place := s.where().String(), s.place()
	out := s.see(w.maxOpen)
	step := w.steps.of(name)
	out.note(faultStep, step.begun, step.doing != "", step.doing)
	out.marks[faultReader] = step.begun
	out.could[faultReader] = out.could[faultReader] && working && !w.health.fails(name) &&
		!w.budget.crowded(place == delivery.FromLane)
	out.could[faultOpen] = out.could[faultOpen] && working && !w.health.fails("commit") &&
		(place != delivery.FromIngress || !keeps[out.whose]) && (w.opt.Outage == nil || !w.opt.Outage())
	out.could[faultCommit] = out.could[faultCommit] && commit.answered
	out.waits[faultCommit] = "a commit that the broker does not accept"
	if commit.err != nil {
		out.waits[faultCommit] += ": " + commit.err.Error()
	}
	return out
}

// tell says when a standstill has begun or is over.
func (w *watchdog) tell(v *vigil, changed bool) {
	gauge := w.metrics.stalled.WithLabelValues(v.place)
	switch {
	case !changed:
	case v.found == nil:
		gauge.Dec()
		w.log.Info("a partition that stood still moves on", "partition", v.name)
	default:
		gauge.Inc()
		w.log.Error("a partition makes no progress though it could; restart this process if that does not pass",
			"partition", v.name, "place", v.place, "offset", v.found.offset, "waits_for", v.found.waits,
			"for", v.found.idle.Round(time.Millisecond))
	}
}

// see tells what moves in a partition of ingress or of a timer.
func (s *source) see(maxOpen int64) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	of, open := s.window.oldest()
	out := sight{offset: s.window.base, whose: of}
	out.note(faultOpen, uint64(s.window.base), open,
		"the fate of the job at this offset, which was handed over and is neither sent nor re-enqueued")
	roomy := s.uncommitted() < maxUncommitted && (s.window.open == 0 || s.window.width() < maxOpen/2)
	out.note(faultReader, 0, s.from == delivery.FromIngress && roomy && !s.blocks.still(), "its reader, which does not fetch")
	out.note(faultCommit, s.acked, s.uncommitted() > 0, "")
	return out
}

// see tells what moves in a lane.
func (s *laneSource) see(int64) sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := sight{offset: s.lane.committed()}
	_, _, behind := s.lane.candidate()
	ahead := s.lane.main < s.end.Load() && len(s.lane.campaigns) < maxLaneCampaigns
	out.note(faultReader, 0, s.uncommitted() < maxUncommitted && (behind || ahead), "its reader, which does not fetch")
	out.note(faultCommit, s.acked, s.uncommitted() > 0, "")
	return out
}

func (s *source) place() delivery.Place { return s.from }

func (s *laneSource) place() delivery.Place { return delivery.FromLane }

// steps knows what each reader is doing that must end by itself. Safe for use by several goroutines.
type steps struct {
	mu sync.Mutex
	by map[string]stepState // by partition
}

// stepState is where one reader is.
type stepState struct {
	begun uint64 // steps so far
	doing string // "" between steps
}

func newSteps() *steps { return &steps{by: map[string]stepState{}} }

// begin notes that a reader begins a step.
func (s *steps) begin(name, doing string) {
	s.change(name, func(st *stepState) { st.begun++; st.doing = doing })
}

// end notes that its step has ended.
func (s *steps) end(name string) {
	s.change(name, func(st *stepState) { st.doing = "" })
}

func (s *steps) change(name string, f func(*stepState)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.by[name]
	f(&st)
	s.by[name] = st
}

func (s *steps) of(name string) stepState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[name]
}

// watchState is what the watchdog has found, for whoever asks. Safe for use by several goroutines; the zero value has
// found nothing.
type watchState struct {
	mu   sync.Mutex
	at   time.Time // of the last look; zero while nothing is watched
	why  string    // of what has stood still longest beyond its patience; "" when all is well
	over time.Duration
	more int // how many others stand still
}

// looked notes what the look at now has found.
func (s *watchState) looked(now time.Time, vigils []*vigil) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.why, s.over, s.more = now, "", 0, -1
	for _, v := range vigils {
		if v.found == nil {
			continue
		}
		s.more++
		if s.why == "" || v.found.over > s.over {
			s.why, s.over = v.String(), v.found.over
		}
	}
}

// stalled is what to say at now about standstills: "" when there is none; and for how long patience is over.
func (s *watchState) stalled(now time.Time, age time.Duration) (why string, over time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.at.IsZero():
		return "", 0
	case now.Sub(s.at) > age:
		return "the watchdog of partitions itself has stood still for " + now.Sub(s.at).Round(time.Second).String(), now.Sub(s.at) - age
	case s.more > 0:
		return s.why + "; and " + strconv.Itoa(s.more) + " others", s.over
	}
	return s.why, s.over
}

// Stalled tells which partition makes no progress though it could, in one line, and for how long patience with it is
// over; "" when all is well.
func (c *Consumer) Stalled() (why string, over time.Duration) {
	return c.state.stalled(time.Now(), c.opt.Watchdog)
}

// placeGroup stands in labels for what concerns all partitions.
const placeGroup = "group"

func newStalledGauge() *prometheus.GaugeVec {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_partition_stalled", Help: "Partitions that make no progress though they could.",
	}, []string{"place"})
	for _, place := range append(placeNames[:], placeGroup) {
		g.WithLabelValues(place)
	}
	return g
}
