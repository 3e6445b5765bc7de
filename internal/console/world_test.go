package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
)

// hostile are ids that may not become anything but text.
var hostile = []string{
	`<script>alert(1)</script>`, `"onmouseover="alert(1)`, `'><img/src=x>`, `=cmd|'/C calc'!A0`, `..`, `a/b?c=d&e=f#g%2F`, strings.Repeat("W", 256),
}

// world is an installation that only the console sees. Of the catalog it has what the console asks for.
type world struct {
	view.Catalog
	actor     string // of changes
	snapshot  *delivery.Snapshot
	waiting   atomic.Int64 // jobs of each campaign
	fail      error        // of everything but the catalog
	elsewhere bool         // another process replays
	away      error        // of a single campaign in the database
	leases    atomic.Int32
	looked    atomic.Int32
	guard     auth.Options
	changes   []string // what was asked of the Changer
	replay    replay.Run
	log       slog.Handler
	readOnly  string
	book      replay.Book
	more      bool   // dead letters than were looked at
	look      func() // is called when dead letters are looked for
	noLedger  bool
	slow      time.Duration // how long a change of many campaigns takes
	rate      string        // of campaigns in the database; "": 100
	quotas    []string      // likewise
}

func newWorld() *world {
	quota := &delivery.Quota{ID: "provider", Windows: []delivery.Window{{Span: time.Hour, Limit: 1000, Algorithm: delivery.AlgorithmSliding}}}
	w := &world{replay: counted, log: slog.DiscardHandler, guard: auth.Options{Anonymous: auth.Viewer}, snapshot: &delivery.Snapshot{
		Revision: 7, LoadedAt: time.Now(), Campaigns: map[string]*delivery.Campaign{}, Quotas: map[string]*delivery.Quota{"provider": quota},
	}}
	w.waiting.Store(5)
	for _, id := range hostile {
		w.snapshot.Campaigns[id] = campaign(id, quota)
		w.snapshot.Quotas[id] = &delivery.Quota{ID: id, Windows: quota.Windows}
	}
	w.snapshot.Campaigns["spring"] = campaign("spring", quota)
	paused := campaign("paused")
	paused.Status = delivery.StatusPaused
	w.snapshot.Campaigns["paused"] = paused
	return w
}

func campaign(id string, quotas ...*delivery.Quota) *delivery.Campaign {
	return &delivery.Campaign{
		ID: id, Rate: delivery.Rate{N: 100, Per: 1_000_000}, Status: delivery.StatusActive, PriorityWeight: 1, Quotas: quotas,
	}
}

func (w *world) ListCampaigns(context.Context) (list []catalog.CampaignRow, err error) {
	done := time.Now().Add(time.Hour)
	percent := 12.5
	if w.snapshot == nil {
		return nil, w.fail
	}
	for id := range w.snapshot.Campaigns {
		list = append(list, catalog.CampaignRow{ID: id, Revision: 6, Rate: "99", TimeZone: "UTC", Note: "ask Anna", Progress: &catalog.CampaignProgress{Outcomes: catalog.Outcomes{Delivered: 1234567, Dead: 3}, DoneAt: &done, Percent: &percent}})
	}
	return list, w.fail
}

func (w *world) ReadOnly(context.Context) (string, error) { return w.readOnly, nil }

func (w *world) UsageHistory(_ context.Context, quota string, from, to time.Time, step time.Duration) (list []catalog.Usage, err error) {
	known := w.snapshot.Quotas[quota]
	switch {
	case known == nil:
		return nil, catalog.Fault(catalog.ErrNotFound, "quota %s does not exist", quota)
	case step < time.Minute || to.Sub(from)/step >= 10_000:
		return nil, catalog.Fault(catalog.ErrInvalid, "step is too short")
	}
	begin := from.Truncate(step)
	for i := range min(int64(to.Sub(from)/step), 10) {
		left := 1000 - i%1000
		one := catalog.Usage{Start: begin.Add(time.Duration(i) * step), End: begin.Add(time.Duration(i+1) * step), Units: 1}
		for _, window := range known.Windows {
			one.Remaining = append(one.Remaining, catalog.Left{Span: notation.FormatSpan(window.Span), Limit: 1000, Units: &left})
		}
		list = append(list, one)
	}
	return list, w.fail
}

func (w *world) Changes(_ context.Context, of catalog.ChangesOf) (list []catalog.Change, err error) {
	newest := int64(1000)
	if of.Before > 0 {
		newest = min(newest, of.Before-1)
	}
	for i := range min(of.Limit, 2*len(hostile)) {
		list = append(list, catalog.Change{
			Number: newest - int64(i), When: time.Now(), Who: "ops", Actor: w.actor, What: "campaigns update", Campaign: hostile[i%len(hostile)],
			Fields: []catalog.Field{{Name: "send_rate", Old: hostile[0], New: hostile[1]}}, OldRate: hostile[0], NewRate: hostile[1],
		})
	}
	return list, w.fail
}

func (w *world) letters(_ context.Context, f view.LetterFilter) (view.Letters, error) {
	if f.After == "elsewhere" {
		return view.Letters{}, catalog.Fault(catalog.ErrInvalid, "after: this is no place")
	}
	if w.look != nil {
		w.look()
	}
	found := view.Letters{Counts: []view.LetterCount{{Campaign: hostile[0], Reason: "refused", Letters: 1, Answers: []view.Answered{{Destination: "shop-7", Answer: "404", Letters: 1}}}}, Looked: 1, More: w.more}
	if w.more && f.After == "" {
		found.Next = "AQID"
	}
	for _, id := range hostile {
		found.List = append(found.List, view.Letter{Place: "3/17", At: time.Now(), Campaign: id, JobID: id, Reason: "refused", Detail: id, Answer: "answer " + id})
	}
	return found, w.fail
}

func (w *world) letter(_ context.Context, at deadletter.Place) (*view.WholeLetter, error) {
	if at != (deadletter.Place{Partition: 3, Offset: 17}) {
		return nil, catalog.Fault(catalog.ErrNotFound, "There is no such letter")
	}
	text := hostile[0]
	return &view.WholeLetter{
		PayloadShown: "all", Letter: view.Letter{Place: "3/17", At: time.Now(), JobID: text}, Headers: []view.LetterHeader{{Key: text, ValueBase64: []byte{0xff}}}, Payload: &text,
	}, w.fail
}

// sources are what a process knows, with what it knows from others.
func (w *world) sources() view.Sources {
	replays := replay.New(w.replay, w.lease, slog.New(slog.DiscardHandler))
	if w.book != nil {
		replays.Share(w.book)
	}
	return view.Sources{
		Snapshot: func() *delivery.Snapshot { return w.snapshot },
		Sink: func(name string) (id, fault string) {
			if name == "" {
				return "receiver", ""
			}
			return "", hold.SinkFault(name)
		},
		Sinks: []view.Sink{{Name: "receiver", Type: "http", MaxInFlight: 256, Default: true}},
		Fleet: func(context.Context) (*view.Fleet, error) {
			w.looked.Add(1)
			sent, failed := time.Now().UnixMilli()/10, time.Now()
			return &view.Fleet{
				Destinations: map[string][]view.DestinationFigures{"shop-7": {{Sink: "receiver", SinkFigures: w.sinkFigures()["receiver"]}}, hostile[1]: {{Sink: "receiver", SinkFigures: &view.SinkFigures{LastFailure: "HTTP 500: upstream exploded", LastFailureAt: &failed}}}},
				At:           time.Now(), LateCapacity: 4, Counter: "leader",
				Daemons: w.daemons(), Sinks: w.sinkFigures(),
				Keys:    []delivery.KeyWaits{{Quota: "chat", Waiting: 234, Busiest: []delivery.KeyJobs{{Key: hostile[0], Jobs: 56}}}},
				Sent:    func(string) (int64, bool) { return sent, true },
				Failure: func(string, string) (none delivery.Failure) { return none },
				Of: func(*delivery.Campaign) *hold.Board {
					return &hold.Board{Daemons: 2, Backlog: delivery.Backlog{Waiting: w.waiting.Load()}, LanesRead: true}
				},
			}, w.fail
		},
		Senders: func(_ context.Context, c *delivery.Campaign) ([]progress.Sender, error) {
			return []progress.Sender{{Daemon: "a", Lanes: []int{17}, InMemory: 3, InFlight: 1}}, w.fail
		},
		Stores: func() []view.Store {
			return []view.Store{{Name: "Redis", Up: w.fail == nil}, {Name: "Kafka", Up: true}}
		},
		Gates: func(context.Context) ([]delivery.Gate, error) {
			return []delivery.Gate{{Sink: "receiver", Cause: delivery.GateThrottled, Until: time.Now().Add(time.Minute)}}, w.fail
		},
		Closed: w.closed, Open: w.open,
		Windows: func(_ context.Context, quotas []*delivery.Quota) (list []delivery.WindowState, err error) {
			if w.fail != nil {
				return nil, w.fail
			}
			for _, q := range quotas {
				for i := range q.Windows {
					list = append(list, delivery.WindowState{Quota: q.ID, Window: i, Remaining: 40, ResetAt: time.Now().Add(time.Minute).UnixMicro()})
				}
			}
			return list, nil
		},
		Catalog: w, Adjust: w.adjust, Key: w.key, SetKey: w.setKey, Fault: w.fault, History: w.history, Test: w.test, Letters: w.letters,
		Letter: w.letter, Job: w.job, CancelJobs: w.cancelJobs, Replays: replays, Version: "dev",
		Degraded: func() string {
			if w.fail != nil {
				return "redis has not answered for 9s"
			}
			return ""
		},
	}
}

// daemons are one at work, and one that has sent nothing.
func (w *world) daemons() []progress.Daemon {
	half, most := 0.0004, 0.012
	figures := &progress.DaemonFigures{
		Ingress: 4, Timers: 8, Stalled: 1, BufferBytes: 100 << 20, BufferMost: 256 << 20, Quantum: 0.025, Forfeited: 0.5, LatenessP50: &half, LatenessP99: &most,
		Sinks: []progress.SinkCalls{{Sink: "receiver", InFlight: 12, Most: 256}, {Sink: hostile[0], InFlight: 1, Most: 5}},
	}
	return []progress.Daemon{
		{Name: "a", Host: hostile[0], Version: "dev", Started: time.Now().Add(-time.Hour), Ready: true, Lanes: 32, Figures: figures},
		{Name: "b", Host: "idle", Version: "dev", Started: time.Now().Add(-time.Hour), Ready: true, Lanes: 7, InFlight: 3, Figures: &progress.DaemonFigures{Sinks: []progress.SinkCalls{}}},
	}
}

func (w *world) sinkFigures() map[string]*view.SinkFigures {
	half, most := 0.0421, 2.5
	return map[string]*view.SinkFigures{
		"receiver": {Daemons: 1, InFlight: 12, MaxInFlight: 256, Answers: map[string]float64{"delivered": 120, "temporary": 0.25}, P50: &half, P99: &most},
		hostile[0]: {Daemons: 2, Answers: map[string]float64{}},
	}
}

func (w *world) closed(context.Context) (map[string][]delivery.Gate, error) {
	var shut []delivery.Gate
	for i := range 25 {
		shut = append(shut, delivery.Gate{
			Sink: "receiver", Destination: hostile[i%len(hostile)], Cause: delivery.GateFailing, Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Minute),
		})
	}
	return map[string][]delivery.Gate{"receiver": shut}, w.fail
}

func (w *world) open(ctx context.Context, sink, destination string) (bool, error) {
	if sink == "nowhere" {
		return false, catalog.Fault(catalog.ErrNotFound, "there is no sink %s", sink)
	}
	w.note(ctx, "sink %s %s open", sink, destination)
	return destination != "open", w.fail
}

var errAway = errors.New("connection\nrefused")

// crowd adds that many campaigns.
func (w *world) crowd(n int) {
	for i := range n {
		id := fmt.Sprintf("campaign-%05d", i)
		w.snapshot.Campaigns[id] = campaign(id)
	}
}

// note notes a change, and whose it is.
func (w *world) note(ctx context.Context, format string, args ...any) {
	by := catalog.ActorOf(ctx)
	w.changes = append(w.changes, fmt.Sprintf(format, args...)+fmt.Sprintf(" by %s: %s", by.Name, by.Reason))
}

// did checks what was asked of the catalog since the last check.
func (w *world) did(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(w.changes, want) {
		t.Errorf("asked %q, want %q", w.changes, want)
	}
	w.changes = nil
}

var (
	unspoken = []string{"Status"} // which is told otherwise
)

// said is what a change sets, as the API writes it.
func said(change any) string {
	var list []string
	for field, value := range reflect.ValueOf(change).Fields() {
		if value.IsNil() || slices.Contains(unspoken, field.Name) {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		text, _ := json.Marshal(value.Elem().Interface())
		list = append(list, fmt.Sprintf("%q:%s", name, text))
	}
	return "{" + strings.Join(list, ",") + "}"
}

func stale(what, id string, revision *int64) error {
	if revision != nil && *revision != 7 {
		return catalog.Fault(catalog.ErrStale, "%s %s was changed meanwhile", what, id)
	}
	return nil
}

func (w *world) GetCampaign(_ context.Context, id string) (row catalog.CampaignRow, err error) {
	c := w.snapshot.Campaigns[id]
	if c == nil {
		return row, catalog.Fault(catalog.ErrNotFound, "campaign %s does not exist", id)
	}
	row = catalog.CampaignRow{
		ID: id, Revision: 7, Status: c.Status, Rate: cmp.Or(w.rate, "100"), Progress: &catalog.CampaignProgress{}, TimeZone: "UTC", PriorityWeight: 1, Note: "ask Anna", Quotas: append([]string{}, w.quotas...),
	}
	if at := c.FinishBy; !at.IsZero() {
		row.FinishBy = notation.Instant(&at)
	}
	return row, cmp.Or(w.away, w.fail)
}

func (w *world) WriteCampaign(ctx context.Context, id string, c *catalog.CampaignChange, on catalog.Precondition) (row catalog.CampaignRow, err error) {
	row, err = w.GetCampaign(ctx, id)
	for name, text := range map[string]*string{"starts_at": c.StartsAt, "ends_at": c.EndsAt, "finish_by": c.FinishBy} {
		if text != nil && *text == "soon" {
			return row, catalog.Fault(catalog.ErrInvalid, "%s: soon is no time", name)
		}
	}
	switch {
	case on.New && err == nil:
		return row, catalog.Fault(catalog.ErrExists, "campaign %s exists already", id)
	case on.New:
		return w.changed(ctx, catalog.CampaignRow{Rate: "100", Quotas: []string{}}, nil, "new "+id+" "+said(*c))
	}
	return w.changed(ctx, row, cmp.Or(err, stale("campaign", id, on.At)), id+" "+said(*c))
}

func (w *world) SetStatus(ctx context.Context, id string, status delivery.Status, until string, at *int64) (catalog.CampaignRow, error) {
	row, err := w.GetCampaign(ctx, id)
	if err = cmp.Or(err, stale("campaign", id, at)); err == nil && row.Status == delivery.StatusCancelled {
		err = catalog.Fault(catalog.ErrOver, "campaign %s is over", id)
	}
	what := fmt.Sprintf("%s %s", id, status)
	if _, wrong := notation.ParseUntil(until, time.Now()); until != "" && wrong != nil {
		return row, catalog.Fault(catalog.ErrInvalid, "until: %s", wrong)
	} else if until != "" {
		what += " until " + until
	}
	return w.changed(ctx, row, err, what)
}

// changed notes a change of a campaign, unless there is an error.
func (w *world) changed(ctx context.Context, row catalog.CampaignRow, err error, what string) (catalog.CampaignRow, error) {
	if err == nil {
		w.note(ctx, "%s", what)
		row.Revision = 8
	}
	return row, err
}

func (w *world) PausedFor(context.Context, string) ([]string, error) {
	return []string{"paused"}, w.fail
}

// history is that of a campaign that delivers ten jobs a minute, and of others.
func (w *world) history(_ context.Context, of catalog.HistoryOf) (list []catalog.HistoryStep, err error) {
	for at := of.Since; at.Before(time.Now().Truncate(of.Step)); at = at.Add(of.Step) {
		for i, id := range append([]string{"", "spring"}, hostile...) {
			if of.Campaign == "" || of.Campaign == id {
				list = append(list, catalog.HistoryStep{Campaign: id, Start: at, Delivered: int64(10 * (i + 1)), Failed: int64(i), Allowed: 2})
			}
		}
	}
	return list, w.fail
}

func (w *world) test(ctx context.Context, id, payload string) (*view.Tested, error) {
	w.note(ctx, "test of %s with %s", id, payload)
	return &view.Tested{Sink: "receiver", Class: "refused", Status: 404, Detail: hostile[0], Took: 12, Request: "POST /hook", Answer: hostile[0]}, w.fail
}

func (w *world) ChangeCampaigns(ctx context.Context, ids []string, c catalog.BulkChange) (int, error) {
	select {
	case <-time.After(w.slow):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	w.note(ctx, "%d campaigns %+v", len(ids), c)
	return len(ids), w.fail
}

func (w *world) DeleteCampaign(ctx context.Context, id string, revision *int64) (row catalog.CampaignRow, err error) {
	if err := stale("campaign", id, revision); err != nil {
		return row, err
	}
	if id == "paused" {
		return row, catalog.Fault(catalog.ErrInvalid, "campaign %s is not over", id)
	}
	w.note(ctx, "no campaign %s", id)
	return row, nil
}

func (w *world) GetQuota(_ context.Context, id string) (row catalog.QuotaRow, err error) {
	if w.snapshot.Quotas[id] == nil {
		return row, catalog.Fault(catalog.ErrNotFound, "quota %s does not exist", id)
	}
	return catalog.QuotaRow{
		ID: id, Revision: 7, Windows: []string{"1000/1h"}, Mode: "strict", Spend: "greedy", OnStoreFailure: "closed", Rollout: 100, Unit: "units", Campaigns: 1,
		CampaignIDs: []string{"spring"},
	}, w.fail
}

func (w *world) WriteQuota(ctx context.Context, id string, c *catalog.QuotaChange, on catalog.Precondition) (row catalog.QuotaRow, err error) {
	row, err = w.GetQuota(ctx, id)
	if on.New && err == nil {
		return row, catalog.Fault(catalog.ErrExists, "quota %s exists already", id)
	}
	if err = cmp.Or(err, stale("quota", id, on.At)); err != nil && !on.New {
		return row, err
	}
	w.note(ctx, "quota %s %s", id, said(*c))
	row.Revision, row.Windows, row.CampaignIDs = 8, []string{}, []string{}
	return row, nil
}

func (w *world) job(context.Context, jobs.Question) (jobs.Found, error) {
	past := time.Now().Add(-29 * time.Second)
	return jobs.Found{Waiting: []jobs.Waiting{{Place: "pacer.lanes/17/4", Campaign: "spring", Reason: "destination", Destination: "shop-7", NotBefore: &past}}, Results: []json.RawMessage{}, Unread: []string{}}, nil
}

func (w *world) cancelJobs(ctx context.Context, c jobs.Cancellation) (jobs.Cancelled, error) {
	if w.noLedger {
		return jobs.Cancelled{}, jobs.ErrNoLedger
	}
	w.note(ctx, "jobs %v of %q", c.IDs, c.Campaign)
	return jobs.Cancelled{Jobs: []jobs.CancelledJob{{ID: c.IDs[0], Campaign: "spring", State: "cancelled"}}, Unread: []string{}}, w.fail
}

func (w *world) key(_ context.Context, quota, value string) (*view.Key, error) {
	if w.fail != nil {
		return nil, w.fail
	}
	return &view.Key{Quota: quota, Per: "recipient", Key: value, Windows: []view.KeyWindow{{Window: "3/1d", Used: 1, Limit: 3}}}, nil
}

func (w *world) setKey(ctx context.Context, quota, value string, e view.KeyEdit) (*view.Key, error) {
	w.note(ctx, "key %s of %s, held %v", value, quota, e.HeldUntil != nil)
	return w.key(ctx, quota, value)
}

func (w *world) DeleteQuota(ctx context.Context, id string, unlink bool, revision *int64) (row catalog.QuotaRow, err error) {
	if err = stale("quota", id, revision); err == nil {
		w.note(ctx, "no quota %s %v", id, unlink)
	}
	return row, err
}

func (w *world) adjust(ctx context.Context, id string, a view.Adjustment) (view.Adjusted, error) {
	w.note(ctx, "quota %s %+v", id, a)
	return view.Adjusted{Quota: id, Window: a.Span, Limit: 1000, Before: 5, Used: a.Used}, nil
}

func (w *world) FindDestinations(ctx context.Context, of catalog.DestinationsOf) (list []catalog.DestinationRow, next string, err error) {
	for _, id := range append([]string{"shop-7"}, hostile...) {
		if row, _ := w.GetDestination(ctx, id); of.Sink == "" || of.Sink == row.Sink {
			list = append(list, row)
		}
	}
	if w.more && of.After == "" {
		for len(list) < of.Limit {
			list = append(list, list[0])
		}
		next = "disabled:shop-7"
	}
	return list, next, w.fail
}

func (w *world) GetDestination(_ context.Context, id string) (row catalog.DestinationRow, err error) {
	if id != "shop-7" && !slices.Contains(hostile, id) {
		return row, catalog.Fault(catalog.ErrNotFound, "There is no destination %s", id)
	}
	since := time.Now().Add(-time.Hour)
	row = catalog.DestinationRow{ID: id, State: "enabled", URL: "https://10.0.0.1/", Headers: map[string]string{}, Secrets: []string{}, Revision: 7, Progress: catalog.DestinationProgress{Outcomes: catalog.Outcomes{Delivered: 98765, Dead: 30, Expired: 4, Rejected: 200}, Waiting: 1234}, CreatedAt: since, UpdatedAt: since}
	if id == hostile[1] {
		row.FailingSince = &since
		return row, w.fail
	}
	row.State = "disabled"
	row.URL, row.Headers, row.Secrets, row.DisabledAt, row.DisabledReason = "https://shop-7.example/hook", map[string]string{"x-tenant": id}, []string{"file:shop-7"}, &since, hostile[0]
	if id == "shop-7" {
		row.URL += "?key=hidden"
		row.Query = true
		row.Progress.Answers = []delivery.Answer{{At: since, Job: "u-1", Class: "permanent", Status: 410, Answer: "got echo"}}
	}
	return row, w.fail
}

func (w *world) fault(d *delivery.Destination) string {
	if d.ID == hostile[1] {
		return "its sink " + hostile[0] + " is not configured"
	}
	return ""
}

func (w *world) WriteDestination(ctx context.Context, id string, c *catalog.DestinationChange, on catalog.Precondition) (row catalog.DestinationRow, err error) {
	row, err = w.GetDestination(ctx, id)
	switch {
	case on.New && err == nil:
		return row, catalog.Fault(catalog.ErrExists, "destination %s exists already", id)
	case on.New:
		return w.endpoint(ctx, catalog.DestinationRow{ID: id, State: "enabled", Headers: map[string]string{}, Secrets: []string{}}, nil, said(*c))
	}
	return w.endpoint(ctx, row, cmp.Or(err, stale("destination", id, on.At)), said(*c))
}

func (w *world) DisableDestination(ctx context.Context, id string, disable bool) (catalog.DestinationRow, error) {
	row, err := w.GetDestination(ctx, id)
	return w.endpoint(ctx, row, err, map[bool]string{true: "disabled", false: "enabled"}[disable])
}

// endpoint notes a change of a destination, unless there is an error.
func (w *world) endpoint(ctx context.Context, row catalog.DestinationRow, err error, what string) (catalog.DestinationRow, error) {
	if err == nil {
		w.note(ctx, "destination %s %s", row.ID, what)
		row.Revision = 8
	}
	return row, err
}

func (w *world) DeleteDestination(ctx context.Context, id string, revision *int64) (row catalog.DestinationRow, err error) {
	if err = stale("destination", id, revision); err == nil {
		w.note(ctx, "no destination %s", id)
	}
	return row, err
}

// lease refuses what another process does.
func (w *world) lease(ctx context.Context) (held context.Context, release func(), err error) {
	if w.elsewhere {
		return nil, nil, fmt.Errorf("in another process %w", replay.ErrBusy)
	}
	w.leases.Add(1)
	return ctx, func() { w.leases.Add(-1) }, nil
}

// counted is a replay of seven letters.
func counted(_ context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
	return deadletter.ReplayReport{Matched: 9, Replayed: min(7, o.Limit), Before: 2}, nil
}

// What the database does with the next change.
const (
	commits    = "commits"
	refusesAll = "is away"
	losesAsk   = "loses the commit"
	losesReply = "loses the answer to the commit"
)

// oneRow is a catalog of one campaign, as the database keeps it.
type oneRow struct {
	*world
	row  catalog.CampaignRow
	mode string
}

var errLost = catalog.Fault(catalog.ErrUnreachable, "the database cannot be reached")

func (o *oneRow) GetCampaign(context.Context, string) (row catalog.CampaignRow, err error) {
	if o.mode == refusesAll {
		return row, errLost
	}
	return o.row, nil
}

func (o *oneRow) WriteCampaign(_ context.Context, id string, c *catalog.CampaignChange, on catalog.Precondition) (row catalog.CampaignRow, err error) {
	mode := o.mode
	switch {
	case mode == refusesAll:
		return row, errLost
	case on.At != nil && *on.At != o.row.Revision:
		return row, catalog.Fault(catalog.ErrStale, "campaign %s was changed meanwhile", id)
	}
	if mode != losesAsk {
		o.apply(c)
	}
	if mode != commits {
		return row, catalog.Fault(catalog.ErrInDoubt, "the commit was lost, and it may have been made")
	}
	return o.row, nil
}

// apply makes a change, of whoever.
func (o *oneRow) apply(c *catalog.CampaignChange) {
	if c.Rate != nil {
		micros, per, _ := notation.ParseRate(*c.Rate)
		o.row.Rate = strings.TrimSuffix(notation.FormatMicros(micros)+"/"+notation.FormatSpan(per), "/1s")
	}
	set(&o.row.Burst, c.Burst)
	set(&o.row.PriorityWeight, c.PriorityWeight)
	set(&o.row.Note, c.Note)
	set(&o.row.TimeZone, c.TimeZone)
	setTime(&o.row.StartsAt, c.StartsAt, o.row.TimeZone)
	setTime(&o.row.FinishBy, c.FinishBy, o.row.TimeZone)
	o.row.Revision++
}

func set[T any](column, value *T) {
	if value != nil {
		*column = *value
	}
}

func setTime(column, text *string, zone string) {
	if text == nil {
		return
	}
	*column = ""
	if at, err := notation.ParseTimeIn(*text, notation.ZoneOrUTC(zone), time.Now()); err == nil {
		*column = notation.Instant(&at)
	}
}
