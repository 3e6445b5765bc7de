package consumer

import (
	"slices"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
)

func (r *rig) produceCompressed(topic string, records ...kafka.Record) {
	r.t.Helper()
	answer, err := r.client.Produce(r.t.Context(), &kafka.ProduceRequest{
		Topic: topic, RequiredAcks: kafka.RequireAll, Compression: kafka.Zstd, Records: kafka.NewRecordReader(records...),
	})
	if err != nil || answer.Error != nil {
		r.t.Fatalf("produce: %v, %+v", err, answer)
	}
}

// A record larger than is accepted becomes a dead letter with its origin, and nothing else is affected.
func TestALargeRecordIsADeadLetter(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		for _, topic := range []string{r.jobs(), r.opt.LaneTopic} {
			large := job("c", topic+"-large")
			large.Value = kafka.NewBytes(make([]byte, 3<<20))
			r.produceCompressed(topic, job("c", topic+"-before"), large, job("c", topic+"-after"))
		}
		c := r.start(newFake(), func(o *Options) {
			client, err := broker.New(broker.Options{Brokers: r.brokers, MaxRecordBytes: 1 << 20})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			o.Client = client
		})
		r.eventually("all are committed", func() bool { return r.committed(r.jobs(), 0) == 3 && r.committed(r.opt.LaneTopic, 0) == 3 })
		c.stop()
		var want []string
		for _, topic := range []string{r.jobs(), r.opt.LaneTopic} {
			want = append(want, topic+"-after", topic+"-before", topic+"/0/1")
			if lines := r.logs.lines("level=ERROR", "partition="+topic+"/0", "offset=1", "too_large"); len(lines) != 1 {
				t.Errorf("%s", r.logs)
			}
		}
		if got := c.ids(); !slices.Equal(got, want) {
			t.Errorf("handed over %v, want %v", got, want)
		}
		if len(c.defects) != 2 {
			t.Fatalf("%d defects", len(c.defects))
		}
		for _, j := range c.defects {
			if j.Defect() != delivery.ReasonTooLarge || j.Payload != nil || j.Origin.Offset != 1 || j.Flaw.Lost < 3<<20 {
				t.Errorf("%+v", j)
			}
		}
	})
}

// The decompressed bytes of a fetch count in the budget of memory: reading stops when it is used up, even within a batch.
func TestCompressedFetchesCountInTheBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	const jobs, size, limit = 2000, 4 << 10, 1 << 20
	records := make([]kafka.Record, jobs)
	for i, id := range numbered("j", 0, jobs) {
		records[i] = job("c", id)
		records[i].Value = kafka.NewBytes([]byte(strings.Repeat("payload ", size/8)))
	}
	r.produceCompressed(r.jobs(), records...)
	f := newFake()
	f.keep = func(*delivery.Job) bool { return true }
	c := r.start(f, func(o *Options) {
		o.MaxBufferBytes = limit
		o.Handler = noRelief{o.Handler.(*fake)}
	})
	r.eventually("memory is used up", func() bool { return c.budget.of(delivery.FromIngress).waitedFor() > 0 })
	if n := c.count(); n*size > 2*limit {
		t.Errorf("%d jobs of %d bytes were read into a budget of %d", n, size, limit)
	}
	r.eventually("all are read by and by", func() bool {
		c.settle(nil)
		return c.count() == jobs
	})
}
