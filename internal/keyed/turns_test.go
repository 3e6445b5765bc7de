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
				r.sendSoon(j)
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
	if ttl := r.redis.PTTL(context.Background(), idOf("cap", "a").hash("pacer.", 0)).Val(); ttl <= 0 {
		t.Errorf("the key lives for %s", ttl)
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
	c.Reserve([]delivery.KeyAsk{r.askFor(job("a")), r.askFor(job("a"))}, func(_ delivery.KeyAsk, told delivery.KeyAnswer, _ func()) {
		if told.Wait > 0 {
			t.Error("turns are asked for with what is sent")
		}
	})
	r.eventually("a job is counted", func() bool { // on a busy machine an answer may be late
		counted := make(chan delivery.KeyAnswer, 1)
		c.Count(r.askFor(job("a")), func(a delivery.KeyAnswer) { counted <- a })
		return (<-counted).SendBy != 0
	})
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
	done := make(chan struct{})
	leave, left := *beyond.checks[0], &group{ended: func(*group) { close(done) }}
	leave.group, leave.what, leave.most = left, "leave", 25_000
	left.checks = append(left.checks, &leave)
	r.ask(beyond, left) // in one round trip
	<-done
	next := job("a")
	if r.reserve(next); time.Until(next.Due) < time.Hour-time.Minute {
		t.Errorf("the next turn is in %s", time.Until(next.Due))
	}
}

// TestACountedJobIsBeforeLaterOnes: a job that is given back goes first. If it waited for the turns of later jobs, none would go for a span.
func TestACountedJobIsBeforeLaterOnes(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, 10*time.Second)}}))
	first, second := job("a"), job("a")
	r.eventually("the job is counted", func() bool { return r.asked(first).SendBy != 0 })
	if r.reserve(second); time.Until(second.Due) < 9*time.Second {
		t.Fatalf("the next turn is in %s", time.Until(second.Due))
	}
	r.Checker.Release(first)
	first.Turned = true // as a pacer says of a job that was counted
	if res := r.sendSoon(first); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

// TestTurnsThatAreLeft go to the next one.
func TestTurnsThatAreLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, 10*time.Second)}}))
	if res := r.sendSoon(job("a")); res.Class != delivery.Delivered {
		t.Fatalf("%+v", res)
	}
	line := func() time.Duration {
		s, err := r.Show(context.Background(), r.quota, "a")
		must(t, err)
		return s.Line
	}
	waits := make(chan func(), 1)
	r.Reserve([]delivery.KeyAsk{r.askFor(job("a"))}, func(_ delivery.KeyAsk, told delivery.KeyAnswer, leave func()) {
		if told.Wait == 0 {
			t.Error("it need not wait")
		}
		waits <- leave
	})
	leave := <-waits
	if is := line(); is < 15*time.Second {
		t.Errorf("the line is %s", is)
	}
	leave()
	r.eventually("the turn is left", func() bool { return line() < 12*time.Second })
	next := job("a")
	if r.reserve(next); time.Until(next.Due) > 11*time.Second {
		t.Errorf("the next turn is in %s", time.Until(next.Due))
	}
}
