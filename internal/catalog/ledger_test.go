package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestLedger holds the ledger of the quota engine to its promises.
func TestLedger(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	for name, check := range map[string]func(*testing.T, *Postgres, editor){
		"incarnations":         incarnationsAreReplaced,
		"one incarnation wins": oneIncarnationWins,
		"usage":                usageIsRead,
		"pruning":              pruningGoesOn,
		"anchors":              anchorsKeepTheLatest,
	} {
		t.Run(name, func(t *testing.T) {
			p, e := emptied(t, dsn)
			check(t, p, e)
		})
	}
}

func incarnationsAreReplaced(t *testing.T, s *Postgres, _ editor) {
	ctx, begun := t.Context(), time.Now().Add(-time.Minute) // the clock of the database may be another
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
		got, err := s.ReplaceEpoch(ctx, step.shard, step.old, delivery.Incarnation{Epoch: step.next, Ahead: step.next, JumpedAt: 2 * step.next}, "restarted without its data")
		if err != nil || got != step.want {
			t.Errorf("%+v: %d, %v", step, got, err)
		}
		if known, err := s.Epoch(ctx, step.shard); err != nil || known != (delivery.Incarnation{Epoch: step.want, Ahead: step.want, JumpedAt: 2 * step.want}) {
			t.Errorf("%+v: recorded %+v, %v", step, known, err)
		}
	}
	admin, err := NewAdmin(s.options.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	read, err := admin.Snapshot(ctx)
	if err != nil || len(read.Stores) != 2 || read.Stores[0].Before(begun) || read.Stores[1].Before(begun) {
		t.Errorf("the stores have their data since %v, %v", read.Stores, err)
	}
	if none, err := s.Epoch(ctx, 2); err != nil || none != (delivery.Incarnation{}) {
		t.Errorf("%+v, %v", none, err)
	}
	for _, bad := range [][3]int64{{-1, 0, 1}, {0, -1, 1}, {0, 6, 0}} {
		_, err := s.ReplaceEpoch(ctx, int(bad[0]), bad[1], delivery.Incarnation{Epoch: bad[2]}, "")
		line(t, err, ErrInvalid, "incarnation")
	}
}

// oneIncarnationWins lets many replace the same incarnation at once, the first of all included.
func oneIncarnationWins(t *testing.T, s *Postgres, _ editor) {
	for round, old := 0, int64(0); round < 5; round++ {
		const rivals = 6
		var inForce [rivals]int64
		var wg sync.WaitGroup
		for i := range rivals {
			wg.Go(func() {
				var err error
				inForce[i], err = s.ReplaceEpoch(context.Background(), 3, old, delivery.Incarnation{Epoch: int64(round*100 + i + 1)}, "test")
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		winner := inForce[0] - int64(round*100) - 1
		if slices.ContainsFunc(inForce[:], func(n int64) bool { return n != inForce[0] }) || winner < 0 || winner >= rivals {
			t.Fatalf("round %d: in force %v", round, inForce)
		}
		old = inForce[0]
	}
}

func usageIsRead(t *testing.T, s *Postgres, e editor) {
	ctx, changed := t.Context(), s.Subscribe()
	e.quota("b")
	e.quota("a")
	await(t, s, changed, "two quotas", func(s *delivery.Snapshot) bool { return len(s.Quotas) == 2 })
	for node, usage := range map[string][]delivery.Usage{
		"":   {{Quota: "b", Minute: 30, Units: 5}, {Quota: "a", Minute: 31, Units: 2}, {Quota: "a", Minute: 29, Units: 1000}},
		"n2": {{Quota: "b", Minute: 30, Units: 7}},
	} {
		if err := putUsage(ctx, s, node, usage); err != nil {
			t.Fatal(err)
		}
	}
	want := []delivery.Usage{{Quota: "b", Minute: 30, Units: 12}, {Quota: "a", Minute: 31, Units: 2}}
	if got, err := s.Usage(ctx, []string{"a", "b", "deleted"}, 30); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if got, err := s.Usage(ctx, []string{"b"}, 0); err != nil || !slices.Equal(got, want[:1]) {
		t.Errorf("of b: %+v, %v", got, err)
	}
	if got, err := s.Usage(ctx, nil, 0); err != nil || len(got) != 0 {
		t.Errorf("of none: %+v, %v", got, err)
	}
	if err := s.PruneUsage(ctx, 31, 31); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Usage(ctx, []string{"a", "b"}, 0); err != nil || !slices.Equal(got, want[1:]) {
		t.Errorf("after pruning: %+v, %v", got, err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.WriteTaken(cancelled, 0, 1, 0, 1, []delivery.Taken{{Quota: "a", Born: 1, Units: 1, Held: 1}}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("written although the context had ended: %v", err)
	}
}

func pruningGoesOn(t *testing.T, s *Postgres, e editor) {
	ctx, changed := t.Context(), s.Subscribe()
	e.quota("q")
	await(t, s, changed, "the quota", func(s *delivery.Snapshot) bool { return s.Quotas["q"] != nil })
	const minutes = 2*usagePage + 10 // more than two batches, and more than two pages
	usage := make([]delivery.Usage, minutes)
	for i := range usage {
		usage[i] = delivery.Usage{Quota: "q", Minute: int64(i), Units: 1}
	}
	if err := putUsage(ctx, s, "n", usage); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Usage(ctx, []string{"q"}, 0); err != nil || !slices.Equal(got, usage) {
		t.Fatalf("%d minutes, %v", len(got), err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if err := s.PruneUsage(context.Background(), minutes-3, 0); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := s.PruneUsage(ctx, minutes-3, 0); err != nil { // each may have left rows that the other was about to take
		t.Fatal(err)
	}
	if got, err := s.Usage(ctx, []string{"q"}, 0); err != nil || !slices.Equal(got, usage[minutes-3:]) {
		t.Errorf("%d minutes, %v", len(got), err)
	}
}

func anchorsKeepTheLatest(t *testing.T, s *Postgres, e editor) {
	ctx, changed := t.Context(), s.Subscribe()
	e.quota("a")
	e.quota("b")
	await(t, s, changed, "two quotas", func(s *delivery.Snapshot) bool { return len(s.Quotas) == 2 })
	at := time.Date(2026, 11, 21, 3, 38, 43, 123456000, time.UTC).UnixMicro()
	for _, anchors := range [][]delivery.Anchor{
		{{Quota: "b", Span: day, ResetAt: at}, {Quota: "a", Span: 31 * day, ResetAt: at + 1}, {Quota: "a", Span: time.Second, ResetAt: at}},
		{{Quota: "b", Span: day, ResetAt: at - 1}, {Quota: "a", Span: 31 * day, ResetAt: at + 2}, {Quota: "a", Span: 31 * day, ResetAt: at}},
		{{Quota: "deleted", Span: day, ResetAt: at}},
	} {
		if _, err := s.WriteTaken(ctx, 0, 1, 0, 1, nil, anchors); err != nil {
			t.Fatal(err)
		}
	}
	want := []delivery.Anchor{
		{Quota: "a", Span: time.Second, ResetAt: at}, {Quota: "a", Span: 31 * day, ResetAt: at + 2}, {Quota: "b", Span: day, ResetAt: at},
	}
	if got, err := s.Anchors(ctx, []string{"a", "b", "deleted"}); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if got, err := s.Anchors(ctx, []string{"b"}); err != nil || !slices.Equal(got, want[2:]) {
		t.Errorf("of b: %+v, %v", got, err)
	}
}

// TestLedgerRights: a daemon that may not change quotas keeps the ledger all the same.
func TestLedgerRights(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	conn := connected(t, dsn)
	role := fmt.Sprintf("daemon_%d", time.Now().UnixNano())
	run(t, conn, `CREATE ROLE `+role)
	t.Cleanup(func() {
		run(t, conn, `DROP OWNED BY `+role)
		run(t, conn, `DROP ROLE `+role)
	})
	run(t, conn, `GRANT USAGE ON SCHEMA pacer TO `+role)
	run(t, conn, `GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+role)
	run(t, conn, `GRANT INSERT, UPDATE, DELETE ON pacer.quota_usage, pacer.quota_counts, pacer.quota_anchors, pacer.store_incarnations, pacer.store_takers TO `+role)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('q')`)
	p := started(t, Options{DSN: dsn + "?options=-c%20role%3D" + role})
	if _, err := p.ReplaceEpoch(ctx, 0, 0, delivery.Incarnation{Epoch: 1}, "fresh"); err != nil {
		t.Error(err)
	}
	if joined, err := p.Join(ctx, "n", []delivery.Taker{{Epoch: 1, At: 1}}); err != nil || len(joined) != 1 {
		t.Error(joined, err)
	}
	for i := range int64(2) {
		list, anchors := []delivery.Taken{{Quota: "q", Born: 1, Units: i + 1, Held: i + 1}}, []delivery.Anchor{{Quota: "q", Span: day, ResetAt: 1}}
		if complete, err := p.WriteTaken(ctx, 0, 1, 0, i, list, anchors); err != nil || !complete {
			t.Error(complete, err)
		}
	}
	if err := p.Leave(ctx, 0, []string{"n"}, []delivery.Usage{{Quota: "q", Minute: 1, Units: 1}}); err != nil {
		t.Error(err)
	}
	if err := p.PruneUsage(ctx, 9, 9); err != nil {
		t.Error(err)
	}
	if _, err := p.Admin().SetQuota(ctx, "q", QuotaChange{Mode: new("shadow")}); err == nil {
		t.Error("the role may change quotas; the test shows nothing")
	}
}

// TestLedgersOfManyNodes: daemons that write the same quotas at the same time, in opposite orders, neither block each
// other nor lose units, and the catalog does not notice.
func TestLedgersOfManyNodes(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	run(t, connected(t, dsn), `INSERT INTO pacer.quotas (id) SELECT 'q' || g FROM generate_series(1, 20) g`)
	p := started(t, Options{DSN: dsn, PollInterval: time.Minute})
	if _, err := p.ReplaceEpoch(ctx, 0, 0, delivery.Incarnation{Epoch: 1}, "test"); err != nil {
		t.Fatal(err)
	}
	changed, before := p.Subscribe(), p.Snapshot()
	const nodes, rounds = 4, 20
	quotas := make([]string, 20)
	for i := range quotas {
		quotas[i] = fmt.Sprintf("q%d", i+1)
	}
	var wg sync.WaitGroup
	for n := range nodes {
		wg.Go(func() {
			for round := range int64(rounds) {
				var list []delivery.Taken
				var anchors []delivery.Anchor
				for _, q := range quotas {
					list = append(list, delivery.Taken{Quota: q, Born: 1, Units: 100*round + int64(n), Held: 100*round + int64(n)})
					anchors = append(anchors, delivery.Anchor{Quota: q, Span: day, ResetAt: 100*round + int64(n)})
				}
				if n%2 == 1 {
					slices.Reverse(list)
					slices.Reverse(anchors)
				}
				if _, err := p.WriteTaken(context.Background(), 0, 1, 0, round*60_000_000+int64(n), list, anchors); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	usage, err := p.Usage(ctx, quotas, 0)
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]int64{}
	for _, u := range usage {
		sums[u.Quota] += u.Units
	}
	last := int64(100*(rounds-1) + nodes - 1)
	if complete, err := p.WriteTaken(ctx, 0, 1, 0, rounds*60_000_000, nil, nil); err != nil || !complete {
		t.Error(complete, err)
	}
	for q, n := range sums { // rows that another was writing are left for the next time
		if n > last || len(sums) != len(quotas) {
			t.Errorf("%s: %d units of %d", q, n, last)
		}
	}
	list := make([]delivery.Taken, len(quotas))
	for i, q := range quotas {
		list[i] = delivery.Taken{Quota: q, Born: 1, Units: last, Held: last}
	}
	if complete, err := p.WriteTaken(ctx, 0, 1, 0, rounds*60_000_000+1, list, nil); err != nil || !complete {
		t.Error(complete, err)
	}
	clear(sums)
	if usage, err = p.Usage(ctx, quotas, 0); err != nil {
		t.Fatal(err)
	}
	for _, u := range usage {
		sums[u.Quota] += u.Units
	}
	for q, n := range sums {
		if n != last {
			t.Errorf("%s: %d units, want %d", q, n, last)
		}
	}
	anchors, err := p.Anchors(ctx, quotas)
	if err != nil || len(anchors) != 20 || anchors[0].ResetAt != 100*(rounds-1)+nodes-1 {
		t.Errorf("%+v, %v", anchors, err)
	}
	select {
	case <-changed:
		t.Error("the ledger woke the catalog")
	default:
	}
	if p.Snapshot().Revision != before.Revision {
		t.Error("the ledger moved the revision")
	}
}

// TestOneQuotasTroubleIsItsOwn: while one quota's row is locked by a delete or a change, the use of others is written, and it is known that the
// ledger is not complete. With the quota goes what was written of it meanwhile.
func TestOneQuotasTroubleIsItsOwn(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	conn, person := connected(t, dsn), connected(t, dsn)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('old'), ('other')`)
	p := started(t, Options{DSN: dsn})
	if _, err := p.ReplaceEpoch(ctx, 0, 0, delivery.Incarnation{Epoch: 1}, "test"); err != nil {
		t.Fatal(err)
	}
	write := func(minute int64, want bool) {
		t.Helper()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var list []delivery.Taken
		var anchors []delivery.Anchor
		for _, q := range []string{"old", "other"} {
			list = append(list, delivery.Taken{Quota: q, Born: 1, Units: minute, Held: minute})
			anchors = append(anchors, delivery.Anchor{Quota: q, Span: day, ResetAt: minute})
		}
		if complete, err := p.WriteTaken(short, 0, 1, 0, minute*60_000_000, list, anchors); err != nil || complete != want {
			t.Error(complete, err)
		}
		if written, err := p.Join(ctx, "n", []delivery.Taker{{Epoch: 1, At: 1}}); err != nil || (written[0] == minute*60_000_000) != want {
			t.Errorf("in minute %d the ledger is complete up to %v, %v", minute, written, err)
		}
	}
	write(2, true)
	for i, statement := range []string{
		`SELECT FROM pacer.quotas WHERE id = 'old' FOR UPDATE`, `UPDATE pacer.quotas SET mode = 'shadow' WHERE id = 'old'`,
		`SELECT FROM pacer.quota_counts WHERE quota_id = 'old' FOR UPDATE`, `DELETE FROM pacer.quotas WHERE id = 'old'`,
	} {
		run(t, person, `BEGIN`)
		run(t, person, statement)
		write(int64(i)+3, i != 2)
		run(t, person, `COMMIT`)
	}
	usage, err := p.Usage(ctx, []string{"old", "other"}, 0)
	if err != nil || len(usage) != 5 || usage[0].Quota != "other" {
		t.Errorf("%+v, %v", usage, err)
	}
	if anchors, err := p.Anchors(ctx, []string{"old", "other"}); err != nil || len(anchors) != 1 {
		t.Errorf("%+v, %v", anchors, err)
	}
}
