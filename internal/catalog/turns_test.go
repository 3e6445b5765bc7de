package catalog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAnOpenTransactionHoldsItsOwnCampaignOnly: while a person's transaction has changed, created and linked campaigns
// and has not ended, others are paused, created and deleted, and daemons follow. Its own changes act when it commits,
// although they were made before.
func TestAnOpenTransactionHoldsItsOwnCampaignOnly(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	person := connected(t, dsn)
	run(t, person, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('mine', 1), ('other', 1), ('old', 1)`)
	p := started(t, Options{DSN: dsn, PollInterval: time.Hour})
	changed := p.Subscribe()
	await(t, p, changed, "three campaigns", func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 3 })
	full := testutil.ToFloat64(p.metrics.loads[loadFull])

	run(t, person, `BEGIN`)
	run(t, person, setRate, "mine", 7)
	run(t, person, setRate, "mine", 8)
	run(t, person, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('new', 3)`)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	a := p.Admin()
	row, err := a.SetStatus(ctx, "other", delivery.StatusPaused)
	if err != nil {
		t.Fatalf("pausing another campaign: %v", err)
	}
	s := await(t, p, changed, "the pause", func(s *delivery.Snapshot) bool {
		return s.Campaign("other").Status == delivery.StatusPaused
	})
	if s.Campaign("other").Revision != row.Revision || row.Revision <= 0 {
		t.Errorf("revision %d, and %d by the command", s.Campaign("other").Revision, row.Revision)
	}
	if _, err := a.SetQuota(ctx, "q", QuotaChange{Windows: &[]delivery.Window{{Span: time.Minute, Limit: 5}}}); err != nil {
		t.Errorf("creating a quota: %v", err)
	}
	if _, err := a.SetCampaign(ctx, "other", CampaignChange{Quotas: &[]string{"q"}}); err != nil {
		t.Errorf("linking another campaign: %v", err)
	}
	await(t, p, changed, "the link", func(s *delivery.Snapshot) bool { return len(s.Campaign("other").Quotas) == 1 })
	if testutil.ToFloat64(p.metrics.loads[loadFull]) != full {
		t.Error("everything was read")
	}
	second := connected(t, dsn)
	if _, err := second.Exec(ctx, `DELETE FROM pacer.campaigns WHERE id = 'old'`); err != nil {
		t.Errorf("deleting another campaign: %v", err)
	}
	await(t, p, changed, "the deletion", func(s *delivery.Snapshot) bool { return s.Campaign("old") == nil })
	// Another load may have seen it before its notification came, which has everything read once more. The next one comes later.
	if _, err := second.Exec(ctx, setRate, "other", 9); err != nil {
		t.Fatal(err)
	}
	await(t, p, changed, "the rate after it", hasRate("other", 9))

	full = testutil.ToFloat64(p.metrics.loads[loadFull])
	run(t, person, `COMMIT`)
	s = await(t, p, changed, "the transaction", func(s *delivery.Snapshot) bool {
		return s.Campaign("new") != nil && hasRate("mine", 8)(s)
	})
	if testutil.ToFloat64(p.metrics.loads[loadFull]) != full {
		t.Error("a change that was committed late was not found by its revision")
	}
	same(t, person, s)
}

// TestAnOpenDeletionHoldsNoUpdate: a deletion that has not been committed.
func TestAnOpenDeletionHoldsNoUpdate(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	person := connected(t, dsn)
	run(t, person, `INSERT INTO pacer.campaigns (id) SELECT 'c' || g FROM generate_series(1, 2000) g`)
	p := started(t, Options{DSN: dsn, PollInterval: time.Hour})
	changed := p.Subscribe()
	await(t, p, changed, "the campaigns", func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 2000 })
	run(t, person, `BEGIN`)
	run(t, person, `DELETE FROM pacer.campaigns WHERE id <> 'c7'`)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := p.Admin().SetStatus(ctx, "c7", delivery.StatusPaused); err != nil {
		t.Errorf("pausing another campaign: %v", err)
	}
	run(t, person, `COMMIT`)
	await(t, p, changed, "the deletion", func(s *delivery.Snapshot) bool {
		return len(s.Campaigns) == 1 && s.Campaign("c7").Status == delivery.StatusPaused
	})
}

// TestChangesAreKeptForAWhile: the oldest rows of the record go as new ones come, also while another transaction deletes
// some.
func TestChangesAreKeptForAWhile(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn, other := connected(t, dsn), connected(t, dsn)
	run(t, conn, `UPDATE pacer.store SET changes_kept = '30 days'`)
	run(t, conn, `INSERT INTO pacer.campaign_changes ("when", who, application, relation, operation, campaign_id)
SELECT now() - '31 days'::interval, 'x', 'x', 'campaigns', 'update', 'old' FROM generate_series(1, 300)`)
	count := func() (old, all int) {
		err := conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE campaign_id = 'old'), count(*) FROM pacer.campaign_changes`).Scan(&old, &all)
		if err != nil {
			t.Fatal(err)
		}
		return old, all
	}
	run(t, other, `BEGIN`)
	run(t, other, `INSERT INTO pacer.campaigns (id) SELECT 'other' || g FROM generate_series(1, 16) g`) // deletes 64 and holds them
	run(t, conn, `INSERT INTO pacer.campaigns (id) SELECT 'c' || g FROM generate_series(1, 32) g`)
	run(t, other, `COMMIT`)
	run(t, conn, `INSERT INTO pacer.campaigns (id) SELECT 'd' || g FROM generate_series(1, 64) g`)
	if old, all := count(); old != 0 || all < 112 {
		t.Errorf("%d rows of 31 days ago are left, of %d", old, all)
	}
	if _, err := conn.Exec(t.Context(), `UPDATE pacer.store SET changes_kept = '0'`); err == nil {
		t.Error("a retention of nothing was accepted")
	}
}

// retryDeadlock runs a transaction again that the server ended for the sake of another one, as its writer has to do.
func retryDeadlock(ctx context.Context, conn *pgx.Conn, change func(pgx.Tx) error) error {
	for {
		err := pgx.BeginFunc(ctx, conn, change)
		var server *pgconn.PgError
		if !errors.As(err, &server) || server.Code != "40P01" {
			return err
		}
	}
}

// TestCommandsDoNotDeadlock: commands that change a campaign, its links and quotas at once, in any order, all succeed.
func TestCommandsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	run(t, connected(t, dsn), `INSERT INTO pacer.campaigns (id) VALUES ('a'), ('b')`)
	a, err := NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	done := make(chan error)
	for w := range 4 {
		go func() {
			var err error
			for i := 0; i < 25 && err == nil; i++ {
				id, quota, burst := []string{"a", "b"}[(i+w)%2], fmt.Sprintf("q%d", i%3), int64(i)
				if w%2 == 0 {
					_, err = a.SetQuota(context.Background(), quota, QuotaChange{Windows: &[]delivery.Window{{Span: time.Minute, Limit: int64(1 + i)}}})
					continue
				}
				links := []string{}
				if _, missing := a.GetQuota(context.Background(), quota); missing == nil {
					links = append(links, quota)
				}
				_, err = a.SetCampaign(context.Background(), id, CampaignChange{Burst: &burst, Quotas: &links})
			}
			done <- err
		}()
	}
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
