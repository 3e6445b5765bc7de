package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	got := new(evenBalancer).AssignGroups(members, partitions)
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

// TestPartitionsAddedDuringARebalance: partitions that are added after the leader of the group has dealt them, and before
// the generation begins, are read soon.
func TestPartitionsAddedDuringARebalance(t *testing.T) {
	t.Parallel()
	cluster := inProcess(t)
	r := newRig(t, cluster.ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	dealt, added := make(chan struct{}), make(chan struct{})
	cluster.ControlKey(int16(kmsg.SyncGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		cluster.DropControl()
		close(dealt)
		cluster.SleepControl(func() { <-added })
		return nil, nil, false
	})
	c := r.start(newFake(), func(o *Options) { o.partitionsWatched = 200 * time.Millisecond })
	<-dealt
	answer, err := r.client.CreatePartitions(t.Context(), &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: r.jobs(), Count: 3}},
	})
	if err == nil {
		err = answer.Errors[r.jobs()]
	}
	if err != nil {
		t.Fatal(err)
	}
	close(added)
	r.eventually("joined", c.Joined)
	r.eventually("the partitions are known", func() bool {
		m, err := r.client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{r.jobs()}})
		return err == nil && len(m.Topics[0].Partitions) == 3
	})
	for p := range 3 {
		r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint("p", p), 0, 10))
	}
	r.eventually("all partitions are read", func() bool { return c.count() == 30 })
	if lines := r.logs.lines("level=INFO", "other partitions"); len(lines) != 1 {
		t.Errorf("%d lines: %s", len(lines), r.logs)
	}
}
