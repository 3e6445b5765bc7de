package consumer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// Campaigns that do not send, as when their quotas are used up, have more jobs in their lanes than there is memory.
// Others are read all the same, and the log says nothing of a want of memory.
func TestLanesThatWaitGetMemory(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs())
	r.create(3, r.opt.LaneTopic)
	const limit, stuck = 4 << 20, 12
	value := []byte(strings.Repeat("x", 8<<10))
	for i := range 600 { // 5 MB, as much of each campaign as it may have in memory
		rec := job(fmt.Sprint("stuck-", i%stuck), fmt.Sprint("s-", i))
		rec.Value = kafka.NewBytes(value)
		r.produce(r.opt.LaneTopic, i%2, rec)
	}
	f := newFake()
	f.keep = func(j *delivery.Job) bool { return j.Campaign != "ok" }
	f.yields = true
	c := r.start(f, func(o *Options) { o.MaxBufferBytes = limit })
	r.eventually("memory is full", func() bool { return c.budget.of(delivery.FromLane).waitedFor() > 0 })
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
