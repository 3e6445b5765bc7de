package consumer

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAges: the age of the oldest job is that of a mark at or before it, of the last one while there are few; their number
// is bounded.
func TestAges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var a ages
		began, marked, asked := time.Unix(1e9, 0), map[int64]bool{}, int64(0)
		at := func(offset int64) time.Time { return began.Add(time.Duration(offset) * time.Second) }
		for range rapid.IntRange(1, 3*maxAges).Draw(rt, "steps") {
			if offset := rapid.Int64Range(0, 5000).Draw(rt, "offset"); rapid.Bool().Draw(rt, "note") {
				a.note(offset, at(offset))
				marked[offset] = true
			} else {
				asked = max(asked, offset)
			}
			if len(a.marks) > maxAges {
				rt.Fatalf("%d marks", len(a.marks))
			}
			got, ok := a.at(asked)
			last := int64(-1)
			for offset := range marked {
				if offset <= asked {
					last = max(last, offset)
				}
			}
			if few := len(marked) <= maxAges; ok && got.After(at(max(last, 0))) || few && ok != (last >= 0) || few && ok && !got.Equal(at(last)) {
				rt.Fatalf("at %d: %s, %t; the last mark before it is %d", asked, got, ok, last)
			}
		}
	})
}

// TestWhatWaitsIsMeasured: the records of ingress and timers that are not settled, read or not, and the age of the oldest
// job of each place; after a restart, too; and nothing once they are settled.
func TestWhatWaitsIsMeasured(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		timer := r.timer(time.Hour)
		old := func(id string, age time.Duration) kafka.Record {
			rec := job("c", id)
			rec.Time = time.Now().Add(-age)
			return rec
		}
		r.produce(r.jobs(), 0, old("i1", 300*time.Second), old("i2", 200*time.Second))
		r.produce(timer, 0, old("t1", 40*time.Second), old("t2", 30*time.Second), old("t3", 20*time.Second))
		r.produce(r.opt.LaneTopic, 0, old("l1", 5000*time.Second), old("l2", 4000*time.Second))
		shows := func(c *running, lag, backlog float64, oldest [3]float64) bool {
			g := &c.metrics.waiting
			ok := testutil.ToFloat64(g.ingress.WithLabelValues(r.jobs())) == lag && testutil.ToFloat64(g.timers.WithLabelValues(timer)) == backlog
			for place, want := range oldest {
				got := testutil.ToFloat64(g.oldest.WithLabelValues(placeNames[place]))
				ok = ok && got >= want && got < want+60 && (got == 0) == (want == 0)
			}
			return ok
		}
		quick := func(o *Options) { o.PositionInterval = 50 * time.Millisecond }

		f := keeping(func(j *delivery.Job) bool { return j.From == delivery.FromIngress })
		f.refuse = func(*delivery.Job) bool { return true }
		one := r.start(f, quick)
		r.eventually("what waits to be shown", func() bool { return shows(one, 2, 3, [3]float64{300, 5000, 0}) })
		openFor := func() float64 { return testutil.ToFloat64(one.metrics.waiting.open.WithLabelValues("ingress")) }
		r.eventually("how long the job is open", func() bool { return openFor() > 0.2 })
		one.stop()
		if openFor() != 0 || !shows(one, 0, 0, [3]float64{}) {
			t.Error("a daemon that has left shows that something waits")
		}

		two := r.start(f, quick)
		r.eventually("the same after a restart", func() bool { return shows(two, 2, 3, [3]float64{300, 5000, 0}) })
		f.mu.Lock()
		f.keep, f.refuse = nil, nil
		f.mu.Unlock()
		f.settle(all)
		r.produce(r.jobs(), 0, job("c", "i3"))
		two.stop()
		three := r.start(f, quick)
		r.eventually("the jobs of the lane", func() bool { return f.saw("l1") && f.saw("l2") })
		r.eventually("nothing but the timer's to wait", func() bool { return shows(three, 0, 3, [3]float64{}) })
	})
}
