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

// assignment is the time while this daemon holds partitions: from a join until it has let go of all of them. That is until it stops, or
// until the group has gone on without it: the daemon goes on with what it holds while the group rebalances, and says so when it joins. A
// partition that is missing in what it is dealt then, it lets go of alone (revoke), and joins once more, so that the group deals it. So
// no daemon waits for the slowest to drain, and only partitions that move stand still. The way is that of
// https://cwiki.apache.org/confluence/display/KAFKA/KIP-429.
type assignment struct {
	*Consumer
	member  *membership
	work    context.Context // of readers
	stop    context.CancelFunc
	hurry   context.Context // ends when others may have the partitions soon, so that there is little time to let go of them
	hasten  context.CancelFunc
	idle    *broker.Poll
	commit  *committer
	janitor *janitor

	id      atomic.Int64   // of the generation
	ingress atomic.Int64   // partitions of ingress that are held
	recalls atomic.Int64   // gains of ingress that wait for lanes: these remember jobs that they pass over, too, which it may have once more
	told    told           // lanes, of room
	saving  retry.Outage   // of positions
	helpers sync.WaitGroup // the readers, and those who work for them

	mu     sync.Mutex     // guards those below
	list   []*holding     // held, in order; replaced at every change
	dealt  map[string]int // see generation; nil once the topics have other partitions
	ending bool           // no more helpers begin
}

// help runs f until work ends, unless it has.
func (t *assignment) help(f func(ctx context.Context)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ending {
		t.helpers.Go(func() { f(t.work) })
	}
}

// hold joins the group, works on what it is dealt, and returns when it has let go of everything. While it drains after ctx has
// ended, it goes on to be a member.
func (c *Consumer) hold(ctx context.Context, m *membership) {
	gen, err := m.join(ctx, func() claims { return claims{} }, func() bool { return false })
	if err != nil {
		return
	}
	t := &assignment{Consumer: c, member: m, idle: broker.NewPoll(c.opt.Client)}
	t.work, t.stop = context.WithCancel(ctx)
	defer t.stop()
	t.hurry, t.hasten = context.WithCancel(context.WithoutCancel(ctx))
	defer t.hasten()
	t.commit = &committer{client: c.opt.Client, member: m, metrics: c.metrics, health: c.health, sources: t.sources, kicked: retry.NewSignal()}
	t.janitor = &janitor{opt: &c.opt, metrics: c.metrics, sources: t.sources}
	c.lease.begin(time.Now(), t.lost)
	defer c.lease.end()

	running, ended := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer ended()
		t.run(ctx)
	}()
	for next := &gen; next != nil; {
		t.take(*next)
		next = t.serve(running)
	}
	<-running.Done()
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
	t.hasten()
	t.stop()
}

// serve waits for the end of a generation, and joins the next one while it goes on with what is held. It returns nil when
// everything is let go of, or has to be.
func (t *assignment) serve(running context.Context) *generation {
	over, stop := context.WithCancel(running)
	defer stop()
	defer context.AfterFunc(t.hurry, stop)()
	select {
	case <-t.member.again:
	case <-over.Done():
		return nil
	}
	next, err := t.member.join(over, t.claims, func() bool { return t.work.Err() != nil })
	if err != nil {
		t.letGo() // unless that is why it failed
		return nil
	}
	return &next
}

// take goes on in a generation: with what it has and this daemon does not hold, and without what it has not.
func (t *assignment) take(g generation) {
	gained, gone := t.compare(g)
	t.member.enter(g)
	t.id.Store(int64(g.Generation))
	if len(gained) > 0 {
		t.add(gained)
	}
	if len(gone) > 0 {
		t.help(func(context.Context) { t.revoke(gone) })
	}
	t.change(func(list []*holding) []*holding { t.dealt = g.dealt; return list }) // also of the same partitions
	counts := countsOf(t.holdings())
	t.metrics.generation.Set(float64(g.Generation))
	t.opt.Logger.Info("joined the group", "group", t.opt.Group, "generation", g.Generation, "ingress", counts[delivery.FromIngress],
		"lanes", counts[delivery.FromLane], "timers", counts[delivery.FromTimer])
	if len(gained) == 0 {
		t.reads()
	}
}

// reads notes that this daemon reads what it holds, unless it is letting go of everything.
func (t *assignment) reads() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ending {
		t.metrics.joined.Set(1)
	}
}

// compare returns which partitions of a generation are not held, and what is held and not in it.
func (t *assignment) compare(g generation) (gained []partition, gone []*holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range g.assigned {
		if !slices.ContainsFunc(t.list, func(h *holding) bool { return h.partition == at }) { // one that is being let go of comes back with a later assignment
			gained = append(gained, at)
		}
	}
	for _, h := range t.list {
		if !h.going && !slices.Contains(g.assigned, h.partition) {
			h.going = true
			gone = append(gone, h)
		}
	}
	return gained, gone
}

// holdings are what is held, in order. The list does not change.
func (t *assignment) holdings() []*holding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.list
}

// change changes what is held, and what is shown of it. After the last change, when all are let go of, their backlog stays shown: jobs that wait
// in lanes still wait.
func (t *assignment) change(f func(list []*holding) []*holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.list = f(slices.Clone(t.list))
	slices.SortFunc(t.list, func(a, b *holding) int { return inOrder(a.partition, b.partition) })
	counts := countsOf(t.list)
	t.ingress.Store(int64(counts[delivery.FromIngress]))
	for place, n := range counts {
		t.metrics.partitions[place].Set(float64(n))
	}
	if t.work.Err() == nil {
		t.reading.Store(&reading{int32(t.id.Load()), t.list})
	}
}

// countsOf are the numbers of partitions, by place.
func countsOf(list []*holding) (counts [len(placeNames)]int) {
	for _, h := range list {
		counts[h.from]++
	}
	return counts
}

// claims is what is held, and what of that is being let go of.
func (t *assignment) claims() claims {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := claims{Kept: map[string][]int{}, Leaving: map[string][]int{}}
	for _, h := range t.list {
		of := is.Kept
		if h.going {
			of = is.Leaving
		}
		of[h.Topic] = append(of[h.Topic], h.ID)
	}
	return is
}

// sources returns the sources of the partitions whose start is known.
func (t *assignment) sources() (list []*source) {
	for _, h := range t.holdings() {
		if s := h.source.Load(); s != nil {
			list = append(list, s)
		}
	}
	return list
}

func (t *assignment) lanes() []*holding {
	return slices.DeleteFunc(slices.Clone(t.holdings()), func(h *holding) bool { return h.from != delivery.FromLane })
}

// revoke lets go of partitions that this daemon is not dealt any more, each as soon as it can, and has the group deal them.
func (t *assignment) revoke(gone []*holding) {
	for _, h := range gone {
		h.stop()
	}
	for _, h := range gone {
		if <-h.done; h.source.Load() != nil {
			h.source.Load().revoke()
		}
	}
	t.forfeit(t.work)
	var leaving sync.WaitGroup
	var left atomic.Bool // something that could not be waited for
	for _, h := range gone {
		leaving.Go(func() {
			if s := h.source.Load(); s != nil {
				if t.awaitInFlight(t.work, s) > 0 {
					left.Store(true)
				}
				t.flush(s)
				if t.work.Err() != nil {
					return // everything is let go of
				}
				s.leave()
			}
			t.change(func(list []*holding) []*holding {
				return slices.DeleteFunc(list, func(other *holding) bool { return other == h })
			})
			t.member.again.Send()
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

// settle revokes sources, and waits until what is in hand of them is settled or given back. It returns how many jobs are not in time.
func (t *assignment) settle(ctx context.Context, sources ...*source) (open int) {
	for _, s := range sources {
		s.revoke()
	}
	t.forfeit(ctx)
	for _, s := range sources {
		open += t.awaitInFlight(ctx, s)
	}
	return open
}

// awaitInFlight waits until what is in flight of a revoked source has ended, for ShutdownTimeout at most. It returns how many jobs
// have not: when everything is let go of, drain counts them.
func (t *assignment) awaitInFlight(ctx context.Context, s *source) (open int) {
	ctx, cancel := context.WithTimeout(ctx, t.opt.ShutdownTimeout)
	defer cancel()
	open = s.awaitInFlight(ctx)
	if open > 0 && t.work.Err() == nil {
		t.metrics.doubt.Add(float64(open))
		t.opt.Logger.Warn("jobs in flight were not finished before their partitions were lost; they may be sent twice",
			"partition", s.String(), "jobs", open)
	}
	return open
}

// flush commits what was settled last of a source.
func (t *assignment) flush(s *source) {
	ctx, cancel := context.WithTimeout(t.work, t.opt.ShutdownTimeout)
	defer cancel()
	if err := s.flush(ctx); err != nil && t.work.Err() == nil {
		t.opt.Logger.Warn("the last commit was not accepted; jobs that were settled since the one before may be sent twice",
			"partition", s.String(), "error", err)
	}
}

// inOrder orders partitions.
func inOrder(a, b partition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.ID, b.ID))
}
