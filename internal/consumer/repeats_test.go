package consumer

import (
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

func TestRepeats(t *testing.T) {
	topics := newOriginTopics()
	r := newRepeats(topics)
	r.limit, r.total = 3, 5
	job := func(origin int64, attempt int) *delivery.Job {
		return &delivery.Job{Origin: delivery.Origin{Topic: "jobs", Offset: origin}, Attempt: attempt, Hops: 1}
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
		if got := r.repeated(job(c.origin, c.tries), c.at); got != c.want {
			t.Errorf("step %d: %t, want %t", i, got, c.want)
		}
	}
	other := newRepeats(topics)
	other.total = r.total
	for i := range int64(10) {
		other.repeated(job(100+i, 0), i)
	}
	if len(other.order) != 2 || topics.stored.Load() != 5 {
		t.Errorf("%d remembered beyond the total, %d stored", len(other.order), topics.stored.Load())
	}
	r.forget()
	other.forget()
	if topics.stored.Load() != 0 {
		t.Errorf("%d stored after all was forgotten", topics.stored.Load())
	}
}

func TestEvenBalancer(t *testing.T) {
	all := []string{"lanes", "t1", "t2", "t3", "in"}
	members := []kafka.GroupMember{{ID: "b", Topics: all}, {ID: "a", Topics: all}, {ID: "c", Topics: []string{"in"}}}
	var partitions []kafka.Partition
	for topic, n := range map[string]int{"lanes": 5, "t1": 1, "t2": 1, "t3": 1, "in": 4} {
		for id := range n {
			partitions = append(partitions, kafka.Partition{Topic: topic, ID: id})
		}
	}
	got := evenBalancer{}.AssignGroups(members, partitions)
	count := func(m string) (n int) {
		for _, ids := range got[m] {
			n += len(ids)
		}
		return n
	}
	if count("a")+count("b")+count("c") != len(partitions) {
		t.Fatalf("not every partition is assigned once: %v", got)
	}
	if d := count("a") - count("b"); d < -1 || d > 1 || len(got["c"]) != 1 {
		t.Errorf("uneven: %v", got)
	}
}
