package catalog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
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

// Pin returns the lanes of each campaign, which are its stripes: those that it has, and more until it has the number that
// is wanted or the lanes are used up. New ones are chosen among lanes 0 to lanes-1 without those to avoid: the lanes with
// the fewest pins and, among those, the smallest backlog (see chooseLane). A campaign all of whose lanes are to be avoided
// gets one instead of its lowest. Concurrent calls return the same lanes. Pin takes at most two seconds. The SQL functions
// pacer.lane and pacer.lanes do the same for other programs.
func (p *Postgres) Pin(ctx context.Context, wanted map[string]int, lanes int, avoid []int) (map[string][]int, error) {
	if err := checkLanes(lanes, avoid); err != nil {
		return nil, err
	}
	campaigns := slices.Sorted(maps.Keys(wanted))
	what := "pin campaigns"
	if len(campaigns) == 1 {
		what = "pin campaign " + campaigns[0]
	}
	return read(ctx, p.database, pinTimeout, what, func(ctx context.Context, pool *pgxpool.Pool) (map[string][]int, error) {
		rows, _ := pool.Query(ctx, selectPinned, campaigns, lanes)
		sets, err := collectPins(rows)
		if err != nil || !slices.ContainsFunc(campaigns, func(id string) bool { return lacks(sets[id], wanted[id], avoid) }) {
			return sets, err
		}
		return inTx(ctx, pool, func(tx pgx.Tx) (map[string][]int, error) {
			return p.pinNew(ctx, tx, campaigns, choice{wanted: wanted, loads: make([]laneLoad, lanes), avoid: avoid})
		})
	})
}

// checkLanes refuses a choice among no lanes.
func checkLanes(lanes int, avoid []int) error {
	if lanes < 1 || len(avoid) >= lanes {
		return invalid("pin campaigns: %d lanes, %d of them to avoid, leave none", lanes, len(avoid))
	}
	return nil
}

const (
	// selectPinned reads the pins that count: those to lanes that the topic has.
	selectPinned = `SELECT campaign_id, lane FROM pacer.lane_pins WHERE campaign_id = ANY($1) AND lane < $2`

	selectLoads = `
SELECT lane, count(*), 0::bigint FROM pacer.lane_pins WHERE lane < $1 GROUP BY lane
UNION ALL
SELECT partition, 0, max(backlog) FROM pacer.positions
WHERE topic = $2 AND partition < $1 AND updated_at > now() - $3::interval GROUP BY partition`
)

// pinNew chooses lanes for the campaigns that have too few, one caller at a time: two concurrent choices would take the
// same lane, or pin one campaign twice. The locks and the queries make one round trip.
func (p *Postgres) pinNew(ctx context.Context, tx pgx.Tx, campaigns []string, c choice) (map[string][]int, error) {
	var sets map[string][]int
	batch := lockedBatch()
	batch.Queue(selectPinned, campaigns, len(c.loads)).Query(func(rows pgx.Rows) (err error) {
		sets, err = collectPins(rows)
		return err
	})
	batch.Queue(selectLoads, len(c.loads), p.options.LanesTopic, backlogAge).Query(func(rows pgx.Rows) error {
		var lane int
		var load laneLoad
		_, err := pgx.ForEachRow(rows, []any{&lane, &load.pins, &load.backlog}, func() error {
			c.loads[lane].pins += load.pins
			c.loads[lane].backlog += load.backlog
			return nil
		})
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return nil, err
	}
	added, removed := c.choose(campaigns, sets)
	batch = &pgx.Batch{}
	// A pin to a lane that the topic does not have would never be drained.
	batch.Queue(`DELETE FROM pacer.lane_pins WHERE campaign_id = ANY($1) AND lane >= $2
    OR (campaign_id, lane) IN (SELECT * FROM unnest($3::text[], $4::int[]))`, campaigns, len(c.loads), removed.campaigns, removed.lanes)
	batch.Queue(`INSERT INTO pacer.lane_pins (campaign_id, lane) SELECT * FROM unnest($1::text[], $2::int[])`, added.campaigns, added.lanes)
	return sets, tx.SendBatch(ctx, batch).Close()
}

// lockedBatch begins a batch of a transaction that alone changes pins.
func lockedBatch() *pgx.Batch {
	batch := &pgx.Batch{}
	batch.Queue(fmt.Sprintf(`SET LOCAL lock_timeout = '%dms'`, pinTimeout.Milliseconds()))
	batch.Queue(`SELECT pg_advisory_xact_lock($1)`, pinLock)
	return batch
}

// Pinned returns the lanes of the campaigns that were pinned at least age ago, by the clock of the database. Of campaigns
// with several lanes it returns all, however old.
func (p *Postgres) Pinned(ctx context.Context, age time.Duration) (map[string][]int, error) {
	return read(ctx, p.database, pinTimeout, "read the pins", func(ctx context.Context, pool *pgxpool.Pool) (map[string][]int, error) {
		rows, _ := pool.Query(ctx, `
SELECT p.campaign_id, p.lane FROM pacer.lane_pins p WHERE p.pinned_at <= now() - $1::interval
    OR EXISTS (SELECT FROM pacer.lane_pins o WHERE o.campaign_id = p.campaign_id AND o.lane <> p.lane)`, age)
		return collectPins(rows)
	})
}

// collectPins reads the lanes of campaigns, in ascending order.
func collectPins(rows pgx.Rows) (map[string][]int, error) {
	pins, campaign, lane := make(map[string][]int), "", 0
	_, err := pgx.ForEachRow(rows, []any{&campaign, &lane}, func() error {
		set := append(pins[campaign], lane)
		slices.Sort(set)
		pins[campaign] = set
		return nil
	})
	return pins, err
}

// Rate returns the rate of a campaign, by which the number of its lanes is chosen; zero if it is unknown.
func (p *Postgres) Rate(ctx context.Context, campaign string) (delivery.Rate, error) {
	return read(ctx, p.database, pinTimeout, "read campaign "+campaign, func(ctx context.Context, pool *pgxpool.Pool) (delivery.Rate, error) {
		row, err := oneCampaign(ctx, pool, campaign)
		if errors.Is(err, ErrNotFound) {
			return delivery.Rate{}, nil
		}
		return row.Campaign().Rate, err
	})
}

// Unpin reports that almost nothing of the campaign is left in a lane, where jobs of it were seen or were not. The
// campaign loses its pins once all its lanes are reported within drainedAge: then released is true, as it is if the
// campaign is not pinned to the lane. Until then, the report has to be repeated while it holds. Pins to lanes in which
// nothing was seen are kept for idlePin, unless jobs were seen in another.
//
// A pin to another lane stays: producers with an old pin may have written to several lanes, so that a campaign drained
// from one lane may still wait in another.
func (p *Postgres) Unpin(ctx context.Context, campaign string, lane int, seen bool) (released bool, err error) {
	return read(ctx, p.database, pinTimeout, "unpin campaign "+campaign, func(ctx context.Context, pool *pgxpool.Pool) (bool, error) {
		tag, err := pool.Exec(ctx, `
DELETE FROM pacer.lane_pins WHERE campaign_id = $1 AND lane = $2
    AND NOT EXISTS (SELECT FROM pacer.lane_pins WHERE campaign_id = $1 AND lane <> $2)`, campaign, lane)
		if err != nil || tag.RowsAffected() > 0 {
			return true, err
		}
		rows, _ := pool.Query(ctx, noteDrained, campaign, drainedAge, idlePin, lane)
		stripes, err := pgx.CollectRows(rows, pgx.RowToStructByPos[stripe])
		switch {
		case err != nil:
			return false, err
		case !slices.ContainsFunc(stripes, func(s stripe) bool { return s.Lane == lane }):
			return true, nil
		case !allDrained(stripes, seen):
			return false, nil
		}
		return inTx(ctx, pool, func(tx pgx.Tx) (bool, error) { return unpinAll(ctx, tx, campaign, seen) })
	})
}

const (
	// drainedAge is how old the report that a lane is drained may be: it is repeated every few seconds while it holds.
	drainedAge = 15 * time.Second
	// idlePin is how long a campaign is pinned without a job: the daemon or producer that asked may be about to write.
	idlePin = 10 * time.Minute
)

const (
	// selectStripes reads the lanes of a campaign.
	selectStripes = `
SELECT lane, coalesce(drained_at > now() - $2::interval, false), pinned_at < now() - $3::interval
FROM pacer.lane_pins WHERE campaign_id = $1`

	// noteDrained notes that one of several lanes of a campaign is drained, and reads all of them. It takes no lock but that of the
	// row: while many campaigns have almost nothing left, there are many reports, and each is repeated.
	noteDrained = `
WITH noted AS (
    UPDATE pacer.lane_pins SET drained_at = now() WHERE campaign_id = $1 AND lane = $4 RETURNING lane, pinned_at
)
SELECT lane, true, pinned_at < now() - $3::interval FROM noted
UNION ALL` + selectStripes + ` AND lane <> $4`
)

// unpinAll removes all pins of a campaign, if all its lanes are drained still.
func unpinAll(ctx context.Context, tx pgx.Tx, campaign string, seen bool) (released bool, err error) {
	var stripes []stripe
	batch := lockedBatch()
	batch.Queue(selectStripes, campaign, drainedAge, idlePin).Query(func(rows pgx.Rows) (err error) {
		stripes, err = pgx.CollectRows(rows, pgx.RowToStructByPos[stripe])
		return err
	})
	if err := tx.SendBatch(ctx, batch).Close(); err != nil {
		return false, err
	}
	if !allDrained(stripes, seen) {
		return false, nil
	}
	_, err = tx.Exec(ctx, `DELETE FROM pacer.lane_pins WHERE campaign_id = $1`, campaign)
	return true, err
}

// stripe is one of the lanes of a campaign.
type stripe struct {
	Lane    int
	Drained bool // it was reported within drainedAge
	Idle    bool // it was pinned idlePin ago
}

// allDrained reports whether a campaign is to lose its pins, given that jobs of it were seen or not in the lane that was
// reported last.
func allDrained(stripes []stripe, seen bool) bool {
	for _, s := range stripes {
		if !s.Drained || !seen && !s.Idle {
			return false
		}
	}
	return true
}

// lacks reports whether a set has fewer lanes than wanted, or only such as are to be avoided.
func lacks(set []int, wanted int, avoid []int) bool {
	return len(set) < wanted || !slices.ContainsFunc(set, func(lane int) bool { return !slices.Contains(avoid, lane) })
}

// choice is a choice of lanes.
type choice struct {
	wanted map[string]int // by campaign
	loads  []laneLoad     // of all lanes
	avoid  []int
}

// laneLoad is the load of a lane.
type laneLoad struct {
	pins    int64
	backlog int64 // jobs
}

// chosen are lanes of campaigns.
type chosen struct {
	campaigns []string
	lanes     []int
}

func (c *chosen) add(campaign string, lane int) {
	c.campaigns, c.lanes = append(c.campaigns, campaign), append(c.lanes, lane)
}

// choose chooses lanes for each campaign in turn until its set lacks none, and changes the sets and the loads. It returns
// the pins to add and those to remove.
func (c *choice) choose(campaigns []string, sets map[string][]int) (added, removed chosen) {
	for _, id := range campaigns {
		set := sets[id]
		for lacks(set, c.wanted[id], c.avoid) {
			lane := c.chooseLane(id, set)
			if lane < 0 {
				break // all are in the set or to be avoided
			}
			if len(set) > 0 && lacks(set, 0, c.avoid) {
				removed.add(id, set[0])
				set = set[1:]
			}
			c.loads[lane].pins++
			set = append(set, lane)
			added.add(id, lane)
		}
		if slices.Sort(set); len(set) > 0 {
			sets[id] = set
		}
	}
	return added, removed
}

// chooseLane chooses one more lane for a campaign: that with the fewest pins, and among those the one with the smallest
// backlog. Pins come first because they are exact: backlogs are stored every few seconds, and campaigns that overflow one
// after the other would all follow the smallest, which a few small campaigns do not change. Ties are broken by how soon
// the lane follows the first of the set, since neighbours belong to different daemons; without one, a hash of the campaign,
// so that the first lanes in use do not all belong to the daemon with the lowest partitions. It returns -1 if there is none left.
func (c *choice) chooseLane(campaign string, set []int) int {
	n := len(c.loads)
	from := int(delivery.CampaignHash(campaign) % uint64(n))
	if len(set) > 0 {
		from = set[0]
	}
	best := -1
	for k := range n {
		lane := (from + k) % n
		if slices.Contains(c.avoid, lane) || slices.Contains(set, lane) {
			continue
		}
		if best < 0 || c.loads[lane].less(c.loads[best]) {
			best = lane
		}
	}
	return best
}

func (l laneLoad) less(other laneLoad) bool {
	return cmp.Or(cmp.Compare(l.pins, other.pins), cmp.Compare(l.backlog, other.backlog)) < 0
}
