package dedupe

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestACancelledJobIsNotSent: neither by the daemon that has read it, nor by one that reads it; what is in flight or delivered stays so.
func TestACancelledJobIsNotSent(t *testing.T) {
	client := connect(t, testservices.RedisAddr(t))
	hold := make(chan struct{})
	to := &destination{answer: func(_ context.Context, j *delivery.Job) delivery.ResultClass {
		if j.ID == "slow" {
			<-hold
			return delivery.Temporary
		}
		return delivery.Delivered
	}}
	o := rigOptions{prefix: prefix()}
	masters := servers{client, client, client}
	r := newRig(t, to, masters, o)
	desk := Desk{Shards: shards.New(masters...), KeyPrefix: o.prefix, Keep: time.Hour}
	r.deliver("sent")
	slow := make(chan delivery.Result, 1)
	go func() { slow <- r.deliver("slow") }()
	for to.count() < 2 {
		time.Sleep(time.Millisecond)
	}
	jobs := []Job{{"c", "sent", ""}, {"c", "slow", ""}, {"c", "waits", ""}, {"c", "event", "source"}}
	marks := func(run func(context.Context, []Job) ([]Mark, error), want ...Mark) {
		t.Helper()
		if got, err := run(t.Context(), jobs); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	marks(desk.Look, Delivered, InFlight, Free, Free)
	for range 2 {
		marks(desk.Cancel, Delivered, InFlight, Cancelled, Cancelled)
		marks(desk.Look, Delivered, InFlight, Cancelled, Cancelled)
	}
	close(hold)
	if res := <-slow; res.Class != delivery.Temporary {
		t.Errorf("%+v", res)
	}
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) { // the release comes behind the answer
		if got, _ := desk.Look(t.Context(), jobs[1:2]); got[0] == Free {
			break
		}
	}
	marks(desk.Cancel, Delivered, Cancelled, Cancelled, Cancelled)
	calls := to.count()
	for id, want := range map[string]delivery.ResultClass{"sent": delivery.Duplicate, "slow": delivery.Cancelled, "waits": delivery.Cancelled} {
		if res := r.deliver(id); res.Class != want {
			t.Errorf("%s: %+v", id, res)
		}
	}
	if n := to.count() - calls; n > 0 {
		t.Errorf("%d were sent", n)
	}
	read := []*delivery.Job{{ID: "waits", Campaign: "c"}, {ID: "event", Campaign: "c"}, {ID: "sent", Campaign: "c"}, {ID: "other", Campaign: "c"}}
	read[1].Headers = []delivery.Header{{Key: delivery.HeaderCloudEvent, Value: []byte("event")}, {Key: delivery.HeaderEventSource, Value: []byte("source")}}
	r.Filter(t.Context(), read)
	for i, want := range [][2]bool{{true, false}, {true, false}, {false, true}, {false, false}} {
		if j := read[i]; [2]bool{j.Cancelled, j.Duplicate} != want {
			t.Errorf("%s: cancelled %t, duplicate %t", j.ID, j.Cancelled, j.Duplicate)
		}
	}
	i := idOf("c", "waits", "")
	if kept, err := client.PTTL(t.Context(), i.key(r.shard(i).tag)).Result(); err != nil || kept < time.Minute || kept > time.Hour {
		t.Errorf("kept for %s, %v", kept, err)
	}
}

// TestManyAreCancelledAtOnce, in several round trips, and each gets its own mark.
func TestManyAreCancelledAtOnce(t *testing.T) {
	client := connect(t, testservices.RedisAddr(t))
	o := rigOptions{prefix: prefix()}
	masters := servers{client, client}
	r := newRig(t, &destination{}, masters, o)
	desk := Desk{Shards: shards.New(masters...), KeyPrefix: o.prefix, Keep: time.Minute}
	var jobs []Job
	for i := range 3 * shards.MaxBatch {
		jobs = append(jobs, Job{"c", fmt.Sprint("job-", i), ""})
		if i%100 == 7 {
			r.insist(t.Context(), jobs[i].ID)
		}
	}
	marks, err := desk.Cancel(t.Context(), jobs)
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range marks {
		if want := map[bool]Mark{true: Delivered, false: Cancelled}[i%100 == 7]; m != want {
			t.Errorf("job %d: %q, want %q", i, m, want)
		}
	}
	_ = client.Close()
	if _, err := desk.Cancel(t.Context(), jobs[:1]); err == nil {
		t.Error("without Redis nothing is wrong")
	}
}
