package pacer

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

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

// collect notes what has happened to the jobs, and returns how many are in hand. Those that were given back are offered again some seconds later.
func (d *days) collect(l *partitionLog) (open int) {
	l.source.mu.Lock()
	defer l.source.mu.Unlock()
	for offset, outcome := range l.source.settled {
		if r := l.records[offset]; !r.done && outcome.Final() {
			d.promises[r.Header(delivery.HeaderJobID)].ended++
		}
		l.records[offset].done = true
	}
	for _, offset := range l.source.released {
		l.records[offset].open, l.records[offset].readable = false, time.Now().Add(5*time.Second)
	}
	l.source.released = nil
	for _, r := range l.records {
		if r.open && !r.done {
			open++
		}
	}
	return open - l.source.dropped
}

// read offers what may be read to the partition's daemon.
func (d *days) read(l *partitionLog) {
	var list []*delivery.Job
	d.mu.Lock()
	d.collect(l)
	now, owner, leaving := time.Now(), d.daemons[l.owner], l.source.revoked
	for _, r := range l.records {
		if !r.open && !r.done && !leaving && now.After(r.readable) {
			r.open = true
			j := record.Decode(&r.Record, l.from, record.Limits{MaxWeight: 1}, now)
			j.Source, j.Receipt = source{l.source, l.from}, owner.Receipt(l.source)
			list = append(list, j)
		}
	}
	d.mu.Unlock()
	refused, err := owner.Offer(context.Background(), list)
	if err != nil {
		refused = list
	}
	for _, j := range refused {
		j.Source.Release(j.Offset)
	}
}

// move has a daemon give a partition to the other one, or all of its own to itself: it restarts. What is not settled is read again.
func (d *days) move(l *partitionLog, restart bool) {
	daemon, to := l.owner, l.owner
	if restart {
		open, err := d.daemons[daemon].Drain(context.Background())
		must(d.t, err, nil, "drain")
		must(d.t, open, 0, "jobs in doubt")
	} else {
		l.source.revoke()
		must(d.t, d.daemons[daemon].Revoke(context.Background()), nil, "revocation")
		time.Sleep(2 * time.Second)
		to = 1 - daemon
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.logs {
		if other != l && (!restart || other.owner != daemon) {
			continue
		}
		if open := d.collect(other); !restart {
			must(d.t, open, 0, "jobs are held on to")
		}
		for _, r := range other.records {
			r.open = false
		}
		must(d.t, other.source.twice, 0, "jobs are settled twice")
		other.owner, other.source = to, newPartition("")
	}
}

func (d *days) add(topic int, r delivery.Record, readable time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.logs[2*topic+d.random.IntN(2)]
	r.Offset, r.Headers = int64(len(l.records)), slices.Clone(r.Headers)
	l.records = append(l.records, &logged{Record: r, readable: readable})
}
