package ledger

import (
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// takenWidth is the time within which what was taken is one entry, microseconds, and maxTaken how many entries of a quota are kept apart.
	takenWidth = second / 10
	maxTaken   = 1024
)

// Taken is what this daemon took of quotas with long windows since the ledger was written. After a loss of the store's data, it is what the
// ledger lacks.
//
// A nil *Taken keeps nothing and allows everything. The methods are safe for concurrent use.
type Taken struct {
	mu     sync.Mutex
	shards []takenFrom // under mu
}

// takenFrom is what was taken from the data of a shard.
type takenFrom struct {
	epoch  int64              // 0: nothing is taken
	joined time.Time          // when it was last certain that it is the recorded one
	quotas map[string][]Dated // oldest first
}

// NewTaken makes the memory of a ledger, nil without one.
func NewTaken(o Options) *Taken {
	if o.Records == nil {
		return nil
	}
	return &Taken{shards: make([]takenFrom, o.Shards)}
}

// Allows reports whether units of all the quotas may be asked for: the ledger was reached lately, or none of them requires that.
func (t *Taken) Allows(shard int, quotas []*delivery.Quota) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Since(t.shards[shard].joined) <= goesOnFor {
		return true
	}
	for _, q := range quotas {
		closed := q.OnStoreFailure == "" || q.OnStoreFailure == delivery.PolicyClosed
		if inLedger(q) && closed && q.Mode != delivery.ModeShadow {
			return false
		}
	}
	return true
}

// Add notes units that were granted from the data of an epoch. False: a rebuild of the windows may have begun without them, so they must not
// be used.
func (t *Taken) Add(shard int, epoch int64, quotas []*delivery.Quota, units, grantedAt int64) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	from := &t.shards[shard]
	if from.epoch != epoch {
		return false
	}
	for _, q := range quotas {
		if !inLedger(q) || units == 0 {
			continue
		}
		list := from.quotas[q.ID]
		n := len(list)
		if n > 0 && (list[n-1].At/takenWidth == grantedAt/takenWidth || n == maxTaken) {
			list[n-1] = Dated{max(list[n-1].At, grantedAt), list[n-1].Units + units}
			continue
		}
		from.quotas[q.ID] = append(list, Dated{grantedAt, units})
	}
	return true
}

// GiveBack subtracts units that were granted at a time and never sent.
func (t *Taken) GiveBack(shard int, epoch int64, quotas []*delivery.Quota, units, grantedAt int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shards[shard].epoch != epoch {
		return
	}
	for _, q := range quotas {
		for i, d := range t.shards[shard].quotas[q.ID] {
			if d.At/takenWidth == grantedAt/takenWidth {
				t.shards[shard].quotas[q.ID][i].Units = max(0, d.Units-units)
			}
		}
	}
}

// open begins to take from the data of an epoch.
func (t *Taken) open(shard int, epoch int64, joined time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := &t.shards[shard]
	if from.quotas == nil {
		from.quotas = map[string][]Dated{}
	}
	from.epoch, from.joined = epoch, joined
}

// close ends that.
func (t *Taken) close(shard int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shards[shard].epoch = 0
}

// written forgets what the ledger holds: all that was taken before a time.
func (t *Taken) written(shard int, epoch, until int64, joined time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := &t.shards[shard]
	if from.epoch != epoch {
		return
	}
	from.joined = joined
	for id, list := range from.quotas {
		from.quotas[id] = from.quotas[id][:copy(list, notBefore(list, until))]
		if len(from.quotas[id]) == 0 {
			delete(from.quotas, id)
		}
	}
}

// since is what was taken from a time on, by minute.
func (t *Taken) since(shard int, at int64) (usage []delivery.Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for id, list := range t.shards[shard].quotas {
		for _, d := range notBefore(list, at) {
			if n := len(usage); n > 0 && usage[n-1].Quota == id && usage[n-1].Minute == d.At/ledgerMinute {
				usage[n-1].Units += d.Units
				continue
			}
			usage = append(usage, delivery.Usage{Quota: id, Minute: d.At / ledgerMinute, Units: d.Units})
		}
	}
	return usage
}

// forget drops all of a shard: its data are lost, and the ledger holds what was taken.
func (t *Taken) forget(shard int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.shards[shard].quotas)
}

// notBefore is the part of a list from a time on. Where entries were dated out of order, it may be more.
func notBefore(list []Dated, at int64) []Dated {
	for i, d := range list {
		if d.At >= at {
			return list[i:]
		}
	}
	return nil
}
