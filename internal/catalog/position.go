package catalog

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

// positionBatch is how many positions one statement saves.
const positionBatch = 1000

// SavePositions keeps how far the group has read; the last of several positions of one partition counts. A smaller
// offset replaces a greater one: a topic that was made anew begins at 0, and going on from the old, greater offset
// would pass over jobs.
func (p *Postgres) SavePositions(ctx context.Context, group string, positions []delivery.Position) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err != nil {
		return fmt.Errorf("save positions of group %s: %w", group, err)
	}
	for part := range slices.Chunk(sortedPositions(positions), positionBatch) {
		topics, partitions, committed, metadata, backlogs := columns(part)
		_, err := pool.Exec(ctx, `
INSERT INTO pacer.positions (group_id, topic, partition, committed, metadata, backlog, updated_at)
SELECT $1, t.topic, t.partition, t.committed, t.metadata, t.backlog, now()
FROM unnest($2::text[], $3::int[], $4::bigint[], $5::text[], $6::bigint[]) AS t(topic, partition, committed, metadata, backlog)
ON CONFLICT (group_id, topic, partition) DO UPDATE
SET committed = excluded.committed, metadata = excluded.metadata, backlog = excluded.backlog, updated_at = now()`,
			group, topics, partitions, committed, metadata, backlogs)
		if err != nil {
			return fmt.Errorf("save positions of group %s: %w", group, explain(err))
		}
	}
	return nil
}

// LoadPositions returns what was saved for the group, in the order of topics and partitions.
func (p *Postgres) LoadPositions(ctx context.Context, group string) ([]delivery.Position, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err != nil {
		return nil, fmt.Errorf("load positions of group %s: %w", group, err)
	}
	rows, err := pool.Query(ctx, `
SELECT topic, partition, committed, metadata, backlog FROM pacer.positions
WHERE group_id = $1 ORDER BY topic COLLATE "C", partition`, group)
	if err != nil {
		return nil, fmt.Errorf("load positions of group %s: %w", group, explain(err))
	}
	positions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[delivery.Position])
	if err != nil {
		return nil, fmt.Errorf("load positions of group %s: %w", group, explain(err))
	}
	return positions, nil
}

// sortedPositions orders a copy by topic and partition, and keeps the last of each. Daemons that save at the same
// time then lock rows in the same order and cannot block each other for good.
func sortedPositions(positions []delivery.Position) []delivery.Position {
	sorted := slices.Clone(positions)
	slices.SortStableFunc(sorted, comparePositions)
	kept := sorted[:0]
	for i, position := range sorted {
		if i+1 == len(sorted) || comparePositions(position, sorted[i+1]) != 0 {
			kept = append(kept, position)
		}
	}
	return kept
}

func comparePositions(a, b delivery.Position) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// columns turns positions into the arrays that unnest takes.
func columns(positions []delivery.Position) (topics []string, partitions []int, committed []int64, metadata []string, backlogs []int64) {
	for _, position := range positions {
		topics = append(topics, position.Topic)
		partitions = append(partitions, position.Partition)
		committed = append(committed, position.Committed)
		metadata = append(metadata, position.Metadata)
		backlogs = append(backlogs, position.Backlog)
	}
	return topics, partitions, committed, metadata, backlogs
}
