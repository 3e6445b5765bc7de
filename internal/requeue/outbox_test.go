package requeue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestLanesHaveTimeOfTheirOwn: writing to them is paused for half of the time at most, however often sending is behind.
func TestLanesHaveTimeOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, paused, longest := newRig(t), 0, 0
		for range 1000 {
			r.Throttle(25 * time.Millisecond)
			if time.Now().Before(r.pausedUntil) {
				paused, longest = paused+1, longest+1
			} else {
				longest = 0
			}
			if longest > 200 {
				t.Fatal("a pause has no end")
			}
			time.Sleep(time.Millisecond)
		}
		if paused < 450 || paused > 550 {
			t.Errorf("writing to lanes is paused for %d of 1000 ms", paused)
		}
	})
}

// TestOutboxAgreesWithLists: the queue of each source and class keeps its order, also of what is put back. Those with something to write
// take turns, and one worker at a time serves each. A batch is bounded in jobs, and beyond its first one in bytes. Lanes that are held wait.
// A queue without items is forgotten.
func TestOutboxAgreesWithLists(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o, now := newOutbox(), time.Now()
		sources := []delivery.Source{newSource("a"), newSource("b"), newSource("c")}
		queues, busy, turns := map[queueKey][]*item{}, map[queueKey]bool{}, [classes][]queueKey{}
		var begun []*queue
		var took [][]*item // in these turns
		list := func(key queueKey) {
			if !busy[key] && len(queues[key]) > 0 && !slices.Contains(turns[key.class], key) {
				turns[key.class] = append(turns[key.class], key)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				source, to := rapid.SampledFrom(sources).Draw(rt, "source"), rapid.SampledFrom([]delivery.Reroute{lane, timer}).Draw(rt, "to")
				key := queueKey{source, classOf(to)}
				for range rapid.SampledFrom([]int{1, 2, 3, maxBatchJobs, 3 * maxBatchJobs}).Draw(rt, "jobs") {
					it := &item{job: &delivery.Job{Reading: delivery.Reading{Source: source}}, to: to, size: rapid.SampledFrom([]int{1, 60, 500}).Draw(rt, "size")}
					o.put(it)
					queues[key] = append(queues[key], it)
				}
				list(key)
			},
			"serve": func(rt *rapid.T) {
				class, until := rapid.SampledFrom([]queueClass{urgent, lanes}).Draw(rt, "class"), now
				wait := time.Duration(0)
				if rapid.Bool().Draw(rt, "held") {
					if until = now.Add(70 * time.Millisecond); class == lanes && len(turns[lanes]) > 0 {
						wait = 70 * time.Millisecond
					}
				}
				q, got := o.next(class, now, until)
				if wait > 0 || len(turns[class]) == 0 {
					if q != nil || got != wait {
						rt.Fatalf("a queue, %v, or a wait of %s, not %s", q, got, wait)
					}
					return
				}
				key := turns[class][0]
				if q == nil || q.queueKey != key {
					rt.Fatalf("it is the turn of %v, not of %v", q, key)
				}
				turns[class], busy[key] = turns[class][1:], true
				most, n, bytes := rapid.SampledFrom([]int{1, 100, 1 << 20}).Draw(rt, "bytes"), 0, 0
				for ; n < min(len(queues[key]), maxBatchJobs); n++ {
					if bytes += queues[key][n].size; n > 0 && bytes > most {
						break
					}
				}
				if batch := o.take(q, most); !slices.Equal(batch, queues[key][:n]) {
					rt.Fatalf("a batch of %d items, want the first %d", len(batch), n)
				}
				begun, took, queues[key] = append(begun, q), append(took, queues[key][:n:n]), queues[key][n:]
			},
			"end": func(rt *rapid.T) {
				if len(begun) == 0 {
					return
				}
				i := rapid.IntRange(0, len(begun)-1).Draw(rt, "turn")
				key, items := begun[i].queueKey, took[i]
				begun[i].busy = false
				o.list(begun[i])
				busy[key] = false
				list(key)
				if rapid.Bool().Draw(rt, "put back") {
					o.putBack(items)
					queues[key] = slices.Concat(items, queues[key])
					list(key)
				}
				begun, took = slices.Delete(begun, i, i+1), slices.Delete(took, i, i+1)
			},
			"": func(rt *rapid.T) {
				n, kept := 0, map[queueKey]bool{}
				for key, items := range queues {
					if n += len(items); len(items) > 0 || busy[key] {
						kept[key] = true
					}
				}
				if o.jobs() != n || len(o.queues) != len(kept) {
					rt.Fatalf("%d queued in %d queues, want %d in %d", o.jobs(), len(o.queues), n, len(kept))
				}
			},
		})
	})
}
