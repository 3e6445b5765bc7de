package ledger

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// lossy is a window as the store keeps it: a bucket that was emptied stays until it leaves or nothing is left, and the key may
// go at any time.
type lossy struct {
	form        string
	span, width int64
	there       bool
	first       int64   // when the oldest bucket began
	grants      []Dated // in the order of time

	now, epoch int64
	last       delivery.Checkpoint
	here, away int64 // units of these that were given back, by this daemon and by others
	evicted    bool  // the key went since
	lost       bool  // and held units in earlier buckets than that of the checkpoint
}

func (w *lossy) bucket(at int64) int64 { return at - at%w.width }

func (w *lossy) units(since int64) (n int64) {
	for _, g := range w.grants {
		if g.At >= since {
			n += g.Units
		}
	}
	return n
}

func (w *lossy) pass(d int64) {
	w.now += d
	w.grants = slices.DeleteFunc(w.grants, func(g Dated) bool { return w.bucket(g.At)+w.width+w.span <= w.now })
	if len(w.grants) > 0 && w.first+w.width+w.span <= w.now {
		w.first = w.bucket(w.grants[0].At)
	}
}

func (w *lossy) take(units int64) {
	w.there = true // also by asking
	if units == 0 {
		return
	}
	if w.units(0) == 0 {
		w.first, w.grants = w.bucket(w.now), nil
	}
	w.grants = append(w.grants, Dated{w.now, units})
}

// refund takes back up to so many units of a grant.
func (w *lossy) refund(grant int, units int64, here bool) {
	if len(w.grants) == 0 {
		return
	}
	g := &w.grants[grant%len(w.grants)]
	units = min(units, g.Units)
	g.Units -= units
	switch {
	case g.At > w.last.At:
	case here:
		w.here += units
	default:
		w.away += units
	}
}

func (w *lossy) evict() {
	w.evicted = w.evicted || w.there
	for _, g := range w.grants {
		w.lost = w.lost || g.Units > 0 && g.At < w.bucket(w.last.At)
	}
	w.there, w.grants = false, nil
}

// checkpoint reports whether units have vanished, for all that can be seen.
func (w *lossy) checkpoint(of *Counting) (alarm bool) {
	of.Since = w.last.At
	var c Counted
	if w.there {
		c = Counted{Form: w.form, Since: w.units(w.bucket(of.Since)), Newest: w.units(w.bucket(w.now))}
	}
	if w.units(0) > 0 {
		c.Born = w.first
	}
	if alarm = vanished(&w.last, of, &c, w.here, w.epoch, w.now); alarm {
		w.epoch++ // what is rebuilt is not compared
	}
	next, ok := nextCheckpoint(&w.last, of, &c, w.epoch, w.now)
	if !ok && alarm {
		next, ok = delivery.Checkpoint{At: w.now}, true
	}
	if ok {
		w.last, w.here, w.away, w.evicted, w.lost = next, 0, 0, false, false
	}
	return alarm
}

// TestOnlyLossesAreTakenForLosses: whatever is given back is not taken for a loss, but where that cannot be known: nothing of what
// the last checkpoint counted is left, or it saw one bucket only, and other daemons gave units back. A loss of older buckets is
// found at the next checkpoint after the window is used again.
func TestOnlyLossesAreTakenForLosses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.SampledFrom([]time.Duration{5 * time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "span")
		form := rapid.SampledFrom([]string{"sliding", "log"}).Draw(t, "form")
		w := &lossy{form: form, span: span.Microseconds(), width: bucketWidth(span), epoch: 7, now: epoch}
		if form == "log" {
			w.width = 1
		}
		of := &Counting{Quota: &delivery.Quota{ID: "q", Windows: windows(1000, span)}}
		happens := []string{"take", "refund here", "refund here", "checkpoint"}
		for _, what := range []string{"evict", "refund elsewhere"} { // not in all histories, since they end what a checkpoint tells
			if rapid.Bool().Draw(t, what) {
				happens = append(happens, what)
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.pass(rapid.SampledFrom([]int64{second / 10, 5 * second, 70 * second}).Draw(t, "later"))
			switch what := rapid.SampledFrom(happens).Draw(t, "what"); what {
			case "take":
				w.take(rapid.Int64Range(0, 9).Draw(t, "units"))
			case "refund here", "refund elsewhere":
				w.refund(rapid.IntRange(0, 9).Draw(t, "grant"), rapid.Int64Range(1, 9).Draw(t, "units"), what == "refund here")
			case "evict":
				w.evict()
			default:
				last, rest, missing := w.last, int64(0), w.lost && w.now < w.last.Born+w.span
				empty := w.there && w.units(0) == 0
				for _, g := range w.grants {
					if g.At <= last.At {
						rest += g.Units
					}
				}
				one := last.Born >= w.bucket(last.At) // bucket that the checkpoint saw
				known := rest > 0 && (!one || w.away == 0) || one && w.away == 0
				evicted, away := w.evicted, w.away
				alarm := w.checkpoint(of)
				if alarm && !evicted && known {
					t.Fatalf("an alarm, though nothing was lost: %+v, now %+v, %d are left, others gave back %d", last, w, rest, away)
				}
				if missing && empty && !alarm && w.last != last {
					t.Fatalf("an empty window is believed, though older buckets were lost: %+v, now %+v", last, w)
				}
				if missing && !empty && !alarm {
					t.Fatalf("no alarm, though older buckets were lost: %+v, now %+v", last, w)
				}
			}
		}
	})
}
