package keyed

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	lua "github.com/yuin/gopher-lua"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// store runs key.lua in this process, by the clock of the test's bubble and an offset.
type store struct {
	mu     sync.Mutex
	off    time.Duration
	values map[string]string
	packed [][]any       // by number
	lasts  time.Duration // a round trip
	lose   int           // how many replies get lost: the script runs, the client times out
	runID  string
	size   int // of the last value that was packed, in numbers
}

func (s *store) DialHook(next redis.DialHook) redis.DialHook { return next }
func (s *store) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error { return fmt.Errorf("unexpected %v", cmd) }
}

// do changes the store between two scripts.
func (s *store) do(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

type refused string

func (e refused) Error() string { return string(e) }
func (refused) RedisError()     {}

func (s *store) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(_ context.Context, cmds []redis.Cmder) error {
		var lasts time.Duration
		s.do(func() { lasts = s.lasts })
		time.Sleep(lasts / 2)
		defer time.Sleep(lasts / 2)
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, cmd := range cmds {
			args := cmd.Args()
			if args[0] == "evalsha" {
				cmd.SetErr(refused("NOSCRIPT"))
				continue
			}
			reply, err := s.run(args[1].(string), args[3:3+args[2].(int)], args[3+args[2].(int):])
			if s.lose > 0 {
				s.lose--
				reply, err = nil, context.DeadlineExceeded
			}
			if cmd.SetErr(err); err == nil {
				cmd.(*redis.Cmd).SetVal(reply)
			}
		}
		return nil
	}
}

func (s *store) run(source string, keys, args []any) (any, error) {
	l := lua.NewState()
	defer l.Close()
	for name, list := range map[string][]any{"KEYS": keys, "ARGV": args} {
		t := l.NewTable()
		for _, v := range list {
			t.Append(lua.LString(fmt.Sprint(v)))
		}
		l.SetGlobal(name, t)
	}
	l.SetGlobal("redis", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"call": func(l *lua.LState) int {
			switch key := l.OptString(2, ""); l.CheckString(1) {
			case "TIME":
				now, t := time.Now().Add(s.off), l.NewTable()
				t.Append(lua.LString(strconv.FormatInt(now.Unix(), 10)))
				t.Append(lua.LString(strconv.Itoa(now.Nanosecond() / 1000)))
				l.Push(t)
			case "GET":
				if s.values == nil {
					l.RaiseError("down")
				}
				if v, ok := s.values[key]; ok {
					l.Push(lua.LString(v))
				} else {
					l.Push(lua.LFalse)
				}
			case "SET":
				s.values[key] = l.CheckString(3)
				l.Push(lua.LTrue)
			case "HGET":
				if s.values == nil {
					l.RaiseError("down")
				}
				if v, ok := s.values[key+" "+l.CheckString(3)]; ok {
					l.Push(lua.LString(v))
				} else {
					l.Push(lua.LFalse)
				}
			case "HGETALL":
				t := l.NewTable()
				for name, v := range s.values {
					if field, ok := strings.CutPrefix(name, key+" "); ok {
						t.Append(lua.LString(field))
						t.Append(lua.LString(v))
					}
				}
				l.Push(t)
			case "HSET":
				s.values[key+" "+l.CheckString(3)] = l.CheckString(4)
				l.Push(lua.LTrue)
			case "HDEL":
				delete(s.values, key+" "+l.CheckString(3))
				l.Push(lua.LTrue)
			case "PTTL":
				l.Push(lua.LNumber(-1))
			case "PEXPIRE":
				l.Push(lua.LTrue)
			case "INFO":
				l.Push(lua.LString("run_id:" + s.runID))
			default:
				l.RaiseError("unexpected command")
			}
			return 1
		},
		"error_reply": func(l *lua.LState) int {
			t := l.NewTable()
			t.RawSetString("err", l.Get(1))
			l.Push(t)
			return 1
		},
	}))
	l.SetGlobal("cmsgpack", l.SetFuncs(l.NewTable(), map[string]lua.LGFunction{
		"pack": func(l *lua.LState) int {
			s.size = 0
			s.packed = append(s.packed, nil)
			for i := range l.GetTop() {
				s.packed[len(s.packed)-1] = append(s.packed[len(s.packed)-1], s.plain(l.Get(1+i)))
			}
			l.Push(lua.LString(strconv.Itoa(len(s.packed) - 1)))
			return 1
		},
		"unpack": func(l *lua.LState) int {
			i, _ := strconv.Atoi(l.CheckString(1))
			for _, v := range s.packed[i] {
				l.Push(table(l, v))
			}
			return len(s.packed[i])
		},
		"unpack_one": func(l *lua.LState) int {
			i, _ := strconv.Atoi(l.CheckString(1))
			l.Push(lua.LNumber(1))
			l.Push(table(l, s.packed[i][0]))
			return 2
		},
	}))
	if err := l.DoString(source); err != nil {
		return nil, refused(err.Error())
	}
	t := l.Get(-1).(*lua.LTable)
	if e := t.RawGetString("err"); e != lua.LNil {
		return nil, refused(e.String())
	}
	return numbers(t), nil
}

func (s *store) plain(v lua.LValue) any {
	t, ok := v.(*lua.LTable)
	if !ok {
		s.size++
		return float64(v.(lua.LNumber))
	}
	m := map[float64]any{}
	t.ForEach(func(k, v lua.LValue) { m[float64(k.(lua.LNumber))] = s.plain(v) })
	return m
}

func table(l *lua.LState, v any) lua.LValue {
	m, ok := v.(map[float64]any)
	if !ok {
		return lua.LNumber(v.(float64))
	}
	t := l.NewTable()
	for i := 1; i <= len(m); i++ { // arrays first, in their order
		if v, ok := m[float64(i)]; ok {
			t.RawSetInt(i, table(l, v))
		}
	}
	for k, v := range m {
		t.RawSet(lua.LNumber(k), table(l, v))
	}
	return t
}

func numbers(t *lua.LTable) []any {
	var list []any
	for i := 1; i <= t.Len(); i++ {
		if inner, ok := t.RawGetInt(i).(*lua.LTable); ok {
			list = append(list, numbers(inner))
			continue
		}
		list = append(list, int64(t.RawGetInt(i).(lua.LNumber)))
	}
	return list
}

// bubble plays with a Checker on a simulated store at noon of 2026-12-01, in virtual time.
func bubble(t *testing.T, q delivery.Quota, play func(t *testing.T, r *rig, s *store)) {
	bubbleOf(t, 1, q, nil, func(t *testing.T, r *rig, stores []*store) { play(t, r, stores[0]) })
}

// bubbleOf is a bubble with a ring of stores, and more quotas of the campaign.
func bubbleOf(t *testing.T, stores int, q delivery.Quota, more []*delivery.Quota, play func(t *testing.T, r *rig, stores []*store)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)))
		var ring []*store
		var clients []redis.UniversalClient
		for i := range stores {
			ring = append(ring, &store{values: map[string]string{}, runID: "aaaa"})
			clients = append(clients, redis.NewUniversalClient(shards.ClientOptions("127.0.0.1:1")))
			clients[i].AddHook(ring[i])
		}
		set := shards.New(clients...)
		q.ID, q.Per = "cap", "to"
		r := &rig{t: t, receiver: &receiver{at: map[string][]time.Time{}}, redis: clients[0], quota: &q, Desk: Desk{set, "pacer."}}
		c := &delivery.Campaign{ID: "c", Status: delivery.StatusActive, Rate: delivery.PerSecond(1000), Keyed: append([]*delivery.Quota{&q}, more...)}
		snapshot := &delivery.Snapshot{Campaigns: map[string]*delivery.Campaign{"c": c}}
		r.Checker = New(Options{
			Sinks: r.receiver, Shards: set, KeyPrefix: "pacer.", Snapshot: func() *delivery.Snapshot { return snapshot },
			Epoch:  func(int) (int64, bool) { return r.epoch.Load(), true },
			Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { _ = r.Run(ctx); close(done) }()
		play(t, r, ring)
		time.Sleep(time.Second)
		cancel()
		<-done
		_ = set.Close()
	})
}

// TestAJobWithKeysInTwoShards, of which one does not answer: if the quota there is open, the job is sent and counted in the other shard.
func TestAJobWithKeysInTwoShards(t *testing.T) {
	tenants := unlimited(delivery.Quota{ID: "tenants", Per: "tenant", Windows: []delivery.Window{window(1, 24*time.Hour)}})
	q := unlimited(delivery.Quota{OnStoreFailure: delivery.PolicyOpen, Windows: []delivery.Window{window(1, time.Second)}})
	bubbleOf(t, 2, q, []*delivery.Quota{&tenants}, func(t *testing.T, r *rig, stores []*store) {
		in := func(shard int, quota, name string) string {
			for i := 0; ; i++ {
				if value := name + strconv.Itoa(i); idOf(quota, value).shard(2) == shard {
					return value
				}
			}
		}
		of := func(tenant string) *delivery.Job {
			j := job(in(0, "cap", "to"))
			j.Headers = append(j.Headers, delivery.Header{Key: delivery.HeaderKey + "tenant", Value: []byte(tenant)})
			return j
		}
		stores[0].do(func() { stores[0].lasts, stores[0].lose = batchTimeout, 1_000_000 })
		tenant := in(1, "tenants", "t")
		for begun := time.Now(); r.send(of(tenant)).Class != delivery.Delivered; time.Sleep(100 * time.Millisecond) {
			if time.Since(begun) > 5*time.Second {
				t.Error("the job is not sent")
				return
			}
		}
		if res := r.send(of(tenant)); res.Class == delivery.Delivered {
			t.Error("a second job of the tenant is sent within its day")
		}
		if res := r.send(of(in(1, "tenants", "u"))); res.Class != delivery.Delivered {
			t.Errorf("a job of another tenant: %+v", res)
		}
	})
}

// TestAReplyIsLost of a take that has counted a job. The job is not sent, and is asked about again.
func TestAReplyIsLost(t *testing.T) {
	for _, most := range []time.Duration{0, -1} {
		q := delivery.Quota{Windows: []delivery.Window{window(1, 24*time.Hour)}}
		q.MaxWait = most
		bubble(t, q, func(t *testing.T, r *rig, s *store) {
			s.do(func() { s.lose = 1 })
			j := job("a")
			first := r.send(j)
			time.Sleep(first.RetryAfter)
			if again := r.send(j); again.Class != delivery.Delivered {
				t.Errorf("max_wait %s: first told %q in %s, then: capped by %q, %q in %s; %d were sent to the key in its day",
					most, first.Reason, first.RetryAfter, again.Detail, again.Reason, again.RetryAfter, r.count("a"))
			}
		})
	}
}

// reserved has these jobs reserve turns, and returns how long each is to wait.
func (r *rig) reserved(jobs ...*delivery.Job) (waits []time.Duration) {
	r.reserve(jobs...)
	for _, j := range jobs {
		wait := time.Duration(0)
		if !j.Due.IsZero() {
			wait = time.Until(j.Due)
		}
		waits = append(waits, wait)
	}
	return waits
}

// TestAJobThatMayNotWait does not, not even for a moment.
func TestAJobThatMayNotWait(t *testing.T) {
	bubble(t, delivery.Quota{Windows: []delivery.Window{window(1, time.Second)}}, func(t *testing.T, r *rig, _ *store) {
		r.send(job("a"))
		time.Sleep(800 * time.Millisecond)
		if res := r.send(job("a")); res.Class == delivery.Delivered || res.Detail != "cap" {
			t.Errorf("%+v", res)
		}
	})
}

// TestADaemonsClockIsAhead of that of Redis: at midnight a key's limit holds for the difference.
func TestADaemonsClockIsAhead(t *testing.T) {
	q := unlimited(delivery.Quota{Windows: []delivery.Window{{Limit: 1, Span: 24 * time.Hour, Algorithm: delivery.AlgorithmFixed, Anchor: "day@UTC"}}})
	bubble(t, q, func(t *testing.T, r *rig, s *store) {
		s.do(func() { s.off = -300 * time.Millisecond }) // Redis is behind
		if r.send(job("a")).Class != delivery.Delivered || r.send(job("a")).Class == delivery.Delivered {
			t.Fatal("at noon")
		}
		time.Sleep(12*time.Hour - time.Until(time.Now())) // midnight by the daemon
		sent := 0
		for range 25 { // in a fourth of a second: Redis still has the day before
			j := job("a")
			if r.send(j).Class == delivery.Delivered {
				sent++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if sent > 1 {
			t.Errorf("%d jobs of one key in a fourth of a second, limit 1 a day", sent)
		}
	})
}

// TestAReleaseForgetsNoDay: whoever releases a key by hand does not know its recipient's zone. Its day, which is that of UTC no more, is counted on.
func TestAReleaseForgetsNoDay(t *testing.T) {
	day := delivery.Window{Limit: 1, Span: 24 * time.Hour, Algorithm: delivery.AlgorithmFixed, Anchor: "day@recipient"}
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{day}}), func(t *testing.T, r *rig, _ *store) {
		zone, err := time.LoadLocation("Asia/Vladivostok") // where it is 22:00
		if err != nil {
			t.Error(err)
		}
		sends := func() bool {
			j := job("a")
			j.Zone = zone
			return r.send(j).Class == delivery.Delivered
		}
		time.Sleep(3 * time.Hour)
		if !sends() || sends() {
			t.Error("the first day")
		}
		time.Sleep(10 * time.Hour) // in which the day of UTC ends
		if err := r.Desk.Release(context.Background(), r.quota, "a"); err != nil || sends() {
			t.Errorf("%v; a second job within the recipient's day", err)
		}
		time.Sleep(14 * time.Hour)
		if !sends() {
			t.Error("the next day")
		}
	})
}

// TestWhatIsCountedBeforeMidnight is sent before midnight.
func TestWhatIsCountedBeforeMidnight(t *testing.T) {
	q := unlimited(delivery.Quota{Windows: []delivery.Window{{Limit: 1, Span: 24 * time.Hour, Algorithm: delivery.AlgorithmFixed, Anchor: "day@UTC"}}})
	bubble(t, q, func(t *testing.T, r *rig, _ *store) {
		midnight := time.Date(2026, 12, 2, 0, 0, 0, 0, time.UTC)
		for _, before := range []time.Duration{time.Second, 10 * time.Millisecond} {
			time.Sleep(time.Until(midnight.Add(-before)))
			j := job(before.String())
			if a := r.asked(j); a.SendBy == 0 || a.SendBy.Time().After(midnight) {
				t.Errorf("what is counted %s before may be sent until %s", before, a.SendBy.Time())
			}
			r.Checker.Release(j)
		}
	})
}

// TestTheStoresClockWasAhead for a moment: what it counted then is of the time at which it is seen.
func TestTheStoresClockWasAhead(t *testing.T) {
	testservices.Simulation(t)
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(20, time.Minute)}}), func(t *testing.T, r *rig, s *store) {
		s.do(func() { s.off = 24 * time.Hour })
		for range 20 {
			r.send(job("a"))
		}
		s.do(func() { s.off = 0 })
		j := job("a")
		wait := r.send(j).RetryAfter
		time.Sleep(wait)
		j.Turned = true
		if res := r.send(j); wait > time.Minute+time.Second || res.Class != delivery.Delivered {
			t.Errorf("after %s, limit 20 a minute: %+v", wait, res)
		}
	})
}

// TestAReplicaTakesOver that has not heard of the last writes: another process, the same epoch.
func TestAReplicaTakesOver(t *testing.T) {
	testservices.Simulation(t)
	q := unlimited(delivery.Quota{OnStoreFailure: delivery.PolicyClosed, Windows: []delivery.Window{window(1, time.Hour)}})
	bubble(t, q, func(t *testing.T, r *rig, s *store) {
		clock := string(append(make([]byte, 14), 7, 0, 0, 0, 0, 0, 0)) + s.runID
		s.do(func() { s.values[shards.Tag("pacer.", 0)+shards.ClockKey] = clock })
		r.epoch.Store(7)
		var replica map[string]string
		s.do(func() { replica = maps.Clone(s.values) })
		if r.send(job("a")).Class != delivery.Delivered {
			t.Fatal("the first")
		}
		s.do(func() { s.values, s.runID = replica, "bbbb" })
		time.Sleep(100 * time.Millisecond)
		if r.send(job("a")).Class == delivery.Delivered {
			t.Errorf("%d jobs in an hour, limit 1, policy closed", r.count("a"))
		}
	})
}

// TestTheStoreIsFar: jobs of long windows are sent all the same. A line says why those of short windows are not, though others are sent meanwhile. One
// pause of the store is no reason for it.
func TestTheStoreIsFar(t *testing.T) {
	testservices.Simulation(t)
	var log strings.Builder
	bubble(t, unlimited(delivery.Quota{}), func(t *testing.T, r *rig, s *store) {
		r.options.Logger = slog.New(slog.NewTextHandler(&log, nil))
		sent := func(span time.Duration, i int) int {
			r.quota.Windows = []delivery.Window{window(1, span)}
			if r.send(job(strconv.Itoa(i))).Class == delivery.Delivered {
				return 1
			}
			return 0
		}
		s.do(func() { s.lasts = 100 * time.Millisecond })
		short, long := 0, 0
		for i := range lateInARow + 10 {
			if i == lateInARow/2 && log.Len() > 0 {
				t.Error("said of one pause:", log.String())
			}
			if short += sent(time.Second, i); i%100 == 0 {
				long += sent(time.Minute, i)
			}
		}
		if said := strings.Count(log.String(), "too late"); short > 0 || long != 11 || said != 1 {
			t.Errorf("%d of short windows and %d of 11 of long ones are sent, %d lines", short, long, said)
		}
		s.do(func() { s.lasts = 0 })
		time.Sleep(time.Second) // what is given back is under way
		if sent(time.Second, -1) != 1 || r.slow.Failures() > 0 {
			t.Error("a store that is near again counts as far")
		}
	})
}

// TestAReturnIsLost: a counted job is not sent, and Redis does not answer just when its unit is handed back.
func TestAReturnIsLost(t *testing.T) {
	bubble(t, delivery.Quota{Windows: []delivery.Window{window(1, 24*time.Hour)}}, func(t *testing.T, r *rig, s *store) {
		j := job("a")
		if r.asked(j).SendBy == 0 {
			t.Fatal("it is not counted")
		}
		var down map[string]string
		s.do(func() { down = s.values })
		s.do(func() { s.values = nil }) // any script fails
		r.Checker.Release(j)
		time.Sleep(time.Second)
		s.do(func() { s.values = down })
		time.Sleep(5 * time.Second)
		for range 3 { // the first ones may show that Redis answers again
			r.send(job("other"))
		}
		if again := r.send(j); again.Class != delivery.Delivered {
			t.Errorf("capped by %q for %s; %d were sent to the key", again.Detail, again.RetryAfter, r.count("a"))
		}
	})
}

// TestABatchIsUnsureForAnHour: after a longer outage nothing is asked for it any more.
func TestABatchIsUnsureForAnHour(t *testing.T) {
	s := &shard{unsure: []*check{{asked: time.Now().Add(-answersKept - time.Minute)}}}
	if back, err := s.settle(); len(back) > 0 || err != nil || s.unsure != nil {
		t.Errorf("%v, %v, and %d checks are unsure", back, err, len(s.unsure))
	}
}

// TestTheStoresClockJumpsAhead for good, by more than the span, and the data has another epoch: a closed quota is to wait for a span.
func TestTheStoresClockJumpsAhead(t *testing.T) {
	testservices.Simulation(t)
	q := unlimited(delivery.Quota{OnStoreFailure: delivery.PolicyClosed, Windows: []delivery.Window{window(1, time.Hour)}})
	bubble(t, q, func(t *testing.T, r *rig, s *store) {
		adopt := func(epoch byte) {
			s.do(func() {
				s.values[shards.Tag("pacer.", 0)+shards.ClockKey] = string(append(make([]byte, 14), epoch, 0, 0, 0, 0, 0, 0)) + s.runID
			})
			r.epoch.Store(int64(epoch))
		}
		adopt(7)
		if r.send(job("a")).Class != delivery.Delivered {
			t.Fatal("the first")
		}
		s.do(func() { s.off = 2 * time.Hour })
		adopt(8) // as package limits does, within a second or two
		if r.send(job("a")).Class == delivery.Delivered {
			t.Errorf("%d jobs at once, limit 1 an hour, policy closed", r.count("a"))
		}
	})
}

// TestWindowsThatWereRemoved leave a key that is in use.
func TestWindowsThatWereRemoved(t *testing.T) {
	testservices.Simulation(t)
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1000, time.Second)}}), func(t *testing.T, r *rig, s *store) {
		for i := range 10 {
			r.quota.Windows = []delivery.Window{window(1000, time.Duration(i+1)*time.Second)}
			for range 10 {
				r.send(job("a"))
				time.Sleep(40 * time.Millisecond)
			}
			time.Sleep(time.Duration(i+1) * time.Second)
		}
		if r.send(job("a")); s.size > 20 {
			t.Errorf("the key holds %d numbers, for one unit in one window", s.size)
		}
	})
}

// TestEmptyFieldsOfAHashAreDropped while others of it are in use, which keep the hash.
func TestEmptyFieldsOfAHashAreDropped(t *testing.T) {
	bubble(t, delivery.Quota{}, func(t *testing.T, r *rig, s *store) {
		for i := range 300 {
			ask := shards.Run{Keys: []string{"h", "clock", "answers"}, Args: []any{fmt.Sprint(i), asked(take, 1, true, "1,1000,0,0,"), forever, 0, 0, 0}}
			if err := script.Run(t.Context(), r.redis, ask).Err(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Millisecond)
		}
		if n := len(s.values); n > 100 { // of two seconds, and those since the last look
			t.Errorf("%d fields are kept", n)
		}
	})
}
