package pacer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// world is two daemons and what they read: two partitions each of ingress, the lane and a timer. Each partition is one daemon's at a time.
type world struct {
	*fleet
	outbox
	again time.Duration // how long after a job was given back it is offered again

	mu     sync.Mutex // guards everything below
	random life
	logs   []*partitionLog
	jobs   map[string]*published // by id
	wrong  string                // what has happened that must not
}

// published is a job, and what became of it.
type published struct {
	campaign string
	at       time.Time
	ends     int
	dead     delivery.Reason
}

// partitionLog is a partition, and its source since it was moved last, or its daemon restarted.
type partitionLog struct {
	from    delivery.Place
	owner   int
	source  *partition
	records []*logged
}

type logged struct {
	delivery.Record
	readable   time.Time
	open, done bool
}

// newWorld makes a world whose daemons are set as adjust says.
func newWorld(seed uint64, b *book, again time.Duration, adjust func(*Options)) *world {
	w := &world{again: again, random: life{rand.New(rand.NewPCG(seed, 2))}, jobs: map[string]*published{}}
	for i := range 6 {
		w.logs = append(w.logs, &partitionLog{from: delivery.Place(i / 2), owner: i % 2, source: newPartition("")})
	}
	w.fleet = newFleet(2, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) { o.Requeuer = w; adjust(o) })
	return w
}

// expect notes what is wrong.
func (w *world) expect(right bool, what string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !right {
		w.wrong = fmt.Sprintf(what, args...)
	}
}

// publish writes a job to ingress, with headers besides its id. It needs the lock.
func (w *world) publish(campaign string, headers ...delivery.Header) (id string) {
	id = fmt.Sprint(len(w.jobs))
	w.jobs[id] = &published{campaign: campaign, at: time.Now()}
	r := record.New(campaign, id, nil)
	r.Headers = append(r.Headers, headers...)
	w.add(0, r, time.Now())
	return id
}

// Put writes a job to the lane, or to the timer, which lasts ten minutes, so that some go there twice.
func (w *world) Put(j *delivery.Job, to delivery.Reroute) {
	w.mu.Lock()
	now := time.Now()
	r := new(record.Encoder).Encode(j, to, now)
	switch to.Kind {
	case delivery.ToDead:
		w.jobs[j.ID].dead = to.Reason
		w.mu.Unlock()
		j.Settle(delivery.OutcomeDead)
		return
	case delivery.ToTimer:
		w.add(2, r, now.Add(min(10*time.Minute, max(0, record.DueAt(j, to).Sub(now)))))
	default:
		w.add(1, r, now)
	}
	w.mu.Unlock()
	j.Settle(delivery.OutcomeRequeued)
}

func (w *world) add(topic int, r delivery.Record, readable time.Time) {
	l := w.logs[2*topic+w.random.IntN(2)]
	r.Offset, r.Headers = int64(len(l.records)), slices.Clone(r.Headers)
	l.records = append(l.records, &logged{Record: r, readable: readable})
}

// read offers what may be read to the daemons.
func (w *world) read() {
	for _, l := range w.logs {
		var list []*delivery.Job
		w.mu.Lock()
		w.collect(l)
		now, owner, leaving := time.Now(), w.daemons[l.owner], l.source.revoked
		for _, r := range l.records {
			if !r.open && !r.done && !leaving && !now.Before(r.readable) {
				r.open = true
				j := record.Decode(&r.Record, l.from, record.Limits{MaxWeight: 1}, now)
				j.Source, j.Receipt = source{l.source, l.from}, owner.Receipt(l.source)
				list = append(list, j)
			}
		}
		w.mu.Unlock()
		refused, err := owner.Offer(context.Background(), list)
		if err != nil {
			refused = list
		}
		for _, j := range refused {
			j.Source.Release(j.Offset)
		}
	}
}

// collect notes what has happened to the jobs, and returns how many are in hand.
func (w *world) collect(l *partitionLog) (open int) {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	for offset, outcome := range l.source.settled {
		if r := l.records[offset]; !r.done && outcome.Final() {
			w.jobs[r.Header(delivery.HeaderJobID)].ends++
		}
		l.records[offset].done = true
	}
	for _, offset := range l.source.released {
		l.records[offset].open, l.records[offset].readable = false, time.Now().Add(w.again)
	}
	l.source.released = nil
	for _, r := range l.records {
		if r.open && !r.done {
			open++
		}
	}
	return open
}

// move has a daemon give a partition to the other one. What is not settled is read again.
func (w *world) move(l *partitionLog) {
	w.revoke(l.owner, 1-l.owner, l)
}

// restart has a daemon read all of its partitions anew.
func (w *world) restart(daemon int) {
	w.revoke(daemon, daemon, slices.DeleteFunc(slices.Clone(w.logs), func(l *partitionLog) bool { return l.owner != daemon })...)
}

func (w *world) revoke(from, to int, logs ...*partitionLog) {
	for _, l := range logs {
		l.source.revoke()
	}
	err := w.daemons[from].Revoke(context.Background())
	w.expect(err == nil, "revocation: %v", err)
	time.Sleep(2 * time.Second)
	open := 0
	w.mu.Lock()
	for _, l := range logs {
		open += w.collect(l)
		w.reread(l, to)
	}
	w.mu.Unlock()
	w.expect(open == 0, "%d jobs are held on to", open)
}

// reread has a daemon read a partition from the first job that is not settled.
func (w *world) reread(l *partitionLog, owner int) {
	if l.source.twice > 0 {
		w.wrong = "jobs are settled twice"
	}
	for _, r := range l.records {
		r.open = false
	}
	l.owner, l.source = owner, newPartition("")
}

// end stops the daemons, and returns what was wrong.
func (w *world) end() string {
	w.stop()
	for _, l := range w.logs {
		w.collect(l)
		w.reread(l, l.owner)
	}
	for id, j := range w.jobs {
		if j.ends != 1 {
			w.wrong = fmt.Sprintf("job %s has %d ends: %+v", id, j.ends, *j)
		}
	}
	return w.wrong
}
