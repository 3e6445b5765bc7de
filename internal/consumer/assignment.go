package consumer

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// assignment is the time in which this daemon holds partitions: from a join until it has let go of all of them. That is until it
// stops, or until the group has gone on without it: the daemon goes on with what it holds while the group rebalances, and says so
// when it joins. A partition that is missing in what it is dealt then, it lets go of alone (revoke), and joins once more, so that
// the group deals it. So nobody waits for the slowest to drain, and only what moves stands still. The way is that of
// https://cwiki.apache.org/confluence/display/KAFKA/KIP-429.
type assignment struct {
	*Consumer
	member *membership
	work   context.Context // of readers
	stop   context.CancelFunc
	hurry  chan struct{} // closed when others may have the partitions soon, so that there is little time to let go of them
	again  retry.Signal  // the group has to deal anew
	idle   *broker.Poll
	commit *committer

	id      atomic.Int64   // of the generation
	ingress atomic.Int64   // partitions of ingress that are held
	helpers sync.WaitGroup // the readers, and those who work for them

	mu      sync.Mutex // guards those below
	held    map[partition]*holding
	list    []*holding // held, in order; replaced at every change
	hurried bool
	ending  bool // no more helpers begin
}

// holding is a partition that is held, and its reader.
type holding struct {
	placed
	read  func(context.Context)
	stop  context.CancelFunc
	done  chan struct{} // closed when the reader has ended
	going bool          // it is being let go of
}

// help runs f until work ends; ok is false if it has.
func (t *assignment) help(f func(ctx context.Context)) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ending {
		t.helpers.Go(func() { f(t.work) })
	}
	return !t.ending
}

// hold joins the group, works on what it is dealt, and returns when it has let go of everything. While it drains after ctx has
// ended, it goes on to be a member.
func (c *Consumer) hold(ctx context.Context, m *membership) {
	gen, err := m.join(ctx, holds{}, func() bool { return false })
	if err != nil {
		return
	}
	t := &assignment{
		Consumer: c, member: m, hurry: make(chan struct{}), again: retry.NewSignal(), idle: broker.NewPoll(c.opt.Client),
		held: map[partition]*holding{},
	}
	t.work, t.stop = context.WithCancel(ctx)
	defer t.stop()
	t.commit = newCommitter(c.opt.Client, m, c.metrics, c.health)
	t.commit.sources = t.sources
	t.commit.lost = c.lease.lose
	c.lease.begin(time.Now(), t.lost)
	defer c.lease.end()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		t.run(ctx)
	}()
	for next := &gen; next != nil; {
		t.take(*next)
		next = t.serve(*next, ended)
	}
	<-ended
}

// lost is called when the group has gone on without this daemon, or may do so soon.
func (t *assignment) lost(idle time.Duration) {
	if t.work.Err() == nil && (idle == 0 || idle > sessionTimeout) {
		t.opt.Logger.Warn("the group has gone on without this daemon; its queued jobs are dropped, since others have them, and it "+
			"joins anew", "group", t.opt.Group, "generation", t.id.Load(), "stood_still", idle.Round(time.Second))
	}
	t.letGo()
}

// letGo begins to let go of everything, in a hurry.
func (t *assignment) letGo() {
	t.mu.Lock()
	if !t.hurried {
		t.hurried = true
		close(t.hurry)
	}
	t.mu.Unlock()
	t.stop()
}

// serve waits for the end of a generation, and joins the next one while it goes on with what is held. It returns nil when
// everything is let go of, or has to be.
func (t *assignment) serve(g generation, ended <-chan struct{}) *generation {
	over, stop := context.WithCancel(context.WithoutCancel(t.work))
	defer stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop()
	watching.Go(func() {
		select {
		case <-ended:
		case <-t.hurry:
		case <-over.Done():
		}
		stop()
	})
	if g.dealt != nil {
		watching.Go(func() { t.watchPartitions(over, g.dealt, t.again.Send) })
	}
	select {
	case <-t.member.rebalances:
	case <-t.again:
	case <-over.Done():
		return nil
	}
	next, err := t.member.join(over, t.holds(), func() bool { return t.work.Err() != nil })
	if err != nil {
		t.letGo() // unless that is why it failed
		return nil
	}
	return &next
}

// take goes on in a generation: with what it has and this daemon does not hold, and without what it has not.
func (t *assignment) take(g generation) {
	select {
	case <-t.again:
	default:
	}
	gained, gone := t.compare(g)
	if t.orphaned(g) {
		t.again.Send()
	}
	t.member.enter(g)
	t.id.Store(int64(g.Generation))
	if len(gained) > 0 {
		t.add(gained)
	}
	if len(gone) > 0 {
		t.help(func(context.Context) { t.revoke(gone) })
	}
	t.show()
	t.metrics.generation.Set(float64(g.Generation))
	t.opt.Logger.Info("joined the group", "group", t.opt.Group, "generation", g.Generation, "ingress", t.count(delivery.FromIngress),
		"lanes", t.count(delivery.FromLane), "timers", t.count(delivery.FromTimer))
	if len(gained) == 0 {
		t.reads()
	}
}

// reads notes that this daemon reads what it holds, unless it is letting go of everything.
func (t *assignment) reads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ending {
		t.setJoined(true)
	}
}

// compare returns which partitions of a generation are not held, and what is held and not in it.
func (t *assignment) compare(g generation) (gained []partition, gone []*holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range g.assigned {
		if t.held[at] == nil { // one that is being let go of comes back with a later assignment
			gained = append(gained, at)
		}
	}
	for _, h := range t.list {
		if !h.going && !slices.Contains(g.assigned, h.base().partition) {
			h.going = true
			gone = append(gone, h)
		}
	}
	return gained, gone
}

// orphaned reports whether partitions are dealt to nobody: this daemon has said that it holds them, and has let go of them since.
func (t *assignment) orphaned(g generation) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(g.claimed, func(at partition) bool { return t.held[at] == nil && !slices.Contains(g.assigned, at) })
}

// holdings are what is held, in order. The list does not change.
func (t *assignment) holdings() []*holding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list
}

// change changes what is held.
func (t *assignment) change(f func(held map[partition]*holding)) {
	t.mu.Lock()
	f(t.held)
	t.list = nil
	for _, h := range t.held {
		t.list = append(t.list, h)
	}
	slices.SortFunc(t.list, func(a, b *holding) int { return inOrder(a.base().partition, b.base().partition) })
	t.mu.Unlock()
	t.ingress.Store(int64(t.count(delivery.FromIngress)))
	t.show()
}

// show shows what is held. The lanes are shown until others are held: jobs that waited when they were let go of still wait.
func (t *assignment) show() {
	for place := range placeNames {
		t.metrics.partitions[place].Set(float64(t.count(delivery.Place(place))))
	}
	if t.work.Err() == nil {
		t.reading.Store(&reading{int32(t.id.Load()), t.lanes()})
	}
}

// count is the number of partitions of a place.
func (t *assignment) count(place delivery.Place) (n int) {
	for _, h := range t.holdings() {
		if h.base().from == place {
			n++
		}
	}
	return n
}

// holds is what is held, and what of that is being let go of.
func (t *assignment) holds() (is holds) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.list {
		if at := h.base().partition; h.going {
			is.leaving = append(is.leaving, at)
		} else {
			is.kept = append(is.kept, at)
		}
	}
	return is
}

func (t *assignment) sources() []*source {
	holdings := t.holdings()
	list := make([]*source, len(holdings))
	for i, h := range holdings {
		list[i] = h.base()
	}
	return list
}

func (t *assignment) lanes() (list []*laneSource) {
	for _, h := range t.holdings() {
		if lane, is := h.placed.(*laneSource); is {
			list = append(list, lane)
		}
	}
	return list
}

// add begins to hold partitions, and to find out where they begin.
func (t *assignment) add(gained []partition) {
	locate := newStartOffsets(&t.opt, t.metrics, t.health)
	made := t.build(gained, locate)
	if !t.help(func(ctx context.Context) {
		var err error // a topic that was made anew while nobody read it has no reader that notices
		if locate.topics, err = t.opt.Client.Identify(ctx, t.opt.topics()...); err != nil {
			t.opt.Logger.Debug("the ids of topics are not known", "error", err)
		}
		locate.run(ctx, gained, t.reads)
	}) {
		return // everything is let go of
	}
	t.change(func(held map[partition]*holding) {
		for _, h := range made {
			if !t.ending {
				held[h.base().partition] = h
			}
		}
	})
	for _, h := range made {
		var reading context.Context
		reading, h.stop = context.WithCancel(t.work)
		if !t.help(func(context.Context) {
			defer close(h.done)
			h.read(reading)
		}) {
			close(h.done)
		}
	}
}

// revoke lets go of partitions that this daemon is not dealt any more, each as soon as it can, and has the group deal them.
func (t *assignment) revoke(gone []*holding) {
	for _, h := range gone {
		h.base().revoke()
		h.stop()
	}
	ctx, cancel := context.WithTimeout(t.work, t.opt.ShutdownTimeout)
	defer cancel()
	for _, h := range gone {
		<-h.done
	}
	t.forfeit(ctx)
	t.confirm(ctx, commitTimeout, gone)
	var leaving sync.WaitGroup
	var left atomic.Bool // something that could not be waited for
	for _, h := range gone {
		leaving.Go(func() {
			if t.finishOne(ctx, h) > 0 {
				left.Store(true)
			}
			if t.work.Err() != nil {
				return // everything is let go of
			}
			h.base().leave()
			t.change(func(held map[partition]*holding) { delete(held, h.base().partition) })
			t.again.Send()
		})
	}
	leaving.Wait()
	if left.Load() {
		t.forfeit(t.work)
	}
}

// forfeit has the handler forget what it has of partitions that move.
func (t *assignment) forfeit(ctx context.Context) {
	if err := t.opt.Handler.Revoke(ctx); err != nil && t.work.Err() == nil {
		t.opt.Logger.Warn("jobs of partitions that were lost are not forgotten; they may be sent twice", "error", err)
	}
}

// finishOne waits until what is in flight of a partition has ended, and is committed. It returns how many jobs have not.
func (t *assignment) finishOne(ctx context.Context, h *holding) (open int) {
	s := h.base()
	open = s.awaitInFlight(ctx)
	if t.work.Err() != nil {
		return open
	}
	t.metrics.doubt.Add(float64(open))
	if open > 0 {
		t.opt.Logger.Warn("jobs in flight were not finished before their partitions were lost; they may be sent twice",
			"partition", s.String(), "jobs", open)
	}
	if s.isForeign() {
		return open // nothing can be committed in it
	}
	ctx, cancel := context.WithTimeout(t.work, t.opt.ShutdownTimeout)
	defer cancel()
	if err := s.Flush(ctx); err != nil && t.work.Err() == nil {
		t.opt.Logger.Warn("the last commit was not accepted; jobs that were settled since the one before may be sent twice",
			"partition", s.String(), "error", err)
	}
	return open
}

// inOrder orders partitions.
func inOrder(a, b partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
}
