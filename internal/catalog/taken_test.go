package catalog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

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

// putUsage sets usage as if it had been written.
func putUsage(ctx context.Context, p *Postgres, node string, usage []delivery.Usage) error {
	return p.database.do(ctx, queryTimeout, "put usage", func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, `INSERT INTO pacer.quota_usage (quota_id, minute, node, units)
SELECT u.quota, u.minute, $1, u.units FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS u(quota, minute, units)`,
			node, column(usage, func(u delivery.Usage) string { return u.Quota }),
			column(usage, func(u delivery.Usage) int64 { return u.Minute }), column(usage, func(u delivery.Usage) int64 { return u.Units }))
		return err
	})
}

// TestACountIsAddedOnce: what the store has counted enters the ledger as far as it is new, however often and by whomever it is told.
func TestACountIsAddedOnce(t *testing.T) {
	t.Parallel()
	p, total := ledgerOf(t)
	ctx := t.Context()
	const minute = int64(60_000_000)
	for _, step := range []struct {
		what             string
		epoch, at        int64
		born, units      int64
		complete         bool
		added, inMinutes int64
	}{
		{"the first time", 1, 10 * minute, 5, 100, true, 100, 1},
		{"again", 1, 10 * minute, 5, 100, true, 100, 1},
		{"more", 1, 10*minute + 9, 5, 130, true, 130, 1},
		{"by one that was overtaken", 1, 10*minute + 8, 5, 120, true, 130, 1},
		{"in the next minute", 1, 11 * minute, 5, 131, true, 131, 2},
		{"some were handed back", 1, 11*minute + 1, 5, 121, true, 131, 2},
		{"and others taken", 1, 11*minute + 2, 5, 133, true, 133, 2},
		{"the count began anew", 1, 12 * minute, 7, 4, true, 137, 3},
		{"data that are not in force", 2, 12*minute + 1, 9, 1000, false, 137, 3},
	} {
		list := []delivery.Taken{{Quota: "q", Born: step.born, Units: step.units, Held: step.units}, {Quota: "gone", Born: 1, Units: 1, Held: 1}}
		if complete, err := p.WriteTaken(ctx, 0, step.epoch, 0, step.at, list, nil); err != nil || complete != step.complete {
			t.Errorf("%s: %v, %v", step.what, complete, err)
		}
		sum := int64(0)
		for _, u := range total(0) {
			sum += u.Units
		}
		if sum != step.added || int64(len(total(0))) != step.inMinutes {
			t.Errorf("%s: the ledger holds %+v", step.what, total(0))
		}
	}
	if _, err := p.ReplaceEpoch(ctx, 0, 1, delivery.Incarnation{Epoch: 2}, "test"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the clock of the new data is an hour behind
		if complete, err := p.WriteTaken(ctx, 0, 2, 0, 3*minute, []delivery.Taken{{Quota: "q", Born: 7, Units: 2, Held: 2}}, nil); err != nil || !complete {
			t.Error(complete, err)
		}
	}
	for _, told := range [][3]int64{{1000, 30, 30}, {1010, 5, 40}} { // a quota that was used for long before it was written
		if _, err := p.WriteTaken(ctx, 0, 2, 0, 3*minute+told[0], []delivery.Taken{{Quota: "other", Born: 1, Units: told[0], Held: told[1]}}, nil); err != nil {
			t.Error(err)
		}
		if list, err := p.Usage(ctx, []string{"other"}, 0); err != nil || len(list) != 1 || list[0].Units != told[2] {
			t.Errorf("after %d units, of which a window holds %d: %+v, %v", told[0], told[1], list, err)
		}
	}
	if list := total(0); len(list) != 4 || list[0] != (delivery.Usage{Quota: "q", Minute: 3, Units: 2}) {
		t.Errorf("the ledger holds %+v", list)
	}
}

// TestARestoredLedgerIsCompleted: a database from before the data in force lacks what was written of those before them. Their windows hold it.
func TestARestoredLedgerIsCompleted(t *testing.T) {
	t.Parallel()
	p, total := ledgerOf(t)
	ctx := t.Context()
	const minute = int64(60_000_000)
	for _, step := range []struct {
		what        string
		epoch, at   int64
		units, held int64
		since       int64
		want        int64
	}{
		{"before the backup", 1, 10 * minute, 100, 100, 5 * minute, 100},
		{"the windows hold 70 that are missing, 40 of them of these data", 2, 12 * minute, 40, 170, 5 * minute, 170},
		{"again", 2, 12 * minute, 40, 170, 5 * minute, 170},
		{"more", 2, 13 * minute, 45, 175, 5 * minute, 175},
		{"another backup, and nothing is missing but what was taken since", 3, 14 * minute, 7, 180, 5 * minute, 182},
		{"and the window has forgotten the first 100", 4, 15 * minute, 1, 95, 11 * minute, 195},
	} {
		if step.epoch > 1 {
			if _, err := p.ReplaceEpoch(ctx, 0, step.epoch-1, delivery.Incarnation{Epoch: step.epoch}, delivery.CauseRestored); err != nil {
				t.Fatal(err)
			}
		}
		list := []delivery.Taken{{Quota: "q", Born: step.epoch, Units: step.units, Held: step.held, Since: step.since}}
		if complete, err := p.WriteTaken(ctx, 0, step.epoch, 0, step.at, list, nil); err != nil || !complete {
			t.Errorf("%s: %v, %v", step.what, complete, err)
		}
		sum := int64(0)
		for _, u := range total(0) {
			sum += u.Units
		}
		if sum != step.want {
			t.Errorf("%s: the ledger holds %+v, want %d", step.what, total(0), step.want)
		}
	}
}

// TestAnOlderLedgerIsNotWhole: what has changed since the writer wrote all is not all that an older database lacks.
func TestAnOlderLedgerIsNotWhole(t *testing.T) {
	t.Parallel()
	p, _ := ledgerOf(t)
	for _, step := range []struct {
		since, at int64
		want      bool
	}{{0, 5, true}, {5, 7, true}, {9, 11, false}, {7, 11, true}, {0, 12, true}} {
		if complete, err := p.WriteTaken(t.Context(), 0, 1, step.since, step.at, nil, nil); err != nil || complete != step.want {
			t.Errorf("%+v: %t, %v", step, complete, err)
		}
	}
}

// TestTakersJoinAndLeave: who takes from which data is known until they leave, and a report is added once.
func TestTakersJoinAndLeave(t *testing.T) {
	t.Parallel()
	p, total := ledgerOf(t)
	ctx := t.Context()
	join := func(node string, epoch, at int64, want map[int]int64) {
		t.Helper()
		if got, err := p.Join(ctx, node, []delivery.Taker{{Shard: 0, Epoch: epoch, At: at}, {Shard: 3, Epoch: 1, At: at}}); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s joins: %v, %v, want %v", node, got, err, want)
		}
	}
	holds := func(what string, want ...delivery.Taker) {
		t.Helper()
		if got, err := p.Takers(ctx, 0); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %+v, %v, want %+v", what, got, err, want)
		}
	}
	leave := func(nodes []string, usage []delivery.Usage, want ...delivery.Usage) {
		t.Helper()
		if err := p.Leave(ctx, 0, nodes, usage); err != nil {
			t.Error(err)
		}
		if got := total(0); !slices.Equal(got, want) {
			t.Errorf("%v left: the ledger holds %+v, want %+v", nodes, got, want)
		}
	}
	second := time.Second.Microseconds()
	join("a", 2, 9*second, map[int]int64{})
	join("a", 1, 10*second, map[int]int64{0: 0})
	join("a", 1, 20*second, map[int]int64{0: 0})
	join("b", 1, 21*second, map[int]int64{0: 0})
	holds("two have joined", delivery.Taker{Node: "a", Epoch: 1, Since: 10 * second, At: 20 * second}, delivery.Taker{Node: "b", Epoch: 1, Since: 21 * second, At: 21 * second})
	for _, at := range []int64{15 * second, 14 * second} {
		if complete, err := p.WriteTaken(ctx, 0, 1, 0, at, nil, nil); err != nil || !complete {
			t.Error(complete, err)
		}
	}
	join("a", 1, 22*second, map[int]int64{0: 15 * second})
	holds("the ledger was written", delivery.Taker{Node: "a", Epoch: 1, Since: 15 * second, At: 22 * second}, delivery.Taker{Node: "b", Epoch: 1, Since: 21 * second, At: 21 * second})
	usage := []delivery.Usage{{Quota: "q", Minute: 1, Units: 7}, {Quota: "q", Minute: 2, Units: 1}, {Quota: "q", Minute: 1, Units: 2}, {Quota: "gone", Minute: 1, Units: 1}}
	leave([]string{"a"}, usage) // its data are in force
	holds("a reports too early", delivery.Taker{Node: "a", Epoch: 1, Since: 15 * second, At: 22 * second}, delivery.Taker{Node: "b", Epoch: 1, Since: 21 * second, At: 21 * second})
	if _, err := p.ReplaceEpoch(ctx, 0, 1, delivery.Incarnation{Epoch: 5}, "test"); err != nil {
		t.Fatal(err)
	}
	join("c", 5, 3*second, map[int]int64{0: 0})
	reported := []delivery.Usage{{Quota: "q", Minute: 1, Units: 9}, {Quota: "q", Minute: 2, Units: 1}}
	for range 2 {
		leave([]string{"a"}, usage, reported...)
		leave([]string{"c"}, usage, reported...)
	}
	leave([]string{"x", "b"}, []delivery.Usage{{Quota: "q", Minute: 2, Units: 30}}, reported[0], delivery.Usage{Quota: "q", Minute: 2, Units: 31})
	holds("b was given up", delivery.Taker{Node: "c", Epoch: 5, Since: 3 * second, At: 3 * second})
	if complete, err := p.WriteTaken(ctx, 0, 5, 0, 3*second+takersKept.Microseconds(), nil, nil); err != nil || !complete {
		t.Error(complete, err)
	}
	holds("c may go on", delivery.Taker{Node: "c", Epoch: 5, Since: 3*second + takersKept.Microseconds(), At: 3 * second})
	if complete, err := p.WriteTaken(ctx, 0, 5, 0, 4*second+takersKept.Microseconds(), nil, nil); err != nil || !complete {
		t.Error(complete, err)
	}
	holds("c has stopped")
	join("c", 5, 200*second, map[int]int64{0: 4*second + takersKept.Microseconds()})
	if err := p.Leave(ctx, 0, []string{"c"}, nil); err != nil {
		t.Error(err)
	}
	holds("c has left")
	run(t, connected(t, p.options.DSN), `INSERT INTO pacer.store_takers VALUES (0, 'restored', 1, 1, 1), (0, 'later', 6, 1, 1)`)
	for _, epoch := range []int64{4, 5} {
		if complete, err := p.WriteTaken(ctx, 0, epoch, 0, 300*second, nil, nil); err != nil || complete != (epoch == 5) {
			t.Error(complete, err)
		}
		if got, err := p.Takers(ctx, 0); err != nil || len(got) != 2-int(epoch-4) {
			t.Errorf("%+v, %v", got, err)
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
		complete, err := p.WriteTaken(context.WithoutCancel(t.Context()), 0, 1, 0, 60_000_000, []delivery.Taken{{Quota: "q", Born: 1, Units: 7, Held: 7}}, nil)
		if !complete && err == nil {
			err = errors.New("the epoch was replaced before it was written")
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

// TestTheLedgerOfAMonthIsSmall: minutes become hours after a day. No unit is lost, also while others write and merge.
func TestTheLedgerOfAMonthIsSmall(t *testing.T) {
	t.Parallel()
	p, total := ledgerOf(t)
	ctx := t.Context()
	const hours, now = 100, 100*60 - 17
	for node := range 3 {
		var list []delivery.Usage
		for m := int64(node); m < now; m += 5 {
			list = append(list, delivery.Usage{Quota: "q", Minute: m, Units: 1})
		}
		if err := putUsage(ctx, p, fmt.Sprint("n", node), list); err != nil {
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
