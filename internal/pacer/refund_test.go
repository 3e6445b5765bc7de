package pacer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// refunds hands slots back slowly, and counts the takes that are made meanwhile.
type refunds struct {
	*client
	underWay, overtaken, made atomic.Int64
}

func (r *refunds) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	time.Sleep(time.Microsecond) // a refund of the same turn has begun by then
	if r.underWay.Load() > 0 {
		r.overtaken.Add(1)
	}
	return r.client.Take(ctx, asks)
}

func (r *refunds) Refund(ctx context.Context, grants []delivery.Grant) error {
	r.made.Add(1)
	r.underWay.Add(1)
	defer r.underWay.Add(-1)
	time.Sleep(100 * time.Millisecond)
	return r.client.Refund(ctx, grants)
}

// A queue does not ask while its slots are being handed back, however long that takes: the take would find them still
// given away. Nor has it two takes under way, which would not know what each of them may bring.
func TestNoTakeOvertakesARefund(t *testing.T) {
	b := newBook(campaign("c", 100))
	synctest.Test(t, func(t *testing.T) {
		var r *refunds
		f := newFleet(1, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) {
			r = &refunds{client: o.Limiter.(*client)}
			o.Limiter = r
		})
		defer f.stop()
		lane := newPartition("lane/0")
		for i := range 20 {
			f.offer(t, jobs(lane, delivery.FromLane, "c", int64(100*i), 100))
			b.set(campaign("c", []int64{2000, 100}[i%2]))
			time.Sleep(330 * time.Millisecond)
		}
		b.set(campaign("c", 0)) // no daemon asks any more
		time.Sleep(time.Second)
		atLeast(t, r.made.Load(), 10, "refunds")
		atMost(t, r.overtaken.Load(), 0, "takes while one was under way")
		atLeast(t, f.count("c"), 1800, "sent")
		asked := make(chan int64)
		f.daemons[0].inbox.do(func(instant) { asked <- f.daemons[0].sinkByID("default").asked })
		exactly(t, <-asked, 0, "slots are expected, though none were asked for")
	})
}
