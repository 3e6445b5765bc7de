package catalog

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// pinTimeout bounds Pin and Unpin: jobs wait for their lanes meanwhile.
	pinTimeout = 2 * time.Second
	// pinLock is the advisory lock under which lanes are chosen ("pacerpin").
	pinLock int64 = 0x706163657270696e
	// backlogAge is how old a stored backlog may be to count when a lane is chosen. Daemons store theirs every few
	// seconds; older rows belong to a group that has retired, or to lanes that nobody reads.
	backlogAge = time.Minute
)

// Pin returns the lane of each campaign, among lanes 0 to lanes-1 without those to avoid. A campaign that is pinned to
// none of them is pinned to one: that with the fewest pins and, among those, the smallest backlog (see chooseLane).
// Concurrent calls return the same lanes. Pin takes at most two seconds. The SQL function pacer.lane does the same for
// other programs.
func (p *Postgres) Pin(ctx context.Context, campaigns []string, lanes int, avoid []int) (map[string]int, error) {
	if err := checkLanes(lanes, avoid); err != nil {
		return nil, err
	}
	what := "pin campaigns"
	if len(campaigns) == 1 {
		what = "pin campaign " + campaigns[0]
	}
	return read(ctx, p.database, pinTimeout, what, func(ctx context.Context, pool *pgxpool.Pool) (map[string]int, error) {
		rows, _ := pool.Query(ctx, selectPinned, campaigns, lanes, avoid)
		pins, err := collectPins(rows)
		if err != nil || len(unpinned(campaigns, pins)) == 0 {
			return pins, err
		}
		return inTx(ctx, pool, func(tx pgx.Tx) (map[string]int, error) { return p.pinNew(ctx, tx, campaigns, lanes, avoid) })
	})
}

// checkLanes refuses a choice among no lanes.
func checkLanes(lanes int, avoid []int) error {
	if lanes < 1 || len(avoid) >= lanes {
		return invalid("pin campaigns: %d lanes, %d of them to avoid, leave none", lanes, len(avoid))
	}
	return nil
}

// unpinned returns the campaigns without a pin.
func unpinned(campaigns []string, pins map[string]int) []string {
	return slices.DeleteFunc(slices.Clone(campaigns), func(id string) bool { _, ok := pins[id]; return ok })
}

const (
	// selectPinned reads the pins that count: those to lanes that the topic has and that are not to be avoided.
	selectPinned = selectPins + ` WHERE campaign_id = ANY($1) AND lane < $2 AND NOT lane = ANY(coalesce($3::int[], '{}'))`

	selectLoads = `
SELECT lane, count(*), 0::bigint FROM pacer.lane_pins WHERE lane < $1 GROUP BY lane
UNION ALL
SELECT partition, 0, max(backlog) FROM pacer.positions
WHERE topic = $2 AND partition < $1 AND updated_at > now() - $3::interval GROUP BY partition`
)

// pinNew chooses lanes for the campaigns that have none, one caller at a time: two concurrent choices would take the
// same lane, or pin one campaign twice. The locks and the queries make one round trip.
func (p *Postgres) pinNew(ctx context.Context, tx pgx.Tx, campaigns []string, lanes int, avoid []int) (pins map[string]int, err error) {
	loads := make([]laneLoad, lanes)
	batch := &pgx.Batch{}
	batch.Queue(fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, pinTimeout.Milliseconds()))
	batch.Queue(`SELECT pg_advisory_xact_lock($1)`, pinLock)
	batch.Queue(selectPinned, campaigns, lanes, avoid).Query(func(rows pgx.Rows) (err error) {
		pins, err = collectPins(rows)
		return err
	})
	batch.Queue(selectLoads, lanes, p.options.LanesTopic, backlogAge).Query(func(rows pgx.Rows) error {
		var lane int
		var load laneLoad
		_, err := pgx.ForEachRow(rows, []any{&lane, &load.pins, &load.backlog}, func() error {
			loads[lane].pins += load.pins
			loads[lane].backlog += load.backlog
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	var added []string
	var to []int
	for id, lane := range chooseLanes(unpinned(campaigns, pins), loads, avoid) {
		added, to, pins[id] = append(added, id), append(to, lane), lane
	}
	_, err = tx.Exec(ctx, `
INSERT INTO pacer.lane_pins (campaign_id, lane) SELECT * FROM unnest($1::text[], $2::int[])
ON CONFLICT (campaign_id) DO UPDATE SET lane = excluded.lane, pinned_at = now()`, added, to)
	return pins, err
}

// Pinned returns the lanes of the campaigns that were pinned at least age ago, by the clock of the database.
func (p *Postgres) Pinned(ctx context.Context, age time.Duration) (map[string]int, error) {
	return read(ctx, p.database, pinTimeout, "read the pins", func(ctx context.Context, pool *pgxpool.Pool) (map[string]int, error) {
		rows, _ := pool.Query(ctx, selectPins+` WHERE pinned_at <= now() - $1::interval`, age)
		return collectPins(rows)
	})
}

// collectPins reads the rows of selectPins.
func collectPins(rows pgx.Rows) (map[string]int, error) {
	pins, campaign, lane := make(map[string]int), "", 0
	_, err := pgx.ForEachRow(rows, []any{&campaign, &lane}, func() error {
		pins[campaign] = lane
		return nil
	})
	return pins, err
}

// Unpin removes the campaign's pin to the lane, if there is one. A pin to another lane stays: producers with an old
// pin may have written to several lanes, so that a campaign drained from one lane may still wait in another.
func (p *Postgres) Unpin(ctx context.Context, campaign string, lane int) error {
	return p.database.do(ctx, pinTimeout, "unpin campaign "+campaign, func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, `DELETE FROM pacer.lane_pins WHERE campaign_id = $1 AND lane = $2`, campaign, lane)
		return err
	})
}

// laneLoad is the load of a lane.
type laneLoad struct {
	pins    int64
	backlog int64 // jobs
}

// chooseLanes chooses a lane for each campaign in turn and adds it to the loads.
func chooseLanes(campaigns []string, loads []laneLoad, avoid []int) map[string]int {
	chosen := make(map[string]int, len(campaigns))
	for _, id := range campaigns {
		if _, known := chosen[id]; known {
			continue
		}
		chosen[id] = chooseLane(id, loads, avoid)
		loads[chosen[id]].pins++
	}
	return chosen
}

// chooseLane chooses the lane with the fewest pins, and among those the one with the smallest backlog. Pins come first
// because they are exact: backlogs are stored every few seconds, and campaigns that overflow one after the other would
// all follow the smallest, which a few small campaigns do not change. Ties are broken by a hash, so that the first lanes
// in use do not all belong to the daemon with the lowest partitions. It returns -1 if all lanes are to be avoided.
func chooseLane(campaign string, loads []laneLoad, avoid []int) int {
	best := -1
	for lane := range loads {
		if !slices.Contains(avoid, lane) && (best < 0 || compareLanes(loads, campaign, lane, best) < 0) {
			best = lane
		}
	}
	return best
}

// compareLanes is negative if lane a is the better one.
func compareLanes(loads []laneLoad, campaign string, a, b int) int {
	if by := cmp.Or(cmp.Compare(loads[a].pins, loads[b].pins), cmp.Compare(loads[a].backlog, loads[b].backlog)); by != 0 {
		return by
	}
	return cmp.Compare(laneHash(campaign, a), laneHash(campaign, b))
}

func laneHash(campaign string, lane int) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s %d", campaign, lane)
	return h.Sum64()
}
