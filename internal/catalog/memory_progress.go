package catalog

import (
	"context"
	"fmt"
	"maps"

	"github.com/pacer/pacer/internal/delivery"
)

// SaveProgress adds what was settled of each campaign, as Postgres.SaveProgress does. Outlooks are not kept: nobody would
// read them here.
func (m *Memory) SaveProgress(ctx context.Context, list []delivery.Progress) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("save progress: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range list {
		m.ledger.settled[p.Campaign] = m.ledger.settled[p.Campaign].Plus(p.Settled)
	}
	maps.DeleteFunc(m.ledger.settled, func(id string, _ delivery.Settled) bool { return m.state.campaigns[id] == nil })
	return nil
}

// LoadSettled returns what was ever settled of the campaigns that say how many jobs are expected.
func (m *Memory) LoadSettled(ctx context.Context) (map[string]delivery.Settled, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("load progress: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	all := map[string]delivery.Settled{}
	for id, s := range m.ledger.settled {
		if c := m.state.campaigns[id]; c != nil && c.row.ExpectedTotal > 0 {
			all[id] = s
		}
	}
	return all, nil
}
