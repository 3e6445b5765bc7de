package keyed

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/luaredis"
)

// TestNobodyPassesTheLine: a job without a turn waits behind those with turns, also when the key is free.
func TestNobodyPassesTheLine(t *testing.T) {
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, 30*time.Second)}}), func(t *testing.T, r *rig, _ *luaredis.Server) {
		if r.send(job("a")).Class != delivery.Delivered {
			t.Fatal("the first")
		}
		next := job("a")
		time.Sleep(r.reserved(next)[0])
		if res := r.send(job("a")); res.Class != delivery.Withheld || res.RetryAfter < 25*time.Second {
			t.Errorf("a new job: %+v", res)
		}
		if res := r.send(next); res.Class != delivery.Delivered {
			t.Errorf("the next of the line: %+v", res)
		}
	})
}

// TestTheOneBeforeIsLate: a job that comes to its turn waits for the one before, and not once more for the whole line.
func TestTheOneBeforeIsLate(t *testing.T) {
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, 30*time.Second)}}), func(t *testing.T, r *rig, _ *luaredis.Server) {
		line := make([]*delivery.Job, 20)
		for i := range line {
			line[i] = job("a")
		}
		waits := r.reserved(line...)
		time.Sleep(16 * time.Second)
		if r.send(line[0]).Class != delivery.Delivered {
			t.Error("the first")
		}
		time.Sleep(waits[1] - 16*time.Second)
		res := r.send(line[1])
		if res.Class != delivery.Withheld || res.RetryAfter > 17*time.Second {
			t.Errorf("%+v", res)
		}
		if time.Sleep(res.RetryAfter); r.send(line[1]).Class != delivery.Delivered {
			t.Error("the second")
		}
	})
}

// TestALineThatNobodyComesTo delays no other job. A line whose jobs come is not overtaken.
func TestALineThatNobodyComesTo(t *testing.T) {
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, 30*time.Second)}}), func(t *testing.T, r *rig, _ *luaredis.Server) {
		line := make([]*delivery.Job, 20)
		for i := range line {
			line[i] = job("a")
		}
		waits, begun := r.reserved(line...), time.Now()
		for i, j := range line[:4] {
			time.Sleep(waits[i] - time.Since(begun))
			if other := r.reserved(job("a")); i > 0 && other[0] < 5*time.Minute {
				t.Errorf("the line is overtaken: %s", other[0])
			}
			res := r.send(j)
			if res.Class == delivery.Withheld && res.RetryAfter < 100*time.Millisecond { // the one before was a little late
				time.Sleep(res.RetryAfter)
				res = r.send(j)
			}
			if res.Class != delivery.Delivered {
				t.Errorf("%d: %+v", i, res)
			}
		}
		time.Sleep(time.Minute + 5*time.Second)
		if waits := r.reserved(job("a"), job("a")); waits[0] > 0 || waits[1] < 29*time.Second || waits[1] > 31*time.Second {
			t.Errorf("of a line that nobody comes to: %s", waits)
		}
	})
}

// TestOthersDoNotEndALine: jobs that come to their turns go, however often others ask meanwhile, also in the moments when the key is free.
func TestOthersDoNotEndALine(t *testing.T) {
	for jobs, w := range map[int]delivery.Window{12: window(1, time.Second), 32: window(20, time.Minute)} {
		bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{w}}), func(t *testing.T, r *rig, _ *luaredis.Server) {
			line := make([]*delivery.Job, jobs)
			for i := range line {
				line[i] = job("a")
			}
			waits, begun, last := r.reserved(line...), time.Now(), time.Duration(0)
			for i, j := range line {
				for time.Since(begun) < waits[i]+30*time.Millisecond { // all are a little late
					time.Sleep(max(10*time.Millisecond, waits[i]-time.Since(begun)))
					end := time.Since(begun) + r.reserved(job("a"))[0]
					if end < last {
						t.Errorf("%v: after %s the line is %s shorter", w, time.Since(begun), last-end)
						return
					}
					last = end
				}
				res := r.send(j)
				if res.Class == delivery.Withheld && res.RetryAfter < 100*time.Millisecond { // the one before was a little late
					time.Sleep(res.RetryAfter)
					res = r.send(j)
				}
				if res.Class != delivery.Delivered {
					t.Errorf("%v: %d: %+v", w, i, res)
				}
			}
		})
	}
}

// TestJobsKeepTheirPlaces: more jobs of a key come than it allows, and each is a little late for its turn. None waits much longer than those that
// came before it take.
func TestJobsKeepTheirPlaces(t *testing.T) {
	for _, windows := range [][]delivery.Window{{window(1, time.Second)}, {window(1, time.Second), window(10, 40*time.Second)}} {
		seed, longest := rand.Uint64(), windows[len(windows)-1]
		rnd := rand.New(rand.NewPCG(seed, 0))
		each := longest.Span / time.Duration(longest.Limit)
		bubble(t, unlimited(delivery.Quota{Windows: windows}), func(t *testing.T, r *rig, _ *luaredis.Server) {
			var waiting atomic.Int64
			var all sync.WaitGroup
			for range 60 {
				late := time.Duration(rnd.Int64N(int64(100 * time.Millisecond)))
				all.Go(func() {
					j, came, ahead := job("a"), time.Now(), time.Duration(waiting.Add(1))
					r.reserve(j)
					time.Sleep(max(0, time.Until(j.Due)) + late)
					for res := r.send(j); res.Class != delivery.Delivered; res = r.send(j) {
						time.Sleep(res.RetryAfter + late/20)
					}
					waiting.Add(-1)
					if waited := time.Since(came); waited > ahead*(each+150*time.Millisecond)+longest.Span+5*time.Second {
						t.Errorf("seed %d, %v: the %d. waited %s", seed, windows, ahead, waited)
					}
				})
				time.Sleep(time.Duration(rnd.Int64N(int64(each / 2))))
			}
			all.Wait()
		})
	}
}

// TestALineOfMoreThanAnHour: who has no turn asks for one an hour later, and does not come together with those that have.
func TestALineOfMoreThanAnHour(t *testing.T) {
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Minute)}}), func(t *testing.T, r *rig, _ *luaredis.Server) {
		const n = 100
		var far, asked atomic.Int64
		var all sync.WaitGroup
		begun := time.Now()
		for range n {
			all.Go(func() {
				j := job("a")
				for r.reserve(j); time.Until(j.Due) >= time.Hour-time.Second; r.reserve(j) {
					far.Add(1)
					time.Sleep(time.Until(j.Due))
				}
				time.Sleep(max(0, time.Until(j.Due)))
				for res := r.send(j); res.Class != delivery.Delivered; res = r.send(j) {
					asked.Add(1)
					time.Sleep(res.RetryAfter)
				}
			})
		}
		all.Wait()
		if took := time.Since(begun); far.Load() < n-62 || asked.Load() > 3*n/2 || took > n*61*time.Second {
			t.Errorf("%d were told to come in an hour, %d came in vain, all took %s", far.Load(), asked.Load(), took)
		}
	})
}

// TestJobsComeTogether after a pause, to turns that were far apart: none loses its place, and they come again one after the other.
func TestJobsComeTogether(t *testing.T) {
	bubble(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Second)}}), func(t *testing.T, r *rig, _ *luaredis.Server) {
		const n = 40
		line := make([]*delivery.Job, 1000)
		for i := range line {
			line[i] = job("a")
		}
		time.Sleep(r.reserved(line...)[n])
		begun, asked := time.Now(), atomic.Int64{}
		var all sync.WaitGroup
		for _, j := range line[:n] {
			all.Go(func() {
				for res := r.send(j); res.Class != delivery.Delivered; res = r.send(j) {
					asked.Add(1)
					time.Sleep(res.RetryAfter)
				}
			})
		}
		all.Wait()
		// About two for each; some more if many of one moment are asked about in an unlucky order. If all came each second, 780.
		if took := time.Since(begun); took > 2*n*time.Second || asked.Load() > 10*n {
			t.Errorf("%d jobs took %s, and came %d times in vain", n, took, asked.Load())
		}
	})
}

// TestJobsOfSeveralKeys: jobs that wait for two keys at once, any recipient with any tenant, take little longer than the busiest key alone does. None
// waits for one key while another waits for the other.
func TestJobsOfSeveralKeys(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		rnd := rand.New(rand.NewPCG(seed, 0))
		windowOf := func() delivery.Window { return window(1+rnd.Int64N(3), time.Duration(1+rnd.IntN(5))*time.Second) }
		perRecipient, perTenant, recipients, tenants := windowOf(), windowOf(), 1+rnd.IntN(10), 1+rnd.IntN(10)
		second := unlimited(delivery.Quota{ID: "tenants", Per: "tenant", Windows: []delivery.Window{perTenant}})
		first := unlimited(delivery.Quota{Windows: []delivery.Window{perRecipient}})
		bubbleOf(t, 1+rnd.IntN(2), first, []*delivery.Quota{&second}, func(t *testing.T, r *rig, _ []*luaredis.Server) {
			var all sync.WaitGroup
			begun, alone := time.Now(), map[string]time.Duration{} // how long the jobs of a key take
			for range 100 {
				to, tenant := fmt.Sprint("r", rnd.IntN(recipients)), fmt.Sprint("t", rnd.IntN(tenants))
				alone[to] += perRecipient.Span / time.Duration(perRecipient.Limit)
				alone[tenant] += perTenant.Span / time.Duration(perTenant.Limit)
				late := time.Duration(rnd.Int64N(int64(30 * time.Millisecond)))
				all.Go(func() {
					j := job(to)
					j.Headers = append(j.Headers, delivery.Header{Key: delivery.HeaderKey + "tenant", Value: []byte(tenant)})
					r.reserve(j)
					time.Sleep(max(0, time.Until(j.Due)) + late)
					for res := r.send(j); res.Class != delivery.Delivered && time.Since(begun) < time.Hour; res = r.send(j) {
						time.Sleep(res.RetryAfter + late/20)
					}
				})
			}
			all.Wait()
			if took, least := time.Since(begun), slices.Max(slices.Collect(maps.Values(alone))); took > least*3/2+2*max(perRecipient.Span, perTenant.Span) {
				t.Errorf("seed %d: 100 jobs of %d recipients %v and %d tenants %v took %s, those of one key %s", seed, recipients, perRecipient, tenants, perTenant, took, least)
			}
		})
	}
}
