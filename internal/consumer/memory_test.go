package consumer

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// cold is the way to a broker that takes a while to find what is asked for, so that the fetches of all partitions overlap.
func cold(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
	if f, ok := kafkatest.Message(request).(*kmsg.FetchRequest); ok && f.MaxBytes > 1 {
		time.Sleep(300 * time.Millisecond)
	}
	return send(ctx)
}

// However many partitions there are, however large or small when compressed their jobs, and whether the first answers tell of it or not, the
// buffer bounds what is held. Reading stops when it is used up, even within a batch. All jobs are read when there is room.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const compressed = true
	for name, c := range map[string]struct {
		ingress, lanes int // partitions with jobs
		jobs, size     int // in each partition
		limit          int64
		most           float64 // held, of the limit
		packed         bool
		way            way
	}{
		"compressed":               {1, 0, 2000, 4 << 10, 1 << 20, 2, compressed, nil},
		"many partitions":          {30, 90, 10, 8 << 10, 3 << 20, 2, false, nil},
		"ingress":                  {48, 0, 1, 450 << 10, 8 << 20, 1.125, false, cold},
		"lanes":                    {0, 48, 1, 450 << 10, 8 << 20, 1.125, false, cold},
		"ingress, far above usual": {12, 0, 1, 2500 << 10, 8 << 20, 1.125, false, cold},
		"lanes, far above usual":   {0, 12, 1, 2500 << 10, 8 << 20, 1.125, false, cold},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := kafkatest.Cluster(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "16777216"}))
			r := newRig(t, cluster.ListenAddrs()).with(max(1, c.ingress), max(1, c.lanes))
			if c.packed {
				r.compression = kafka.Zstd
			}
			for topic, partitions := range map[string]int{r.jobs(): c.ingress, r.opt.LaneTopic: c.lanes} {
				for p := range partitions {
					ids := numbered(fmt.Sprint(topic, p), 0, c.jobs)
					r.produceIDs(topic, p, fmt.Sprint("c", p), ids, bytes.Repeat([]byte("payload "), c.size/8))
				}
			}
			f := keeping(all) // they wait for their slots
			f.stubborn = true
			run := r.start(f, func(o *Options) {
				if o.MaxBufferBytes = c.limit; c.way != nil {
					o.Client = r.by(c.way)
				}
			})
			most := int64(0)
			look := func() {
				if most = max(most, run.budget.inUse()); float64(most) > c.most*float64(c.limit) {
					t.Fatalf("%d KiB are held, of %d KiB", most>>10, c.limit>>10)
				}
			}
			r.eventually("memory is used up", func() bool {
				look()
				waits := run.budget.of(delivery.FromIngress).waitedFor() + run.budget.of(delivery.FromLane).waitedFor()
				return waits > 0 && int64(run.count()*c.size) > c.limit/4
			})
			for range 200 { // nothing is settled: reading stops where it is
				look()
				time.Sleep(time.Millisecond)
			}
			if n := run.count(); int64(n*c.size) > 2*c.limit || most < c.limit/2 && c.ingress+c.lanes > 1 {
				t.Errorf("%d jobs of %d bytes were read into a budget of %d, of which %d were used", n, c.size, c.limit, most)
			}
			r.eventually("all are read by and by", func() bool {
				look()
				run.settle(all)
				return run.count() == (c.ingress+c.lanes)*c.jobs
			})
			r.said(0, "no room for an answer")
		})
	}
}

// Campaigns that do not send, as when their quotas are used up, have more jobs in their lanes than there is memory.
// Others are read all the same, and the log says nothing of a want of memory.
func TestLanesThatWaitGetMemory(t *testing.T) {
	r := inProcess(t, 1, 3)
	const limit, stuck = 4 << 20, 12
	for campaign := range stuck { // 5 MB, as much of each campaign as it may have in memory
		name := fmt.Sprint("stuck-", campaign)
		r.produceIDs(r.opt.LaneTopic, campaign%2, name, numbered(name, 0, 600/stuck), make([]byte, 8<<10))
	}
	f := keeping(func(j *delivery.Job) bool { return j.Campaign != "ok" })
	f.yields = true
	registry := prometheus.NewRegistry()
	c := r.start(f, func(o *Options) { o.MaxBufferBytes, o.Registerer = limit, registry })
	r.eventually("memory is full", func() bool { return c.budget.of(delivery.FromLane).waitedFor() > 0 })
	shown := []string{"pacer_buffer_bytes", "pacer_buffer_wait_seconds", "pacer_lane_read_factor"}
	if n, err := testutil.GatherAndCount(registry, shown...); n != 4 || err != nil { // one for each share
		t.Errorf("%d figures are shown, %v", n, err)
	}
	r.produceIDs(r.opt.LaneTopic, 2, "ok", numbered("ok", 0, 100))
	began := time.Now()
	r.eventually("the campaign that can send is read", func() bool { return len(c.orderOf("ok")) == 100 })
	if took := time.Since(began); took > patience/2 {
		t.Errorf("took %s", took)
	}
	if held := c.budget.inUse(); held > limit {
		t.Errorf("%d bytes are held, of %d", held, limit)
	}
}
