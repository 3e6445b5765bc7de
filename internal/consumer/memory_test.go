package consumer

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// cold is a broker that takes a while to find what is asked for, so that the fetches of all partitions overlap.
type cold struct{ kafka.RoundTripper }

func (c cold) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	if f, ok := kafkatest.Message(request).(*kmsg.FetchRequest); ok && f.MaxBytes > 1 {
		time.Sleep(300 * time.Millisecond)
	}
	return c.RoundTripper.RoundTrip(ctx, addr, request)
}

// However many partitions have large jobs, and whether the first answers tell of them or not, the buffer bounds what is held; and all are
// read when there is room.
func TestLargeJobsOfManyPartitionsStayWithinTheBuffer(t *testing.T) {
	t.Parallel()
	const limit, partitions, size = 16 << 20, 48, 900 << 10
	for _, place := range []string{"ingress", "lanes"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, inProcess(t).ListenAddrs())
			topic := r.opt.LaneTopic
			if place == "ingress" {
				topic = r.jobs()
				r.create(1, r.opt.LaneTopic)
			} else {
				r.create(1, r.jobs())
			}
			r.create(partitions, topic)
			for p := range partitions {
				rec := job(fmt.Sprint("c", p), fmt.Sprint("j-", p))
				rec.Value = kafka.NewBytes(make([]byte, size))
				r.produce(topic, p, rec)
			}
			f := newFake()
			f.keep = func(*delivery.Job) bool { return true } // they wait for their slots
			c := r.start(f, func(o *Options) {
				o.MaxBufferBytes = limit
				o.Client = newBroker(t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper { return cold{inner} })
			})
			r.eventually("the buffer is full", func() bool {
				if held := c.budget.inUse(); held > limit*9/8 {
					t.Fatalf("%d MiB are held, of %d MiB", held>>20, limit>>20)
				}
				return c.count()*size > limit/2
			})
			r.eventually("all are read", func() bool { c.settle(nil); return c.count() == partitions })
		})
	}
}
