package catalog

import (
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/harness"
)

// TestStatusOnlyReads: a role that may look and change nothing sees what is applied, and without a schema that nothing is.
func TestStatusOnlyReads(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for _, dsn := range []string{harness.Database(t), migrated(t)} {
		owner := connected(t, dsn)
		const role = "pacer_only_reads"
		run(t, owner, `DO $$ BEGIN CREATE ROLE `+role+`; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`)
		if current, _, err := migrator(t, dsn).SchemaVersion(ctx); err != nil || current > 0 {
			run(t, owner, `GRANT USAGE ON SCHEMA pacer TO `+role+`; GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+role)
		}
		reader := migrator(t, dsn)
		reader.database.config.ConnConfig.RuntimeParams["role"] = role
		mine, err := reader.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		owners, err := migrator(t, dsn).Status(ctx)
		if err != nil || !slices.Equal(mine, owners) || len(mine) < 9 || mine[0].Name != "00001_campaigns_and_quotas.sql" {
			t.Errorf("%v, %+v, the owner sees %+v", err, mine, owners)
		}
		var made bool
		if err := owner.QueryRow(ctx, `SELECT to_regnamespace('pacer') IS NOT NULL`).Scan(&made); err != nil || made != mine[0].Applied {
			t.Errorf("the schema exists: %t, %v", made, err)
		}
	}
}

// TestDownFindsWhatItWouldRemove: going down step by step, each is free until something is put into what it removes.
func TestDownFindsWhatItWouldRemove(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	m, conn := migrator(t, dsn), connected(t, dsn)
	data := map[string]struct{ put, remove, holding string }{
		"00016_quota_checkpoints.sql": {`INSERT INTO pacer.quotas (id) VALUES ('q'); INSERT INTO pacer.quota_checkpoints VALUES ('q', 1, 0, 1, 'w', 0, 0, 0)`,
			`DELETE FROM pacer.quotas`, "pacer.quota_checkpoints"},
		"00013_rejected.sql": {`INSERT INTO pacer.campaigns (id) VALUES ('c'); INSERT INTO pacer.campaign_progress (campaign_id, rejected) VALUES ('c', 1)`,
			`DELETE FROM pacer.campaigns`, "pacer.campaign_progress.rejected"},
		"00009_turns.sql": {`UPDATE pacer.store SET changes_kept = '1 day'`, `UPDATE pacer.store SET changes_kept = DEFAULT`, "pacer.store.changes_kept"},
		"00006_progress.sql": {`INSERT INTO pacer.campaigns (id) VALUES ('c'); INSERT INTO pacer.campaign_progress (campaign_id) VALUES ('c')`, `DELETE FROM pacer.campaigns`,
			"pacer.campaign_progress"},
		"00005_schedules.sql": {`INSERT INTO pacer.campaigns (id, send_rate, ramp) VALUES ('c', 9, '{"start": 1, "add": 1, "every": "1 minute"}')`,
			`DELETE FROM pacer.campaigns`, "pacer.campaigns.ramp_since"},
		"00004_quota_modes_and_usage.sql": {`INSERT INTO pacer.quotas (id, rollout) VALUES ('q', 50); INSERT INTO pacer.quota_anchors VALUES ('q', '1 hour', now())`,
			`DELETE FROM pacer.quotas`, "pacer.quota_anchors pacer.quotas.rollout"},
		"00003_lanes_and_positions.sql":  {`INSERT INTO pacer.lane_pins (campaign_id, lane) VALUES ('c', 1)`, `DELETE FROM pacer.lane_pins`, "pacer.lane_pins"},
		"00001_campaigns_and_quotas.sql": {`INSERT INTO pacer.campaigns (id) VALUES ('c')`, `DELETE FROM pacer.campaigns`, "pacer.campaigns"},
	}
	for tried := 0; ; {
		newest, holding, err := m.Newest(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if newest == nil {
			if tried != len(data) {
				t.Errorf("%d of %d steps were tried with data", tried, len(data))
			}
			return
		}
		if newest.Name == "00002_changes.sql" && slices.Equal(holding, []string{"pacer.campaign_changes"}) {
			run(t, conn, `DELETE FROM pacer.campaign_changes`) // of what was tried before
			holding = nil
		}
		if len(holding) > 0 {
			t.Fatalf("%s holds %v", newest.Name, holding)
		}
		if d, ok := data[newest.Name]; ok {
			tried++
			run(t, conn, d.put)
			if _, holding, err := m.Newest(ctx); err != nil || strings.Join(holding, " ") != d.holding {
				t.Errorf("%s: holds %v, %v, want %s", newest.Name, holding, err, d.holding)
			}
			run(t, conn, d.remove)
		}
		if undone, err := m.Down(ctx); err != nil || undone == nil || undone.Name != newest.Name {
			t.Fatalf("undid %+v, %v", undone, err)
		}
	}
}
