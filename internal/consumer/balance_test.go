package consumer

import (
	"testing"

	"github.com/segmentio/kafka-go"
)

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
