package consumer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// holding is a partition that is held, and its reader.
type holding struct {
	partition
	from    delivery.Place
	source  atomic.Pointer[source] // nil while it is not known where to begin
	reading context.Context
	stop    context.CancelFunc
	begins  chan start    // where to begin, once that is known
	found   bool          // begins has been sent; of the goroutine that looks for it
	done    chan struct{} // closed when the reader has ended
	going   bool          // it is being let go of
	passed  atomic.Bool   // it is not read: what was committed for it cannot be used
}

// partitionsOf returns the partitions of holdings.
func partitionsOf(list []*holding) []partition {
	at := make([]partition, len(list))
	for i, h := range list {
		at[i] = h.partition
	}
	return at
}

// add begins to hold partitions, and to find out where they begin.
func (t *assignment) add(gained []partition) {
	l := &startOffsets{assignment: t, lanesRead: sync.OnceValue(func() <-chan struct{} {
		read := make(chan struct{})
		t.helpers.Go(func() {
			defer close(read)
			t.awaitLanes()
		})
		return read
	})}
	t.change(func(list []*holding) []*holding {
		if t.ending {
			return list
		}
		for _, at := range gained {
			h := &holding{partition: at, begins: make(chan start, 1), done: make(chan struct{})}
			h.from, _ = t.opt.place(at.Topic)
			h.reading, h.stop = context.WithCancel(t.work)
			l.left = append(l.left, h)
			t.helpers.Go(func() { l.begin(h) })
		}
		return append(list, l.left...)
	})
	t.help(l.run)
}

// begin reads a partition once it is known where to begin. Ingress waits for lanes.
func (l *startOffsets) begin(h *holding) {
	defer close(h.done)
	select {
	case from := <-h.begins:
		if h.from == delivery.FromIngress {
			<-l.lanesRead()
		}
		l.read(h, &from)
	case <-h.reading.Done():
	}
}

// read reads a partition until it is let go of: one log after the other, each with a source of its own.
func (t *assignment) read(h *holding, from *start) {
	for from != nil && !from.held {
		s, err := newSource(h.partition, h.from, *from, t.budget, t.metrics, t.origins, &t.told, t.commit.kicked.Send)
		log := t.opt.Logger.With("partition", h.String(), "offset", from.offset)
		switch {
		case s == nil: // from the offset alone, all that was sent beyond a paused campaign would be sent again
			log.Error("the metadata of a lane's offset cannot be read, so it is not known which of its jobs were sent; the lane is not read",
				"error", err, "remedy", "run the version that wrote it, or "+resetOffset)
			from = &start{held: true}
			continue
		case err != nil:
			log.Warn("the metadata of a committed offset cannot be read; what was settled beyond it may be sent again", "error", err)
		}
		h.source.Store(s)
		if from = t.reader(s)(h.reading); from == nil {
			return
		}
		if leaving, _ := s.Revoked(); leaving {
			s.leave()
		} else {
			s.forget()
		}
		t.janitor.await() // the log may give these offsets to other records now
	}
	if from != nil {
		h.source.Store(nil)
		t.pass(h)
	}
}

// reader makes the reader of a source.
func (t *assignment) reader(s *source) (run func(context.Context) *start) {
	base := reader{
		opt: &t.opt, health: t.health, hearts: t.hearts, src: s, receipt: t.opt.Receipt(s), settle: func(ctx context.Context) { t.settle(ctx, s) },
		memory: fetchMemory{last: min(1<<20, t.budget.limit/16)}, // a batch is no larger by Kafka's default
	}
	if s.from == delivery.FromLane {
		r := &laneReader{reader: base, idle: t.idle, recalls: &t.recalls}
		return r.run
	}
	read := 0
	r := &ingressReader{reader: base, maxBytes: t.fetchBytes, repeated: func(j *delivery.Job) bool {
		read++
		return read <= mayBeMoved && t.origins.Moved(j, t.laneRepeats())
	}}
	if r.isTimer() {
		r.maxBytes, r.idle = func() int64 { return timerFetchBytes }, t.idle
		r.repeated = func(j *delivery.Job) bool { return s.repeats.Repeated(j, j.Offset) }
		_, r.delay = t.opt.place(s.Topic)
	}
	return r.run
}

// mayBeMoved is how many jobs of a partition of ingress are looked for in lanes, after it was gained: more than a daemon moves before it has
// committed that.
const mayBeMoved = 4 * maxUncommitted

// laneRepeats are those of the lanes that are held.
func (t *assignment) laneRepeats() (lanes []*offset.Repeats) {
	for _, s := range t.sources() {
		if s.from == delivery.FromLane {
			lanes = append(lanes, s.repeats)
		}
	}
	return lanes
}

// awaitLanes waits until the lanes are read up to where they end now, as far as queues have room. Then jobs of ingress that are in a lane
// already are recognised.
func (t *assignment) awaitLanes() {
	defer t.recalls.Add(-1)
	ctx, cancel := context.WithTimeout(t.work, t.opt.lanesFirst)
	defer cancel()
	ends, _ := t.opt.Client.Offsets(ctx, broker.Latest, partitionsOf(t.lanes())...) // of those that answer
	unread := func(h *holding) bool {
		s := h.source.Load()
		return ends[h.partition] > 0 && !h.passed.Load() && (s == nil || s.reads(ends[h.partition]))
	}
	for slices.ContainsFunc(t.lanes(), unread) && retry.Sleep(ctx, 10*time.Millisecond) == nil { //nolint:revive // it waits
	}
}

// fetchBytes bounds a fetch of ingress: a quarter of the budget is divided among the jobs of the fetches that may be in flight at once.
func (t *assignment) fetchBytes() int64 {
	return min(max(t.budget.limit/4/expansion/max(t.ingress.Load(), 1), minFetchBytes), maxFetchBytes)
}

// pass counts a partition that is not read until it is let go of.
func (t *assignment) pass(h *holding) {
	shown := t.metrics.stalled.WithLabelValues(placeNames[h.from])
	if h.from == delivery.FromLane {
		shown = t.metrics.unreadableLanes
	}
	h.passed.Store(true)
	shown.Inc()
	defer shown.Dec()
	<-h.reading.Done()
}

// run reads and commits until everything has to be let go of, and lets go of it: it drains, commits and forgets.
func (t *assignment) run(ctx context.Context) {
	lasting := context.WithoutCancel(ctx)
	committing, stopCommitting := context.WithCancel(lasting)
	defer stopCommitting()
	var committer sync.WaitGroup
	defer t.hearts.begin(&t.commit.heart, "the goroutine that commits", labelGroup)()
	committer.Go(func() { t.commit.run(committing) })
	t.help(t.idle.Run)
	t.help(func(ctx context.Context) {
		retry.Every(ctx, t.opt.PositionInterval, func(time.Time) { t.savePositions(ctx) })
	})
	if !t.opt.KeepDelivered {
		t.help(t.janitor.run)
	}
	t.help(t.watchTopics)
	t.help(t.survey)
	t.help((&counting{assignment: t}).run)
	t.help(t.watchMemory)
	t.help(func(ctx context.Context) { t.lease.watch(ctx, drainTimeout+commitTimeout) })

	<-t.work.Done()
	stopping := time.Now()
	t.mu.Lock()
	t.ending = true
	t.mu.Unlock()
	t.helpers.Wait()
	t.drain(lasting)
	stopCommitting()
	committer.Wait()
	t.commit.heart.rest()
	t.metrics.joined.Set(0)
	t.finish(ctx, stopping, func(final context.Context) {
		t.savePositions(final)
		t.janitor.last(final)
	})
	for _, s := range t.sources() {
		s.leave()
	}
	t.forfeit(lasting) // what could not be waited for
	t.change(func([]*holding) []*holding { return nil })
}

// outageEndured is how long the last commit of a member that goes on waits for a coordinator.
const outageEndured = time.Minute

// finish commits what was settled last, unless others have the partitions already, and saves positions if ctx has ended: otherwise the next
// owners save them soon, and all partitions would wait for the database. While no coordinator answers, it retries: for the rest of
// ShutdownTimeout since stopping, or for a while if ctx goes on. Meanwhile nothing is sent and no daemon can join; the coordinator that comes
// back knows this member.
func (t *assignment) finish(ctx context.Context, stopping time.Time, save func(context.Context)) {
	within := outageEndured
	if ctx.Err() != nil {
		within = max(commitTimeout, t.opt.ShutdownTimeout-time.Since(stopping))
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if ctx.Err() == nil {
		defer context.AfterFunc(ctx, func() { time.AfterFunc(commitTimeout, cancel) })()
	}
	if err := t.commit.last(final); err != nil {
		t.opt.Logger.Warn("the last commit was not accepted; jobs that were settled since the one before may be sent twice",
			"group", t.opt.Group, "generation", t.id.Load(), "error", err)
	}
	if ctx.Err() != nil && !t.commit.fenced {
		save(final)
	}
}

// drainTimeout bounds a drain when others may have the partitions soon.
const drainTimeout = 3 * time.Second

// drain revokes all that is held, and waits until what is in flight has ended: within ShutdownTimeout, or drainTimeout once there is a hurry.
func (t *assignment) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.opt.ShutdownTimeout)
	defer cancel()
	defer context.AfterFunc(t.hurry, func() { time.AfterFunc(drainTimeout, cancel) })()
	open := t.settle(ctx, t.sources()...)
	t.metrics.doubt.Add(float64(open))
	if open > 0 {
		t.opt.Logger.Warn("jobs in flight were not finished before their partitions were lost; they may be sent twice", "jobs", open)
	}
}
