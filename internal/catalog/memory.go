package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// Memory is a catalog without a database, for the demo and for tests. Every change publishes a new immutable snapshot
// before it returns. NewMemory makes one; the zero value is not usable.
//
// All methods are safe for concurrent use. A campaign that is invalid is not refused but held, like one that was
// written with the triggers disabled.
type Memory struct {
	publisher

	mu        sync.Mutex // guards what follows, and the order of publishing
	state     *state
	positions map[string][]delivery.Position // by group, in order
	settled   map[string]delivery.Settled    // by campaign
}

// NewMemory makes an empty catalog, which is ready at once.
func NewMemory() *Memory {
	m := &Memory{
		state: newState(), positions: map[string][]delivery.Position{}, settled: map[string]delivery.Settled{},
	}
	m.publish(m.state.snapshot(time.Now()))
	return m
}

// Run waits until ctx ends; there is nothing to follow.
func (m *Memory) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Healthy is always nil.
func (m *Memory) Healthy() error { return nil }

// Refresh does nothing: a change is published before it returns.
func (m *Memory) Refresh(context.Context) {}

// PutCampaign creates or replaces a campaign and links it to the quotas. Revision and Quotas of c are
// ignored; an empty status, overflow or weight gets its default.
func (m *Memory) PutCampaign(c delivery.Campaign, quotas ...string) {
	m.change(func(s *state, revision int64) {
		c.Revision, c.Quotas = revision, nil
		c.Status = cmp.Or(c.Status, delivery.StatusActive)
		c.Overflow = cmp.Or(c.Overflow, delivery.OverflowLane)
		c.PriorityWeight = max(c.PriorityWeight, 1)
		ids := slices.Clone(quotas)
		slices.Sort(ids)
		s.putCampaign(&campaignEntry{row: &c, fault: c.Invalid, quotas: slices.Compact(ids)})
	})
}

// PutQuota creates or replaces a quota. Its revision is ignored; empty words get their defaults.
func (m *Memory) PutQuota(q delivery.Quota) {
	m.change(func(s *state, revision int64) {
		q = model.WithDefaults(q)
		q.Revision = revision
		q.Windows = slices.SortedFunc(slices.Values(q.Windows), func(a, b delivery.Window) int { return int(a.Span - b.Span) })
		s.putQuotas(newQuotaEntry(&q))
	})
}

// ChangeCampaign replaces a campaign by a changed copy, since one in a snapshot is immutable; it returns false if there is no such campaign.
func (m *Memory) ChangeCampaign(campaign string, mutate func(*delivery.Campaign)) (found bool) {
	m.change(func(s *state, revision int64) {
		entry, ok := s.campaigns[campaign]
		if !ok {
			return
		}
		row := *entry.row
		row.Invalid = entry.fault
		mutate(&row)
		row.Revision = revision
		s.putCampaign(&campaignEntry{row: &row, fault: row.Invalid, quotas: entry.quotas})
		found = true
	})
	return found
}

// change makes a change with the next revision and publishes the state.
func (m *Memory) change(mutate func(s *state, revision int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.revision++
	mutate(m.state, m.state.revision)
	m.publish(m.state.snapshot(time.Now()))
}

// locked runs one operation; like a database call, it fails once ctx has ended.
func (m *Memory) locked(ctx context.Context, what string, operate func()) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	operate()
	return nil
}

// SavePositions stores positions of the group, as Postgres.SavePositions does.
func (m *Memory) SavePositions(ctx context.Context, group string, positions []delivery.Position) error {
	return m.locked(ctx, "save positions of group "+group, func() {
		m.positions[group] = lastOfEach(append(m.positions[group], positions...), comparePositions)
	})
}

// LoadPositions returns the stored positions of the group, in the order of topics and partitions.
func (m *Memory) LoadPositions(ctx context.Context, group string) (positions []delivery.Position, err error) {
	err = m.locked(ctx, "load positions of group "+group, func() { positions = slices.Clone(m.positions[group]) })
	return positions, err
}

// SaveProgress adds settled jobs to each campaign, as Postgres.SaveProgress does. Outlooks and counts of destinations are not stored: only
// readers of the database use them.
func (m *Memory) SaveProgress(ctx context.Context, list []delivery.Progress) error {
	return m.locked(ctx, "save progress", func() {
		for _, p := range list {
			m.settled[p.Campaign] = m.settled[p.Campaign].Plus(p.Settled)
		}
		maps.DeleteFunc(m.settled, func(id string, _ delivery.Settled) bool { return m.state.campaigns[id] == nil }) // "": of destinations
	})
}

// SpreadCampaigns does nothing: no campaign has a finish_by.
func (m *Memory) SpreadCampaigns(context.Context, map[string]int64) error { return nil }

// LoadSettled returns the settled jobs, over all time, of the campaigns with an expected total, and of these others.
func (m *Memory) LoadSettled(ctx context.Context, others []string) (map[string]delivery.Settled, error) {
	all := map[string]delivery.Settled{}
	err := m.locked(ctx, "load progress", func() {
		for id, s := range m.settled {
			if c := m.state.campaigns[id]; c != nil && (c.row.ExpectedTotal > 0 || slices.Contains(others, id)) {
				all[id] = s
			}
		}
	})
	return all, err
}

// LoadSettledOf returns none: there are no destinations without a database.
func (m *Memory) LoadSettledOf(context.Context, []string) (map[string]delivery.Settled, error) {
	return nil, nil
}

// LoadOutlooks returns none: none are stored.
func (m *Memory) LoadOutlooks(context.Context) ([]delivery.Progress, error) { return nil, nil }
