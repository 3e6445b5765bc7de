package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// Records up to the size limit are read whole, at any size of a fetch. One that is larger, or cannot be decoded, becomes a dead letter with
// its origin. None delays another job.
func TestLargeAndBrokenRecords(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		const large = 1000_000
		topics := []string{r.jobs(), r.opt.LaneTopic}
		var want []string
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", []string{topic + "-before"})
			r.produceIDs(topic, 0, "c", []string{topic + "-large"}, make([]byte, large))
			r.produce(topic, 0, kafka.Record{Value: kafka.NewBytes([]byte("neither")), Key: kafka.NewBytes([]byte("k"))})
			huge := job("c", topic+"-huge")
			huge.Value = kafka.NewBytes(make([]byte, 3<<20))
			r.compression = kafka.Zstd
			r.produce(topic, 0, job("c", topic+"-between"), huge, job("c", topic+"-after"))
			r.compression = 0
			want = append(want, topic+"-after", topic+"-before", topic+"-between", topic+"-large", topic+"/0/2", topic+"/0/4")
		}
		sizes := map[string]int{}
		c := r.start(keeping(func(j *delivery.Job) bool { sizes[j.ID] = len(j.Payload); return false }), func(o *Options) {
			o.Client = r.dial(broker.Options{MaxRecordBytes: 1 << 20})
		})
		r.eventually("all are committed", r.allCommitted(6, 1, topics...))
		c.stop()
		if got := c.ids(); !slices.Equal(got, want) {
			t.Errorf("handed over %v, want %v", got, want)
		}
		for _, topic := range topics {
			if n := sizes[topic+"-large"]; n != large {
				t.Errorf("%d bytes of the large record in %s", n, topic)
			}
			r.said(1, "level=ERROR", "partition="+topic+"/0", "offset=4", "too_large")
		}
		broken := 0
		for _, j := range c.defects {
			switch {
			case j.Defect() == delivery.ReasonUndecodable && string(j.Payload) == "neither" && string(j.Key) == "k" && j.Campaign == "":
				broken++
			case j.Defect() != delivery.ReasonTooLarge || j.Payload != nil || j.Origin.Offset != 4 || j.Flaw.Lost < 3<<20:
				t.Errorf("%+v", j)
			}
		}
		if len(c.defects) != 4 || broken != 2 {
			t.Errorf("%d defects, of which %d cannot be decoded", len(c.defects), broken)
		}
	})
}

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
