package keyed

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// receiver is a sink that notes when which key was sent.
type receiver struct {
	mu     sync.Mutex
	at     map[string][]time.Time
	answer func(*delivery.Job) delivery.Result
}

func (*receiver) Resolve(string) (string, bool) { return "sink", true }
func (*receiver) Capacity(string) (int, bool)   { return 256, true }

func (r *receiver) Deliver(_ context.Context, _ string, j *delivery.Job) delivery.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := j.KeyAt("sink", "to")
	r.at[key] = append(r.at[key], time.Now())
	if r.answer != nil {
		return r.answer(j)
	}
	return delivery.Result{Class: delivery.Delivered}
}

func (r *receiver) count(key string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.at[key])
}

// rig is a Checker that runs on a Redis of its own, with one quota.
type rig struct {
	*Checker
	*receiver
	t      testing.TB
	redis  redis.UniversalClient
	server *testservices.Redis
	quota  *delivery.Quota
	epoch  atomic.Int64 // that daemons expect of the store's data; 0: any, negative: not known
	Desk
}

func newRig(t testing.TB, q delivery.Quota, more ...*delivery.Quota) *rig {
	t.Helper()
	server := testservices.FreshRedis(t)
	set, err := shards.Connect(shards.Options{Addrs: []string{server.Addr}, Mode: shards.ModeSingle})
	must(t, err)
	r, stop := rigOn(t, set, q, more)
	r.server = server
	t.Cleanup(stop)
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rigOn is a rig on shards, until it is stopped.
func rigOn(t testing.TB, set *shards.Set, q delivery.Quota, more []*delivery.Quota) (r *rig, stop func()) {
	q.ID, q.Per = "cap", "to"
	r = &rig{t: t, receiver: &receiver{at: map[string][]time.Time{}}, redis: set.Master(0), quota: &q, Desk: Desk{set, "pacer."}}
	campaign := &delivery.Campaign{ID: "c", Status: delivery.StatusActive, Rate: delivery.PerSecond(1000), Keyed: append([]*delivery.Quota{&q}, more...)}
	snapshot := &delivery.Snapshot{Campaigns: map[string]*delivery.Campaign{"c": campaign}}
	r.Checker = New(Options{
		Sinks: r.receiver, Shards: set, KeyPrefix: "pacer.", Snapshot: func() *delivery.Snapshot { return snapshot },
		Epoch:  func(int) (int64, bool) { e := r.epoch.Load(); return e, e >= 0 },
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	return r, func() { cancel(); running.Wait(); _ = set.Close() }
}

func job(key string) *delivery.Job {
	return &delivery.Job{ID: key, Campaign: "c", Weight: 1, Meta: delivery.Meta{Headers: []delivery.Header{{Key: delivery.HeaderKey + "to", Value: []byte(key)}}},
		History: delivery.History{FirstRead: time.Now()}}
}

func (r *rig) askFor(j *delivery.Job) delivery.KeyAsk {
	return delivery.KeyAsk{Job: j, Campaign: r.options.Snapshot().Campaign("c"), Sink: "sink"}
}

// asked asks the keys of a job.
func (r *rig) asked(j *delivery.Job) delivery.KeyAnswer {
	answer := make(chan delivery.KeyAnswer, 1)
	r.Checker.Count(r.askFor(j), func(a delivery.KeyAnswer) { answer <- a })
	return <-answer
}

// send sends a job as a pacer does. It is withheld if its keys do not allow it; Detail is the quota then that caps it.
func (r *rig) send(j *delivery.Job) delivery.Result {
	a := r.asked(j)
	if a.SendBy == 0 {
		j.Turned = j.Turned || a.Reason == delivery.ReasonKey
		return delivery.Result{Class: delivery.Withheld, RetryAfter: a.Wait, Reason: a.Reason, Detail: a.Capped}
	}
	return r.Checker.Deliver(context.Background(), "sink", j)
}

// sendSoon sends a job again while Redis answers too late for it.
func (r *rig) sendSoon(j *delivery.Job) (res delivery.Result) {
	for range 100 {
		if res = r.send(j); res.Class != delivery.Withheld || res.RetryAfter > 0 {
			break
		}
	}
	return res
}

// reserve asks for turns as a pacer does.
func (r *rig) reserve(jobs ...*delivery.Job) {
	var asks []delivery.KeyAsk
	for _, j := range jobs {
		j.Turned = true
		asks = append(asks, r.askFor(j))
	}
	now := time.Now()
	var answered sync.WaitGroup
	answered.Add(len(asks))
	r.Checker.Reserve(asks, func(a delivery.KeyAsk, told delivery.KeyAnswer, _ func()) {
		if told != (delivery.KeyAnswer{}) {
			a.Job.Due, a.Job.Capped = now.Add(told.Wait), told.Capped != ""
		}
		answered.Done()
	})
	answered.Wait()
}

func window(limit int64, span time.Duration) delivery.Window {
	return delivery.Window{Limit: limit, Span: span, Algorithm: delivery.AlgorithmSliding}
}

func unlimited(q delivery.Quota) delivery.Quota {
	q.MaxWait = -1
	return q
}

// TestNoKeyIsSentMoreThanItsWindowsAllow: many goroutines send jobs of few keys at once, in windows of instants and in those of counters.
func TestNoKeyIsSentMoreThanItsWindowsAllow(t *testing.T) {
	testservices.RealTime(t)
	t.Parallel()
	for _, windows := range [][]delivery.Window{{window(1, 200*time.Millisecond)}, {window(3, 500*time.Millisecond), window(5, 2*time.Second)}, {window(40, time.Second)}} {
		r := newRig(t, unlimited(delivery.Quota{Windows: windows}))
		until := time.Now().Add(3 * time.Second)
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for time.Now().Before(until) {
					j := job(fmt.Sprint(i % 3))
					j.Turned = true
					if res := r.send(j); res.Class == delivery.Withheld {
						time.Sleep(min(res.RetryAfter, 10*time.Millisecond))
					}
				}
			})
		}
		all.Wait()
		for key, at := range r.at {
			for _, w := range windows {
				for i := int(w.Limit); i < len(at); i++ {
					if gap := at[i].Sub(at[i-int(w.Limit)]); gap < w.Span {
						t.Fatalf("%v: %d jobs of key %s within %s", w, w.Limit+1, key, gap)
					}
				}
			}
			tightest := slices.MinFunc(windows, func(a, b delivery.Window) int {
				return int(3*int64(time.Second)/int64(a.Span)*a.Limit - 3*int64(time.Second)/int64(b.Span)*b.Limit)
			})
			if least := int(3 * time.Second / (tightest.Span + 2*delivery.KeyMargin(tightest.Span) + tightest.Span/32) * time.Duration(tightest.Limit)); len(at) < least {
				t.Errorf("%v: key %s was sent %d jobs, not %d", windows, key, len(at), least)
			}
		}
	}
}

// TestTurns: a thousand jobs of one key have a thousand turns, at most an hour ahead, and those of another key need none. What has its turn is
// sent when it comes, before what is new.
func TestTurns(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(2, 10*time.Second)}}))
	jobs := []*delivery.Job{job("other")}
	for range 1000 {
		jobs = append(jobs, job("busy"))
	}
	r.reserve(jobs...)
	if j := jobs[0]; !j.Due.IsZero() {
		t.Errorf("the other key: %+v", j.Timing)
	}
	var turns []time.Duration
	for _, j := range jobs[1:] {
		if !j.Due.IsZero() {
			turns = append(turns, time.Until(j.Due))
		}
	}
	if len(turns) != 998 {
		t.Fatalf("%d jobs wait", len(turns))
	}
	hour := 0
	for i, at := range turns {
		switch {
		case at > time.Hour-time.Second:
			hour++
		case i > 0 && at-turns[i-1] < 4900*time.Millisecond: // a turn counts from when its batch was sent
			t.Fatalf("turns %s and %s", turns[i-1], at)
		}
	}
	if hour < 200 {
		t.Errorf("%d look again in an hour", hour)
	}
	for i, want := range []delivery.ResultClass{delivery.Delivered, delivery.Delivered, delivery.Withheld} {
		j := job("busy")
		j.Turned = true
		if res := r.sendSoon(j); res.Class != want || want == delivery.Withheld && res.RetryAfter < 9*time.Second {
			t.Errorf("%d: %+v", i, res)
		}
	}
	if fresh := r.sendSoon(job("other")); fresh.Class != delivery.Delivered {
		t.Errorf("another key: %+v", fresh)
	}
}

// TestCaps: a job that may not wait is capped, and says for how long; deliveries that fail are given back.
func TestCaps(t *testing.T) {
	t.Parallel()
	r := newRig(t, delivery.Quota{Windows: []delivery.Window{window(3, 24*time.Hour)}, KeyRules: delivery.KeyRules{Deliveries: true}})
	r.answer = func(*delivery.Job) delivery.Result { return delivery.Result{Class: delivery.Temporary} }
	for range 5 {
		if res := r.sendSoon(job("a")); res.Class != delivery.Temporary {
			t.Fatalf("%+v", res)
		}
	}
	r.answer = nil
	r.eventually("all were given back", func() bool { s, err := r.Show(context.Background(), r.quota, "a"); return err == nil && s.Used[0] == 0 })
	for i := range 5 {
		j := job("a")
		if res := r.sendSoon(j); (res.Class == delivery.Delivered) != (i < 3) || i >= 3 && (res.Detail != "cap" || res.RetryAfter < 23*time.Hour) {
			t.Fatalf("%d: %+v", i, res)
		}
	}
	read := job("a")
	if r.reserve(read); !read.Capped {
		t.Error("its turn was not capped")
	}
	if ttl := r.redis.PTTL(context.Background(), idOf("cap", "a").hash("pacer.", 0)).Val(); ttl < 23*time.Hour || ttl > 26*time.Hour {
		t.Errorf("the key lives for %s", ttl)
	}
}

// TestAHashLivesAsLongAsItsFields, whichever of them was written last.
func TestAHashLivesAsLongAsItsFields(t *testing.T) {
	t.Parallel()
	r := newRig(t, delivery.Quota{})
	for field, windows := range []string{"1,1000,0,0,", "1,3600000,0,0,", "1,1000,0,0,"} {
		ask := shards.Run{Keys: []string{"h", "clock", "answers"}, Args: []any{field, asked(take, 1, true, windows), forever, 0, 0, 0}}
		must(t, script.Run(t.Context(), r.redis, ask).Err())
	}
	if ttl := r.redis.PTTL(t.Context(), "h").Val(); ttl < 59*time.Minute || ttl > 65*time.Minute {
		t.Errorf("it lives for %s", ttl)
	}
}

func (r *rig) eventually(what string, is func() bool) {
	r.t.Helper()
	for until := time.Now().Add(10 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			r.t.Fatal("never: " + what)
		}
	}
}

// TestAllQuotasOrNone: a job that one quota refuses uses nothing of another.
func TestAllQuotasOrNone(t *testing.T) {
	t.Parallel()
	tenants := unlimited(delivery.Quota{ID: "tenants", Per: "tenant", Windows: []delivery.Window{window(1, time.Hour)}})
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Hour)}}), &tenants)
	of := func(to, tenant string) *delivery.Job {
		j := job(to)
		j.Headers = append(j.Headers, delivery.Header{Key: delivery.HeaderKey + "tenant", Value: []byte(tenant)})
		return j
	}
	for i, c := range []struct {
		to, tenant string
		want       delivery.ResultClass
	}{{"a", "t", delivery.Delivered}, {"b", "t", delivery.Withheld}, {"b", "u", delivery.Delivered}, {"b", "v", delivery.Withheld}, {"c", "v", delivery.Delivered}} {
		if res := r.sendSoon(of(c.to, c.tenant)); res.Class != c.want {
			t.Errorf("%d: %+v", i, res)
		}
		r.eventually("what was taken is given back", func() bool {
			b, err := r.Show(context.Background(), r.quota, "b")
			v, err2 := r.Show(context.Background(), &tenants, "v")
			return err == nil && err2 == nil && b.Used[0] == min(1, int64(i/2)) && v.Used[0] == int64(i/4)
		})
	}
}

// TestAThrottledKeyIsHeld for as long as the answer says, from the answer on, by any daemon, until it is released.
func TestAThrottledKeyIsHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(100, time.Second)}}))
	answered := time.Time{}
	r.answer = func(*delivery.Job) delivery.Result {
		time.Sleep(300 * time.Millisecond) // the call
		answered = time.Now()
		return delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: 30 * time.Second}
	}
	r.sendSoon(job("slow"))
	r.answer = nil
	r.eventually("it is held", func() bool {
		s, err := r.Show(context.Background(), r.quota, "slow")
		until := time.Since(answered) + s.Held
		if err == nil && s.Held > 0 && until < 29_970*time.Millisecond {
			t.Errorf("it is held until %s after the answer", until)
		}
		return err == nil && s.Held > 0
	})
	if res := r.sendSoon(job("slow")); res.Class != delivery.Withheld || res.RetryAfter < 25*time.Second || res.Reason != delivery.ReasonKey {
		t.Errorf("%+v", res)
	}
	if res := r.sendSoon(job("fast")); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
	must(t, r.Desk.Release(context.Background(), r.quota, "slow"))
	j := job("slow")
	j.Turned = true
	if res := r.sendSoon(j); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

// TestJobsThatNoKeyAllows: one without the key, and one that is heavier than the window.
func TestJobsThatNoKeyAllows(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(2, time.Second)}}))
	without, heavy := job("x"), job("x")
	without.Headers, heavy.Weight = nil, 3
	r.Refuse([]*delivery.Job{without, heavy})
	if without.Defect() != delivery.ReasonMissingKey || heavy.Defect() != delivery.ReasonOverweight {
		t.Errorf("%s, %s", without.Defect(), heavy.Defect())
	}
	r.quota.Pass = true
	if without.Flaw = nil; r.sendSoon(without).Class != delivery.Delivered || r.count("") != 1 {
		t.Error("it does not pass without the key")
	}
}

// TestOverridesAndHolds: the windows of a single value, and one that is held in the catalog.
func TestOverridesAndHolds(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Hour)}, KeyRules: delivery.KeyRules{Keys: map[string]delivery.KeyRow{
		"big": {Windows: []delivery.Window{window(5, time.Hour)}}, "held": {HeldUntil: time.Now().Add(time.Minute)},
	}}}))
	for i := range 6 {
		if res := r.sendSoon(job("big")); (res.Class == delivery.Delivered) != (i < 5) {
			t.Errorf("%d: %+v", i, res)
		}
	}
	if res := r.sendSoon(job("held")); res.Class != delivery.Withheld || res.RetryAfter < 50*time.Second || res.Reason != delivery.ReasonKeyLine {
		t.Errorf("%+v", res)
	}
	r.reserve(job("held"))
	r.quota.Keys = nil // which a daemon may learn later than who has changed it
	if res := r.sendSoon(job("held")); res.Class != delivery.Delivered {
		t.Errorf("a job after the hold waits: %+v", res)
	}
}

// TestLimitsThatAreLowered: what was counted under a high limit is kept under a low one, and a job that weighs more than the limit by now is not
// sent.
func TestLimitsThatAreLowered(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1000, time.Hour)}}))
	heavy := job("a")
	heavy.Weight = 400
	for range 2 {
		if res := r.sendSoon(heavy); res.Class != delivery.Delivered {
			t.Fatalf("%+v", res)
		}
	}
	r.quota.Windows = []delivery.Window{window(10, time.Hour)}
	if res := r.sendSoon(job("a")); res.Class != delivery.Withheld || res.RetryAfter < 59*time.Minute {
		t.Errorf("%+v", res)
	}
	if s, err := r.Show(context.Background(), r.quota, "a"); err != nil || s.Used[0] != 800 {
		t.Errorf("%+v, %v", s, err)
	}
	other := job("b")
	other.Weight = 400
	if res := r.send(other); res.Class != delivery.Withheld || r.count("b") != 0 {
		t.Errorf("%+v", res)
	}
}

// TestAStoreThatHangs: with policy open jobs are sent without it but for those of values that are held, otherwise they wait, and neither holds up those
// who read jobs.
func TestAStoreThatHangs(t *testing.T) {
	testservices.RealTime(t)
	t.Parallel()
	for policy, want := range map[string]delivery.ResultClass{delivery.PolicyOpen: delivery.Delivered, delivery.PolicyClosed: delivery.Withheld} {
		r := newRig(t, unlimited(delivery.Quota{OnStoreFailure: policy, Windows: []delivery.Window{window(1, time.Hour)}}))
		r.server.Freeze()
		r.eventually("the outage is noticed", func() bool { r.send(job("a")); return r.shards[0].Failing() })
		for range 3 {
			r.Count(r.askFor(job("a")), func(delivery.KeyAnswer) {}) // the last of them are too late when the round trip of the first has failed
		}
		time.Sleep(2 * batchTimeout)
		if !r.shards[0].Failing() {
			t.Errorf("%s: the outage is over, since nobody waits any more", policy)
		}
		if res := r.send(job("a")); res.Class != want || want == delivery.Withheld && res.RetryAfter != failPause {
			t.Errorf("%s: %+v", policy, res)
		}
		r.quota.Keys = map[string]delivery.KeyRow{"held": {HeldUntil: time.Now().Add(time.Hour)}}
		if res := r.send(job("held")); res.Class != delivery.Withheld {
			t.Errorf("%s: a value that is held: %+v", policy, res)
		}
		begun := time.Now()
		r.reserve(job("a"))
		if took := time.Since(begun); took > turnTimeout/2 {
			t.Errorf("%s: reading waited for %s", policy, took)
		}
		r.server.Thaw()
		r.eventually("it answers again", func() bool { r.send(job("a")); return !r.shards[0].Failing() })
		if policy == delivery.PolicyOpen {
			r.eventually("what was sent is counted", func() bool { s, err := r.Show(context.Background(), r.quota, "a"); return err == nil && s.Used[0] > 0 })
		}
	}
}

// TestWindowsOfTheRecipientsDay: a calendar window begins at the midnight of each job's zone.
func TestWindowsOfTheRecipientsDay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 20, 0, 0, 0, time.UTC)
	windows := []delivery.Window{{Limit: 3, Span: 24 * time.Hour, Algorithm: delivery.AlgorithmFixed, Anchor: "day@recipient"}}
	for name, want := range map[string]string{"": "2026-11-20T00:00:00Z", "Europe/Moscow": "2026-11-19T21:00:00Z", "Asia/Yekaterinburg": "2026-11-20T19:00:00Z"} {
		var zone *time.Location
		if name != "" {
			var err error
			if zone, err = time.LoadLocation(name); err != nil {
				t.Fatal(err)
			}
		}
		begin, err := time.Parse(time.RFC3339, want)
		must(t, err)
		if got, _ := spec(windows, now, zone); got != fmt.Sprintf("3,86400250,%d,%d,", begin.UnixMilli()-base, begin.Add(24*time.Hour).UnixMilli()-base) {
			t.Errorf("%s: %s, want a day from %s", name, got, begin)
		}
	}
}
