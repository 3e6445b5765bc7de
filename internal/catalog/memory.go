package catalog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Memory is a catalog without a database: for the demo, and for tests of what uses a catalog. Every change
// publishes a new immutable snapshot before it returns. NewMemory makes one; the zero value is not usable.
//
// All methods are safe for use by several goroutines at once. A campaign that cannot be used is not refused but
// held, as one that was written behind the triggers' back would be.
type Memory struct {
	board

	mu        sync.Mutex // guards what follows, and the order of publishing
	state     *state
	positions map[string]map[positionKey]delivery.Position // by group
	pinnedAt  map[string]time.Time                         // when a campaign got its lane
	ledger    memoryLedger
}

type positionKey struct {
	topic     string
	partition int
}

// NewMemory makes an empty catalog, which is ready at once.
func NewMemory() *Memory {
	m := &Memory{
		state: newState(), positions: make(map[string]map[positionKey]delivery.Position), ledger: newMemoryLedger(),
		pinnedAt: make(map[string]time.Time),
	}
	m.publish(m.state.snapshot(time.Now()))
	return m
}

// Run does nothing until ctx ends; there is nothing to follow.
func (m *Memory) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Close does nothing.
func (m *Memory) Close() {}

// Healthy is always nil.
func (m *Memory) Healthy() error { return nil }

// PutCampaign creates or replaces a campaign and links it to the quotas. Revision, Quotas and Lane of c are
// ignored; an empty status, overflow or weight gets its default, and a ramp that does not say when it began begins now.
func (m *Memory) PutCampaign(c delivery.Campaign, quotas ...string) {
	m.change(func(s *state, revision int64) {
		c.Revision, c.Quotas, c.Lane = revision, nil, delivery.NoLane
		if c.Status == "" {
			c.Status = delivery.StatusActive
		}
		if c.Overflow == "" {
			c.Overflow = delivery.OverflowLane
		}
		c.PriorityWeight = max(c.PriorityWeight, 1)
		if c.Ramp != nil && c.Ramp.Since.IsZero() {
			ramp := *c.Ramp
			ramp.Since = time.Now()
			c.Ramp = &ramp
		}
		ids := slices.Clone(quotas)
		slices.Sort(ids)
		s.campaigns[c.ID] = &campaignEntry{row: c, quotas: slices.Compact(ids)}
	})
}

// PutQuota creates or replaces a quota. Its revision is ignored; empty words get their defaults.
func (m *Memory) PutQuota(q delivery.Quota) {
	m.change(func(s *state, revision int64) {
		q.Revision = revision
		q.Windows = slices.Clone(q.Windows)
		q.OnStoreFailure = orDefault(q.OnStoreFailure, delivery.PolicyClosed)
		q.Mode = orDefault(q.Mode, delivery.ModeStrict)
		q.Spend = orDefault(q.Spend, delivery.SpendGreedy)
		q.Unit = orDefault(q.Unit, delivery.UnitUnits)
		for i := range q.Windows {
			q.Windows[i].Algorithm = orDefault(q.Windows[i].Algorithm, delivery.AlgorithmSliding)
		}
		slices.SortFunc(q.Windows, func(a, b delivery.Window) int { return int(a.Span - b.Span) })
		s.quotas[q.ID] = newQuotaEntry(&q)
	})
}

// SetRate changes the rate of a campaign; false if there is no such campaign.
func (m *Memory) SetRate(campaign string, rate delivery.Rate) bool {
	return m.alter(campaign, func(c *delivery.Campaign) { c.Rate = rate })
}

// SetStatus changes the status of a campaign; false if there is no such campaign.
func (m *Memory) SetStatus(campaign string, status delivery.Status) bool {
	return m.alter(campaign, func(c *delivery.Campaign) { c.Status = status })
}

// DeleteCampaign removes a campaign, whose jobs are then of an unknown one.
func (m *Memory) DeleteCampaign(campaign string) {
	m.change(func(s *state, revision int64) {
		delete(s.campaigns, campaign)
		s.removed = revision
	})
}

// alter replaces a campaign by a changed copy; one in a snapshot is never touched.
func (m *Memory) alter(campaign string, mutate func(*delivery.Campaign)) (found bool) {
	m.change(func(s *state, revision int64) {
		entry, ok := s.campaigns[campaign]
		if !ok {
			return
		}
		row := entry.row
		mutate(&row)
		row.Revision = revision
		s.campaigns[campaign] = &campaignEntry{row: row, quotas: entry.quotas}
		found = true
	})
	return found
}

// change makes a change under the next revision and publishes the state.
func (m *Memory) change(mutate func(s *state, revision int64)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.revision++
	mutate(m.state, m.state.revision)
	m.publish(m.state.snapshot(time.Now()))
}

// Pin returns the lane of the campaign and pins one if there is none, as Postgres.Pin does.
func (m *Memory) Pin(ctx context.Context, campaign string, lanes int) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("pin campaign %s: %w", campaign, err)
	}
	if lanes < 1 {
		return 0, invalid("pin campaign %s: there are no lanes", campaign)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if lane, ok := m.state.lanes[campaign]; ok && lane < lanes {
		return lane, nil
	}
	loads := make([]laneLoad, lanes)
	now := time.Now()
	for id, lane := range m.state.lanes {
		if lane >= lanes {
			continue
		}
		loads[lane].pins++
		if now.Sub(m.pinnedAt[id]) < freshPin {
			loads[lane].fresh++
		}
	}
	backlogs := make([]int64, lanes)
	for _, positions := range m.positions {
		for key, position := range positions {
			if key.topic == defaultLanesTopic && key.partition < lanes {
				backlogs[key.partition] = max(backlogs[key.partition], position.Backlog)
			}
		}
	}
	for lane, backlog := range backlogs {
		loads[lane].backlog = backlog
	}
	lane := chooseLane(campaign, loads)
	m.state.lanes[campaign], m.pinnedAt[campaign] = lane, now
	m.publish(m.state.snapshot(time.Now()))
	return lane, nil
}

// Pinned lists the lanes of the campaigns that were pinned at least age ago, as Postgres.Pinned does.
func (m *Memory) Pinned(ctx context.Context, age time.Duration) (map[string]int, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the pins: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	pins, until := make(map[string]int), time.Now().Add(-age)
	for campaign, lane := range m.state.lanes {
		if !m.pinnedAt[campaign].After(until) {
			pins[campaign] = lane
		}
	}
	return pins, nil
}

// Unpin takes the campaign's pin to the lane away, if there is one, as Postgres.Unpin does.
func (m *Memory) Unpin(ctx context.Context, campaign string, lane int) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("unpin campaign %s: %w", campaign, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if at, ok := m.state.lanes[campaign]; !ok || at != lane {
		return nil
	}
	delete(m.state.lanes, campaign)
	delete(m.pinnedAt, campaign)
	m.publish(m.state.snapshot(time.Now()))
	return nil
}

// SavePositions keeps how far the group has read, as Postgres.SavePositions does.
func (m *Memory) SavePositions(ctx context.Context, group string, positions []delivery.Position) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("save positions of group %s: %w", group, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.positions[group] == nil {
		m.positions[group] = make(map[positionKey]delivery.Position)
	}
	for _, position := range positions {
		m.positions[group][positionKey{position.Topic, position.Partition}] = position
	}
	return nil
}

// LoadPositions returns what was saved for the group, in the order of topics and partitions.
func (m *Memory) LoadPositions(ctx context.Context, group string) ([]delivery.Position, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("load positions of group %s: %w", group, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	positions := make([]delivery.Position, 0, len(m.positions[group]))
	for _, position := range m.positions[group] {
		positions = append(positions, position)
	}
	slices.SortFunc(positions, comparePositions)
	return positions, nil
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
