package pacer

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// store is the reference model behind a latency, shared by the daemons of a test. Its clock is far from the local one.
type store struct {
	mu      sync.Mutex
	model   *model.Store
	began   time.Time
	latency func() time.Duration
	down    bool
	late    int // so many takes come too late
	takes   int
	node    int
}

func newStore(latency func() time.Duration) *store {
	return &store{model: model.NewStore(), began: time.Now(), latency: latency}
}

// taken is how many takes there were.
func (s *store) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes
}

func (s *store) now() int64 { return 1_700_000_000_000_000 + time.Since(s.began).Microseconds() }

// client is one daemon's connection to the store.
func (s *store) client() *client {
	s.node++
	return &client{store: s, node: fmt.Sprintf("node-%d", s.node)}
}

type client struct {
	*store
	node string
}

func (c *client) Take(_ context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	time.Sleep(c.latency())
	c.mu.Lock()
	if c.down {
		c.mu.Unlock()
		return delivery.TakeReply{}, fmt.Errorf("the store is down")
	}
	if c.late > 0 {
		c.late--
		c.mu.Unlock()
		return lateReply(len(asks)), nil
	}
	c.takes++
	reply := c.model.Take(c.now(), c.node, asks)
	c.mu.Unlock()
	time.Sleep(c.latency())
	return reply, nil
}

// lateReply is the answer to asks that came too late.
func lateReply(asks int) delivery.TakeReply {
	reply := delivery.TakeReply{Items: make([]delivery.Granted, asks)}
	for i := range reply.Items {
		reply.Items[i].Late = true
	}
	return reply
}

func (c *client) Refund(_ context.Context, grants []delivery.Grant) error {
	time.Sleep(c.latency())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.model.Refund(c.now(), grants)
	return nil
}

func (c *client) CloseGate(_ context.Context, gate string, closure delivery.Closure) (bool, error) {
	time.Sleep(c.latency())
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.model.CloseGate(c.now(), gate, c.now()+closure.For.Microseconds(), closure.Cause, closure.Probe), nil
}

func (c *client) OpenGate(_ context.Context, gate string) error {
	time.Sleep(c.latency())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.model.OpenGate(gate)
	return nil
}

// uniform draws latencies between base and base + jitter.
func uniform(seed uint64, base, jitter time.Duration) func() time.Duration {
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return base + time.Duration(r.Int64N(int64(jitter)+1))
	}
}

// history is what was sent so far.
func (r *receiver) history() []arrival {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]arrival(nil), r.sent...)
}

// setLatency changes how long a call takes.
func (r *receiver) setLatency(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latency = func() time.Duration { return d }
}

// setAnswer changes what calls answer.
func (r *receiver) setAnswer(f func(daemon int, j *delivery.Job) delivery.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

// receiver is a sink that notes when each job was sent, by whom.
type receiver struct {
	mu      sync.Mutex
	began   time.Time
	sent    []arrival
	latency func() time.Duration
	answer  func(daemon int, j *delivery.Job) delivery.Result
	hangs   func(j *delivery.Job) bool // whether a call takes a second
	deaf    func(j *delivery.Job) bool // whether it is never answered, and given up after ten
	max     int
	flying  int // calls in flight
	most    int // the most there were

	flyingTo, mostTo map[string]int // the same by destination
}

type arrival struct {
	at       int64 // microseconds since the receiver began
	campaign string
	daemon   int
	id       string
	weight   int64
	attempt  int
	step     string // of a request that has begun

	destination string
}

func newReceiver() *receiver {
	return &receiver{began: time.Now(), max: 1 << 20, latency: func() time.Duration { return 5 * time.Millisecond }}
}

// daemon is the receiver as one daemon's sinks: every sink name that does not begin with "no" exists.
type daemonSinks struct {
	*receiver
	daemon int
}

func (d daemonSinks) Resolve(name string) (string, bool) {
	if name == "" {
		return "default", true
	}
	return name, name[:2] != "no"
}

func (d daemonSinks) Capacity(string) (int, bool) { return d.max, true }

func (d daemonSinks) Deliver(ctx context.Context, _ string, j *delivery.Job) delivery.Result {
	d.mu.Lock()
	a := arrival{time.Since(d.began).Microseconds(), j.Campaign, d.daemon, j.ID, j.Weight, j.Attempt, "", j.Destination}
	if j.State != nil {
		a.step = j.State.Step
	}
	d.sent = append(d.sent, a)
	if d.flyingTo == nil {
		d.flyingTo, d.mostTo = map[string]int{}, map[string]int{}
	}
	d.flyingTo[j.Destination]++
	d.mostTo[j.Destination] = max(d.mostTo[j.Destination], d.flyingTo[j.Destination])
	answer, latency := d.answer, d.latency()
	d.flying++
	d.most = max(d.most, d.flying)
	defer d.landed(j.Destination)
	if d.hangs != nil && d.hangs(j) {
		latency = time.Second
	}
	if d.deaf != nil && d.deaf(j) {
		latency = 10 * time.Second
		answer = func(int, *delivery.Job) delivery.Result {
			return delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody, Detail: "no answer"}
		}
	}
	d.mu.Unlock()
	select {
	case <-time.After(latency):
	case <-ctx.Done():
		return delivery.Result{Class: delivery.Interrupted}
	}
	if answer != nil {
		d.mu.Lock()
		defer d.mu.Unlock()
		return answer(d.daemon, j)
	}
	return delivery.Result{Class: delivery.Delivered}
}

// landed notes the end of a call.
func (r *receiver) landed(destination string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying--
	r.flyingTo[destination]--
}

// put is one job that was re-enqueued.
type put struct {
	job *delivery.Job
	to  delivery.Destination
	at  time.Time
}

// outbox is a requeuer that acknowledges at once.
type outbox struct {
	mu   sync.Mutex
	puts []put

	throttled int
}

func (o *outbox) Put(j *delivery.Job, to delivery.Destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.puts = append(o.puts, put{j, to, time.Now()})
	if to.Kind == delivery.ToDead {
		j.Reason = string(to.Reason)
	}
	switch {
	case to.Kind == delivery.ToLane:
		j.Settle(delivery.OutcomeRequeued)
	case to.Kind == delivery.ToTimer:
		j.Settle(delivery.OutcomeRetried)
	case to.Reason == delivery.ReasonExpired:
		j.Settle(delivery.OutcomeExpired)
	default:
		j.Settle(delivery.OutcomeDead)
	}
}
func (o *outbox) Drain(context.Context) int { return 0 }
func (o *outbox) Revoke()                   {}

func (o *outbox) Throttle(time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.throttled++
}

// all lists where jobs went.
func (o *outbox) all() (list []delivery.Destination) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.puts {
		list = append(list, p.to)
	}
	return list
}

// count is how many jobs went to kind for reason.
func (o *outbox) count(kind delivery.DestinationKind, reason delivery.Reason) (n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.puts {
		if p.to.Kind == kind && p.to.Reason == reason {
			n++
		}
	}
	return n
}

// book is a catalog in memory.
type book struct {
	mu       sync.Mutex
	snapshot *delivery.Snapshot
	watchers []chan struct{}
}

func newBook(campaigns ...delivery.Campaign) *book {
	b := &book{snapshot: &delivery.Snapshot{LoadedAt: time.Now(), Campaigns: map[string]*delivery.Campaign{}}}
	for _, c := range campaigns {
		b.set(c)
	}
	return b
}

// set publishes a snapshot with the campaigns changed.
func (b *book) set(list ...delivery.Campaign) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := &delivery.Snapshot{Revision: b.snapshot.Revision + 1, LoadedAt: time.Now(), Campaigns: maps.Clone(b.snapshot.Campaigns)}
	for _, c := range list {
		c.Revision = next.Revision
		if c.Status == "" {
			c.Status = delivery.StatusActive
		}
		if c.PriorityWeight == 0 {
			c.PriorityWeight = 1
		}
		next.Campaigns[c.ID] = &c
	}
	b.snapshot = next
	for _, w := range b.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

func (b *book) Snapshot() *delivery.Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.snapshot
}

func (b *book) Subscribe() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := make(chan struct{}, 1)
	b.watchers = append(b.watchers, w)
	return w
}

// partition is a source that notes what was settled, released and given room. Of timers, it is the source itself.
type partition struct {
	mu       sync.Mutex
	name     string
	settled  map[int64]delivery.Outcome
	twice    int
	released []int64
	rooms    []string
	units    int64 // of room, in all
	cramped  bool  // no room for jobs that are moved on
	revoked  bool
	dropped  int
}

func (p *partition) Revoked() (leaving, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revoked, false
}

func (p *partition) Drop(int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dropped++
}

// revoke begins to take the partition away.
func (p *partition) revoke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revoked = true
}

func newPartition(name string) *partition {
	return &partition{name: name, settled: map[int64]delivery.Outcome{}}
}

func (p *partition) Name() string { return p.name }
func (p *partition) Settle(j *delivery.Job, o delivery.Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.settled[j.Offset]; ok {
		p.twice++
	}
	p.settled[j.Offset] = o
}

// source is the partition as a source of its kind.
func (p *partition) source(from delivery.Place) delivery.Source {
	switch from {
	case delivery.FromLane:
		return laneSource{ingressSource{p}}
	case delivery.FromIngress:
		return ingressSource{p}
	}
	return p
}

// ingressSource hears of room.
type ingressSource struct{ *partition }

func (p ingressSource) Room(campaign string, units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rooms = append(p.rooms, campaign)
	p.units += units
}

// laneSource takes jobs back as well.
type laneSource struct{ ingressSource }

func (p laneSource) Release(_ string, offset int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = append(p.released, offset)
}

// happened is what happened to the partition's jobs.
type happened struct{ settled, twice, released, rooms int }

func (p *partition) counts() happened {
	p.mu.Lock()
	defer p.mu.Unlock()
	return happened{len(p.settled), p.twice, len(p.released), len(p.rooms)}
}

func (p *partition) count(o delivery.Outcome) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, is := range p.settled {
		if is == o {
			n++
		}
	}
	return n
}

// jobs makes n jobs of the campaign at the next offsets of the partition.
func jobs(p *partition, from delivery.Place, campaign string, first int64, n int) []*delivery.Job {
	list := make([]*delivery.Job, n)
	for i := range list {
		offset := first + int64(i)
		list[i] = &delivery.Job{
			ID: fmt.Sprintf("%s/%d", p.name, offset), Campaign: campaign, Weight: 1, Receipt: p,
			Reading: delivery.Reading{From: from, Source: p.source(from), Offset: offset, ReadAt: time.Now()},
			History: delivery.History{FirstRead: time.Now()},
		}
	}
	return list
}

// counted has the jobs counted by a daemon when they are settled.
func (f *fleet) counted(daemon int, list []*delivery.Job) []*delivery.Job {
	for _, j := range list {
		j.Receipt = f.daemons[daemon].Receipt(j.Receipt)
	}
	return list
}
