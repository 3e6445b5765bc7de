package offset

import (
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

func TestRepeats(t *testing.T) {
	topics := NewOrigins()
	r := NewRepeats(topics)
	r.limit, r.total = 3, 5
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
		{3, 0, 14, false}, // forgets origin 1, attempt 0
		{1, 0, 11, false}, // forgets attempt 1
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
	other := NewRepeats(topics)
	other.total = r.total
	for i := range int64(10) {
		other.Repeated(job(100+i, 0), i)
	}
	if len(other.order) != 2 || topics.stored.Load() != 5 {
		t.Errorf("%d remembered beyond the total, %d stored", len(other.order), topics.stored.Load())
	}
	r.Forget()
	other.Forget()
	if topics.stored.Load() != 0 {
		t.Errorf("%d stored after all was forgotten", topics.stored.Load())
	}
}
