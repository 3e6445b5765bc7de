package catalog

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// ledgerOf is a started catalog with a quota q and an epoch 1 of shard 0.
func ledgerOf(t *testing.T) (p *Postgres, total func(since int64) []delivery.Usage) {
	t.Helper()
	p, total, _ = ledgerAndSQL(t)
	return p, total
}

// ledgerAndSQL is ledgerOf, and runs statements.
func ledgerAndSQL(t *testing.T) (p *Postgres, total func(since int64) []delivery.Usage, sql func(string)) {
	t.Helper()
	dsn := migrated(t)
	sql = func(statement string) { run(t, connected(t, dsn), statement) }
	run(t, connected(t, dsn), `INSERT INTO pacer.quotas (id) VALUES ('q'), ('other')`)
	p = started(t, Options{DSN: dsn})
	if _, err := p.ReplaceEpoch(t.Context(), 0, 0, delivery.Incarnation{Epoch: 1}, "test"); err != nil {
		t.Fatal(err)
	}
	return p, func(since int64) []delivery.Usage {
		t.Helper()
		list, err := p.Usage(t.Context(), []string{"q"}, since)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}, sql
}

// putUsage writes usage under no epoch.
func putUsage(ctx context.Context, p *Postgres, node string, usage []delivery.Usage, anchors []delivery.Anchor) error {
	_, err := p.WriteUsage(ctx, delivery.UsagePage{Node: node, Usage: usage, Anchors: anchors})
	return err
}

// TestUsageOfAnotherIncarnationIsRefused: nothing of a page is written that names an epoch that is not recorded.
func TestUsageOfAnotherIncarnationIsRefused(t *testing.T) {
	t.Parallel()
	p, total := ledgerOf(t)
	ctx := t.Context()
	if _, err := p.ReplaceEpoch(ctx, 3, 0, delivery.Incarnation{Epoch: 7}, "test"); err != nil {
		t.Fatal(err)
	}
	want := int64(0)
	for i, tc := range []struct {
		epochs map[int]int64
		stale  []int
	}{
		{nil, nil}, {map[int]int64{0: 1}, nil}, {map[int]int64{0: 1, 3: 7}, nil}, {map[int]int64{3: 6, 0: 1}, []int{3}},
		{map[int]int64{0: 2, 3: 6}, []int{0, 3}}, {map[int]int64{9: 1}, []int{9}},
	} {
		page := delivery.UsagePage{Node: "n", Epochs: tc.epochs}
		for _, units := range []int64{0, want + 1} {
			if units > 0 {
				page.Usage = []delivery.Usage{{Quota: "q", Minute: 1, Units: units}}
			}
			if stale, err := p.WriteUsage(ctx, page); err != nil || !slices.Equal(stale, tc.stale) {
				t.Errorf("%d: %v, %v, want %v", i, stale, err, tc.stale)
			}
		}
		if tc.stale == nil {
			want++
		}
		if got := total(0); len(got) != 1 || got[0].Units != want {
			t.Errorf("%d: the ledger holds %+v, want %d", i, got, want)
		}
	}
}

// TestAnEpochWaitsForWritesUnderTheOneBefore: who records an epoch reads all that was written under the one before, however long its
// commit takes.
func TestAnEpochWaitsForWritesUnderTheOneBefore(t *testing.T) {
	t.Parallel()
	p, total, sql := ledgerAndSQL(t)
	sql(`CREATE FUNCTION pacer.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$`)
	sql(`CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON pacer.quota_usage DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION pacer.dawdle()`)
	written := make(chan error, 1)
	go func() {
		page := delivery.UsagePage{Node: "n", Epochs: map[int]int64{0: 1}, Usage: []delivery.Usage{{Quota: "q", Minute: 1, Units: 7}}}
		stale, err := p.WriteUsage(context.WithoutCancel(t.Context()), page)
		if len(stale) > 0 && err == nil {
			err = fmt.Errorf("stale: %v", stale)
		}
		written <- err
	}()
	time.Sleep(500 * time.Millisecond)
	if _, err := p.ReplaceEpoch(t.Context(), 0, 1, delivery.Incarnation{Epoch: 2}, "test"); err != nil {
		t.Fatal(err)
	}
	list := total(0)
	if err := <-written; err == nil && (len(list) != 1 || list[0].Units != 7) {
		t.Errorf("what was written is not read: %+v", list)
	}
}

// TestACheckpointReplacesReservations: of its incarnation, of its minutes, and no others.
func TestACheckpointReplacesReservations(t *testing.T) {
	t.Parallel()
	p, total := ledgerOf(t)
	ctx := t.Context()
	const minute = int64(60_000_000)
	reserve := func(node string, epoch int64, minutes ...int64) {
		t.Helper()
		var list []delivery.Usage
		for _, m := range minutes {
			list = append(list, delivery.Usage{Quota: "q", Minute: m, Units: 100, Epoch: epoch})
		}
		if err := putUsage(ctx, p, node, list, nil); err != nil {
			t.Fatal(err)
		}
	}
	point := func(epoch, since, at, begun, used int64) delivery.Checkpoint {
		t.Helper()
		c := delivery.Checkpoint{
			Quota: "q", Epoch: epoch, Since: since, At: at, Window: "1h sliding", Born: 5, Counted: 3, Begun: begun, Used: used,
		}
		if err := p.WriteCheckpoints(ctx, 0, epoch, []delivery.Checkpoint{c}); err != nil {
			t.Fatal(err)
		}
		c.Used = 0
		return c
	}
	holds := func(what string, want ...delivery.Usage) {
		t.Helper()
		if got := total(0); !slices.Equal(got, want) {
			t.Errorf("%s: got %+v, want %+v", what, got, want)
		}
	}
	units := func(minute, units int64) delivery.Usage {
		return delivery.Usage{Quota: "q", Minute: minute, Units: units}
	}
	last := func(want delivery.Checkpoint, rows delivery.LedgerRows) {
		t.Helper()
		want.Rows = rows
		if got, err := p.Checkpoints(ctx, 10); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%v, got %+v, want %+v", err, got, want)
		}
	}
	reserve("dead", 1, 10, 11, 12, 13)
	last(delivery.Checkpoint{Quota: "q"}, delivery.LedgerRows{First: 10, Epoch: 1})
	if got, err := p.Checkpoints(ctx, 12); err != nil || len(got) != 1 || got[0].Rows != (delivery.LedgerRows{First: 12, Epoch: 1, Before: 11}) {
		t.Errorf("from the 12th minute on: %+v, %v", got, err)
	}
	reserve("old version", 0, 11)
	reserve("n", 1, 11, 12)
	mixed := delivery.LedgerRows{First: 10}
	last(delivery.Checkpoint{Quota: "q"}, mixed)
	first := point(1, 0, 10*minute+1, 11, 0)
	last(first, mixed)
	holds("the first checkpoint counts nothing", units(10, 100), units(11, 300), units(12, 200), units(13, 100))
	second := point(1, first.At, 12*minute+2_000_000, 11, 70)
	holds("the second one", units(10, 100), units(11, 170), units(12, 200), units(13, 100))
	last(second, mixed)
	point(1, first.At, 13*minute, 11, 999)
	holds("one that has not seen the second", units(10, 100), units(11, 170), units(12, 200), units(13, 100))
	point(2, second.At, 13*minute, 11, 999)
	holds("one of an incarnation that is not recorded", units(10, 100), units(11, 170), units(12, 200), units(13, 100))
	reserve("n", 1, 11)
	holds("a daemon settles what is replaced", units(10, 100), units(11, 170), units(12, 200), units(13, 100))
	third := point(1, second.At, 14*minute+6_000_000, 11, 30)
	holds("long after the minute", units(10, 100), units(11, 170), units(14, 30))
	last(third, mixed)
	if _, err := p.ReplaceEpoch(ctx, 0, 1, delivery.Incarnation{Epoch: 2}, "test"); err != nil {
		t.Fatal(err)
	}
	reserve("cut off", 1, 15)
	reserve("n", 2, 15)
	fourth := point(2, third.At, 14*minute+7_000_000, 15, 0)
	point(2, fourth.At, 16*minute, 15, 1)
	holds("a daemon that takes from the data of before", units(10, 100), units(11, 170), units(14, 30), units(15, 101))
}

// TestACorrectionEndsACheckpoint: the next one is not compared with it, and does not believe that it has seen all that was used.
func TestACorrectionEndsACheckpoint(t *testing.T) {
	t.Parallel()
	p, total, sql := ledgerAndSQL(t)
	ctx := t.Context()
	if err := putUsage(ctx, p, "n", []delivery.Usage{{Quota: "q", Minute: 20, Units: 7, Epoch: 1}}, nil); err != nil {
		t.Fatal(err)
	}
	list := []delivery.Checkpoint{{Quota: "q", Epoch: 1, At: 19 * 60_000_000, Window: "1h sliding", Begun: 20}}
	if err := p.WriteCheckpoints(ctx, 0, 1, list); err != nil {
		t.Fatal(err)
	}
	sql(`SELECT pacer.record_adjustment('q', '1 hour', 5, 3, 'test', 20)`)
	want := []delivery.Checkpoint{{Quota: "q", Rows: delivery.LedgerRows{First: 20}}}
	if got, err := p.Checkpoints(ctx, 10); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, got %+v, want %+v", err, got, want)
	}
	if got := total(0); len(got) != 1 || got[0].Units != 7 {
		t.Errorf("the ledger holds %+v", got)
	}
}

// TestTheLedgerOfAMonthIsSmall: minutes become hours after a day. No unit is lost, also while others write and merge.
func TestTheLedgerOfAMonthIsSmall(t *testing.T) {
	t.Parallel()
	p, total := ledgerOf(t)
	ctx := t.Context()
	const hours, now = 100, 100*60 - 17
	for node := range 3 {
		var list []delivery.Usage
		for m := int64(node); m < now; m += 5 {
			list = append(list, delivery.Usage{Quota: "q", Minute: m, Units: 1, Epoch: int64(node)})
		}
		if err := putUsage(ctx, p, fmt.Sprint("n", node), list, nil); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(list []delivery.Usage) (n int64) {
		for _, u := range list {
			n += u.Units
		}
		return n
	}
	before := sum(total(0))
	merged := make(chan error, 2)
	for range cap(merged) {
		go func() { merged <- p.PruneUsage(context.WithoutCancel(ctx), 60, now-1500) }()
	}
	for range cap(merged) {
		if err := <-merged; err != nil {
			t.Fatal(err)
		}
	}
	if err := p.PruneUsage(ctx, 60, now-1500); err != nil {
		t.Fatal(err)
	}
	list := total(0)
	if n := sum(list); n != before-36 { // the first hour
		t.Errorf("%d units of %d", n, before-36)
	}
	merges := 0
	for _, u := range list {
		if u.Minute < now-1500-60 && u.Minute%60 != 59 {
			t.Errorf("minute %d is kept apart", u.Minute)
		}
		if u.Minute%60 == 59 && u.Units == 36 {
			merges++
		}
	}
	if want := hours - 1 - 26; merges < want || merges > want+1 {
		t.Errorf("%d hours, want about %d", merges, want)
	}
}
