package keyed

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// adopt writes the store's clock as package limits does, with the epoch of the data; daemons expect it.
func (r *rig) adopt(epoch int64) {
	r.t.Helper()
	clock := append(make([]byte, 14), binary.LittleEndian.AppendUint64(nil, uint64(epoch))[:7]...)
	if err := r.redis.Set(context.Background(), shards.Tag("pacer.", 0)+shards.ClockKey, string(clock)+"run id", 0).Err(); err != nil {
		r.t.Fatal(err)
	}
	r.epoch.Store(epoch)
}

// TestAStoreThatHasLostItsData: a closed quota sends nothing until the loss is known and a span has passed since. An open one goes on.
func TestAStoreThatHasLostItsData(t *testing.T) {
	t.Parallel()
	const span = 2 * time.Second
	for _, policy := range []string{delivery.PolicyClosed, delivery.PolicyOpen} {
		r := newRig(t, unlimited(delivery.Quota{OnStoreFailure: policy, Windows: []delivery.Window{window(1, span)}}))
		sends := func(when string, want bool) {
			t.Helper()
			j := job("a")
			j.Turned = true
			if res := r.sendSoon(j); (res.Class == delivery.Delivered) != want {
				t.Errorf("%s, %s: %+v", policy, when, res)
			}
		}
		r.adopt(1)
		sends("at first", true)
		sends("within the window", false)
		r.server.Flush(t)
		sends("when the data is gone", policy == delivery.PolicyOpen)
		r.epoch.Store(-1)
		sends("while it is rebuilt", policy == delivery.PolicyOpen)
		r.adopt(2)
		begun := time.Now()
		r.eventually("the store answers", func() bool { r.send(job("other")); return !r.shards[0].Failing() })
		if policy == delivery.PolicyClosed {
			sends("once it was rebuilt", false)
			r.eventually("a job after a span", func() bool {
				j := job("a")
				j.Turned = true
				return r.send(j).Class == delivery.Delivered
			})
			if took := time.Since(begun); took < span {
				t.Errorf("the span was %s", took)
			}
		}
	}
}

// TestALateTakeCapsNoJob: a take that is answered after its job's slot counts the job for a moment. The job's next take does not meet that.
func TestALateTakeCapsNoJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, delivery.Quota{Windows: []delivery.Window{window(1, time.Hour)}})
	r.send(job("first")) // the script is loaded
	late := 0
	for i := range 30 {
		j := job(fmt.Sprint("k", i))
		send := func() delivery.Result {
			j.SendBy = delivery.StampOf(time.Now().Add(15 * time.Millisecond))
			return r.send(j)
		}
		r.server.Freeze()
		if send().Class == delivery.Withheld {
			late++
		}
		r.server.Thaw()
		r.eventually("the job is sent", func() bool {
			res := send()
			if res.Class == delivery.Capped {
				t.Fatalf("job %d is capped by itself", i)
			}
			return res.Class == delivery.Delivered
		})
	}
	if late == 0 {
		t.Error("no take was late: the test shows nothing")
	}
	left := 0
	r.takes.Range(func(any, any) bool { left++; return true })
	if left > 0 {
		t.Errorf("%d takes are remembered", left)
	}
}

// TestOnlyTheRoundTripMakesATakeLate: a take that waits behind another batch counts from when it was asked. One that nobody waits for any more
// is not asked.
func TestOnlyTheRoundTripMakesATakeLate(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Hour)}}))
	r.send(job("first")) // the script is loaded
	r.server.Freeze()
	var sending sync.WaitGroup
	sending.Go(func() { r.send(job("before")) })
	time.Sleep(20 * time.Millisecond) // its batch is under way
	results := make(chan delivery.Result, 1)
	sending.Go(func() { results <- r.send(job("waits")) })
	gone := job("gone")
	gone.SendBy = delivery.StampOf(time.Now().Add(5 * time.Millisecond))
	if res := r.send(gone); res.Class != delivery.Withheld {
		t.Errorf("%+v", res)
	}
	time.Sleep(2 * delivery.KeyMargin)
	r.server.Thaw()
	if res := <-results; res.Class != delivery.Delivered {
		t.Errorf("a take that waited for %s: %+v", 2*delivery.KeyMargin, res)
	}
	sending.Wait()
	if n := r.redis.Exists(context.Background(), idOf("cap", "gone").key("pacer.", 0)).Val(); n != 0 {
		t.Error("a take was asked that nobody waited for")
	}
	epochs := 0
	s := newShard(shard{epochOf: func(int) (int64, bool) { epochs++; return 0, false }, log: slog.New(slog.DiscardHandler)})
	late := newGroup()
	late.abandoned = true
	k := &check{group: late}
	late.left.Store(1)
	if _, err := s.send([]*check{k}); err != nil || epochs > 0 || k.err == nil {
		t.Errorf("%v, %v, and it was asked %d times", err, k.err, epochs)
	}
}
