package consumer

import (
	"context"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// build makes a source and a reader for every partition. It starts nothing.
func (t *assignment) build(partitions []partition, locate *startOffsets) (made []*holding) {
	for _, at := range partitions {
		place, delay := t.opt.place(at.Topic)
		if place == delivery.FromLane {
			made = append(made, t.buildLane(at, locate))
			continue
		}
		src := newWindowSource(at, place, offset.NewWindow(0), t.budget, t.metrics, t.commit.kicked.Send)
		r := &ingressReader{src: src, maxBytes: t.ingressFetchBytes, maxWait: longPoll}
		if place == delivery.FromTimer {
			r.reader = t.reader(src, func(era int) receipt { return windowReceipt{src, era} })
			r.asTimer(delay, t.idle, t.origins)
		} else {
			r.reader = t.reader(src, func(era int) receipt { return ingressReceipt{windowReceipt{src, era}} })
		}
		made = append(made, t.make(src, locate, r.run))
	}
	return made
}

func (t *assignment) buildLane(at partition, locate *startOffsets) *holding {
	src := newLaneSource(at, offset.NewLane(0), t.budget, t.metrics, t.commit.kicked.Send)
	enter := func(era int) receipt { return laneReceipt{src, era} }
	r := &laneReader{reader: t.reader(src, enter), src: src, idle: t.idle, repeats: offset.NewRepeats(t.origins)}
	return t.make(src, locate, r.run)
}

// reader makes the part common to all readers.
func (t *assignment) reader(p placed, enter func(era int) receipt) reader {
	return reader{
		opt: &t.opt, health: t.health, hearts: t.hearts, base: p.base(), partition: p, enter: enter,
		memory: fetchMemory{last: min(1<<20, t.budget.limit/16)}, // a batch is no larger by Kafka's default
	}
}

// ingressFetchBytes bounds a fetch of ingress.
func (t *assignment) ingressFetchBytes() int64 {
	return ingressFetchBytes(t.opt.MaxBufferBytes, int(t.ingress.Load()))
}

// make makes a holding that is read as soon as it is known where to begin.
func (t *assignment) make(p placed, locate *startOffsets, read func(context.Context)) *holding {
	p.base().unplaced = true
	await := locate.await(p.base().partition)
	return &holding{placed: p, done: make(chan struct{}), read: func(ctx context.Context) {
		from, err := await(ctx)
		switch {
		case err != nil:
		case t.place(p, from):
			read(ctx)
		default:
			t.pass(ctx)
		}
	}}
}

// place sets the position of a partition. ok is false if the metadata of a lane cannot be read, so that its position is
// not known: a version that is newer has written it, or a tool. From the offset alone, all that was sent beyond a paused
// campaign would be sent again.
func (t *assignment) place(p placed, from start) (ok bool) {
	err := p.place(from)
	log := t.opt.Logger.With("partition", p.base().String(), "offset", from.offset)
	switch {
	case err == nil:
	case p.base().from == delivery.FromLane:
		log.Error("the metadata of a lane's offset cannot be read, so it is not known which of its jobs were sent; the lane is not read",
			"error", err, "remedy", "run the version that wrote it, or stop all daemons and reset the offset of this partition: "+
				"all jobs after it are sent again")
		return false
	default:
		log.Warn("the metadata of a committed offset cannot be read; what was settled beyond it may be sent again", "error", err)
	}
	return true
}

// pass counts a lane that is not read until ctx ends.
func (t *assignment) pass(ctx context.Context) {
	t.metrics.unreadableLanes.Inc()
	defer t.metrics.unreadableLanes.Dec()
	<-ctx.Done()
}

// run reads and commits until everything has to be let go of, and lets go of it: it drains, commits and forgets.
func (t *assignment) run(ctx context.Context) {
	lasting := context.WithoutCancel(ctx)
	committing, stopCommitting := context.WithCancel(lasting)
	defer stopCommitting()
	keep := &checkpointer{opt: &t.opt, sources: t.sources}
	survey := &survey{opt: &t.opt, metrics: t.metrics, ends: map[partition]int64{}, open: map[partition]opened{}, sources: func() (list []surveyed) {
		for _, h := range t.holdings() {
			list = append(list, h.placed)
		}
		return list
	}}
	var committer sync.WaitGroup
	defer t.hearts.begin(&t.commit.heart, "the goroutine that commits", labelGroup)()
	committer.Go(func() { t.commit.run(committing) })
	t.help(t.idle.Run)
	t.help(keep.run)
	t.help(t.watchTopics)
	t.help(survey.run)
	t.help(func(ctx context.Context) { t.lease.watch(ctx, t.opt.DrainTimeout+commitTimeout) })

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
	t.setJoined(false)
	within := commitTimeout
	if ctx.Err() != nil { // the group knows this member, so there is more time
		within = max(within, t.opt.ShutdownTimeout-time.Since(stopping))
	}
	t.finish(lasting, ctx, within, func(final context.Context) {
		// In a rebalance the next owners keep positions soon, and all partitions would wait for the database.
		if ctx.Err() != nil {
			keep.save(final)
		}
	})
	for _, h := range t.holdings() {
		h.base().leave()
	}
	t.change(func(held map[partition]*holding) { clear(held) })
}

// outageEndured is how long the last commit of a member waits for a coordinator.
const outageEndured = time.Minute

// finish commits what was settled last, unless others have the partitions already. While no coordinator answers, it tries on for a
// while, or until stopping ends: nothing is sent meanwhile, nobody can join either, and the one that comes back knows this member.
func (t *assignment) finish(ctx, stopping context.Context, within time.Duration, save func(context.Context)) {
	begun := time.Now()
	for {
		final, cancel := context.WithTimeout(ctx, within)
		if !t.commit.fenced {
			t.confirm(final, commitTimeout/2, t.holdings())
		}
		err := t.commit.last(final)
		if err != nil && !t.commit.answered && stopping.Err() == nil && time.Since(begun) < outageEndured {
			cancel()
			continue
		}
		if err != nil {
			t.opt.Logger.Warn("the last commit was not accepted; jobs that were settled since the one before may be sent twice",
				"group", t.opt.Group, "generation", t.id.Load(), "error", err)
		}
		if !t.commit.fenced {
			save(final)
		}
		cancel()
		return
	}
}

// drain lets the handler finish what is in flight: within ShutdownTimeout, or DrainTimeout once there is a hurry.
func (t *assignment) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, t.opt.ShutdownTimeout)
	defer cancel()
	done := make(chan struct{})
	var cut sync.WaitGroup
	cut.Go(func() {
		select {
		case <-done:
			return
		case <-t.hurry:
		}
		select {
		case <-done:
		case <-time.After(t.opt.DrainTimeout):
			cancel()
		}
	})
	open, err := t.opt.Handler.Drain(ctx)
	close(done)
	cut.Wait()
	t.metrics.doubt.Add(float64(open))
	if err != nil {
		t.opt.Logger.Warn("sinks do not return although their calls were cancelled; what is in flight may be sent twice", "error", err)
	}
	if open > 0 {
		t.opt.Logger.Warn("jobs in flight were not finished before their partitions were lost; they may be sent twice", "jobs", open)
	}
}

// ingressFetchBytes divides a quarter of the budget among the fetches that may be in flight at
// once.
func ingressFetchBytes(budget int64, partitions int) int64 {
	return min(max(budget/4/int64(max(partitions, 1)), minFetchBytes), maxFetchBytes)
}
