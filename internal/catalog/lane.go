package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// pinTimeout bounds Pin and Unpin: a job waits for its lane meanwhile.
	pinTimeout = 2 * time.Second
	// pinLock is the advisory lock under which lanes are chosen ("pacerpin").
	pinLock int64 = 0x706163657270696e
)

// Pin returns the lane of the campaign, among lanes 0 to lanes-1, and pins one if there is none: an empty lane, or
// else one with the fewest pins and the smallest backlog. Daemons that ask at the same time get the same lane.
// It takes two seconds at most.
func (p *Postgres) Pin(ctx context.Context, campaign string, lanes int) (int, error) {
	if lanes < 1 {
		return 0, invalid("pin campaign %s: there are no lanes", campaign)
	}
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err != nil {
		return 0, fmt.Errorf("pin campaign %s: %w", campaign, err)
	}
	lane, err := pinned(ctx, pool, campaign, lanes)
	if errors.Is(err, pgx.ErrNoRows) {
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			lane, err = p.pinNew(ctx, tx, campaign, lanes)
			return err
		})
	}
	if err != nil {
		return 0, fmt.Errorf("pin campaign %s: %w", campaign, explain(err))
	}
	return lane, nil
}

// querier is what pinned needs of a pool or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// pinned is the lane that the campaign is pinned to, pgx.ErrNoRows if none. A pin to a lane that the topic does not
// have is none.
func pinned(ctx context.Context, q querier, campaign string, lanes int) (lane int, err error) {
	err = q.QueryRow(ctx, `SELECT lane FROM pacer.lane_pins WHERE campaign_id = $1 AND lane < $2`, campaign, lanes).Scan(&lane)
	return lane, err
}

// pinNew chooses a lane and pins it, one daemon at a time: two that choose side by side would both take the same
// empty lane, or pin one campaign twice.
func (p *Postgres) pinNew(ctx context.Context, tx pgx.Tx, campaign string, lanes int) (int, error) {
	if _, err := tx.Exec(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, pinTimeout.Milliseconds())); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, pinLock); err != nil {
		return 0, err
	}
	if lane, err := pinned(ctx, tx, campaign, lanes); !errors.Is(err, pgx.ErrNoRows) {
		return lane, err
	}
	loads := make([]laneLoad, lanes)
	rows, err := tx.Query(ctx, `
SELECT lane, count(*), 0::bigint FROM pacer.lane_pins WHERE lane < $1 GROUP BY lane
UNION ALL
SELECT partition, 0, max(backlog) FROM pacer.positions WHERE topic = $2 AND partition < $1 GROUP BY partition`,
		lanes, p.options.LanesTopic)
	if err != nil {
		return 0, err
	}
	var lane int
	var pins, backlog int64
	_, err = pgx.ForEachRow(rows, []any{&lane, &pins, &backlog}, func() error {
		loads[lane].pins += pins
		loads[lane].backlog += backlog
		return nil
	})
	if err != nil {
		return 0, err
	}
	lane = chooseLane(campaign, loads)
	_, err = tx.Exec(ctx, `INSERT INTO pacer.lane_pins (campaign_id, lane) VALUES ($1, $2)
ON CONFLICT (campaign_id) DO UPDATE SET lane = excluded.lane, pinned_at = now()`, campaign, lane)
	return lane, err
}

// Unpin takes the campaign's pin away, if there is one.
func (p *Postgres) Unpin(ctx context.Context, campaign string) error {
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err == nil {
		_, err = pool.Exec(ctx, `DELETE FROM pacer.lane_pins WHERE campaign_id = $1`, campaign)
	}
	if err != nil {
		return fmt.Errorf("unpin campaign %s: %w", campaign, explain(err))
	}
	return nil
}

// laneLoad is what speaks against a lane.
type laneLoad struct{ pins, backlog int64 }

// chooseLane picks the lane with the fewest pins and, among those, the smallest backlog: an empty lane comes first.
// Pins come before backlogs, which are seconds old: a hundred campaigns that overflow in the same second would
// all see the same smallest one. Among equals a hash decides, so that the first few pins do not all fall to the
// daemon that owns the lowest partitions.
func chooseLane(campaign string, loads []laneLoad) int {
	best, bestHash := 0, laneHash(campaign, 0)
	for lane := 1; lane < len(loads); lane++ {
		candidate, champion := loads[lane], loads[best]
		hash := laneHash(campaign, lane)
		better := candidate.pins < champion.pins
		if candidate.pins == champion.pins {
			better = candidate.backlog < champion.backlog || candidate.backlog == champion.backlog && hash < bestHash
		}
		if better {
			best, bestHash = lane, hash
		}
	}
	return best
}

func laneHash(campaign string, lane int) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", campaign, lane)
	return h.Sum64()
}
