package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
)

// hostile are ids that may not become anything but text.
var hostile = []string{
	`<script>alert(1)</script>`, `"onmouseover="alert(1)`, `'><img/src=x>`, `=cmd|'/C calc'!A0`, `..`, `a/b?c=d&e=f#g%2F`, strings.Repeat("W", 256),
}

// world is an installation that only the console sees.
type world struct {
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

func (w *world) Campaigns(context.Context) (map[string]view.Record, error) {
	done := time.Now().Add(time.Hour)
	percent := 12.5
	all := map[string]view.Record{}
	if w.snapshot == nil {
		return all, w.fail
	}
	for id := range w.snapshot.Campaigns {
		all[id] = view.Record{Revision: 6, Rate: "99", TimeZone: "UTC", Progress: view.Progress{Delivered: 1234567, Dead: 3, DoneAt: &done, Percent: &percent}}
	}
	return all, w.fail
}

func (w *world) Usage(_ context.Context, quota string, from, to time.Time, step time.Duration) (list []view.Usage, err error) {
	begin := from.Truncate(step)
	for i := range min(int64(to.Sub(from)/step), 10) {
		left := 1000 - i%1000
		one := view.Usage{Start: begin.Add(time.Duration(i) * step), End: begin.Add(time.Duration(i+1) * step), Units: 1}
		for _, window := range w.snapshot.Quotas[quota].Windows {
			one.Remaining = append(one.Remaining, view.Left{Span: notation.FormatSpan(window.Span), Limit: 1000, Units: &left})
		}
		list = append(list, one)
	}
	return list, w.fail
}

func (w *world) Changes(_ context.Context, of view.ChangesOf) (list []view.Change, err error) {
	newest := int64(1000)
	if of.Before > 0 {
		newest = min(newest, of.Before-1)
	}
	for i := range min(of.Limit, 2*len(hostile)) {
		list = append(list, view.Change{
			Number: newest - int64(i), When: time.Now(), Who: "ops", What: "campaigns update", Campaign: hostile[i%len(hostile)],
			Fields: []view.Field{{Name: "send_rate", Old: hostile[0], New: hostile[1]}},
		})
	}
	return list, w.fail
}

func (w *world) letters(_ context.Context, f view.LetterFilter) (view.Letters, error) {
	if f.After == "elsewhere" {
		return view.Letters{}, view.Fault(view.ErrInvalid, "after: this is no place")
	}
	if w.look != nil {
		w.look()
	}
	found := view.Letters{Counts: []view.LetterCount{{Campaign: hostile[0], Reason: "refused", Letters: 1}}, Looked: 1, More: w.more}
	if w.more && f.After == "" {
		found.Next = "AQID"
	}
	for _, id := range hostile {
		found.List = append(found.List, view.Letter{Place: "3/17", At: time.Now(), Campaign: id, JobID: id, Reason: "refused", Detail: id})
	}
	return found, w.fail
}

func (w *world) letter(_ context.Context, at view.LetterPlace) (*view.WholeLetter, error) {
	if at != (view.LetterPlace{Partition: 3, Offset: 17}) {
		return nil, view.Fault(view.ErrNotFound, "There is no such letter")
	}
	text := hostile[0]
	return &view.WholeLetter{
		PayloadShown: "all", Letter: view.Letter{Place: "3/17", At: time.Now(), JobID: text}, Headers: []view.LetterHeader{{Key: text, ValueBase64: []byte{0xff}}}, Payload: &text,
	}, w.fail
}

func (w *world) sources() view.Sources {
	sources := w.without()
	sources.ReadOnly = func(context.Context) (string, error) { return w.readOnly, nil }
	if w.book != nil {
		sources.Replays.Share(w.book)
	}
	return sources
}

// without is what a process knows without others.
func (w *world) without() view.Sources {
	return view.Sources{
		Snapshot: func() *delivery.Snapshot { w.looked.Add(1); return w.snapshot },
		Sink: func(name string) (id, fault string) {
			if name == "" {
				return "receiver", ""
			}
			return "", hold.SinkFault(name)
		},
		Sinks: []view.Sink{{Name: "receiver", Type: "http", MaxInFlight: 256, Default: true}},
		Fleet: func(context.Context) (*view.Fleet, error) {
			sent := time.Now().UnixMilli() / 10
			return &view.Fleet{
				At: time.Now(), LateCapacity: 4, Counter: "leader",
				Daemons: w.daemons(), Sinks: w.sinkFigures(),
				Sent:   func(string) (int64, bool) { return sent, true },
				Denied: func(string, time.Duration) (int64, bool) { return sent / 25, true },
				Of: func(*delivery.Campaign, *delivery.Snapshot) *hold.Board {
					return &hold.Board{Daemons: 2, Waiting: w.waiting.Load(), LanesRead: true}
				},
			}, w.fail
		},
		Senders: func(_ context.Context, c *delivery.Campaign) ([]view.Sender, error) {
			return []view.Sender{{Daemon: "a", Lanes: c.Lanes, InMemory: 3, InFlight: 1}}, w.fail
		},
		Claims: func(context.Context, *delivery.Quota) ([]view.Claim, error) {
			return []view.Claim{{Daemon: hostile[0]}, {Campaign: "spring", Wait: hold.Wait{Asked: time.Now().Add(-time.Second), Again: time.Now().Add(10 * time.Second)}}}, w.fail
		},
		Stores: func() []view.Store {
			return []view.Store{{Name: "Redis", Up: w.fail == nil}, {Name: "Kafka", Up: true}}
		},
		Gates: func(context.Context) ([]delivery.Gate, error) {
			return []delivery.Gate{{Sink: "receiver", Cause: delivery.GateThrottled, Until: time.Now().Add(time.Minute)}}, w.fail
		},
		Closed: w.closed, Open: w.open,
		Windows: func(_ context.Context, quotas []*delivery.Quota) (list []delivery.WindowState, err error) {
			for _, q := range quotas {
				for i := range q.Windows {
					list = append(list, delivery.WindowState{Quota: q.ID, Window: i, Remaining: 40, ResetAt: time.Now().Add(time.Minute).UnixMicro()})
				}
			}
			return list, w.fail
		},
		Records: w, Changer: w, Quotas: w, Adjust: w.adjust, Delete: w.remove, Letters: w.letters, Letter: w.letter, Destinations: w, Endpoints: w, Replays: replay.New(w.replay, w.lease, slog.New(slog.DiscardHandler)), Version: "dev",
		Degraded: func() string {
			if w.fail != nil {
				return "redis has not answered for 9s"
			}
			return ""
		},
	}
}

// daemons are one at work, and one that has sent nothing.
func (w *world) daemons() []view.Daemon {
	half, most := 0.0004, 0.012
	figures := &view.DaemonFigures{
		Ingress: 4, Timers: 8, Stalled: 1, BufferBytes: 100 << 20, BufferMost: 256 << 20, Quantum: 0.025, Forfeited: 0.5, LatenessP50: &half, LatenessP99: &most,
		Sinks: []view.SinkCalls{{Sink: "receiver", InFlight: 12, MaxInFlight: 256}, {Sink: hostile[0], InFlight: 1, MaxInFlight: 5}},
	}
	return []view.Daemon{
		{Name: "a", Host: hostile[0], Version: "dev", Started: time.Now().Add(-time.Hour), Ready: true, Lanes: 32, Figures: figures},
		{Name: "b", Host: "idle", Version: "dev", Started: time.Now().Add(-time.Hour), Ready: true, Lanes: 7, InFlight: 3, Figures: &view.DaemonFigures{Sinks: []view.SinkCalls{}}},
	}
}

func (w *world) sinkFigures() map[string]*view.SinkFigures {
	half, most := 0.0421, 2.5
	return map[string]*view.SinkFigures{
		"receiver": {Daemons: 1, InFlight: 12, MaxInFlight: 256, Answers: map[string]float64{"delivered": 120, "temporary": 0.25}, P50: &half, P99: &most},
		hostile[0]: {Daemons: 2, Answers: map[string]float64{}},
	}
}

func (w *world) closed(context.Context) (map[string][]delivery.DestinationGate, error) {
	var shut []delivery.DestinationGate
	for i := range 25 {
		gate := delivery.Gate{Sink: "receiver", Cause: delivery.GateFailing, Since: time.Now().Add(-time.Hour), Until: time.Now().Add(time.Minute), Probe: true}
		shut = append(shut, delivery.DestinationGate{Gate: gate, Destination: hostile[i%len(hostile)]})
	}
	return map[string][]delivery.DestinationGate{"receiver": shut}, w.fail
}

func (w *world) open(_ context.Context, by view.Actor, sink, destination string) (bool, error) {
	if sink == "nowhere" {
		return false, view.Fault(view.ErrNotFound, "there is no sink %s", sink)
	}
	w.changes = append(w.changes, fmt.Sprintf("sink %s %s open by %s: %s", sink, destination, by.Name, by.Reason))
	return destination != "open", w.fail
}

var errAway = errors.New("connection\nrefused")

func newSite(r prometheus.Registerer, w *world) *Site {
	return newSiteOf(r, w, func(*view.Sources) {})
}

func newSiteOf(r prometheus.Registerer, w *world, differ func(*view.Sources)) *Site {
	sources := w.sources()
	differ(&sources)
	return NewSite(SiteOptions{
		Sources: sources, BasePath: "/some/path", Guard: auth.NewGuard(w.guard), TrustedOrigins: []string{"https://ops.example.com"}, Logger: slog.New(w.log), Registerer: r,
	})
}

// crowd adds so many campaigns.
func (w *world) crowd(n int) {
	for i := range n {
		id := fmt.Sprintf("campaign-%05d", i)
		w.snapshot.Campaigns[id] = campaign(id)
	}
}

func (w *world) Settings(_ context.Context, id string) (*view.Settings, error) {
	if w.snapshot.Campaigns[id] == nil {
		return nil, view.Fault(view.ErrNotFound, "campaign %s does not exist", id)
	}
	return &view.Settings{ID: id, Revision: 7, Status: string(w.snapshot.Campaigns[id].Status), Rate: "100", TimeZone: "UTC", Quotas: []string{}, PriorityWeight: 1}, cmp.Or(w.away, w.fail)
}

func (w *world) Edit(_ context.Context, by view.Actor, id string, e *view.Edit) (*view.Settings, error) {
	if e.AtRevision != nil && *e.AtRevision != 7 {
		return nil, view.Fault(view.ErrStale, "campaign %s was changed meanwhile", id)
	}
	s, err := w.Settings(context.Background(), id)
	switch {
	case e.New && err == nil:
		return nil, view.Fault(view.ErrExists, "campaign %s exists already", id)
	case e.New:
		s, id = view.NewCampaign(), "new "+id
	case err != nil:
		return nil, err
	}
	if e.Status != "" && s.Status == "cancelled" {
		return nil, view.Fault(view.ErrOver, "campaign %s is over", id)
	}
	what, _ := json.Marshal(e)
	until := ""
	if e.Until != "" {
		until = " until " + e.Until
	}
	w.changes = append(w.changes, fmt.Sprintf("%s %s%s%s by %s: %s", id, e.Status, until, what, by.Name, by.Reason))
	s.Revision = 8
	return s, nil
}

func (w *world) QuotaSettings(_ context.Context, id string) (*view.QuotaSettings, error) {
	q := w.snapshot.Quotas[id]
	if q == nil {
		return nil, view.Fault(view.ErrNotFound, "quota %s does not exist", id)
	}
	s := view.NewQuota()
	s.ID, s.Revision, s.Windows, s.Campaigns = id, 7, []string{"1000/1h"}, 1
	return s, w.fail
}

func (w *world) EditQuota(_ context.Context, by view.Actor, id string, e *view.QuotaEdit) (*view.QuotaSettings, error) {
	if e.AtRevision != nil && *e.AtRevision != 7 {
		return nil, view.Fault(view.ErrStale, "quota %s was changed meanwhile", id)
	}
	s, err := w.QuotaSettings(context.Background(), id)
	switch {
	case e.New && err == nil:
		return nil, view.Fault(view.ErrExists, "quota %s exists already", id)
	case e.New:
		s, err = view.NewQuota(), nil
	case err != nil:
		return nil, err
	}
	what, _ := json.Marshal(e)
	w.changes = append(w.changes, fmt.Sprintf("quota %s %s by %s: %s", id, what, by.Name, by.Reason))
	s.Revision = 8
	return s, err
}

func (w *world) DeleteQuota(_ context.Context, by view.Actor, id string, unlink bool, revision *int64) error {
	if revision != nil && *revision != 7 {
		return view.Fault(view.ErrStale, "quota %s was changed meanwhile", id)
	}
	w.changes = append(w.changes, fmt.Sprintf("no quota %s %v by %s: %s", id, unlink, by.Name, by.Reason))
	return nil
}

func (w *world) adjust(_ context.Context, by view.Actor, id string, a view.Adjustment) (view.Adjusted, error) {
	w.changes = append(w.changes, fmt.Sprintf("quota %s %+v by %s: %s", id, a, by.Name, by.Reason))
	return view.Adjusted{Quota: id, Window: a.Span, Limit: 1000, Before: 5, Used: a.Used}, nil
}

func (w *world) remove(_ context.Context, by view.Actor, id string, revision *int64) error {
	if revision != nil && *revision != 7 {
		return view.Fault(view.ErrStale, "campaign %s was changed meanwhile", id)
	}
	if id == "paused" {
		return view.Fault(view.ErrInvalid, "campaign %s is not over", id)
	}
	w.changes = append(w.changes, fmt.Sprintf("no campaign %s by %s: %s", id, by.Name, by.Reason))
	return nil
}

func (w *world) Bulk(_ context.Context, by view.Actor, ids []string, b *view.Bulk) (int, error) {
	what, _ := json.Marshal(b)
	w.changes = append(w.changes, fmt.Sprintf("%d campaigns %s by %s: %s", len(ids), what, by.Name, by.Reason))
	return len(ids), w.fail
}

func (w *world) Destinations(ctx context.Context, of view.DestinationsOf) (list []view.Destination, next string, err error) {
	if of.After == "elsewhere:" {
		return nil, "", view.Fault(view.ErrInvalid, "after: this is no place")
	}
	for _, id := range append([]string{"shop-7"}, hostile...) {
		d, _ := w.Destination(ctx, id)
		list = append(list, *d)
	}
	if w.more && of.After == "" {
		next = "enabled:shop-7"
	}
	return list, next, w.fail
}

func (w *world) Destination(_ context.Context, id string) (*view.Destination, error) {
	if id != "shop-7" && !slices.Contains(hostile, id) {
		return nil, view.Fault(view.ErrNotFound, "There is no destination %s", id)
	}
	since := time.Now().Add(-time.Hour)
	if id == hostile[1] {
		return &view.Destination{ID: id, State: "enabled", URL: "https://10.0.0.1/", Headers: map[string]string{}, Secrets: []string{}, CreatedAt: since, UpdatedAt: since, Fault: "its sink " + hostile[0] + " is not configured", Revision: 7}, w.fail
	}
	return &view.Destination{
		ID: id, State: "disabled", URL: "https://shop-7.example/hook", Query: id == "shop-7", Headers: map[string]string{"x-tenant": id}, Secrets: []string{"file:shop-7"},
		DisabledAt: &since, DisabledReason: hostile[0], Revision: 7, CreatedAt: since, UpdatedAt: since,
	}, w.fail
}

func (w *world) EditDestination(ctx context.Context, by view.Actor, id string, e *view.DestinationEdit) (*view.Destination, error) {
	if e.AtRevision != nil && *e.AtRevision != 7 {
		return nil, view.Fault(view.ErrStale, "destination %s was changed meanwhile", id)
	}
	d, err := w.Destination(ctx, id)
	switch {
	case e.New && err == nil:
		return nil, view.Fault(view.ErrExists, "destination %s exists already", id)
	case e.New:
		d, err = &view.Destination{ID: id, State: "enabled", Headers: map[string]string{}, Secrets: []string{}}, nil
	case err != nil:
		return nil, err
	}
	what, _ := json.Marshal(e)
	w.changes = append(w.changes, fmt.Sprintf("destination %s %s%s by %s: %s", id, e.State, what, by.Name, by.Reason))
	d.Revision = 8
	return d, err
}

func (w *world) DeleteDestination(_ context.Context, by view.Actor, id string, revision *int64) error {
	if revision != nil && *revision != 7 {
		return view.Fault(view.ErrStale, "destination %s was changed meanwhile", id)
	}
	w.changes = append(w.changes, fmt.Sprintf("no destination %s by %s: %s", id, by.Name, by.Reason))
	return nil
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
func counted(_ context.Context, r replay.Request, _ func(int)) (replay.Outcome, error) {
	return replay.Outcome{Matched: 9, Replayed: min(7, r.Limit), Before: 2}, nil
}
