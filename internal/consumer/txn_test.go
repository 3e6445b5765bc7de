package consumer

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/pacer/pacer/internal/metric"
	"github.com/pacer/pacer/internal/retry"
)

// transactional is a producer of transactions that writes to a partition of ingress.
func (r *rig) transactional() *kgo.Client {
	p, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...), kgo.TransactionalID(r.opt.Group),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(r.jobs()))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(p.Close)
	return p
}

// Jobs of an aborted transaction are never offered; markers delay nothing, also at the end of the log.
func TestTransactions(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		p := r.transactional()
		transaction := func(end kgo.TransactionEndTry, ids ...string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if err := p.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				rec := &kgo.Record{Value: []byte(id), Headers: []kgo.RecordHeader{
					{Key: "pacer-campaign", Value: []byte("c")}, {Key: "pacer-job-id", Value: []byte(id)},
				}}
				if err := p.ProduceSync(ctx, rec).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.EndTransaction(ctx, end); err != nil {
				t.Fatal(err)
			}
		}
		transaction(kgo.TryAbort, "lost-1", "lost-2")
		transaction(kgo.TryCommit, "kept-1", "kept-2")
		r.produceIDs(r.jobs(), 0, "c", []string{"plain"})
		transaction(kgo.TryAbort, "lost-3")
		transaction(kgo.TryCommit, "kept-3")
		transaction(kgo.TryAbort, "lost-4")
		c := r.start(newFake())
		r.eventually("all to the last marker", func() bool { return r.committed(r.jobs(), 0) == 3+3+1+2+2+2 })
		before := c.fetches("ingress")
		_ = retry.Sleep(t.Context(), longPoll)
		if n := c.fetches("ingress") - before; n > 4 {
			t.Errorf("%v fetches at the end of the log", n)
		}
		c.stop()
		if got := fmt.Sprint(c.orderOf("c")); got != "[kept-1 kept-2 plain kept-3]" {
			t.Error(got)
		}
	})
}

// A transaction that stays open holds its partition up, which is told; other partitions go on.
func TestAnOpenTransactionIsTold(t *testing.T) {
	onBrokers(t, 2, 1, func(t *testing.T, r *rig) {
		p := r.transactional()
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		rec := &kgo.Record{Value: []byte("x"), Headers: []kgo.RecordHeader{{Key: "pacer-campaign", Value: []byte("c")}}}
		if err := p.ProduceSync(t.Context(), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
		r.produceIDs(r.jobs(), 0, "c", []string{"behind"})
		r.produceIDs(r.jobs(), 1, "c", []string{"beside"})
		c := r.start(newFake())
		r.says(1, "level=WARN", "waits for an open transaction", "partition="+r.jobs()+"/0", "records=2")
		if metric.Value(c.metrics.transactions) != 1 || c.saw("behind") || !c.saw("beside") {
			t.Errorf("%v partitions wait; seen: %v", metric.Value(c.metrics.transactions), c.ids())
		}
		if err := p.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
		r.eventually("the job behind it", func() bool { return c.saw("behind") })
		r.says(1, "level=INFO", "has ended")
		if metric.Value(c.metrics.transactions) != 0 {
			t.Error("the partition still counts")
		}
	})
}
