package catalog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

// TestUsageHistory reads back what two daemons wrote over three hours, by the hour and by the half hour.
func TestUsageHistory(t *testing.T) {
	dsn, conn := fresh(t)
	a, ctx := adminOf(t, dsn), t.Context()
	try(a.quota(ctx, "q", QuotaChange{Windows: &[]string{"10/1s,100/1h,1000/1d:fixed:day@Europe/Moscow,500/2h:fixed"}}))(t)
	midnight := time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC) // in Moscow
	at := func(minutes int, units int64) delivery.Usage {
		return delivery.Usage{Quota: "q", Minute: minuteOf(midnight.Add(time.Duration(minutes) * time.Minute)), Units: units}
	}
	usage(t, conn, "n1", at(-121, 1), at(-60, 30), at(0, 7))
	usage(t, conn, "n2", at(-1, 200), at(0, 4), at(59, 2))
	for _, c := range []struct {
		from, to int // minutes
		step     time.Duration
		want     string
	}{
		// start, units, and what is left of 1h, 2h and the day; no count of seconds is known
		{-60, 60, time.Hour, "20:00 230 0 270 769, 21:00 13 87 257 987"},
		{-179, 60, time.Hour, "18:00 1 99 499 999, 19:00 0 100 499 999, 20:00 230 0 270 769, 21:00 13 87 257 987"},
		{-30, 30, 30 * time.Minute, "20:30 200 0 270 769, 21:00 11 0 259 989"},
		{0, 1, time.Hour, "21:00 11 0 259 989"},
		{600, 601, time.Hour, "07:00 0 100 500 987"},
	} {
		steps := try(a.UsageHistory(ctx, "q", midnight.Add(time.Duration(c.from)*time.Minute), midnight.Add(time.Duration(c.to)*time.Minute), c.step))(t)
		var words []string
		for _, s := range steps {
			if s.Remaining[0].Units != nil || s.Remaining[0].Span != "1s" || s.Remaining[0].Limit != 10 {
				t.Errorf("%+v", s.Remaining[0])
			}
			word := fmt.Sprintf("%s %d", s.Start.Format("15:04"), s.Units)
			for _, r := range s.Remaining[1:] {
				word += fmt.Sprintf(" %d", *r.Units)
			}
			words = append(words, word)
		}
		equal(t, fmt.Sprintf("from %d to %d by %s", c.from, c.to, c.step), strings.Join(words, ", "), c.want)
	}
	refused(t, ErrInvalid, "whole number of minutes")(a.UsageHistory(ctx, "q", midnight, midnight.Add(time.Hour), 90*time.Second))
	refused(t, ErrInvalid, "after it begins")(a.UsageHistory(ctx, "q", midnight, midnight, time.Hour))
	refused(t, ErrInvalid, "at most 10000 steps")(a.UsageHistory(ctx, "q", midnight, midnight.Add(10_000*time.Minute), time.Minute))
	refused(t, ErrNotFound, "quota nobody does not exist")(a.UsageHistory(ctx, "nobody", midnight, midnight.Add(time.Hour), time.Hour))
}

// TestWhatIsLeftOfAShortWindowIsNotToldOfOldHours: their last minute has the use of the whole hour.
func TestWhatIsLeftOfAShortWindowIsNotToldOfOldHours(t *testing.T) {
	t.Parallel()
	merged := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	windows := []delivery.Window{{Span: 5 * time.Minute, Limit: 10}, {Span: time.Hour, Limit: 300}}
	used := newTotals([]delivery.Usage{{Minute: minuteOf(merged) - 1, Units: 100}, {Minute: minuteOf(merged) + 59, Units: 4}})
	steps := historySteps(used, windows, merged.Add(-time.Hour), merged.Add(time.Hour), time.Hour, merged)
	old, recent := steps[0].Remaining, steps[1].Remaining
	if old[0].Units != nil || *old[1].Units != 200 || *recent[0].Units != 6 || *recent[1].Units != 296 {
		t.Errorf("%+v, %+v", old, recent)
	}
}

// TestUsageOfAMonthIsReadByIndex: neither the sums since a minute nor pruning read the whole ledger.
func TestUsageOfAMonthIsReadByIndex(t *testing.T) {
	_, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.quotas (id) SELECT 'q' || g FROM generate_series(1, 5) g`)
	run(t, conn, `INSERT INTO pacer.quota_usage SELECT 'q' || q, m, 'n', 1 FROM generate_series(1, 5) q, generate_series(1, 10000) m`)
	run(t, conn, `ANALYZE pacer.quota_usage`)
	for statement, args := range map[string][]any{
		`EXPLAIN SELECT minute, sum(units) FROM pacer.quota_usage WHERE quota_id = $1 AND minute >= $2 GROUP BY minute`: {"q1", 9900},
		`EXPLAIN SELECT ctid FROM pacer.quota_usage WHERE minute < $1 ORDER BY minute LIMIT 100`:                        {50},
	} {
		plan := try(pgx.CollectRows(try(conn.Query(t.Context(), statement, args...))(t), pgx.RowTo[string]))(t)
		if strings.Contains(strings.Join(plan, "\n"), "Seq Scan") {
			t.Errorf("%s: %v", statement, plan)
		}
	}
}
