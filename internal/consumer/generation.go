package consumer

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// generation is one stretch of membership with one assignment. Its partitions are revoked together, so it starts and
// ends as a whole.
type generation struct {
	*shared
	opt    *Options
	commit *committer
	keep   *keeper
	idle   *idlePoll

	readers []func(context.Context)
	counts  [3]int // partitions by place
}

// runGeneration works on the partitions assigned until the generation ends or ctx does, and returns when nothing of it
// is left. While it drains after ctx has ended, the generation lives on and heart-beats go on.
func (c *Consumer) runGeneration(ctx context.Context, gen *kafka.Generation) {
	ended, released := make(chan struct{}), make(chan struct{})
	defer close(released)
	// kafka-go joins the next generation when all functions given to Start have returned: this one stands for all.
	gen.Start(func(ctx context.Context) {
		<-ctx.Done()
		close(ended)
		<-released
	})
	work, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-ended:
			stop()
		case <-work.Done():
		}
	})
	defer watch.Wait()
	defer stop()

	partitions := assigned(gen)
	g := &generation{shared: c.shared, opt: &c.opt}
	g.commit = newCommitter(c.shared.client, member{c.opt.Group, gen.MemberID, int(gen.ID)},
		c.opt.CommitInterval, c.metrics, c.health)
	finder := &startFinder{shared: c.shared, opt: &c.opt}
	starts, err := finder.find(work, partitions)
	if err != nil {
		return
	}
	g.build(partitions, starts)
	g.keep.passed = g.passage(starts)
	g.commit.passed = g.keep.passed
	c.reading.Store(&reading{gen.ID, g.keep.lanes})
	c.log.Info("joined the group", "group", c.opt.Group, "generation", gen.ID, "ingress", g.counts[delivery.FromIngress],
		"lanes", g.counts[delivery.FromLane], "timers", g.counts[delivery.FromTimer])
	c.metrics.generation.Set(float64(gen.ID))
	c.setJoined(true)
	g.run(ctx, work, ended)
	c.setJoined(false)
}

// assigned lists the partitions of a generation in a fixed order.
func assigned(gen *kafka.Generation) []partition {
	var partitions []partition
	for topic, list := range gen.Assignments {
		for _, p := range list {
			partitions = append(partitions, partition{topic, p.ID})
		}
	}
	slices.SortFunc(partitions, func(a, b partition) int {
		if a.topic != b.topic {
			if a.topic < b.topic {
				return -1
			}
			return 1
		}
		return a.id - b.id
	})
	return partitions
}

// build makes a source and a reader for every partition. It starts nothing.
func (g *generation) build(partitions []partition, starts map[partition]start) {
	g.idle = newIdlePoll(g.fetcher, g.client)
	g.keep = &keeper{opt: g.opt, log: g.log}
	for _, at := range partitions {
		place, _ := g.opt.place(at.topic)
		g.counts[place]++
	}
	fetchBytes := ingressFetchBytes(g.opt.MaxBufferBytes, g.counts[delivery.FromIngress])
	for _, at := range partitions {
		place, delay := g.opt.place(at.topic)
		if place == delivery.FromLane {
			g.buildLane(at, starts[at])
			continue
		}
		src := g.buildSource(at, place, starts[at])
		if place == delivery.FromTimer {
			g.keep.sources = append(g.keep.sources, src)
			g.readers = append(g.readers, newTimerReader(g.shared, src, delay, g.idle).run)
			continue
		}
		r := &ingressReader{shared: g.shared, src: src, maxBytes: fetchBytes, maxWait: longPoll}
		g.readers = append(g.readers, r.run)
	}
}

// ingressFetchBytes shares a quarter of the budget among the fetches that may be under way at once.
func ingressFetchBytes(budget int64, partitions int) int64 {
	return min(max(budget/4/int64(max(partitions, 1)), minFetchBytes), maxFetchBytes)
}

func (g *generation) buildSource(at partition, place delivery.Place, from start) *source {
	settled, err := decodeSettled(from.offset, from.metadata)
	if err != nil {
		g.foreign(at, err)
	}
	src := &source{
		partition: at, from: place, budget: g.budget, open: g.metrics.open(place), kick: g.commit.kick,
		window: newWindow(from.offset, settled),
	}
	g.commit.sources = append(g.commit.sources, src)
	return src
}

func (g *generation) buildLane(at partition, from start) {
	positions, err := decodeLane(from.offset, from.metadata)
	if err != nil {
		g.foreign(at, err)
	}
	src := newLaneSource(at, newLane(positions), g.budget, g.metrics, g.commit.kick)
	g.commit.sources = append(g.commit.sources, src)
	g.keep.sources, g.keep.lanes = append(g.keep.sources, src), append(g.keep.lanes, src)
	r := &laneReader{shared: g.shared, src: src, idle: g.idle, repeats: newRepeats(g.origins)}
	g.readers = append(g.readers, r.run)
}

func (g *generation) foreign(at partition, err error) {
	g.log.Warn("the metadata of a committed offset cannot be read; what was settled beyond it may be sent again",
		"partition", at.String(), "error", err)
}

// run reads and commits until work ends, then drains: at a rebalance within DrainTimeout, since nobody sends heart-beats
// by then; at the end of the consumer within ShutdownTimeout, or DrainTimeout after the generation has ended.
func (g *generation) run(ctx, work context.Context, ended <-chan struct{}) {
	for place, n := range g.counts {
		g.metrics.partitions[place].Set(float64(n))
		defer g.metrics.partitions[place].Set(0)
	}
	committing, stopCommitting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCommitting()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	var readers, committer, watchdog sync.WaitGroup
	watchdog.Go(func() { newWatchdog(g.shared, g.opt, g.commit, func() bool { return work.Err() == nil }).run(watching) })
	committer.Go(func() { g.commit.run(committing) })
	readers.Go(func() { g.idle.run(work) })
	readers.Go(func() { g.keep.run(work) })
	for _, read := range g.readers {
		readers.Go(func() { read(work) })
	}
	<-work.Done()
	readers.Wait()

	g.drain(context.WithoutCancel(ctx), ended)
	stopCommitting()
	committer.Wait()
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	g.commit.last(final)
	if !g.commit.fenced { // positions of partitions that are somebody else's now are not ours to keep
		g.keep.save(final)
	}
	stopWatching()
	watchdog.Wait()
	for _, s := range g.commit.sources {
		s.leave()
	}
}

// drain lets the handler finish what is in flight.
func (g *generation) drain(ctx context.Context, ended <-chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, g.opt.ShutdownTimeout)
	defer cancel()
	done := make(chan struct{})
	var cut sync.WaitGroup
	cut.Go(func() {
		select {
		case <-done:
			return
		case <-ended:
		}
		if sleepUnless(done, g.opt.DrainTimeout) {
			cancel()
		}
	})
	open, err := g.handler.Drain(ctx)
	close(done)
	cut.Wait()
	g.metrics.doubt.Add(float64(open))
	if open > 0 || err != nil {
		g.log.Warn("jobs in flight were not finished before their partitions were lost; they may be sent twice",
			"jobs", open, "error", err)
	}
}

// sleepUnless is true when d has passed and false when done was closed before.
func sleepUnless(done <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-done:
		return false
	}
}
