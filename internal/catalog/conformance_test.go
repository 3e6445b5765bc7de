package catalog

import (
	"context"
	"fmt"
	"math/rand/v2"
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
	dsn := migrated(t)
	for name, open := range map[string]func(t *testing.T) (source, editor){
		"memory": func(*testing.T) (source, editor) {
			m := NewMemory()
			return m, memoryEditor{m}
		},
		"postgres": func(t *testing.T) (source, editor) { return emptied(t, dsn) },
	} {
		for what, check := range map[string]func(*testing.T, source, editor){
			"snapshots": snapshotsFollow, "positions": positionsAreKept, "signals": signalsCoalesce,
		} {
			t.Run(name+", "+what, func(t *testing.T) {
				s, e := open(t)
				if !s.Ready() || s.Healthy() != nil {
					t.Fatalf("ready %v, healthy %v", s.Ready(), s.Healthy())
				}
				check(t, s, e)
			})
		}
	}
}

// snapshotsFollow makes changes of all kinds, one after the other. Each reaches the snapshot, at once when it is refreshed, with a higher revision,
// and what it does not concern is the same as before. The snapshot before stays as it was.
func snapshotsFollow(t *testing.T, s source, e editor) {
	changed, seed := s.Subscribe(), rand.Uint64()
	t.Logf("the seed is %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	want := &delivery.Snapshot{Campaigns: map[string]*delivery.Campaign{}, Quotas: map[string]*delivery.Quota{}}
	links := map[string][]string{}
	last, text := s.Snapshot(), ""
	for step := range int64(100) {
		id, quota := fmt.Sprint("c", random.IntN(4)), fmt.Sprint("q", random.IntN(4))
		c, q, kind := want.Campaigns[id], want.Quotas[quota], random.IntN(6)
		windows := [][]delivery.Window{
			{{Span: time.Minute, Limit: step, Algorithm: "sliding"}, {Span: time.Hour, Limit: 575, Algorithm: "log"}},
			{{Span: day, Limit: step, Algorithm: "fixed", Anchor: "day@Europe/Moscow"}, {Span: 31 * day, Limit: 6000, Algorithm: "fixed", Anchor: "month"}},
			{{Span: time.Hour, Limit: step, Algorithm: "fixed"}},
			{},
		}[random.IntN(4)]
		ofQuota := kind < 3
		switch { // each makes the change in what is wanted, and in the catalog
		case kind < 2 && (q == nil || len(q.Windows)+len(windows) > 0):
			if q == nil {
				q = &delivery.Quota{ID: quota, Mode: "strict", Unit: "units", Spend: "greedy", OnStoreFailure: "closed"}
				want.Quotas[quota] = q
			}
			q.Windows = windows
			reversed := slices.Clone(windows)
			slices.Reverse(reversed)
			e.quota(quota, reversed...)
		case kind == 2 && q != nil:
			q.Mode, q.Unit, q.Exempt = "eventual", "bytes", 100-step
			if step%2 == 0 {
				q.Mode, q.Unit = "shadow", "units"
			}
			e.cover(quota, q.Mode, q.Unit, step)
		case kind >= 3 && c == nil:
			want.Campaigns[id] = &delivery.Campaign{ID: id, Rate: delivery.PerSecond(step), Status: "active", PriorityWeight: 1, Overflow: "lane"}
			for of := range want.Quotas {
				links[id] = append(links[id], of)
			}
			e.campaign(id, step, links[id]...)
			slices.Sort(links[id])
		case kind == 3:
			delete(want.Campaigns, id)
			delete(links, id)
			e.remove(id)
		case kind == 4:
			c.Status = map[delivery.Status]delivery.Status{"active": "paused", "paused": "active"}[c.Status]
			e.status(id, c.Status)
		case kind == 5:
			c.Rate = delivery.PerSecond(step)
			e.rate(id, step)
		default: // nothing to change
			continue
		}
		for id, c := range want.Campaigns { // a quota that is rolled out covers a campaign wholly or not at all
			c.Quotas = column(links[id], func(of string) *delivery.Quota {
				own := *want.Quotas[of]
				if own.Exempt = 0; !want.Quotas[of].Covers(id) {
					own.Exempt = 100
				}
				return &own
			})
		}
		wanted := shown(want)
		if step%2 == 0 {
			s.Refresh(t.Context())
			equal(t, "refreshed", shown(s.Snapshot()), wanted)
		}
		next := await(t, s, changed, wanted, func(s *delivery.Snapshot) bool { return shown(s) == wanted })
		equal(t, "the snapshot before", shown(last), text)
		if next.Revision <= last.Revision || next.LoadedAt.Before(last.LoadedAt) || next.Campaign("nobody") != nil {
			t.Errorf("revision %d after %d, loaded at %s after %s", next.Revision, last.Revision, next.LoadedAt, last.LoadedAt)
		}
		for of, c := range next.Campaigns { // those that the change does not concern are shared with the snapshot before
			was, itself := last.Campaign(of), of == id && !ofQuota
			concerned := itself || ofQuota && slices.Contains(links[of], quota)
			if concerned != (c != was) || itself != (was == nil || c.Revision != was.Revision) {
				t.Errorf("campaign %s is concerned: %t; it is %+v, and was %+v", of, concerned, c, was)
			}
			if itself && c.Revision <= last.Revision {
				t.Errorf("campaign %s has revision %d, and %d was seen", of, c.Revision, last.Revision)
			}
			for _, q := range c.Quotas {
				if shared := next.Quotas[q.ID]; shared.Exempt == 0 && shared != q {
					t.Errorf("campaign %s has a quota %s of its own", of, q.ID)
				}
			}
		}
		for of, q := range next.Quotas {
			if itself := of == quota && ofQuota; itself != (q != last.Quotas[of]) || itself && q.Revision <= last.Revision {
				t.Errorf("quota %s is concerned: %t; it is %+v, and was %+v", of, itself, q, last.Quotas[of])
			}
		}
		last, text = next, wanted
	}
	ended, end := context.WithCancel(t.Context())
	end()
	s.Refresh(ended) // which ends with it
}

// shown is what a snapshot says of campaigns and quotas.
func shown(s *delivery.Snapshot) string {
	var lines []string
	for _, c := range s.Campaigns {
		quotas := column(c.Quotas, func(q *delivery.Quota) string { return fmt.Sprint(q.ID, q.Windows, q.Mode, q.Exempt) })
		lines = append(lines, fmt.Sprint("campaign ", c.ID, " ", c.Rate, c.Status, c.PriorityWeight, c.Overflow, c.Invalid, quotas))
	}
	for _, q := range s.Quotas {
		lines = append(lines, fmt.Sprint("quota ", q.ID, q.Windows, q.Mode, q.Unit, q.Spend, q.OnStoreFailure, q.Exempt, q.Shard))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// emptied is a catalog over a database without rows of earlier tests.
func emptied(t *testing.T, dsn string) (*Postgres, *sqlEditor) {
	conn := connected(t, dsn)
	run(t, conn, `TRUNCATE pacer.campaigns, pacer.quotas, pacer.destinations, pacer.positions, pacer.store_incarnations, pacer.store_takers CASCADE`)
	return started(t, Options{DSN: dsn, PollInterval: time.Minute}), &sqlEditor{t: t, conn: conn}
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
	equal(t, "state", got.State(), delivery.DestinationDisabled)
	equal(t, "state of the other", before.Destination("other").State(), delivery.DestinationEnabled)
	equal(t, "one that does not exist", before.Destination("none"), nil)
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
	begun := time.Now().Truncate(time.Millisecond)
	early, late := begun.Add(time.Hour), begun.Add(2*time.Hour) // later than any change of the rows
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
	note(map[string]time.Time{"shop-1": begun.Add(-time.Hour)}) // as a daemon finds that did not hear of the success
	if since := row("shop-1").FailingSince.Time(); since.Before(begun.Add(-time.Minute)) {
		t.Errorf("the second fails since %s, and worked at %s", since, begun)
	}
	note(map[string]time.Time{"shop-1": {}})
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
			s.putEndpoint(&endpointEntry{row: &row})
		}
	})
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / n; each > 1500 || len(m.Snapshot().Destinations) != n {
		t.Errorf("a destination takes %d bytes", each)
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

func (e memoryEditor) rate(id string, rate int64) {
	e.m.ChangeCampaign(id, func(c *delivery.Campaign) { c.Rate = delivery.PerSecond(rate) })
}

func (e memoryEditor) status(id string, status delivery.Status) {
	e.m.ChangeCampaign(id, func(c *delivery.Campaign) { c.Status = status })
}

func (e memoryEditor) remove(campaign string) {
	e.m.change(func(s *state, revision int64) {
		s.removeCampaign(campaign)
		s.removed = revision
	})
}
func (e memoryEditor) quota(id string, windows ...delivery.Window) {
	q := delivery.Quota{ID: id}
	if known := e.m.Snapshot().Quotas[id]; known != nil {
		q = *known
	}
	q.Windows = windows
	e.m.PutQuota(q)
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
