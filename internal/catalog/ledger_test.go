package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	minute = int64(60_000_000)
	second = int64(1_000_000)
)

// ledger is that of a catalog with the quotas q and other, and with epoch 1 of shard 0, for a test beside others.
type ledger struct {
	*Postgres
	t    *testing.T
	conn *pgx.Conn
}

func ledgerOf(t *testing.T) *ledger {
	t.Helper()
	dsn, conn := fresh(t)
	l := &ledger{unstarted(t, Options{DSN: dsn}), t, conn}
	run(t, l.conn, `INSERT INTO pacer.quotas (id) VALUES ('q'), ('other')`)
	l.replace(1, "test")
	return l
}

// replace puts an epoch in the place of the one before.
func (l *ledger) replace(epoch int64, cause string) {
	l.t.Helper()
	known := try(l.Epoch(l.t.Context(), 0))(l.t)
	equal(l.t, "epoch", try(l.ReplaceEpoch(l.t.Context(), 0, known.Epoch, delivery.Incarnation{Epoch: epoch}, cause))(l.t), epoch)
}

// write says whether the ledger is complete after it.
func (l *ledger) write(epoch, since, at int64, list ...delivery.Taken) (complete bool) {
	l.t.Helper()
	return try(l.WriteTaken(l.t.Context(), 0, epoch, since, at, list, nil))(l.t)
}

// used are the units of a quota, by minute and in all.
func (l *ledger) used(quota string) (list []delivery.Usage, units int64) {
	l.t.Helper()
	list = try(l.Usage(l.t.Context(), []string{quota}, 0))(l.t)
	for _, u := range list {
		units += u.Units
	}
	return list, units
}

// usage sets what was used as if it had been written.
func usage(t *testing.T, conn *pgx.Conn, node string, list ...delivery.Usage) {
	t.Helper()
	for _, u := range list {
		run(t, conn, `INSERT INTO pacer.quota_usage (quota_id, minute, node, units) VALUES ($1, $2, $3, $4)`, u.Quota, u.Minute, node, u.Units)
	}
}

func TestEpochsAreReplaced(t *testing.T) {
	t.Parallel()
	dsn, ctx, begun := migrated(t), t.Context(), time.Now().Add(-time.Minute) // the clock of the database may be another
	p := unstarted(t, Options{DSN: dsn})
	for _, step := range []struct {
		shard           int
		old, next, want int64
	}{
		{0, 7, 8, 0}, // none is recorded
		{0, 0, 5, 5},
		{0, 0, 6, 5},
		{0, 4, 6, 5},
		{1, 0, 9, 9},
		{0, 5, 6, 6},
		{0, 6, 6, 6},
	} {
		next := delivery.Incarnation{Epoch: step.next, Ahead: step.next, JumpedAt: 2 * step.next}
		equal(t, fmt.Sprintf("after %+v", step), try(p.ReplaceEpoch(ctx, step.shard, step.old, next, "restarted without its data"))(t), step.want)
		recorded := delivery.Incarnation{Epoch: step.want, Ahead: step.want, JumpedAt: 2 * step.want}
		equal(t, fmt.Sprintf("recorded after %+v", step), try(p.Epoch(ctx, step.shard))(t), recorded)
	}
	stores := loaded(t, p, true).Stores
	if len(stores) != 2 || stores[0].Before(begun) || stores[1].Before(begun) {
		t.Errorf("the stores have their data since %v", stores)
	}
	equal(t, "recorded of another", try(p.Epoch(ctx, 2))(t), delivery.Incarnation{})
	for _, bad := range [][3]int64{{-1, 0, 1}, {0, -1, 1}, {0, 6, 0}} {
		refused(t, ErrInvalid, "incarnation")(p.ReplaceEpoch(ctx, int(bad[0]), bad[1], delivery.Incarnation{Epoch: bad[2]}, ""))
	}
}

// TestOneEpochWins lets many replace the same epoch at once, the first of all included.
func TestOneEpochWins(t *testing.T) {
	t.Parallel()
	p := unstarted(t, Options{DSN: migrated(t)})
	for round, old := int64(0), int64(0); round < 5; round++ {
		var inForce [6]int64
		var wg sync.WaitGroup
		for i := range inForce {
			wg.Go(func() {
				var err error
				if inForce[i], err = p.ReplaceEpoch(context.Background(), 3, old, delivery.Incarnation{Epoch: round*100 + int64(i) + 1}, "test"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if old = inForce[0]; slices.Min(inForce[:]) != slices.Max(inForce[:]) || old <= round*100 || old > round*100+6 {
			t.Fatalf("round %d: in force %v", round, inForce)
		}
	}
}

func TestUsageIsRead(t *testing.T) {
	l, ctx := ledgerOf(t), t.Context()
	usage(t, l.conn, "", delivery.Usage{Quota: "q", Minute: 30, Units: 5}, delivery.Usage{Quota: "other", Minute: 31, Units: 2},
		delivery.Usage{Quota: "other", Minute: 29, Units: 1000})
	usage(t, l.conn, "n2", delivery.Usage{Quota: "q", Minute: 30, Units: 7})
	want := []delivery.Usage{{Quota: "q", Minute: 30, Units: 12}, {Quota: "other", Minute: 31, Units: 2}}
	equal(t, "of both, since 30", try(l.Usage(ctx, []string{"other", "q", "deleted"}, 30))(t), want)
	equal(t, "of q", try(l.Usage(ctx, []string{"q"}, 0))(t), want[:1])
	equal(t, "of none", try(l.Usage(ctx, nil, 0))(t), nil)
	must(t, l.pruneUsage(ctx, 31, 31))
	equal(t, "after pruning", try(l.Usage(ctx, []string{"other", "q"}, 0))(t), want[1:])
	ended, end := context.WithCancel(ctx)
	end()
	refused(t, context.Canceled, "")(l.WriteTaken(ended, 0, 1, 0, 1, []delivery.Taken{{Quota: "q", Born: 1, Units: 1, Held: 1}}, nil))
}

func TestAnchorsKeepTheLatest(t *testing.T) {
	l, ctx := ledgerOf(t), t.Context()
	at := time.Date(2026, 11, 21, 3, 38, 43, 123456000, time.UTC).UnixMicro()
	for _, anchors := range [][]delivery.Anchor{
		{{Quota: "q", Span: day, ResetAt: at}, {Quota: "other", Span: 31 * day, ResetAt: at + 1}, {Quota: "other", Span: time.Second, ResetAt: at}},
		{{Quota: "q", Span: day, ResetAt: at - 1}, {Quota: "other", Span: 31 * day, ResetAt: at + 2}, {Quota: "other", Span: 31 * day, ResetAt: at}},
		{{Quota: "deleted", Span: day, ResetAt: at}},
	} {
		try(l.WriteTaken(ctx, 0, 1, 0, 1, nil, anchors))(t)
	}
	want := []delivery.Anchor{
		{Quota: "other", Span: time.Second, ResetAt: at}, {Quota: "other", Span: 31 * day, ResetAt: at + 2}, {Quota: "q", Span: day, ResetAt: at},
	}
	equal(t, "of both", try(l.Anchors(ctx, []string{"other", "q", "deleted"}))(t), want)
	equal(t, "of q", try(l.Anchors(ctx, []string{"q"}))(t), want[2:])
}

// TestACountIsAddedOnce: what the store has counted enters the ledger as far as it is new, however often and by whomever it is told.
func TestACountIsAddedOnce(t *testing.T) {
	l := ledgerOf(t)
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
		told := delivery.Taken{Quota: "q", Born: step.born, Units: step.units, Held: step.units}
		equal(t, step.what, l.write(step.epoch, 0, step.at, told, delivery.Taken{Quota: "gone", Born: 1, Units: 1, Held: 1}), step.complete)
		list, sum := l.used("q")
		equal(t, step.what, []int64{sum, int64(len(list))}, []int64{step.added, step.inMinutes})
	}
	l.replace(2, "test")
	for range 2 { // the clock of the new data is an hour behind
		equal(t, "complete", l.write(2, 0, 3*minute, delivery.Taken{Quota: "q", Born: 7, Units: 2, Held: 2}), true)
	}
	list, _ := l.used("q")
	equal(t, "minutes", len(list), 4)
	equal(t, "the first", list[0], delivery.Usage{Quota: "q", Minute: 3, Units: 2})
	for _, c := range []struct{ units, held, want int64 }{{1000, 30, 30}, {1010, 5, 40}} { // of a quota that was used for long before it was written
		l.write(2, 0, 3*minute+c.units, delivery.Taken{Quota: "other", Born: 1, Units: c.units, Held: c.held})
		list, _ := l.used("other")
		equal(t, fmt.Sprintf("%+v", c), list, []delivery.Usage{{Quota: "other", Minute: 3, Units: c.want}})
	}
}

// TestARestoredLedgerIsCompleted: a database from before the data in force lacks what was written of those before them. Their windows hold it.
func TestARestoredLedgerIsCompleted(t *testing.T) {
	l := ledgerOf(t)
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
			l.replace(step.epoch, delivery.CauseRestored)
		}
		told := delivery.Taken{Quota: "q", Born: step.epoch, Units: step.units, Held: step.held, Since: step.since}
		equal(t, step.what, l.write(step.epoch, 0, step.at, told), true)
		_, sum := l.used("q")
		equal(t, step.what, sum, step.want)
	}
}

// TestAnOlderLedgerIsNotWhole: what has changed since the writer wrote all is not all that an older database lacks.
func TestAnOlderLedgerIsNotWhole(t *testing.T) {
	l := ledgerOf(t)
	for _, step := range []struct {
		since, at int64
		want      bool
	}{{0, 5, true}, {5, 7, true}, {9, 11, false}, {7, 11, true}, {0, 12, true}} {
		equal(t, fmt.Sprintf("%+v", step), l.write(1, step.since, step.at), step.want)
	}
}

// TestTakersJoinAndLeave: who takes from which data is known until they leave, and a report is added once.
func TestTakersJoinAndLeave(t *testing.T) {
	l, ctx := ledgerOf(t), t.Context()
	join := func(node string, epoch, at int64, want map[int]int64) {
		t.Helper()
		takers := []delivery.Taker{{Shard: 0, Epoch: epoch, At: at}, {Shard: 3, Epoch: 1, At: at}}
		equal(t, node+" joins", try(l.Join(ctx, node, takers))(t), want)
	}
	holds := func(what string, want ...delivery.Taker) {
		t.Helper()
		equal(t, what, try(l.Takers(ctx, 0))(t), append([]delivery.Taker{}, want...))
	}
	reported := []delivery.Usage{{Quota: "q", Minute: 1, Units: 9}, {Quota: "q", Minute: 2, Units: 1}}
	leave := func(nodes []string, told []delivery.Usage, want ...delivery.Usage) {
		t.Helper()
		must(t, l.Leave(ctx, 0, nodes, told))
		list, _ := l.used("q")
		equal(t, fmt.Sprintf("after %v left", nodes), list, want)
	}
	join("a", 2, 9*second, map[int]int64{})
	join("a", 1, 10*second, map[int]int64{0: 0})
	join("a", 1, 20*second, map[int]int64{0: 0})
	join("b", 1, 21*second, map[int]int64{0: 0})
	b := delivery.Taker{Node: "b", Epoch: 1, Since: 21 * second, At: 21 * second}
	holds("two have joined", delivery.Taker{Node: "a", Epoch: 1, Since: 10 * second, At: 20 * second}, b)
	for _, at := range []int64{15 * second, 14 * second} {
		equal(t, "complete", l.write(1, 0, at), true)
	}
	join("a", 1, 22*second, map[int]int64{0: 15 * second})
	a := delivery.Taker{Node: "a", Epoch: 1, Since: 15 * second, At: 22 * second}
	holds("the ledger was written", a, b)
	told := []delivery.Usage{
		{Quota: "q", Minute: 1, Units: 7}, {Quota: "q", Minute: 2, Units: 1}, {Quota: "q", Minute: 1, Units: 2}, {Quota: "gone", Minute: 1, Units: 1},
	}
	leave([]string{"a"}, told) // its data are in force
	holds("a reports too early", a, b)
	l.replace(5, "test")
	join("c", 5, 3*second, map[int]int64{0: 0})
	for range 2 {
		leave([]string{"a"}, told, reported...)
		leave([]string{"c"}, told, reported...)
	}
	leave([]string{"x", "b"}, []delivery.Usage{{Quota: "q", Minute: 2, Units: 30}}, reported[0], delivery.Usage{Quota: "q", Minute: 2, Units: 31})
	kept := takersKept.Microseconds()
	holds("b was given up", delivery.Taker{Node: "c", Epoch: 5, Since: 3 * second, At: 3 * second})
	equal(t, "complete", l.write(5, 0, 3*second+kept), true)
	holds("c may go on", delivery.Taker{Node: "c", Epoch: 5, Since: 3*second + kept, At: 3 * second})
	equal(t, "complete", l.write(5, 0, 4*second+kept), true)
	holds("c has stopped")
	join("c", 5, 200*second, map[int]int64{0: 4*second + kept})
	must(t, l.Leave(ctx, 0, []string{"c"}, nil))
	holds("c has left")
	run(t, l.conn, `INSERT INTO pacer.store_takers VALUES (0, 'restored', 1, 1, 1), (0, 'later', 6, 1, 1)`)
	for _, epoch := range []int64{4, 5} {
		equal(t, "complete", l.write(epoch, 0, 300*second), epoch == 5)
		equal(t, "takers", len(try(l.Takers(ctx, 0))(t)), 2-int(epoch-4))
	}
}

// TestAnEpochWaitsForWritesUnderTheOneBefore: who records an epoch reads all that was written under the one before, however long its
// commit takes.
func TestAnEpochWaitsForWritesUnderTheOneBefore(t *testing.T) {
	l := ledgerOf(t)
	run(t, l.conn, `CREATE FUNCTION pacer.dawdle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1); RETURN NULL; END $$`)
	run(t, l.conn, `CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON pacer.quota_usage DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION pacer.dawdle()`)
	written := make(chan error, 1)
	go func() {
		list := []delivery.Taken{{Quota: "q", Born: 1, Units: 7, Held: 7}}
		complete, err := l.WriteTaken(context.WithoutCancel(t.Context()), 0, 1, 0, minute, list, nil)
		if !complete && err == nil {
			err = errors.New("the epoch was replaced before it was written")
		}
		written <- err
	}()
	time.Sleep(500 * time.Millisecond)
	l.replace(2, "test")
	list, units := l.used("q")
	if err := <-written; err == nil && units != 7 {
		t.Errorf("what was written is not read: %+v", list)
	}
}

// TestTheLedgerOfAMonthIsSmall: minutes become hours after a while, and are gone after a longer one, also while others merge and prune. No unit
// is lost.
func TestTheLedgerOfAMonthIsSmall(t *testing.T) {
	l, ctx := ledgerOf(t), t.Context()
	const now = 4*usagePage + 17 // which is read in pages, and of which more is pruned, and merged, than three batches
	const kept, apart = (3*pruneBatch/60 + 17) * 60, (now - 1500) / 60 * 60
	run(t, l.conn, `INSERT INTO pacer.quota_usage (quota_id, minute, node, units)
SELECT 'q', m, 'n' || m % 3, 1 FROM generate_series(0, $1::int - 1) m`, now)
	all, want := make([]delivery.Usage, now), []delivery.Usage{}
	for m := range int64(now) {
		all[m] = delivery.Usage{Quota: "q", Minute: m, Units: 1}
		switch {
		case m >= apart:
			want = append(want, all[m])
		case m >= kept && m%60 == 59:
			want = append(want, delivery.Usage{Quota: "q", Minute: m, Units: 60})
		}
	}
	holds := func(what string, want []delivery.Usage) {
		t.Helper()
		if list, units := l.used("q"); !slices.Equal(list, want) {
			t.Errorf("%s: %d rows with %d units, want %d rows", what, len(list), units, len(want))
		}
	}
	holds("at first", all)
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			if err := l.pruneUsage(context.Background(), kept, now-1500); err != nil {
				t.Error(err)
			}
		})
	}
	others.Wait()
	must(t, l.pruneUsage(ctx, kept, now-1500)) // each may have left rows that the other was about to take
	holds("hours and minutes", want)
}

// TestUsageIsKeptForTheLongestWindow: by whatever clock, and for a month at least.
func TestUsageIsKeptForTheLongestWindow(t *testing.T) {
	const perDay = 24 * 60
	for name, tc := range map[string]struct{ longest, off, kept int64 }{ // days
		"a month":                   {1, 0, 32},
		"the longest window":        {90, 0, 91},
		"the store's clock is slow": {90, -400, 91},
		"the store's clock is fast": {90, 400, 491},
	} {
		t.Run(name, func(t *testing.T) {
			l, now := ledgerOf(t), time.Now()
			run(t, l.conn, `INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('q', make_interval(days => $1::int), 10), ('q', interval '1 minute', 1)`, tc.longest)
			run(t, l.conn, `INSERT INTO pacer.quota_usage (quota_id, minute, node, units) SELECT 'q', $1::bigint - d * 1440, '', 1 FROM generate_series(0, 600) d`,
				minuteOf(now)/perDay*perDay+perDay-1+tc.off*perDay)
			must(t, l.PruneUsage(t.Context(), now))
			if _, units := l.used("q"); units < tc.kept || units > tc.kept+1 {
				t.Errorf("%d days are kept, want %d", units, tc.kept)
			}
		})
	}
}

// TestLedgersOfManyNodes: daemons that write the same quotas at the same time, in opposite orders, neither block each
// other nor lose units, and the catalog does not notice.
func TestLedgersOfManyNodes(t *testing.T) {
	l, ctx := ledgerOf(t), t.Context()
	const nodes, rounds = 4, 20
	quotas := make([]string, 20)
	for i := range quotas {
		quotas[i] = fmt.Sprintf("q%d", i+1)
		run(t, l.conn, `INSERT INTO pacer.quotas (id) VALUES ($1)`, quotas[i])
	}
	p := started(t, Options{DSN: l.options.DSN, PollInterval: time.Minute})
	changed, before := p.Subscribe(), p.Snapshot()
	told := func(units int64) (list []delivery.Taken, anchors []delivery.Anchor) {
		for _, q := range quotas {
			list = append(list, delivery.Taken{Quota: q, Born: 1, Units: units, Held: units})
			anchors = append(anchors, delivery.Anchor{Quota: q, Span: day, ResetAt: units})
		}
		return list, anchors
	}
	var wg sync.WaitGroup
	for n := range int64(nodes) {
		wg.Go(func() {
			for round := range int64(rounds) {
				list, anchors := told(100*round + n)
				if n%2 == 1 {
					slices.Reverse(list)
					slices.Reverse(anchors)
				}
				if _, err := l.WriteTaken(context.Background(), 0, 1, 0, round*minute+n, list, anchors); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	const last = int64(100*(rounds-1) + nodes - 1)
	for _, q := range quotas { // rows that another was writing are left for the next time
		if _, units := l.used(q); units == 0 || units > last {
			t.Errorf("%s: %d units of %d", q, units, last)
		}
	}
	list, _ := told(last)
	equal(t, "complete without any", l.write(1, 0, rounds*minute), true)
	equal(t, "complete", l.write(1, 0, rounds*minute+1, list...), true)
	for _, q := range quotas {
		_, units := l.used(q)
		equal(t, q, units, last)
	}
	anchors := try(l.Anchors(ctx, quotas))(t)
	if len(anchors) != 20 || anchors[0].ResetAt != last {
		t.Errorf("%+v", anchors)
	}
	if len(changed) > 0 || p.Snapshot().Revision != before.Revision {
		t.Error("the ledger woke the catalog")
	}
}

// TestOneQuotasTroubleIsItsOwn: while one quota's row is locked by a delete or a change, the use of others is written, and it is known that the
// ledger is not complete. With the quota goes what was written of it meanwhile.
func TestOneQuotasTroubleIsItsOwn(t *testing.T) {
	l, ctx := ledgerOf(t), t.Context()
	person := connected(t, l.options.DSN)
	write := func(n int64, want bool) {
		t.Helper()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var list []delivery.Taken
		var anchors []delivery.Anchor
		for _, q := range []string{"q", "other"} {
			list = append(list, delivery.Taken{Quota: q, Born: 1, Units: n, Held: n})
			anchors = append(anchors, delivery.Anchor{Quota: q, Span: day, ResetAt: n})
		}
		equal(t, "complete", try(l.WriteTaken(short, 0, 1, 0, n*minute, list, anchors))(t), want)
		written := try(l.Join(ctx, "n", []delivery.Taker{{Epoch: 1, At: 1}}))(t)
		equal(t, fmt.Sprintf("complete up to minute %d", n), written[0] == n*minute, want)
	}
	write(2, true)
	for i, statement := range []string{
		`SELECT FROM pacer.quotas WHERE id = 'q' FOR UPDATE`, `UPDATE pacer.quotas SET mode = 'shadow' WHERE id = 'q'`,
		`SELECT FROM pacer.quota_counts WHERE quota_id = 'q' FOR UPDATE`, `DELETE FROM pacer.quotas WHERE id = 'q'`,
	} {
		run(t, person, `BEGIN`)
		run(t, person, statement)
		write(int64(i)+3, i != 2)
		run(t, person, `COMMIT`)
	}
	both := []string{"q", "other"}
	if list := try(l.Usage(ctx, both, 0))(t); len(list) != 5 || list[0].Quota != "other" {
		t.Errorf("%+v", list)
	}
	equal(t, "anchors", try(l.Anchors(ctx, both))(t), []delivery.Anchor{{Quota: "other", Span: day, ResetAt: 6}})
}
