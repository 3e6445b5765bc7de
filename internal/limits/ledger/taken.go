package ledger

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// takenWidth is the time within which what was taken is one entry, microseconds, and maxTaken how many entries of a quota are kept apart.
	takenWidth = second / 10
	maxTaken   = 1024
)

// Allows reports whether units of all the quotas may be asked for: the ledger was reached lately, or none of them requires that.
func (g *Fence) Allows(shard int, quotas []*delivery.Quota) bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if time.Since(g.shards[shard].joined) <= goesOnFor {
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
func (g *Fence) Add(shard int, epoch int64, quotas []*delivery.Quota, units, grantedAt int64) bool {
	if g == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	if !s.holds(epoch) {
		return false
	}
	for _, q := range quotas {
		if !inLedger(q) || units == 0 {
			continue
		}
		list := s.taken[q.ID]
		n := len(list)
		if n > 0 && (list[n-1].At/takenWidth == grantedAt/takenWidth || n == maxTaken) {
			list[n-1] = Dated{max(list[n-1].At, grantedAt), list[n-1].Units + units}
			continue
		}
		s.taken[q.ID] = append(list, Dated{grantedAt, units})
	}
	return true
}

// GiveBack subtracts units that were granted at a time and never sent.
func (g *Fence) GiveBack(shard int, epoch int64, quotas []*delivery.Quota, units, grantedAt int64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	if !s.holds(epoch) {
		return
	}
	for _, q := range quotas {
		list, left := s.taken[q.ID], units
		for i, d := range list { // replies that come out of order make several entries of one time
			if d.At/takenWidth == grantedAt/takenWidth {
				back := min(left, d.Units)
				list[i].Units, left = d.Units-back, left-back
			}
		}
	}
}

// written forgets what the ledger holds: all that was taken before a time.
func (g *Fence) written(shard int, epoch, until int64, joined time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	if !s.holds(epoch) {
		return
	}
	s.joined = joined
	for id, list := range s.taken {
		s.taken[id] = s.taken[id][:copy(list, notBefore(list, until))]
		if len(s.taken[id]) == 0 {
			delete(s.taken, id)
		}
	}
}

// since is what was taken from a time on, by minute.
func (g *Fence) since(shard int, at int64) (usage []delivery.Usage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, list := range g.shards[shard].taken {
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
func (g *Fence) forget(shard int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.shards[shard].taken)
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
