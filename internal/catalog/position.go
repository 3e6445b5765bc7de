package catalog

import (
	"cmp"
	"context"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
)

// positionBatch is the number of positions that one statement saves.
const positionBatch = 1000

// SavePositions stores positions of the group; of several positions of one partition the last counts. A smaller offset
// replaces a greater one, since a topic made anew begins at 0.
func (p *Postgres) SavePositions(ctx context.Context, group string, positions []delivery.Position) error {
	positions = lastOfEach(positions, comparePositions)
	return p.database.do(ctx, "save positions of group "+group, func(ctx context.Context, pool *pgxpool.Pool) error {
		for part := range slices.Chunk(positions, positionBatch) {
			_, err := pool.Exec(ctx, `
INSERT INTO pacer.positions (group_id, topic, partition, committed, metadata, topic_id, updated_at)
SELECT $1, t.*, now()
FROM unnest($2::text[], $3::int[], $4::bigint[], $5::text[], $6::text[]) AS t
ON CONFLICT (group_id, topic, partition) DO UPDATE
SET committed = excluded.committed, metadata = excluded.metadata, topic_id = excluded.topic_id, updated_at = now()`,
				group,
				column(part, func(at delivery.Position) string { return at.Topic }),
				column(part, func(at delivery.Position) int { return at.Partition }),
				column(part, func(at delivery.Position) int64 { return at.Committed }),
				column(part, func(at delivery.Position) string { return at.Metadata }),
				column(part, func(at delivery.Position) string { return at.TopicID.String() }))
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// LoadPositions returns the stored positions of the group, in the order of topics and partitions.
func (p *Postgres) LoadPositions(ctx context.Context, group string) ([]delivery.Position, error) {
	return list(ctx, p.database, "load positions of group "+group, func(row pgx.CollectableRow) (at delivery.Position, err error) {
		var id string
		err = row.Scan(&at.Topic, &at.Partition, &at.Committed, &at.Metadata, &id)
		at.TopicID = delivery.ParseTopicID(id)
		return at, err
	}, `SELECT topic, partition, committed, metadata, topic_id FROM pacer.positions WHERE group_id = $1 ORDER BY topic COLLATE "C", partition`, group)
}

func comparePositions(a, b delivery.Position) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
