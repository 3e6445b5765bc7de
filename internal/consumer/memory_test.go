package consumer

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
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
	const limit = 8 << 20
	for name, c := range map[string]struct {
		ingress          bool
		partitions, size int
	}{
		"ingress":                  {true, 48, 450 << 10},
		"lanes":                    {false, 48, 450 << 10},
		"ingress, far above usual": {true, 12, 2500 << 10},
		"lanes, far above usual":   {false, 12, 2500 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, inProcess(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "16777216"})).ListenAddrs())
			topic, other := r.opt.LaneTopic, r.jobs()
			if c.ingress {
				topic, other = other, topic
			}
			r.create(1, other)
			r.create(c.partitions, topic)
			for p := range c.partitions {
				rec := job(fmt.Sprint("c", p), fmt.Sprint("j-", p))
				rec.Value = kafka.NewBytes(make([]byte, c.size))
				r.produce(topic, p, rec)
			}
			f := newFake()
			f.keep = func(*delivery.Job) bool { return true } // they wait for their slots
			run := r.start(f, func(o *Options) {
				o.MaxBufferBytes = limit
				o.Client = newBroker(t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper { return cold{inner} })
			})
			within := func() {
				if held := run.budget.inUse(); held > limit*9/8 {
					t.Fatalf("%d MiB are held, of %d MiB", held>>20, limit>>20)
				}
			}
			r.eventually("the buffer is full", func() bool { within(); return run.count()*c.size > limit/4 })
			r.eventually("all are read", func() bool { within(); run.settle(nil); return run.count() == c.partitions })
			if lines := r.logs.lines("no room for an answer"); len(lines) > 0 {
				t.Error(lines)
			}
		})
	}
}
