package catalog

import (
	"cmp"
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
	// freshPin is for how long a pin may not show in the backlogs yet, which are saved every few seconds.
	freshPin = 15 * time.Second
)

// Pin returns the lane of the campaign, among lanes 0 to lanes-1, and pins one if there is none: an empty lane, or
// else the one with the smallest backlog (see chooseLane). Daemons that ask at the same time get the same lane. It takes
// two seconds at most. The function pacer.lane does the same for programs that know SQL only.
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
SELECT lane, count(*), count(*) FILTER (WHERE pinned_at > now() - $3::interval), 0::bigint
FROM pacer.lane_pins WHERE lane < $1 GROUP BY lane
UNION ALL
SELECT partition, 0, 0, max(backlog) FROM pacer.positions WHERE topic = $2 AND partition < $1 GROUP BY partition`,
		lanes, p.options.LanesTopic, freshPin)
	if err != nil {
		return 0, err
	}
	var lane int
	var load laneLoad
	_, err = pgx.ForEachRow(rows, []any{&lane, &load.pins, &load.fresh, &load.backlog}, func() error {
		loads[lane].pins += load.pins
		loads[lane].fresh += load.fresh
		loads[lane].backlog += load.backlog
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

// Pinned lists the lanes of the campaigns that were pinned at least age ago, by the clock of the database.
func (p *Postgres) Pinned(ctx context.Context, age time.Duration) (map[string]int, error) {
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err != nil {
		return nil, fmt.Errorf("read the pins: %w", err)
	}
	rows, err := pool.Query(ctx, `SELECT campaign_id, lane FROM pacer.lane_pins WHERE pinned_at <= now() - $1::interval`, age)
	if err != nil {
		return nil, fmt.Errorf("read the pins: %w", explain(err))
	}
	pins := make(map[string]int)
	var campaign string
	var lane int
	if _, err = pgx.ForEachRow(rows, []any{&campaign, &lane}, func() error {
		pins[campaign] = lane
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the pins: %w", explain(err))
	}
	return pins, nil
}

// Unpin takes the campaign's pin to the lane away, if there is one. A pin to another lane stays: producers that hold on to
// an old pin may leave jobs in several lanes, and what one lane is drained of may wait in another.
func (p *Postgres) Unpin(ctx context.Context, campaign string, lane int) error {
	ctx, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	pool, err := p.database.pool()
	if err == nil {
		_, err = pool.Exec(ctx, `DELETE FROM pacer.lane_pins WHERE campaign_id = $1 AND lane = $2`, campaign, lane)
	}
	if err != nil {
		return fmt.Errorf("unpin campaign %s: %w", campaign, explain(err))
	}
	return nil
}

// laneLoad is what speaks against a lane.
type laneLoad struct {
	pins    int64
	fresh   int64 // pins that may not show in the backlog yet
	backlog int64 // jobs
}

// chooseLane picks an empty lane, one without pins and backlog; where there is none, the one with the smallest backlog.
// Fresh pins come before that: a hundred campaigns that overflow in the same second would all see the same smallest one.
// Among equals the fewest pins decide, and then a hash, so that the first few do not all fall to the daemon that owns the
// lowest partitions.
func chooseLane(campaign string, loads []laneLoad) int {
	best := 0
	for lane := range loads {
		if compareLanes(loads, campaign, lane, best) < 0 {
			best = lane
		}
	}
	return best
}

// compareLanes is negative when lane a is the better one.
func compareLanes(loads []laneLoad, campaign string, a, b int) int {
	x, y := loads[a], loads[b]
	return cmp.Or(
		cmp.Compare(x.used(), y.used()),
		cmp.Compare(x.fresh, y.fresh),
		cmp.Compare(x.backlog, y.backlog),
		cmp.Compare(x.pins, y.pins),
		cmp.Compare(laneHash(campaign, a), laneHash(campaign, b)),
	)
}

// used is 0 for an empty lane and 1 for others.
func (l laneLoad) used() int {
	if l.pins == 0 && l.backlog == 0 {
		return 0
	}
	return 1
}

func laneHash(campaign string, lane int) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", campaign, lane)
	return h.Sum64()
}
