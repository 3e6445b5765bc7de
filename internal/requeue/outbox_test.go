package requeue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestLanesHaveTimeOfTheirOwn: writing to them is paused for half of the time at most, however often sending is behind.
func TestLanesHaveTimeOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := prepare(t, Options{Client: memoryClient(t, newMemory("t."))})
		paused, longest := 0, 0
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

// serve takes a batch of a queue and gives the queue back.
func serve(o *outbox, q *queue, maxBytes int) []*item {
	t := &turn{q: q, box: o}
	items := o.take(t, maxBytes)
	o.end(t)
	o.list(q)
	return items
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
		q, _ := o.next(lanes, now, time.Time{})
		if q == nil {
			break
		}
		items := serve(o, q, 1<<20)
		order = append(order, q.source.Name())
		if len(items) > maxBatchJobs {
			t.Fatalf("batch of %d", len(items))
		}
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
	q, _ := o.next(lanes, now, time.Time{})
	first := &turn{q: q, box: o}
	o.take(first, 1)
	o.put(&item{job: a.job(2, "c"), to: lane})
	if other, _ := o.next(lanes, now, time.Time{}); other != nil {
		t.Fatal("a busy source was handed out")
	}
	o.end(first)
	o.list(q)
	if again, _ := o.next(lanes, now, time.Time{}); again != q {
		t.Fatal("the source was not listed again")
	}
}

func TestItemsThatArePutBackGoFirst(t *testing.T) {
	o, now, a, b := newOutbox(), time.Now(), newSource("a"), newSource("b")
	for i := range int64(3) {
		o.put(&item{job: a.job(i, "c"), to: lane})
		o.put(&item{job: b.job(i, "c"), to: lane})
	}
	q, _ := o.next(lanes, now, time.Time{})
	other, _ := o.next(lanes, now, time.Time{})
	items := append(serve(o, q, 1<<20), serve(o, other, 1<<20)...)
	o.put(&item{job: a.job(9, "c"), to: lane})
	o.putBack(items)
	for range 2 {
		q, _ := o.next(lanes, now, time.Time{})
		want := []int64{0, 1, 2}
		if q.source.Name() == "a" {
			want = append(want, 9)
		}
		var got []int64
		for _, it := range serve(o, q, 1<<20) {
			got = append(got, it.job.Offset)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", q.source.Name(), got, want)
		}
	}
	if o.queued != 0 {
		t.Errorf("queued %d", o.queued)
	}
}

func TestBatchIsBoundedInBytes(t *testing.T) {
	o, a := newOutbox(), newSource("a")
	for i, size := range []int{100, 60, 10, 30, 30, 500} {
		o.put(&item{job: a.job(int64(i), "c"), to: lane, size: size})
	}
	for _, want := range [][]int64{{0}, {1, 2, 3}, {4}, {5}} {
		var got []int64
		q, _ := o.next(lanes, time.Now(), time.Time{})
		for _, it := range serve(o, q, 100) {
			got = append(got, it.job.Offset)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("batch %v, want %v", got, want)
		}
	}
}

func TestHeldLanesWait(t *testing.T) {
	o, now, a := newOutbox(), time.Now(), newSource("a")
	o.put(&item{job: a.job(1, "c"), to: lane})
	until := now.Add(70 * time.Millisecond)
	if q, wait := o.next(lanes, now, until); q != nil || wait != 70*time.Millisecond {
		t.Fatalf("held lane was served, or wait %s", wait)
	}
	o.put(&item{job: a.job(2, "c"), to: timer})
	q, _ := o.next(urgent, now, until)
	if q == nil {
		t.Fatal("a timer was held")
	}
	if items := serve(o, q, 1<<20); len(items) != 1 || items[0].job.Offset != 2 {
		t.Fatalf("took %d items", len(items))
	}
}

// TestRevokedSources: while a partition is about to move, its items for lanes that are certainly not written are dropped. Items that may
// have been written, urgent items, and items of other sources are written. Once it has moved, none of its items is written.
func TestRevokedSources(t *testing.T) {
	written := func(o *outbox) (offsets []int64) {
		for _, class := range []queueClass{urgent, urgent, lanes, lanes} {
			if q, _ := o.next(class, time.Now(), time.Time{}); q != nil {
				for _, it := range serve(o, q, 1<<20) {
					offsets = append(offsets, it.job.Offset)
				}
			}
		}
		slices.Sort(offsets)
		return offsets
	}
	o, gone, kept := newOutbox(), newSource("gone"), newSource("kept")
	o.put(&item{job: gone.job(1, "c"), to: lane})
	o.put(&item{job: gone.job(2, "c"), to: timer})
	o.put(&item{job: kept.job(3, "c"), to: lane})
	o.put(&item{job: gone.job(4, "c"), to: lane, unknown: true})
	gone.revoked = true
	o.revoke()
	o.put(&item{job: gone.job(5, "c"), to: lane})
	o.putBack([]*item{{job: gone.job(6, "c"), to: lane}})
	if gone.dropped != 3 || o.queued != 3 {
		t.Errorf("dropped %d, queued %d", gone.dropped, o.queued)
	}
	if got := written(o); !slices.Equal(got, []int64{2, 3, 4}) {
		t.Errorf("written %v", got)
	}
	gone.revoked = false
	o.put(&item{job: gone.job(7, "c"), to: timer})
	o.put(&item{job: gone.job(8, "c"), to: lane, unknown: true})
	gone.left = true
	o.put(&item{job: gone.job(9, "c"), to: dead})
	if got := written(o); len(got) > 0 {
		t.Errorf("written of a partition that has moved: %v", got)
	}
}

func TestForgottenSources(t *testing.T) {
	o := newOutbox()
	for range 3 {
		o.put(&item{job: newSource("gone").job(1, "c"), to: lane})
		q, _ := o.next(lanes, time.Now(), time.Time{})
		serve(o, q, 1)
	}
	if len(o.queues) > 0 {
		t.Errorf("%d sources remembered", len(o.queues))
	}
}

func TestQueueKeepsItsOrder(t *testing.T) {
	var queued []*item
	next, put := 0, 0
	for round := range 50 {
		for range 100 + round*37 {
			queued = append(queued, &item{size: put})
			put++
		}
		for len(queued) > round {
			var batch []*item
			batch, queued = split(queued, min(7, len(queued)-round), 1<<40)
			for _, it := range batch {
				if it.size != next {
					t.Fatalf("took %d, want %d", it.size, next)
				}
				next++
			}
		}
	}
	if len(queued) != put-next {
		t.Fatalf("%d are left, want %d", len(queued), put-next)
	}
}
