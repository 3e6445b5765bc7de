package keyed

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// TestTurnsKeepAllWindows: the jobs of a key, sent at once or at their turns, exceed none of several windows, so that no turn is in vain.
func TestTurnsKeepAllWindows(t *testing.T) {
	t.Parallel()
	for _, windows := range [][]delivery.Window{
		{window(1, time.Second), window(3, time.Minute)}, {window(1, time.Second), window(20, time.Minute)}, {window(3, time.Minute)},
		{window(2, 10*time.Second), window(5, 30*time.Second), window(50, time.Hour)},
	} {
		for _, sent := range []int{0, 1} {
			r := newRig(t, unlimited(delivery.Quota{Windows: windows}))
			begun, jobs := time.Now(), make([]*delivery.Job, 30)
			for i := range jobs {
				jobs[i] = job("a")
			}
			for _, j := range jobs[:sent] {
				r.send(j)
			}
			r.reserve(jobs[sent:]...)
			at := make([]time.Duration, 0, len(jobs))
			for _, j := range jobs {
				if d := j.Due.Sub(begun); d < time.Hour-time.Second {
					at = append(at, max(0, d))
				}
			}
			slices.Sort(at)
			for _, w := range windows {
				for i := int(w.Limit); i < len(at); i++ {
					if gap := at[i] - at[i-int(w.Limit)]; gap < w.Span {
						t.Fatalf("%v, %d sent: %d turns within %s: %v", windows, sent, w.Limit+1, gap, at)
					}
				}
			}
		}
	}
}

// TestAHoldBeginsWithTheAnswer: the destination may take its time to ask for a wait.
func TestAHoldBeginsWithTheAnswer(t *testing.T) {
	t.Parallel()
	const late, wait = 300 * time.Millisecond, 30 * time.Second
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(100, time.Second)}}))
	answered := time.Time{}
	r.answer = func(*delivery.Job) delivery.Result {
		time.Sleep(late) // the call
		answered = time.Now()
		return delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: wait}
	}
	r.sendSoon(job("slow"))
	r.eventually("it is held", func() bool {
		s, err := r.Show(context.Background(), r.quota, "slow")
		if err != nil || s.Held == 0 {
			return false
		}
		if until := time.Since(answered) + s.Held; until < wait-late/10 {
			t.Errorf("it is held until %s after the answer", until)
		}
		return true
	})
}

// TestAJobThatMayGoHidesNone: another job of its key, read by another daemon before it is sent, waits, so that only one of them uses a slot.
func TestAJobThatMayGoHidesNone(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Second), window(20, time.Minute)}}))
	first, second, third := job("a"), job("a"), job("a")
	for _, j := range []*delivery.Job{first, second, third} {
		r.reserve(j)
	}
	if !first.Due.IsZero() || time.Until(second.Due) < 900*time.Millisecond || third.Due.Sub(second.Due) < time.Second {
		t.Errorf("%s, %s, %s", first.Due, second.Due, third.Due)
	}
	if ttl := r.redis.PTTL(context.Background(), idOf("cap", "a").key("pacer.", 0)).Val(); ttl <= 0 {
		t.Errorf("the key lives for %s", ttl)
	}
}

// TestATurnThatComesALittleEarlyIsNotLost: the job before was sent late. The next one waits for that, and not behind all others.
func TestATurnThatComesALittleEarlyIsNotLost(t *testing.T) {
	t.Parallel()
	const span = 400 * time.Millisecond
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, span)}}))
	jobs := make([]*delivery.Job, 20)
	for i := range jobs {
		jobs[i] = job("a")
	}
	r.reserve(jobs...)
	time.Sleep(50 * time.Millisecond) // it is late
	if res := r.sendSoon(jobs[0]); res.Class != delivery.Delivered {
		t.Fatalf("%+v", res)
	}
	time.Sleep(time.Until(jobs[1].Due) - 10*time.Millisecond)
	res := r.sendSoon(jobs[1])
	if res.Class != delivery.Withheld || res.RetryAfter > 100*time.Millisecond {
		t.Errorf("%+v", res)
	}
	time.Sleep(res.RetryAfter)
	if res := r.sendSoon(jobs[1]); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

// TestTurnsDelayNothingThatIsSent: turns have round trips of their own.
func TestTurnsDelayNothingThatIsSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Second)}}))
	o := r.Checker.options
	o.Registerer = prometheus.NewRegistry()
	c := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { c.shards[0].Run(ctx) })
	defer func() { cancel(); running.Wait() }()
	ask := delivery.TurnAsk{Job: job("a"), Campaign: o.Snapshot().Campaign("c"), Sink: "sink"}
	second := ask
	second.Job = job("a")
	if waits := c.Reserve(context.Background(), []delivery.TurnAsk{ask, second}); len(waits) > 0 {
		t.Error("turns are asked for with what is sent")
	}
	if res := c.Deliver(context.Background(), "sink", job("a")); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

// sendSoon sends a job again while Redis answers too late for it.
func (r *rig) sendSoon(j *delivery.Job) (res delivery.Result) {
	for range 100 {
		j.SendBy = 0
		if res = r.send(j); res.Class != delivery.Withheld || res.RetryAfter > 0 {
			break
		}
	}
	return res
}

// TestALongLineStays: a line of more than an hour is no shorter after one of its jobs has left it.
func TestALongLineStays(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Second)}}))
	jobs := make([]*delivery.Job, 4000)
	for i := range jobs {
		jobs[i] = job("a")
	}
	r.reserve(jobs...)
	beyond := r.checks(take, r.options.Snapshot().Campaign("c"), "sink", job("a"), time.Now())
	leave, left := *beyond.checks[0], newGroup()
	leave.group, leave.what, leave.most = left, "leave", 25_000
	r.ask(beyond, left.of(&leave)) // in one round trip
	<-left.done
	next := job("a")
	if r.reserve(next); time.Until(next.Due) < time.Hour-time.Minute {
		t.Errorf("the next turn is in %s", time.Until(next.Due))
	}
}

// TestTurnsThatNobodyWaitsForAreLeft: a turn that was reserved too late for its job goes to the next one.
func TestTurnsThatNobodyWaitsForAreLeft(t *testing.T) {
	t.Parallel()
	for what, ask := range map[string]func(r *rig){
		"turns": func(r *rig) { r.reserve(job("a"), job("a")) },
		"takes": func(r *rig) {
			for range 2 {
				j := job("a")
				j.SendBy = delivery.StampOf(time.Now().Add(10 * time.Millisecond))
				r.send(j)
			}
		},
	} {
		r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, 10*time.Second)}}))
		if res := r.sendSoon(job("a")); res.Class != delivery.Delivered {
			t.Fatalf("%+v", res)
		}
		r.server.Freeze()
		done := make(chan struct{})
		go func() { ask(r); close(done) }()
		if what == "turns" {
			time.Sleep(batchTimeout / 2)
		} else {
			<-done
		}
		r.server.Thaw()
		<-done
		state := func() State {
			s, err := r.Show(context.Background(), r.quota, "a")
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		if what == "turns" { // these are waited for
			if s := state(); s.Line < 25*time.Second {
				t.Errorf("%s: %+v", what, s)
			}
			continue
		}
		r.eventually("the turns are left", func() bool { return state().Line < 12*time.Second })
		next := job("a")
		if r.reserve(next); time.Until(next.Due) > 11*time.Second {
			t.Errorf("%s: the next turn is in %s", what, time.Until(next.Due))
		}
	}
}

// TestNothingIsSentBeforeItsSlot: jobs are passed on ahead of their slots, also those that no key limits, and those that are sent without the store.
func TestNothingIsSentBeforeItsSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{OnStoreFailure: delivery.PolicyOpen, Windows: []delivery.Window{window(100, time.Second)}}))
	r.quota.Pass = true
	slot := func(key string) {
		t.Helper()
		j := job(key)
		if key == "" {
			j.Headers = nil
		}
		at := time.Now().Add(20 * time.Millisecond)
		j.SendBy, j.SendWithin = delivery.StampOf(at.Add(time.Second)), uint32(time.Second.Microseconds())
		before := r.count(key)
		if res := r.send(j); res.Class != delivery.Delivered && res.Class != delivery.Withheld {
			t.Errorf("%q: %+v", key, res)
		}
		if r.count(key) > before && r.at[key][before].Before(at.Add(-time.Millisecond)) {
			t.Errorf("%q was sent %s before its slot", key, at.Sub(r.at[key][before]))
		}
	}
	slot("first") // the script is loaded
	slot("a")
	slot("")
	ended, end := context.WithCancel(context.Background())
	j, before := job("d"), r.count("")
	j.Headers = nil
	j.SendBy, j.SendWithin = delivery.StampOf(time.Now().Add(time.Minute)), 1
	time.AfterFunc(50*time.Millisecond, end)
	if res := r.Checker.Deliver(ended, "sink", j); res.Class != delivery.Withheld || r.count("") > before {
		t.Errorf("a job whose daemon ends before its slot: %+v, sent %d times", res, r.count("")-before)
	}
	r.server.Freeze()
	defer r.server.Thaw()
	r.eventually("the outage is noticed", func() bool { slot("b"); return r.shards[0].Failing() })
	slot("c")
	if r.count("a") != 1 || r.count("") != 1 || r.count("c") != 1 {
		t.Errorf("%d, %d and %d were sent", r.count("a"), r.count(""), r.count("c"))
	}
}
