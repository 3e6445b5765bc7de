package consumer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// generation is one stretch of membership with one assignment. Its partitions are revoked together, so it starts and
// ends as a whole.
type generation struct {
	*Consumer
	commit *committer
	keep   *checkpointer
	idle   *broker.Poll
	locate *locator
	topics map[string]broker.Identity // when the generation began

	readers []func(context.Context)
	watched []watched
	waiting []surveyed
	placed  []placed
	counts  [3]int // partitions by place
}

// runGeneration works on the assigned partitions until the generation or ctx ends, and returns when all its goroutines
// have ended. While it drains after ctx has ended, the generation and its heartbeats continue.
func (c *Consumer) runGeneration(ctx context.Context, gen *kafka.Generation) {
	work, stop := context.WithCancel(ctx)
	defer stop()
	ended, released, lost := make(chan struct{}), make(chan struct{}), make(chan struct{})
	defer close(released)
	c.lease.begin(time.Now(), func(idle time.Duration) {
		if work.Err() == nil {
			c.opt.Logger.Warn("the group has gone on without this daemon; its queued jobs are dropped, since others have them, and it "+
				"joins anew", "group", c.opt.Group, "generation", gen.ID, "stood_still", idle.Round(time.Second))
		}
		close(lost)
	})
	defer c.lease.end()
	// kafka-go joins the next generation when all functions given to Start have returned: this one stands for all.
	gen.Start(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-lost:
		}
		close(ended)
		stop()
		<-released
	})
	dealt := c.dealer.taken()
	c.dealer.own(gen)
	gen.Start(func(ctx context.Context) { c.watchPartitions(ctx, dealt) }) // ends the generation when it returns

	partitions := assigned(gen)
	g := &generation{Consumer: c}
	member := broker.Member{Group: c.opt.Group, ID: gen.MemberID, Generation: int(gen.ID)}
	g.commit = newCommitter(c.opt.Client, member, c.metrics, c.health)
	g.commit.lost = c.lease.lose
	starts, err := g.starts(work, partitions)
	if err != nil {
		return
	}
	g.identify(work)
	g.build(partitions, starts)
	c.reading.Store(&reading{gen.ID, g.keep.lanes})
	c.opt.Logger.Info("joined the group", "group", c.opt.Group, "generation", gen.ID, "ingress", g.counts[delivery.FromIngress],
		"lanes", g.counts[delivery.FromLane], "timers", g.counts[delivery.FromTimer])
	c.metrics.generation.Set(float64(gen.ID))
	c.setJoined(true)
	watchdog := &watchdog{
		opt: &c.opt, metrics: c.metrics, health: c.health, budget: c.budget, state: &c.watch, commit: g.commit,
		works: func() bool { return work.Err() == nil },
	}
	watchdog.watch(g.watched)
	g.run(ctx, work, watchdog, ended)
	c.setJoined(false)
}

// identify asks for the ids of the topics. Where that fails, they are not known. A topic that was made anew while the group
// rebalanced has no reader that notices.
func (g *generation) identify(ctx context.Context) {
	var err error
	if g.topics, err = g.opt.Client.Identify(ctx, g.opt.topics()...); err != nil {
		g.opt.Logger.Debug("the ids of topics are not known", "error", err)
	}
	for name, topic := range g.topics {
		if another(g.Consumer.topics[name], topic) {
			g.tellAnew(name)
			g.Consumer.topics[name] = topic // this generation may have no partition of it
		}
	}
}

// tellAnew tells of a topic that was made anew where no reader does.
func (g *generation) tellAnew(topic string) {
	g.opt.Logger.Warn("the topic was made anew; reading it from the earliest record", "topic", topic)
	g.metrics.resets.Inc()
}

// remember remembers which topics were read. Those that were made anew meanwhile were told of, unless nobody noticed.
func (g *generation) remember() {
	noticed := map[string]bool{}
	for _, s := range g.commit.sources {
		if topic, foreign := s.identity(); topic.Topic.Known() && (!foreign || !noticed[s.Topic]) {
			g.Consumer.topics[s.Topic] = topic
			noticed[s.Topic] = !foreign
		}
	}
}

// assigned lists the partitions of a generation in a fixed order.
func assigned(gen *kafka.Generation) []partition {
	var partitions []partition
	for topic, list := range gen.Assignments {
		for _, p := range list {
			partitions = append(partitions, partition{Topic: topic, ID: p.ID})
		}
	}
	slices.SortFunc(partitions, func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
	})
	return partitions
}

// build makes a source and a reader for every partition. It starts nothing.
func (g *generation) build(partitions []partition, starts map[partition]start) {
	g.idle = broker.NewPoll(g.opt.Client)
	g.keep = &checkpointer{opt: &g.opt, count: func(ctx context.Context) (int, error) {
		return g.opt.Client.Partitions(ctx, g.opt.LaneTopic)
	}}
	g.locate = newLocator(&g.opt, g.metrics, g.health)
	for _, at := range partitions {
		place, _ := g.opt.place(at.Topic)
		g.counts[place]++
	}
	fetchBytes := ingressFetchBytes(g.opt.MaxBufferBytes, g.counts[delivery.FromIngress])
	for _, at := range partitions {
		place, delay := g.opt.place(at.Topic)
		if place == delivery.FromLane {
			g.buildLane(at, starts)
			continue
		}
		src := newWindowSource(at, place, offset.NewWindow(0), g.budget, g.metrics, g.commit.kicked.Send)
		r := &ingressReader{src: src, blockers: g.blockers, maxBytes: fetchBytes, maxWait: longPoll}
		if place == delivery.FromTimer {
			r.reader = g.reader(src, func(era int) entrance { return windowEntrance{src, era} })
			r.asTimer(delay, g.idle, g.origins)
		} else {
			r.reader = g.reader(src, func(era int) entrance { return ingressEntrance{windowEntrance{src, era}} })
		}
		g.begin(src, starts, r.run)
	}
}

// reader makes the part common to all readers.
func (g *generation) reader(p placed, enter func(era int) entrance) reader {
	return reader{opt: &g.opt, health: g.health, base: p.base(), partition: p, enter: enter}
}

// ingressFetchBytes divides a quarter of the budget among the fetches that may be in flight at
// once.
func ingressFetchBytes(budget int64, partitions int) int64 {
	return min(max(budget/4/int64(max(partitions, 1)), minFetchBytes), maxFetchBytes)
}

func (g *generation) buildLane(at partition, starts map[partition]start) {
	src := newLaneSource(at, offset.NewLane(0), g.budget, g.metrics, g.commit.kicked.Send)
	g.keep.lanes = append(g.keep.lanes, src)
	enter := func(era int) entrance { return laneEntrance{src, era} }
	r := &laneReader{reader: g.reader(src, enter), src: src, idle: g.idle, repeats: offset.NewRepeats(g.origins)}
	g.begin(src, starts, r.run)
}

// begin has a partition committed, watched and read: at once if its start is known, or else as soon as it is.
func (g *generation) begin(p placed, starts map[partition]start, run func(context.Context)) {
	s := p.base()
	s.unplaced = true
	g.commit.sources, g.watched, g.waiting = append(g.commit.sources, s), append(g.watched, p), append(g.waiting, p)
	g.placed = append(g.placed, p)
	g.keep.sources = append(g.keep.sources, s)
	if from, known := starts[s.partition]; known {
		if !g.place(p, from) {
			run = g.hold
		}
	} else {
		await, read := g.locate.await(s.partition), run
		run = func(ctx context.Context) {
			from, err := await(ctx)
			switch {
			case err != nil:
			case g.place(p, from):
				read(ctx)
			default:
				g.hold(ctx)
			}
		}
	}
	g.readers = append(g.readers, run)
}

// place sets the position of a partition. ok is false if the metadata of a lane cannot be read, so that its position is
// not known: a version that is newer has written it, or a tool. From the offset alone, all that was sent beyond a paused
// campaign would be sent again.
func (g *generation) place(p placed, from start) (ok bool) {
	from.topic = cmp.Or(from.topic, g.topics[p.base().Topic])
	err := p.place(from)
	log := g.opt.Logger.With("partition", p.base().String(), "offset", from.offset)
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

// hold counts a lane that is not read until ctx ends.
func (g *generation) hold(ctx context.Context) {
	g.metrics.lanesHeld.Inc()
	defer g.metrics.lanesHeld.Dec()
	<-ctx.Done()
}

// run reads and commits until work ends, then drains: at a rebalance within DrainTimeout, since no heart-beats are sent
// by then; at the end of the consumer within ShutdownTimeout, or DrainTimeout after the generation has ended.
func (g *generation) run(ctx, work context.Context, w *watchdog, ended <-chan struct{}) {
	for place, n := range g.counts {
		g.metrics.partitions[place].Set(float64(n))
		defer g.metrics.partitions[place].Set(0)
	}
	committing, stopCommitting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopCommitting()
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	var readers, committer, watchdog sync.WaitGroup
	watchdog.Go(func() { w.run(watching) })
	committer.Go(func() { g.commit.run(committing) })
	readers.Go(func() { g.idle.Run(work) })
	readers.Go(func() { g.keep.run(work) })
	readers.Go(func() { g.locate.run(work) })
	readers.Go(func() { g.watchTopics(work) })
	survey := &survey{opt: &g.opt, metrics: g.metrics, sources: g.waiting, ends: map[partition]int64{}}
	readers.Go(func() { survey.run(work) })
	readers.Go(func() { g.lease.watch(work) })
	for _, read := range g.readers {
		readers.Go(func() { read(work) })
	}
	<-work.Done()
	stopping := time.Now()
	readers.Wait()

	g.drain(context.WithoutCancel(ctx), ended)
	stopCommitting()
	committer.Wait()
	within := commitTimeout
	if ctx.Err() != nil { // heartbeats go on, so there is more time
		within = max(within, g.opt.ShutdownTimeout-time.Since(stopping))
	}
	final, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	if !g.commit.fenced {
		confirming, confirmed := context.WithTimeout(final, commitTimeout/2)
		g.confirm(confirming)
		confirmed()
	}
	if err := g.commit.last(final); err != nil {
		g.opt.Logger.Warn("the last commit was not accepted; jobs that were settled since the one before may be sent twice",
			"group", g.opt.Group, "generation", g.commit.member.Generation, "error", err)
	}
	// In a rebalance the next owners keep positions soon, and all partitions would wait for the database. Those of a fenced
	// commit have other owners already.
	if ctx.Err() != nil && !g.commit.fenced {
		g.keep.save(final)
	}
	stopWatching()
	watchdog.Wait()
	g.remember()
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
		select {
		case <-done:
		case <-time.After(g.opt.DrainTimeout):
			cancel()
		}
	})
	open, err := g.opt.Handler.Drain(ctx)
	close(done)
	cut.Wait()
	g.metrics.doubt.Add(float64(open))
	if err != nil {
		g.opt.Logger.Warn("sinks do not return although their calls were cancelled; what is in flight may be sent twice", "error", err)
	}
	if open > 0 {
		g.opt.Logger.Warn("jobs in flight were not finished before their partitions were lost; they may be sent twice", "jobs", open)
	}
}
