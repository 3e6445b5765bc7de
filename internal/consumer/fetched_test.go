package consumer

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// weighing is a transport that counts the bytes of batches that are fetched.
type weighing struct {
	kafka.RoundTripper
	fetched *atomic.Int64
}

func (w weighing) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	answer, err := w.RoundTripper.RoundTrip(ctx, addr, request)
	if err == nil {
		if f, ok := kafkatest.Answer(answer).(*kmsg.FetchResponse); ok {
			for _, t := range f.Topics {
				for _, p := range t.Partitions {
					w.fetched.Add(int64(len(p.RecordBatches)))
				}
			}
		}
	}
	return answer, err
}

// Each batch is fetched about once. The batch of a lane that was empty comes with the answer that reports it. A batch of ingress above
// the requested size is read as a whole.
func TestABatchIsFetchedOnce(t *testing.T) {
	t.Parallel()
	const jobs, size = 1000, 800
	for _, place := range []string{"ingress", "lane"} {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			r, fetched := newRig(t, inProcess(t).ListenAddrs()), &atomic.Int64{}
			r.create(1, r.jobs(), r.opt.LaneTopic)
			c := r.start(newFake(), func(o *Options) {
				o.Client = newBroker(t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper { return weighing{inner, fetched} })
			})
			topic, rounds, each := r.jobs(), 1, jobs
			if place == "lane" {
				topic, rounds, each = r.opt.LaneTopic, 50, jobs/50
			}
			for round := range rounds {
				records := make([]kafka.Record, each)
				for i := range records {
					records[i] = job("c", fmt.Sprint("j-", round, "-", i))
					records[i].Value = kafka.NewBytes(make([]byte, size))
				}
				r.produce(topic, 0, records...)
				r.eventually("the jobs", func() bool { return c.count() == (round+1)*each })
			}
			if n := fetched.Load(); n > jobs*(size+150)*13/10 {
				t.Errorf("%d bytes are fetched for %d bytes of jobs", n, jobs*size)
			}
		})
	}
}
