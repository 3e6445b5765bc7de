package pacer

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// put is one job that was re-enqueued.
type put struct {
	job *delivery.Job
	to  delivery.Reroute
	at  time.Time
}

// outbox is a requeuer that acknowledges at once.
type outbox struct {
	mu   sync.Mutex
	puts []put

	throttled int
}

func (o *outbox) Put(j *delivery.Job, to delivery.Reroute) {
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

func (o *outbox) Revoke() {}

func (o *outbox) Throttle(time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.throttled++
}

// all lists where jobs went.
func (o *outbox) all() (list []delivery.Reroute) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, p := range o.puts {
		list = append(list, p.to)
	}
	return list
}

// count is how many jobs went to kind for reason.
func (o *outbox) count(kind delivery.RerouteKind, reason delivery.Reason) (n int) {
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
	inLanes  map[string]int64 // jobs that wait there, by campaign
}

func (b *book) backlog(campaign string) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.inLanes[campaign]
}

func (b *book) setBacklog(campaign string, jobs int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inLanes = map[string]int64{campaign: jobs}
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
	b.publish(func(next *delivery.Snapshot) {
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
	})
}

// remove publishes a snapshot without the campaign.
func (b *book) remove(id string) {
	b.publish(func(next *delivery.Snapshot) { delete(next.Campaigns, id) })
}

func (b *book) publish(change func(next *delivery.Snapshot)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.snapshot = &delivery.Snapshot{Revision: b.snapshot.Revision + 1, LoadedAt: time.Now(), Campaigns: maps.Clone(b.snapshot.Campaigns)}
	change(b.snapshot)
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
	revoked  bool
}

func (p *partition) Revoked() (leaving, left bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revoked, false
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
type source struct {
	*partition
	from delivery.Place
}

func (s source) Place() delivery.Place { return s.from }

func (p *partition) GrantCapacity(campaign string, units int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rooms = append(p.rooms, campaign)
	p.units += units
}

func (p *partition) Release(offset int64) {
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
			Reading: delivery.Reading{From: from, Source: source{p, from}, Offset: offset, ReadAt: time.Now()},
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
