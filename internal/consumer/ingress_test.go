package consumer

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// Jobs that were written while a clock was ahead hold a timer for one delay together, however many fetches they take.
func TestAClockThatWasAheadStopsNoTimer(t *testing.T) {
	t.Parallel()
	const delay = 2 * time.Second
	r := newRig(t, inProcess(t).ListenAddrs())
	timer := r.opt.Group + ".timer"
	r.opt.Timers = []Timer{{timer, delay}}
	r.create(1, r.jobs(), r.opt.LaneTopic, timer)
	write := func(id string, at time.Time) {
		rec := job("c", id, delivery.HeaderOrigin, "jobs/0/7", delivery.HeaderEnqueuedAt, at.Format(time.RFC3339Nano))
		rec.Value = kafka.NewBytes(make([]byte, timerFetchBytes/4))
		r.produce(timer, 0, rec)
	}
	began := time.Now()
	for _, id := range numbered("ahead", 0, 20) {
		write(id, began.Add(time.Hour))
	}
	write("bystander", began)
	c := r.start(newFake())
	r.eventually("all seen", func() bool { return c.count() == 21 })
	if took := c.at["bystander"].Sub(c.at["ahead-0000"]); took > delay {
		t.Errorf("the bystander came %s after the first one", took)
	}
	if early := c.at["ahead-0000"].Sub(began); early < delay {
		t.Errorf("a job of a timer came after %s", early)
	}
}
