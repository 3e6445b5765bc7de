package pacer

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// refunds counts the takes of one campaign that are made while its slots are being handed back.
type refunds struct {
	*client
	underWay, overtaken, made atomic.Int64
}

func (r *refunds) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	if r.underWay.Load() > 0 {
		r.overtaken.Add(1)
	}
	return r.client.Take(ctx, asks)
}

func (r *refunds) Refund(ctx context.Context, grants []delivery.Grant) error {
	r.made.Add(1)
	r.underWay.Add(1)
	defer r.underWay.Add(-1)
	return r.client.Refund(ctx, grants)
}

// A queue does not ask while its slots are being handed back, however slow the store is and often its rate changes, nor
// has it two takes under way: what takes may bring is then the room of its sink for others, and all of it comes back.
func TestNoTakeOvertakesARefund(t *testing.T) {
	b := newBook(campaign("c", 100))
	synctest.Test(t, func(t *testing.T) {
		var r *refunds
		f := newFleet(1, uniform(3, 30*time.Millisecond, 10*time.Millisecond), b, func(o *Options) {
			r = &refunds{client: o.Limiter.(*client)}
			o.Limiter = r
		})
		defer f.stop()
		lane := newPartition("lane/0")
		for i := range 100 {
			f.offer(t, jobs(lane, delivery.FromLane, "c", int64(100*i), 100))
			b.set(campaign("c", []int64{2000, 100}[i%2]))
			time.Sleep(130 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		if r.made.Load() < 10 || r.overtaken.Load() > 0 {
			t.Errorf("%d refunds, %d takes while one was under way", r.made.Load(), r.overtaken.Load())
		}
		asked := make(chan int64)
		f.daemons[0].inbox.do(func() { asked <- f.daemons[0].sinks["default"].asked })
		if n := <-asked; n != 0 {
			t.Errorf("%d slots are expected, though nobody has asked for any", n)
		}
	})
}
