package catalog

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

// editor changes a catalog the way its owner would: by calls or by SQL.
type editor interface {
	campaign(id string, rate int64, quotas ...string)
	rate(id string, rate int64)
	status(id string, status delivery.Status)
	quota(id string, windows ...delivery.Window)
	cover(quota, mode, unit string, rollout int64)
	remove(campaign string)
}

// TestConformance holds both catalogs to the same behaviour.
func TestConformance(t *testing.T) {
	t.Parallel()
	t.Run("memory", func(t *testing.T) {
		conform(t, func(t *testing.T) (source, editor) {
			m := NewMemory()
			return m, memoryEditor{m}
		})
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := migrated(t)
		conform(t, func(t *testing.T) (source, editor) { return emptied(t, dsn) })
	})
}

// emptied is a catalog over a database without rows of earlier tests.
func emptied(t *testing.T, dsn string) (*Postgres, *sqlEditor) {
	conn := connected(t, dsn)
	run(t, conn, `TRUNCATE pacer.campaigns, pacer.quotas, pacer.destinations, pacer.positions, pacer.store_incarnations, pacer.store_takers CASCADE`)
	return started(t, Options{DSN: dsn, PollInterval: time.Minute}), &sqlEditor{t: t, conn: conn}
}

func conform(t *testing.T, open func(*testing.T) (source, editor)) {
	for name, check := range map[string]func(*testing.T, source, editor){
		"snapshots are immutable":    snapshotsAreImmutable,
		"revisions grow":             revisionsGrow,
		"quotas reach campaigns":     quotasReachCampaigns,
		"a deleted campaign is out":  deletedCampaignIsOut,
		"positions":                  positionsAreKept,
		"quotas say what they cover": quotasSayWhatTheyCover,
		"signals coalesce":           signalsCoalesce,
		"refreshes":                  refreshesHaveWhatWasCommitted,
	} {
		t.Run(name, func(t *testing.T) {
			s, e := open(t)
			if !s.Ready() || s.Healthy() != nil {
				t.Fatalf("ready %v, healthy %v", s.Ready(), s.Healthy())
			}
			check(t, s, e)
		})
	}
}

// refreshesHaveWhatWasCommitted: and end with the context of the caller.
func refreshesHaveWhatWasCommitted(t *testing.T, s source, e editor) {
	e.campaign("spring", 1)
	for rate := int64(2); rate <= 10; rate++ {
		e.rate("spring", rate)
		s.Refresh(t.Context())
		if c := s.Snapshot().Campaign("spring"); c == nil || c.Rate != delivery.PerSecond(rate) {
			t.Fatalf("after rate %d: %+v", rate, c)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	s.Refresh(ctx)
}

// TestDestinationsAreFollowed: each is what its row says, and one that changes leaves the others and the campaigns as they were.
func TestDestinationsAreFollowed(t *testing.T) {
	t.Parallel()
	s, e := emptied(t, migrated(t))
	changed := s.Subscribe()
	e.campaign("spring", 500)
	e.endpoint(delivery.Destination{ID: "other", URL: "https://b.example/", MaxInFlight: 3})
	want := delivery.Destination{
		ID: "shop-7", Sink: "hooks", URL: "https://a.example/x?y=%20z", MaxInFlight: 8, Secrets: []string{"file:new", "env:DESTINATION_OLD"},
		Headers:    []delivery.DestinationHeader{{Name: "authorization", Value: "file:shop-7"}, {Name: "x-tenant", Value: "blue & Söhne"}},
		DisabledAt: delivery.StampOf(time.Date(2026, 11, 1, 12, 0, 0, 123456000, time.UTC)), DisabledReason: "gone",
		FailingSince: delivery.StampOf(time.Date(2026, 10, 1, 12, 0, 0, 0, time.UTC)),
	}
	e.endpoint(want)
	before := await(t, s, changed, "both", func(s *delivery.Snapshot) bool {
		return s.Destination("shop-7") != nil && s.Destination("other") != nil && s.Campaign("spring") != nil
	})
	got, was := *before.Destination("shop-7"), before.Destination("shop-7")
	if got.Revision <= 0 || got.Revision > before.Revision {
		t.Errorf("revision %d of %d", got.Revision, before.Revision)
	}
	got.Revision = 0
	equal(t, "the destination", got, want)
	if got.State() != delivery.DestinationDisabled || before.Destination("other").State() != delivery.DestinationEnabled || before.Destination("none") != nil {
		t.Error("the states are others")
	}
	want.DisabledAt, want.DisabledReason, want.FailingSince, want.URL = 0, "", 0, "https://c.example/"
	e.endpoint(want)
	after := await(t, s, changed, "the change", func(s *delivery.Snapshot) bool { return s.Destination("shop-7").URL == want.URL })
	if now := after.Destination("shop-7"); now.Disabled() || now.DisabledReason != "" || now.FailingSince != 0 ||
		now.Renewed == was.Renewed || now.Revision <= was.Revision {
		t.Errorf("enabled: %+v", now)
	}
	if was.URL != "https://a.example/x?y=%20z" || before.Destination("other") != after.Destination("other") ||
		before.Campaign("spring") != after.Campaign("spring") || after.Revision <= before.Revision {
		t.Error("something else has changed")
	}
	for range after.Changed(before) {
		t.Error("a campaign is said to have changed")
	}
	run(t, e.conn, `DELETE FROM pacer.destinations WHERE id = 'shop-7'`)
	await(t, s, changed, "the removal", func(s *delivery.Snapshot) bool {
		return s.Destination("shop-7") == nil && s.Destination("other") != nil
	})
}

// TestDestinationsThatFail: several daemons note what they see of destinations, and disable what has not changed since.
func TestDestinationsThatFail(t *testing.T) {
	t.Parallel()
	s, e := emptied(t, migrated(t))
	for i := range 3 {
		e.endpoint(shop(i))
	}
	row := func(id string) *delivery.Destination {
		s.Refresh(t.Context())
		return s.Snapshot().Destination(id)
	}
	first, second := row("shop-0"), row("shop-1")
	early, late := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)
	note := func(since map[string]time.Time) {
		t.Helper()
		must(t, s.NoteFailing(t.Context(), since))
	}
	disable := func(what, id string, seen int64, want bool) {
		t.Helper()
		equal(t, what, try(s.DisableFailing(t.Context(), id, seen, "410 "+strings.Repeat("x", 600)))(t), want)
	}
	note(map[string]time.Time{"shop-1": early, "shop-0": early, "nowhere": early})
	note(map[string]time.Time{"shop-1": late})
	equal(t, "the first fails since", row("shop-0").FailingSince, delivery.StampOf(early))
	equal(t, "the second fails since", row("shop-1").FailingSince, delivery.StampOf(early))
	equal(t, "the third fails since", row("shop-2").FailingSince, 0)
	if now := row("shop-1"); now.Renewed != second.Renewed || now.Revision <= second.Revision {
		t.Errorf("what daemons note is a change of the row: %+v", now)
	}
	note(map[string]time.Time{"shop-1": {}, "shop-2": {}})
	equal(t, "the second works, and fails since", row("shop-1").FailingSince, 0)
	seen := row("shop-0").Revision
	disable("as it was before it changed", "shop-0", first.Revision, false)
	disable("as it is", "shop-0", seen, true)
	disable("twice", "shop-0", seen, false)
	disable("one that does not exist", "nowhere", seen, false)
	off := row("shop-0")
	if !off.Disabled() || !strings.HasPrefix(off.DisabledReason, "410 x") || len(off.DisabledReason) != 500 || off.Renewed != first.Renewed {
		t.Errorf("%+v", off)
	}
	enabled := func(how string, before *delivery.Destination) *delivery.Destination {
		t.Helper()
		on := row("shop-0")
		if on.Disabled() || on.FailingSince != 0 || on.DisabledReason != "" || on.Renewed == before.Renewed {
			t.Errorf("%s: %+v, it was %+v", how, on, before)
		}
		return on
	}
	note(map[string]time.Time{"shop-0": late})
	note(map[string]time.Time{"shop-0": {}})
	on := enabled("a success that was not known when it was disabled", first)
	byHand := shop(0)
	byHand.DisabledAt, byHand.DisabledReason = delivery.StampOf(time.Now()), "moves"
	e.endpoint(byHand)
	note(map[string]time.Time{"shop-0": {}, "shop-2": late})
	if !row("shop-0").Disabled() || row("shop-2").FailingSince == 0 {
		t.Error("a success has enabled what a person has disabled")
	}
	e.endpoint(shop(0))
	enabled("by hand", on)
}

func shop(i int) delivery.Destination {
	return delivery.Destination{
		ID: fmt.Sprintf("shop-%d", i), URL: fmt.Sprintf("https://shop-%d.example/hooks/orders", i), Secrets: []string{fmt.Sprintf("file:shop-%d", i)},
	}
}

// TestDestinationsTakeLittleMemory: ten thousand are a few megabytes. Parallel tests begin after it.
func TestDestinationsTakeLittleMemory(t *testing.T) {
	const n = 10_000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	m := NewMemory()
	m.change(func(s *state, revision int64) {
		for i := range n {
			row := shop(i)
			row.Revision = revision
			s.endpoints.put(&endpointEntry{row: &row})
		}
	})
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 1500 || len(m.Snapshot().Destinations) != n {
		t.Errorf("a destination takes %d bytes", each)
	}
}

func snapshotsAreImmutable(t *testing.T, s source, e editor) {
	changed := s.Subscribe()
	e.quota("q", delivery.Window{Span: time.Minute, Limit: 300})
	e.campaign("spring", 500, "q")
	e.campaign("autumn", 7)
	before := await(t, s, changed, "three rows", func(s *delivery.Snapshot) bool {
		return s.Campaign("autumn") != nil && s.Campaign("spring") != nil && len(s.Campaign("spring").Quotas) == 1
	})
	kept, copied := before.Campaign("spring"), *before.Campaign("spring")
	want := delivery.Campaign{
		ID: "spring", Revision: copied.Revision, Rate: delivery.PerSecond(500), Status: delivery.StatusActive,
		PriorityWeight: 1, Overflow: delivery.OverflowLane,
	}
	got := copied
	got.Quotas = nil
	equal(t, "defaults", fmt.Sprint(got), fmt.Sprint(want))
	e.rate("spring", 50)
	e.status("spring", delivery.StatusPaused)
	e.quota("q", delivery.Window{Span: time.Minute, Limit: 10})
	after := await(t, s, changed, "all changes", func(s *delivery.Snapshot) bool {
		c := s.Campaign("spring")
		return c.Status == delivery.StatusPaused && c.Rate == delivery.PerSecond(50) && c.Quotas[0].Windows[0].Limit == 10
	})
	if before.Campaign("spring") != kept || kept.Rate != copied.Rate || kept.Status != copied.Status ||
		kept.Revision != copied.Revision || kept.Quotas[0].Windows[0].Limit != 300 {
		t.Errorf("the old snapshot changed: %+v", kept)
	}
	if before.Campaign("autumn") != after.Campaign("autumn") {
		t.Error("a campaign that did not change was not shared")
	}
	if after.Campaign("nobody") != nil {
		t.Error("an unknown campaign is known")
	}
}

func revisionsGrow(t *testing.T, s source, e editor) {
	changed := s.Subscribe()
	e.campaign("a", 0)
	e.campaign("b", 0)
	last := await(t, s, changed, "both", func(s *delivery.Snapshot) bool { return s.Campaign("a") != nil && s.Campaign("b") != nil })
	still := last.Campaign("b").Revision
	for rate := int64(1); rate <= 20; rate++ {
		e.rate("a", rate)
		next := await(t, s, changed, "the next rate", func(s *delivery.Snapshot) bool {
			return s.Campaign("a").Rate == delivery.PerSecond(rate)
		})
		if next.Campaign("a").Revision <= last.Campaign("a").Revision || next.Revision <= last.Revision {
			t.Fatalf("rate %d: revision %d after %d, snapshot %d after %d", rate,
				next.Campaign("a").Revision, last.Campaign("a").Revision, next.Revision, last.Revision)
		}
		if next.LoadedAt.Before(last.LoadedAt) {
			t.Fatalf("loaded at %s after %s", next.LoadedAt, last.LoadedAt)
		}
		last = next
	}
	if last.Campaign("b").Revision != still {
		t.Error("the revision of a campaign that did not change has grown")
	}
}

func quotasReachCampaigns(t *testing.T, s source, e editor) {
	changed := s.Subscribe()
	e.quota("zeta")
	e.quota("alpha", delivery.Window{Span: time.Hour, Limit: 575, Algorithm: "log"}, delivery.Window{Span: time.Minute, Limit: 300})
	e.campaign("one", 1, "zeta", "alpha")
	e.campaign("two", 2, "alpha")
	first := await(t, s, changed, "both linked", func(s *delivery.Snapshot) bool {
		return s.Campaign("two") != nil && len(s.Campaign("two").Quotas) == 1 && len(s.Campaign("one").Quotas) == 2
	})
	alpha := first.Quotas["alpha"]
	if first.Campaign("one").Quotas[0] != alpha || first.Campaign("two").Quotas[0] != alpha {
		t.Error("campaigns do not share the quota of the snapshot, or not in the order of ids")
	}
	if zeta := first.Quotas["zeta"]; len(zeta.Windows) != 0 || zeta.OnStoreFailure != "closed" || zeta.Mode != "strict" || zeta.Spend != "greedy" ||
		zeta.Unit != "units" || zeta.Exempt != 0 || zeta.Shard != 0 {
		t.Errorf("defaults of a quota: %+v", zeta)
	}
	want := []delivery.Window{
		{Span: time.Minute, Limit: 300, Algorithm: "sliding"}, {Span: time.Hour, Limit: 575, Algorithm: "log"},
	}
	equal(t, "windows", alpha.Windows, want)
	e.quota("alpha", delivery.Window{Span: time.Minute, Limit: 0})
	second := await(t, s, changed, "one window left", func(s *delivery.Snapshot) bool {
		q := s.Campaign("one").Quotas[0]
		return len(q.Windows) == 1 && q.Windows[0].Limit == 0
	})
	if second.Quotas["alpha"].Revision <= alpha.Revision {
		t.Error("a change of windows did not raise the quota's revision")
	}
	if len(alpha.Windows) != 2 {
		t.Error("a quota of an old snapshot changed")
	}
}

func quotasSayWhatTheyCover(t *testing.T, s source, e editor) {
	changed := s.Subscribe()
	windows := []delivery.Window{
		{Span: time.Hour, Limit: 9, Algorithm: "fixed"},
		{Span: day, Limit: 300, Algorithm: "fixed", Anchor: "day@Europe/Moscow"},
		{Span: 31 * day, Limit: 6000, Algorithm: "fixed", Anchor: "month"},
	}
	e.quota("q", windows...)
	e.campaign("spring", 1, "q")
	before := await(t, s, changed, "the campaign", func(s *delivery.Snapshot) bool {
		return s.Campaign("spring") != nil && len(s.Campaign("spring").Quotas) == 1
	})
	e.cover("q", "eventual", "bytes", 25)
	after := await(t, s, changed, "a quarter of the bytes", func(s *delivery.Snapshot) bool { return s.Quotas["q"].Exempt == 75 })
	q := after.Campaign("spring").Quotas[0]
	if q.Mode != "eventual" || q.Unit != "bytes" || !slices.Equal(q.Windows, windows) || q.Revision <= before.Quotas["q"].Revision {
		t.Errorf("%+v", q)
	}
	if invalid := after.Campaign("spring").Invalid; invalid != "" {
		t.Errorf("held: %s", invalid)
	}
}

func deletedCampaignIsOut(t *testing.T, s source, e editor) {
	changed := s.Subscribe()
	e.campaign("stays", 1)
	e.campaign("goes", 1)
	before := await(t, s, changed, "both", func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 2 })
	e.remove("goes")
	after := await(t, s, changed, "one", func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 1 })
	if after.Campaign("goes") != nil || after.Campaign("stays") == nil || after.Revision <= before.Revision {
		t.Errorf("after the deletion: %+v, revision %d after %d", after.Campaigns, after.Revision, before.Revision)
	}
	e.campaign("goes", 9)
	again := await(t, s, changed, "it is back", func(s *delivery.Snapshot) bool { return s.Campaign("goes") != nil })
	if again.Campaign("goes").Revision <= before.Campaign("goes").Revision {
		t.Error("a campaign that was created again has no higher revision")
	}
}

func positionsAreKept(t *testing.T, s source, _ editor) {
	ctx := t.Context()
	equal(t, "saved positions", len(try(s.LoadPositions(ctx, "pacer"))(t)), 0)
	save := func(group string, positions ...delivery.Position) {
		t.Helper()
		must(t, s.SavePositions(ctx, group, positions))
	}
	save("pacer")
	first, second := delivery.NewTopicID([16]byte{1}), delivery.NewTopicID([16]byte{2})
	save("pacer", delivery.Position{Topic: "b", Partition: 1, Committed: 7, Metadata: "m", TopicID: first},
		delivery.Position{Topic: "B", Partition: 2, Committed: 8},
		delivery.Position{Topic: "b", Partition: 0, Committed: 1},
		delivery.Position{Topic: "b", Partition: 0, Committed: 2})
	// A topic made anew goes back.
	save("pacer", delivery.Position{Topic: "b", Partition: 1, Committed: 5, Metadata: "n", TopicID: second})
	save("other", delivery.Position{Topic: "b", Committed: 99})
	equal(t, "positions", try(s.LoadPositions(ctx, "pacer"))(t), []delivery.Position{
		{Topic: "B", Partition: 2, Committed: 8}, {Topic: "b", Partition: 0, Committed: 2},
		{Topic: "b", Partition: 1, Committed: 5, Metadata: "n", TopicID: second},
	})
	many := make([]delivery.Position, 2*positionBatch+1)
	for i := range many {
		many[i] = delivery.Position{Topic: "many", Partition: i, Committed: int64(i)}
	}
	save("many", many...)
	equal(t, "many positions", try(s.LoadPositions(ctx, "many"))(t), many)
}

func signalsCoalesce(t *testing.T, s source, e editor) {
	lazy, busy := s.Subscribe(), s.Subscribe()
	if cap(lazy) != 1 {
		t.Errorf("capacity %d", cap(lazy))
	}
	for i := range int64(10) {
		e.campaign(fmt.Sprintf("c%d", i), i)
	}
	await(t, s, busy, "ten campaigns", func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 10 })
	equal(t, "signals to a reader that slept", len(lazy), 1)
}

type memoryEditor struct{ m *Memory }

func (e memoryEditor) campaign(id string, rate int64, quotas ...string) {
	e.m.PutCampaign(delivery.Campaign{ID: id, Rate: delivery.PerSecond(rate)}, quotas...)
}
func (e memoryEditor) rate(id string, rate int64)               { e.m.SetRate(id, delivery.PerSecond(rate)) }
func (e memoryEditor) status(id string, status delivery.Status) { e.m.SetStatus(id, status) }

func (e memoryEditor) remove(campaign string) {
	e.m.change(func(s *state, revision int64) {
		s.removeCampaign(campaign)
		s.removed = revision
	})
}
func (e memoryEditor) quota(id string, windows ...delivery.Window) {
	e.m.PutQuota(delivery.Quota{ID: id, Windows: windows})
}

func (e memoryEditor) cover(quota, mode, unit string, rollout int64) {
	q := *e.m.Snapshot().Quotas[quota]
	q.Mode, q.Unit, q.Exempt = mode, unit, 100-rollout
	e.m.PutQuota(q)
}

type sqlEditor struct {
	t    *testing.T
	conn *pgx.Conn
}

func (e *sqlEditor) campaign(id string, rate int64, quotas ...string) {
	run(e.t, e.conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ($1, $2)`, id, rate)
	for _, quota := range quotas {
		run(e.t, e.conn, `INSERT INTO pacer.campaign_quotas VALUES ($1, $2)`, id, quota)
	}
}

func (e *sqlEditor) rate(id string, rate int64) {
	run(e.t, e.conn, `UPDATE pacer.campaigns SET send_rate = $2 WHERE id = $1`, id, rate)
}

func (e *sqlEditor) status(id string, status delivery.Status) {
	run(e.t, e.conn, `UPDATE pacer.campaigns SET status = $2 WHERE id = $1`, id, status)
}

func (e *sqlEditor) endpoint(row delivery.Destination) {
	headers := map[string]string{}
	for _, h := range row.Headers {
		headers[h.Name] = h.Value
	}
	run(e.t, e.conn, `INSERT INTO pacer.destinations (id, sink, url, headers, secrets, max_in_flight, disabled_at, disabled_reason, failing_since)
VALUES ($1, $2, $3, $4, coalesce($5::text[], '{}'), $6, $7, $8, $9) ON CONFLICT (id) DO UPDATE SET
sink = excluded.sink, url = excluded.url, headers = excluded.headers, secrets = excluded.secrets, max_in_flight = excluded.max_in_flight,
disabled_at = excluded.disabled_at, disabled_reason = excluded.disabled_reason, failing_since = excluded.failing_since`,
		row.ID, nullable(row.Sink), row.URL, headers, row.Secrets, row.MaxInFlight, nullable(row.DisabledAt.Time()), nullable(row.DisabledReason),
		nullable(row.FailingSince.Time()))
}

func (e *sqlEditor) remove(campaign string) {
	run(e.t, e.conn, `DELETE FROM pacer.campaigns WHERE id = $1`, campaign)
}

func (e *sqlEditor) quota(id string, windows ...delivery.Window) {
	run(e.t, e.conn, `BEGIN`) // in between the quota would have no windows, and bind no campaign
	defer run(e.t, e.conn, `COMMIT`)
	run(e.t, e.conn, `INSERT INTO pacer.quotas (id) VALUES ($1) ON CONFLICT DO NOTHING`, id)
	run(e.t, e.conn, `DELETE FROM pacer.quota_windows WHERE quota_id = $1`, id)
	for _, w := range windows {
		run(e.t, e.conn, `INSERT INTO pacer.quota_windows (quota_id, span, max_units, algorithm, anchor)
VALUES ($1, $2, $3, coalesce($4, 'sliding'), $5)`, id, w.Span, w.Limit, nullable(w.Algorithm), w.Anchor)
	}
}

func (e *sqlEditor) cover(quota, mode, unit string, rollout int64) {
	run(e.t, e.conn, `UPDATE pacer.quotas SET mode = $2, unit = $3, rollout = $4 WHERE id = $1`, quota, mode, unit, rollout)
}
