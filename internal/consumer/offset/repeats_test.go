package offset

import (
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

func TestRepeats(t *testing.T) {
	topics := NewOrigins()
	r := NewRepeats(topics)
	r.most = 4
	job := func(origin int64, attempt int) *delivery.Job {
		return &delivery.Job{History: delivery.History{
			Origin: delivery.Origin{Topic: "jobs", Offset: origin}, Attempt: attempt, Hops: 1,
		}}
	}
	for i, c := range []struct {
		origin int64
		tries  int
		at     int64
		want   bool
	}{
		{1, 0, 10, false},
		{1, 0, 11, true},  // the twin
		{1, 0, 10, false}, // read again, itself
		{1, 0, 11, true},
		{1, 1, 12, false}, // back from a timer
		{2, 0, 13, false},
		{1, 0, 11, true},
		{3, 0, 14, false},
		{4, 0, 15, false}, // forgets both of origin 1
		{1, 0, 11, false},
		{1, 0, 10, false}, // the first turns up again
		{1, 0, 11, true},
	} {
		if got := r.Repeated(job(c.origin, c.tries), c.at); got != c.want {
			t.Errorf("step %d: %t, want %t", i, got, c.want)
		}
	}
	for i, change := range []func(*delivery.Job){
		func(j *delivery.Job) { j.Origin.TopicID = delivery.NewTopicID([16]byte{1}) }, // made anew
		func(j *delivery.Job) { j.Origin.TopicID = delivery.NewTopicID([16]byte{2}) },
		func(j *delivery.Job) { j.ID = "other" }, // the log has lost its end and has another record there
		func(j *delivery.Job) { j.Payload = []byte("other") },
	} {
		fresh := NewRepeats(NewOrigins())
		fresh.Repeated(job(1, 0), 10)
		j := job(1, 0)
		change(j)
		if fresh.Repeated(j, 11) || !fresh.Repeated(j, 12) {
			t.Errorf("change %d: another job is a repeat, or its twin is none", i)
		}
	}
}

// Busy lanes leave every other partition the memory for a batch of the relay, and all together stay within the bound.
func TestRepeatsShareTheMemory(t *testing.T) {
	testservices.Simulation(t)
	const lanes, batch = 512, 500
	origins := NewOrigins()
	read := func(r *Repeats, lane, first, n, at int) (repeated int) {
		for i := range n {
			if r.Repeated(&delivery.Job{History: delivery.History{
				Origin: delivery.Origin{Topic: "jobs", Partition: lane, Offset: int64(first + i)}, Hops: 1,
			}}, int64(at+i)) {
				repeated++
			}
		}
		return repeated
	}
	all := make([]*Repeats, lanes)
	for lane := range all {
		all[lane] = NewRepeats(origins)
	}
	for lane := range 4 {
		read(all[lane], lane, 0, maxRepeats/4, 0)
	}
	for lane, r := range all {
		read(r, lane, maxRepeats, batch, maxRepeats)
		if n := read(r, lane, maxRepeats, batch, maxRepeats+batch); n != batch {
			t.Errorf("lane %d: %d of %d twins are recognised", lane, n, batch)
		}
	}
	sum := 0
	for lane, r := range all {
		read(r, lane, 2*maxRepeats, 10*batch, 2*maxRepeats)
		sum += len(r.recent) + len(r.before)
	}
	if sum > maxRepeats {
		t.Errorf("%d are remembered, more than %d", sum, maxRepeats)
	}
	for _, r := range all {
		r.Forget()
		r.Forget()
	}
	if n := origins.users.Load(); n != 0 {
		t.Errorf("%d users after all was forgotten", n)
	}
}
