package consumer

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// Each batch is fetched about once. The batch of a lane that was empty comes with the answer that reports it. A batch of ingress above
// the requested size is read as a whole.
func TestABatchIsFetchedOnce(t *testing.T) {
	t.Parallel()
	const jobs, size = 1000, 800
	for _, place := range []string{"ingress", "lane"} {
		t.Run(place, func(t *testing.T) {
			r, fetched := inProcess(t, 1, 1), atomic.Int64{}
			c := r.start(newFake(), r.through(func(ctx context.Context, _ kafka.Request, send sending) (kafka.Response, error) {
				answer, err := send(ctx)
				if err != nil {
					return nil, err
				}
				if f, ok := kafkatest.Answer(answer).(*kmsg.FetchResponse); ok {
					for _, t := range f.Topics {
						for _, p := range t.Partitions {
							fetched.Add(int64(len(p.RecordBatches)))
						}
					}
				}
				return answer, nil
			}))
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
