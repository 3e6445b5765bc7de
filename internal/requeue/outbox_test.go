package requeue

import (
	"testing"
	"time"
)

func TestBrake(t *testing.T) {
	base := time.Unix(1_800_000_000, 0)
	ms := func(n int) time.Time { return base.Add(time.Duration(n) * time.Millisecond) }
	var b brake
	for _, step := range []struct {
		at, d, until int
	}{
		{0, 50, 50},     // a pause
		{20, 100, 120},  // made longer
		{110, 500, 200}, // by no more than 200 ms in all
		{200, 50, 200},  // the lanes' own time
		{399, 50, 200},
		{400, 50, 450}, // the next pause
		{450, 50, 450},
		{500, 10, 510},
		{505, -1, 510},
	} {
		b.hold(ms(step.at), time.Duration(step.d)*time.Millisecond)
		if !b.until.Equal(ms(step.until)) {
			t.Fatalf("hold(%d) at %d: until %d, want %d", step.d, step.at, b.until.Sub(base).Milliseconds(), step.until)
		}
	}
}

func TestSourcesTakeTurns(t *testing.T) {
	o, now := newOutbox(), time.Now()
	a, b := newSource("a"), newSource("b")
	for i := range int64(3 * maxBatchJobs) {
		o.put(&item{job: a.job(i, "c"), to: lane, size: 1})
	}
	o.put(&item{job: b.job(0, "c"), to: lane, size: 1})
	var order []string
	for {
		q, _ := o.next(now, time.Time{})
		if q == nil {
			break
		}
		items := o.take(&turn{q: q, box: o}, 1<<20, false)
		order = append(order, q.source.Name())
		if len(items) > maxBatchJobs {
			t.Fatalf("batch of %d", len(items))
		}
		o.giveBack(&turn{q: q, box: o}, now, 0)
	}
	if got := len(order); got != 4 || order[1] != "b" {
		t.Errorf("turns %q, want b second of four", order)
	}
	if o.queued != 0 {
		t.Errorf("queued %d", o.queued)
	}
}

func TestSourceIsServedByOneWorkerAtATime(t *testing.T) {
	o, now, a := newOutbox(), time.Now(), newSource("a")
	o.put(&item{job: a.job(1, "c"), to: lane})
	q, _ := o.next(now, time.Time{})
	o.take(&turn{q: q, box: o}, 1, false)
	o.put(&item{job: a.job(2, "c"), to: lane})
	if other, _ := o.next(now, time.Time{}); other != nil {
		t.Fatal("a busy source was handed out")
	}
	o.giveBack(&turn{q: q, box: o}, now, 0)
	if again, _ := o.next(now, time.Time{}); again != q {
		t.Fatal("the source was not listed again")
	}
}

func TestFailedItemsGoFirstAndAlone(t *testing.T) {
	o, now, a := newOutbox(), time.Now(), newSource("a")
	o.put(&item{job: a.job(1, "c"), to: lane})
	q, _ := o.next(now, time.Time{})
	failed := o.take(&turn{q: q, box: o}, 1, false)
	o.put(&item{job: a.job(2, "c"), to: dead})
	o.giveBack(&turn{q: q, box: o, failed: failed}, now, time.Second)
	if q, wait := o.next(now, time.Time{}); q != nil || wait != time.Second {
		t.Fatalf("served during the back-off, or wait %s", wait)
	}
	q, _ = o.next(now.Add(time.Second), time.Time{})
	if items := o.take(&turn{q: q, box: o}, 1<<20, false); len(items) != 1 || items[0].job.Offset != 1 {
		t.Fatalf("took %d items", len(items))
	}
}

func TestBatchIsBoundedInBytesAndPutsLanesLast(t *testing.T) {
	o, a := newOutbox(), newSource("a")
	o.put(&item{job: a.job(1, "c"), to: lane, size: 10})
	o.put(&item{job: a.job(2, "c"), to: timer, size: 100})
	o.put(&item{job: a.job(3, "c"), to: dead, size: 60})
	o.put(&item{job: a.job(4, "c"), to: lane, size: 30})
	q, _ := o.next(time.Now(), time.Time{})
	for _, want := range [][]int64{{2}, {3, 1, 4}} {
		var got []int64
		for _, it := range o.take(&turn{q: q, box: o}, 100, false) {
			got = append(got, it.job.Offset)
		}
		if len(got) != len(want) || got[0] != want[0] || got[len(got)-1] != want[len(want)-1] {
			t.Fatalf("batch %v, want %v", got, want)
		}
	}
}

func TestHeldLanesWait(t *testing.T) {
	o, now, a := newOutbox(), time.Now(), newSource("a")
	o.put(&item{job: a.job(1, "c"), to: lane})
	until := now.Add(70 * time.Millisecond)
	if q, wait := o.next(now, until); q != nil || wait != 70*time.Millisecond {
		t.Fatalf("held lane was served, or wait %s", wait)
	}
	o.put(&item{job: a.job(2, "c"), to: timer})
	q, _ := o.next(now, until)
	if q == nil {
		t.Fatal("a timer was held")
	}
	if items := o.take(&turn{q: q, box: o}, 1<<20, true); len(items) != 1 || items[0].job.Offset != 2 {
		t.Fatalf("took %d items", len(items))
	}
}

func TestForgottenSources(t *testing.T) {
	o := newOutbox()
	for range 3 * maxIdleSources {
		o.put(&item{job: newSource("gone").job(1, "c"), to: lane})
		q, _ := o.next(time.Now(), time.Time{})
		o.take(&turn{q: q, box: o}, 1, false)
		o.giveBack(&turn{q: q, box: o}, time.Now(), 0)
	}
	if len(o.queues) > maxIdleSources {
		t.Errorf("%d sources remembered", len(o.queues))
	}
}

func TestFifo(t *testing.T) {
	var f fifo
	next, put := int64(0), int64(0)
	for round := range 50 {
		for range 100 + round*37 {
			f.push(&item{size: int(put)})
			put++
		}
		for f.len() > round {
			if it := f.pop(); int64(it.size) != next {
				t.Fatalf("popped %d, want %d", it.size, next)
			}
			next++
		}
	}
	if int64(f.len()) != put-next {
		t.Fatalf("len %d, want %d", f.len(), put-next)
	}
}
