package consumer

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// watchdog detects partitions that make no progress although they could. kafka-go sends heartbeats whatever the
// consumer's goroutines do, so the group would not notice: the partition would stay with this daemon, and its jobs
// would wait for ever.
//
// Every kind of progress has a mark that moves with it, and a condition under which it is possible:
//
//   - a fetch, or an offer to the handler, that has begun ends: both have deadlines;
//   - a reader fetches if there is something to read, room in the window and in the budget, and the broker answers for
//     the partition; or it still offers the jobs of a fetch, which an outage makes slow;
//   - the oldest open offset of ingress and timers is settled, unless the broker refuses commits or this job's record.
//     In lanes, and for a campaign that blocks, an offset may stay open for any time;
//   - the acknowledged version of a partition with changes moves if the broker answers commits;
//   - the committer makes its rounds; a generation that has ended is released;
//   - a fetch that waits for its share of the budget gets it, since jobs of lanes can be given back.
//
// So a paused campaign, an empty partition, a full window and a broker that does not answer are no stalls.
// One goroutine runs it. It takes the locks of the sources, so a deadlock blocks it too, which
// watchState detects.
type watchdog struct {
	opt     *Options
	metrics *metrics
	health  *broker.Health
	budget  *budget
	state   *watchState
	commit  *committer
	held    func() []watched // what there is to watch
	works   func() bool      // whether it is worked on
	// watched and detectors have the same order; the last detector, one more, is that of the group.
	watched   []watched
	detectors []*stallDetector
	last      time.Time // the last look
}

// watch sets the partitions to watch, and goes on with those that were watched before.
func (w *watchdog) watch(partitions []watched) {
	if w.detectors != nil && slices.Equal(partitions, w.watched) {
		return
	}
	known := map[string]*stallDetector{}
	for _, d := range w.detectors {
		known[d.name] = d
	}
	w.watched, w.detectors = partitions, nil
	keep := func(name, label string) {
		d := known[name]
		if d == nil {
			d = &stallDetector{name: name, label: label}
		}
		delete(known, name)
		w.detectors = append(w.detectors, d)
	}
	for _, p := range partitions {
		keep(p.base().String(), placeNames[p.base().from])
	}
	keep("group "+w.opt.Group, labelGroup)
	for _, d := range known {
		w.forget(d)
	}
}

// forget ends the watch of a partition.
func (w *watchdog) forget(d *stallDetector) {
	if d.found != nil {
		w.metrics.stalled.WithLabelValues(d.label).Dec()
	}
}

// looksWithin is the number of looks within Options.Watchdog.
const looksWithin = 8

// run looks periodically until ctx ends.
func (w *watchdog) run(ctx context.Context) {
	defer w.end()
	look := func(time.Time) {
		now := time.Now() // a tick may be old
		w.watch(w.held())
		w.look(now)
		w.state.looked(now, w.detectors)
	}
	look(time.Now())
	retry.Every(ctx, w.opt.Watchdog/looksWithin, look)
}

// end forgets everything: no partition is watched any more.
func (w *watchdog) end() {
	for _, d := range w.detectors {
		w.forget(d)
	}
	w.state.looked(time.Time{}, nil)
}

// look observes all partitions once and logs what has changed.
func (w *watchdog) look(now time.Time) {
	// The process was suspended, or had no CPU for long: nothing could have moved in between.
	if gap := now.Sub(w.last); !w.last.IsZero() && gap > w.opt.Watchdog/2 {
		for _, d := range w.detectors {
			d.shift(gap)
		}
	}
	w.last = now
	commit, working, blocking := w.commit.seen(), w.works(), w.blocking()
	p := w.tolerance()
	for i, s := range w.watched {
		w.tell(w.detectors[i], w.detectors[i].look(now, w.observe(s, commit, working, blocking), p))
	}
	group := w.detectors[len(w.detectors)-1]
	w.tell(group, group.look(now, w.observeGroup(commit, working, blocking), p))
}

// tolerance returns how long each kind of stall is tolerated. Jobs of a window may be open for as long as the handler
// may keep them, and for Options.Watchdog beyond that.
func (w *watchdog) tolerance() tolerance {
	age := w.opt.Watchdog
	return tolerance{
		faultStep: age, faultReader: age + w.opt.OpenAge, faultOpen: age + w.opt.OpenAge, faultCommit: age,
		faultRounds: age, faultDrain: age + w.opt.ShutdownTimeout, faultRoom: age + w.opt.OpenAge, faultLaneRoom: age + w.opt.OpenAge,
	}
}

// blocking returns the owners whose jobs may be open in ingress for any time. It is read at every look, not when a job
// is read, because operators change it while jobs wait.
func (w *watchdog) blocking() map[offset.Owner]bool {
	owners := map[offset.Owner]bool{}
	for campaign := range w.opt.Blocking() {
		owners[offset.OwnerOf(campaign)] = true
	}
	return owners
}

// crowdedBy is the part of the memory from which on jobs that Kafka refuses may be why it is full.
const crowdedBy = 8

// observeGroup returns the observation of what concerns all partitions. Memory may be full of jobs of campaigns that
// keep theirs in ingress, or of jobs that Kafka refuses.
func (w *watchdog) observeGroup(commit commitState, working bool, blocking map[offset.Owner]bool) (out observation) {
	out.note(faultRounds, commit.rounds, true, "the goroutine that commits, which does not come round")
	out.note(faultDrain, 0, !working, "readers and the handler to let go of partitions that the group has taken away")
	possible := working && w.opt.Waiting() < w.opt.MaxBufferBytes/crowdedBy
	since, waited := w.budget.of(delivery.FromIngress).crowded()
	out.note(faultRoom, waited, possible && !since.IsZero() && len(blocking) == 0, "memory for jobs of ingress and timers")
	since, waited = w.budget.of(delivery.FromLane).crowded()
	out.note(faultLaneRoom, waited, possible && !since.IsZero(), "memory for jobs of lanes, which the jobs in flight keep")
	return out
}

// observe returns the observation of one partition.
func (w *watchdog) observe(p watched, commit commitState, working bool, blocking map[offset.Owner]bool) observation {
	name, from := p.base().String(), p.base().from
	out := p.observe(w.opt.MaxOpen)
	waiting, _ := p.base().budget.crowded()
	out.could[faultReader] = out.could[faultReader] && working && !w.health.Fails(name) && waiting.IsZero()
	out.could[faultOpen] = out.could[faultOpen] && working && !w.health.Fails("commit") &&
		(from != delivery.FromIngress || !blocking[out.owner]) && !w.opt.Waits(name, out.offset)
	out.could[faultCommit] = out.could[faultCommit] && commit.answered
	if commit.err != nil {
		out.waits[faultCommit] += ": " + commit.err.Error()
	}
	return out
}

// tell logs that a stall has begun or is over.
func (w *watchdog) tell(d *stallDetector, changed bool) {
	gauge := w.metrics.stalled.WithLabelValues(d.label)
	switch {
	case !changed:
	case d.found == nil:
		gauge.Dec()
		w.opt.Logger.Info("a partition that stood still moves on", "partition", d.name)
	default:
		gauge.Inc()
		w.opt.Logger.Error("a partition makes no progress though it could; restart this process if that does not pass",
			"partition", d.name, "place", d.label, "offset", d.found.offset, "waits_for", d.found.waits,
			"for", d.found.idle.Round(time.Millisecond))
	}
}

// watchState holds the findings of the watchdog. It is safe for concurrent use; the zero value has none.
type watchState struct {
	mu   sync.Mutex
	at   time.Time // time of the last look; zero while no partition is watched
	why  string    // of the stall that exceeds its tolerance most; "" if there is none
	over time.Duration
	more int // number of further stalls
}

// looked records the findings of the look at now.
func (s *watchState) looked(now time.Time, detectors []*stallDetector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.why, s.over, s.more = now, "", 0, -1
	for _, v := range detectors {
		if v.found == nil {
			continue
		}
		s.more++
		if s.why == "" || v.found.over > s.over {
			s.why, s.over = v.String(), v.found.over
		}
	}
}

// stalled returns, at now, what has stalled ("" if nothing has) and by how much it exceeds its tolerance. age is how
// long the watchdog itself may go without a look.
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

// Stalled describes in one line the partition that makes no progress although it could, and returns by how much the
// stall exceeds its tolerance; "" if there is none.
func (c *Consumer) Stalled() (why string, over time.Duration) {
	return c.watch.stalled(time.Now(), c.opt.Watchdog)
}

// labelGroup is the label value for what concerns all partitions.
const labelGroup = "group"
