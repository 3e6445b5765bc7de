package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

// laneBySQL asks for a lane as producers in other languages do.
func laneBySQL(t *testing.T, conn *pgx.Conn, campaign string, lanes int) (lane int, err error) {
	t.Helper()
	err = conn.QueryRow(t.Context(), `SELECT pacer.lane($1, $2)`, campaign, lanes).Scan(&lane)
	return lane, err
}

// TestLaneBySQL: the function and the daemons go by one rule, and by one another's pins.
func TestLaneBySQL(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connected(t, dsn)
	p := started(t, Options{DSN: dsn})
	ctx := t.Context()
	var positions []delivery.Position
	for lane, backlog := range []int64{500, 0, 20, 900} {
		positions = append(positions, delivery.Position{Topic: "pacer.lanes", Partition: lane, Backlog: backlog})
	}
	positions = append(positions, delivery.Position{Topic: "other.lanes", Partition: 1, Backlog: 1e6})
	if err := p.SavePositions(ctx, "pacer", positions); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{1, 2, 0, 3, 1, 2} { // by pins, and by backlog among equals
		campaign := fmt.Sprintf("c%d", i)
		ask := func() (int, error) { return laneBySQL(t, conn, campaign, 4) }
		other := func() (int, error) { return pinOne(ctx, p, campaign, 4) }
		if i%2 == 1 {
			ask, other = other, ask
		}
		first, err := ask()
		if err != nil || first != want {
			t.Errorf("%s: lane %d, %v; want %d", campaign, first, err, want)
		}
		if again, err := other(); err != nil || again != first {
			t.Errorf("%s: lane %d, %v; the first answer was %d", campaign, again, err, first)
		}
	}
	// Pins come first: lanes 0 and 3 have one each.
	if lane, err := laneBySQL(t, conn, "late", 4); err != nil || lane != 0 {
		t.Errorf("lane %d, %v; want 0, which has one pin", lane, err)
	}
	if lane, err := pinOne(ctx, p, "later", 4); err != nil || lane != 3 {
		t.Errorf("lane %d, %v; want 3, the last with one pin", lane, err)
	}
	// The backlogs of a group that has retired do not count.
	if err := p.SavePositions(ctx, "retired", []delivery.Position{{Topic: "pacer.lanes", Partition: 1, Backlog: 1e6}}); err != nil {
		t.Fatal(err)
	}
	run(t, conn, `UPDATE pacer.positions SET updated_at = now() - interval '2 minutes' WHERE group_id = 'retired'`)
	if lane, err := laneBySQL(t, conn, "after", 4); err != nil || lane != 1 {
		t.Errorf("lane %d, %v; want 1, which is empty", lane, err)
	}
	run(t, conn, `DELETE FROM pacer.lane_pins WHERE campaign_id = 'after'`)
	if lane, err := pinOne(ctx, p, "afterwards", 4); err != nil || lane != 1 {
		t.Errorf("lane %d, %v; want 1, which is empty", lane, err)
	}
	// A pin to a lane that the topic does not have is none.
	run(t, conn, `UPDATE pacer.lane_pins SET lane = 99 WHERE campaign_id = 'c0'`)
	if lane, err := laneBySQL(t, conn, "c0", 4); err != nil || lane < 0 || lane > 3 {
		t.Errorf("lane %d, %v", lane, err)
	}
	for _, bad := range []struct {
		campaign string
		lanes    int
		says     string
	}{{"", 4, "campaign"}, {"a b", 4, "campaign"}, {strings.Repeat("x", 257), 4, "campaign"}, {"c", 0, "lanes"}, {"c", 10_001, "lanes"}} {
		if _, err := laneBySQL(t, conn, bad.campaign, bad.lanes); err == nil || !strings.Contains(err.Error(), bad.says+" must be") {
			t.Errorf("%.10q of %d lanes: %v", bad.campaign, bad.lanes, err)
		}
	}
}

// TestLanesBySQL: as many lanes as the rate needs, by the rule and from the sets of the daemons.
func TestLanesBySQL(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connected(t, dsn)
	p := started(t, Options{DSN: dsn})
	ctx := t.Context()
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, send_per) VALUES
    ('wide', 1900, '1 second'), ('grows', 60000, '1 minute'), ('slow', 5, '1 second'), ('held', 0, '1 second'), ('whale', 1000000, '1 second')`)
	bySQL := func(campaign string) (lanes []int) {
		t.Helper()
		if err := conn.QueryRow(ctx, `SELECT pacer.lanes($1, 32)`, campaign).Scan(&lanes); err != nil {
			t.Fatal(err)
		}
		return lanes
	}
	byGo := func(campaign string) []int {
		t.Helper()
		rate, err := p.Rate(ctx, campaign)
		if err != nil {
			t.Fatal(err)
		}
		pins, err := p.Pin(ctx, map[string]int{campaign: delivery.Stripes(rate, 0, 0, 32)}, 32, nil)
		if err != nil {
			t.Fatal(err)
		}
		return pins[campaign]
	}
	for campaign, want := range map[string]int{"wide": 4, "grows": 2, "slow": 1, "held": 1, "whale": 4, "unknown": 1} {
		first, second := bySQL, byGo
		if campaign == "wide" || campaign == "held" {
			first, second = byGo, bySQL
		}
		lanes := first(campaign)
		if again := second(campaign); len(lanes) != want || !slices.Equal(again, lanes) {
			t.Errorf("%s has lanes %v, and then %v; want %d", campaign, lanes, again, want)
		}
		if one, err := laneBySQL(t, conn, campaign, 32); err != nil || !slices.Contains(lanes, one) {
			t.Errorf("%s: lane %d of %v, %v", campaign, one, lanes, err)
		}
	}
	two := bySQL("grows")
	run(t, conn, `UPDATE pacer.campaigns SET send_per = '30 seconds' WHERE id = 'grows'`)
	four := bySQL("grows")
	for _, lane := range two {
		if len(four) != 4 || !slices.Contains(four, lane) {
			t.Errorf("lanes %v grow to %v", two, four)
		}
	}
	run(t, conn, `UPDATE pacer.campaigns SET send_rate = 1 WHERE id = 'grows'`)
	if lanes := bySQL("grows"); !slices.Equal(lanes, four) {
		t.Errorf("lanes %v shrink to %v", four, lanes)
	}
}

// TestLaneBySQLAtOnce: producers and daemons that ask at the same time agree, and spread campaigns evenly.
func TestLaneBySQLAtOnce(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	p := started(t, Options{DSN: dsn})
	const campaigns, lanes = 24, 8
	got := make([][2]int, campaigns)
	conns := []*pgx.Conn{connected(t, dsn), connected(t, dsn)}
	var wg sync.WaitGroup
	for side, conn := range conns {
		wg.Go(func() {
			for c := range campaigns {
				campaign := fmt.Sprintf("c%d", c)
				var err error
				if side == 0 {
					got[c][side], err = laneBySQL(t, conn, campaign, lanes)
				} else {
					got[c][side], err = pinOne(t.Context(), p, campaign, lanes)
				}
				if err != nil {
					t.Errorf("%s: %v", campaign, err)
				}
			}
		})
	}
	wg.Wait()
	pins := [lanes]int{}
	for c, of := range got {
		if of[0] != of[1] {
			t.Errorf("c%d is pinned to lanes %v", c, of)
		}
		pins[of[0]]++
	}
	if pins != [lanes]int{3, 3, 3, 3, 3, 3, 3, 3} {
		t.Errorf("pins per lane %v, want three each", pins)
	}
}

// TestLaneBySQLNeedsOneRightOnly: a producer may ask for a lane and do nothing else.
func TestLaneBySQLNeedsOneRightOnly(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	owner := connected(t, dsn)
	role := "producer_" + strings.TrimPrefix(parsed(t, dsn).Path, "/")
	run(t, owner, `CREATE ROLE "`+role+`"`)
	t.Cleanup(func() {
		run(t, owner, `DROP OWNED BY "`+role+`"`)
		run(t, owner, `DROP ROLE "`+role+`"`)
	})
	run(t, owner, `GRANT USAGE ON SCHEMA pacer TO "`+role+`"`)
	conn := connected(t, dsn)
	run(t, conn, `SET ROLE "`+role+`"`)
	if _, err := laneBySQL(t, conn, "spring", 8); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("without the right: %v", err)
	}
	run(t, owner, `GRANT EXECUTE ON FUNCTION pacer.lane TO "`+role+`"`)
	if _, err := laneBySQL(t, conn, "spring", 8); err != nil {
		t.Errorf("with the right: %v", err)
	}
	if _, err := conn.Exec(t.Context(), `DELETE FROM pacer.lane_pins`); err == nil {
		t.Error("the producer may take pins away")
	}
}

// TestReportsWaitForNobody: that one of several lanes is drained is noted while lanes are chosen for others.
func TestReportsWaitForNobody(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connected(t, dsn)
	p := started(t, Options{DSN: dsn})
	lanes, err := p.Pin(t.Context(), map[string]int{"wide": 2}, 16, nil)
	if err != nil {
		t.Fatal(err)
	}
	first, other := lanes["wide"][0], lanes["wide"][1]
	run(t, conn, `SELECT pg_advisory_lock(`+strconv.FormatInt(pinLock, 10)+`)`)
	for range 2 {
		if released, err := p.Unpin(t.Context(), "wide", other, true); err != nil || released {
			t.Errorf("one of two lanes is drained: released %t, %v", released, err)
		}
	}
	run(t, conn, `SELECT pg_advisory_unlock(`+strconv.FormatInt(pinLock, 10)+`)`)
	if released, err := p.Unpin(t.Context(), "wide", first, true); err != nil || !released {
		t.Errorf("both lanes are drained: released %t, %v", released, err)
	}
}
