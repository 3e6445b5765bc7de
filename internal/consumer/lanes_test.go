package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// Three campaigns share a lane. One stands still for long: the others pass it. When it goes on, it gets all of its
// jobs, in order, and a restart in the middle repeats nothing that was settled.
func TestLaneLetsOthersPass(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		const each = 400
		ids := map[string][]string{}
		var records []kafka.Record
		for i := range each {
			for _, c := range []string{"a", "b", "c"} {
				id := fmt.Sprintf("%s-%04d", c, i)
				ids[c] = append(ids[c], id)
				records = append(records, job(c, id))
			}
		}
		for piece := range slices.Chunk(records, 100) {
			r.produce(r.opt.LaneTopic, 0, piece...)
		}
		first := newQueues(7, "a", "b", "c")
		first.of["a"].paused = true
		stop := first.run(t, everything)
		c := r.start(first)
		r.eventually("b and c are through", func() bool { return c.count() == 2*each })
		for _, id := range []string{"b", "c"} {
			if got := c.orderOf(id); !slices.Equal(got, ids[id]) {
				t.Errorf("campaign %s out of order: %v", id, got)
			}
		}
		offers := first.calls()
		time.Sleep(100 * time.Millisecond)
		if n := first.calls() - offers; n > 2 {
			t.Errorf("%d calls for a campaign that has no room", n)
		}
		first.change("a", func(a *queue) { a.paused = false })
		r.eventually("a is half through", func() bool { return len(c.orderOf("a")) > each/2 })
		stop()
		c.stop()

		second := newQueues(7, "a", "b", "c")
		defer second.run(t, everything)()
		d := r.start(second)
		r.eventually("the last commit", r.allCommitted(3*each, 1, r.opt.LaneTopic))
		d.stop()
		if got := slices.Concat(c.orderOf("a"), d.orderOf("a")); !slices.Equal(got, ids["a"]) {
			t.Errorf("a was sent, before and after the restart: %v", got)
		}
		if n := d.count() - len(d.orderOf("a")); n != 0 {
			t.Errorf("%d jobs of the others were repeated", n)
		}
		if factor := d.metrics.lanes.readFactor(); factor < 1 {
			t.Errorf("read factor %f", factor)
		}
	})
}

// A job given back is offered again, after room.
func TestLaneRelease(t *testing.T) {
	r := inProcess(t, 1, 1)
	r.produceIDs(r.opt.LaneTopic, 0, "a", numbered("a", 0, 10))
	r.produceIDs(r.opt.LaneTopic, 0, "b", numbered("b", 0, 10))
	f := keeping(func(j *delivery.Job) bool { return j.Campaign == "a" })
	c := r.start(f)
	r.eventually("all seen", func() bool { return c.count() == 20 })
	var src delivery.Source
	f.end(func(j *delivery.Job) bool { src = j.Source; return j.Offset >= 3 }, giveBack)
	r.produceIDs(r.opt.LaneTopic, 0, "b", []string{"b-more"})
	r.eventually("the others go on", func() bool { return c.saw("b-more") })
	if got := len(c.orderOf("a")); got != 10 {
		t.Fatalf("%d jobs of a were handed over, without room", got)
	}
	if n := f.settle(all); n != 3 {
		t.Fatalf("%d kept", n)
	}
	f.mu.Lock()
	f.keep = nil
	f.mu.Unlock()
	src.GrantCapacity("a", 100)
	r.eventually("they come again", func() bool { return len(c.orderOf("a")) == 17 })
	if got := c.orderOf("a")[10:]; !slices.Equal(got, numbered("a", 3, 10)) {
		t.Errorf("came again: %v", got)
	}
	r.eventually("the commit", r.allCommitted(21, 1, r.opt.LaneTopic))
}

// The twin that a lost answer, or a crash between produce and commit, leaves in a lane or a timer is dropped; a job that comes back once
// more is not.
func TestRepeatsAreDropped(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		timer := r.timer(100 * time.Millisecond)
		old := time.Now().Add(-time.Hour).Format(time.RFC3339Nano)
		for topic, hops := range map[string]string{r.opt.LaneTopic: delivery.HeaderHops, timer: delivery.HeaderTimerHops} {
			visit := func(id, origin, hop, attempt string) kafka.Record {
				return job(topic, id, delivery.HeaderOrigin, origin, hops, hop, delivery.HeaderAttempt, attempt, delivery.HeaderEnqueuedAt, old)
			}
			r.produce(topic, 0, visit("first", "jobs/0/77", "1", "0"), visit("first", "jobs/0/77", "1", "0"), visit("same", "jobs/0/78", "1", "0"),
				visit("first", "jobs/0/77", "1", "1"), visit("first", "jobs/0/77", "2", "1"), job(topic, "last", delivery.HeaderEnqueuedAt, old))
			r.produce(topic, 0, visit("first", "jobs/0/77", "1", "0"), visit("end", "jobs/0/79", "1", "0"))
		}
		c := r.start(newFake())
		r.eventually("the commits", r.allCommitted(8, 1, r.opt.LaneTopic, timer))
		for _, topic := range []string{r.opt.LaneTopic, timer} {
			if got := fmt.Sprint(c.orderOf(topic)); got != "[first same first first last end]" {
				t.Errorf("%s: %s", topic, got)
			}
		}
	})
}

// keptPositions is a Positions in memory.
type keptPositions struct {
	mu    sync.Mutex
	saved map[string]delivery.Position
	err   error        // of what is saved all the same
	down  atomic.Bool  // nothing is saved or loaded
	saves atomic.Int32 // calls
}

var errPostgresDown = errors.New("postgres is down")

func (k *keptPositions) SavePositions(_ context.Context, _ string, list []delivery.Position) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.saves.Add(1); k.down.Load() {
		return errPostgresDown
	}
	if k.saved == nil {
		k.saved = map[string]delivery.Position{}
	}
	for _, p := range list {
		k.saved[fmt.Sprint(p.Topic, p.Partition)] = p
	}
	return k.err
}

func (k *keptPositions) LoadPositions(context.Context, string) (list []delivery.Position, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.down.Load() {
		return nil, errPostgresDown
	}
	return slices.Collect(maps.Values(k.saved)), nil
}

// An offset that is not in the log any more is an error that a person hears of; reading goes on at the earliest record.
func TestOffsetOutOfRange(t *testing.T) {
	r := inProcess(t, 1, 1)
	topics := []string{r.jobs(), r.opt.LaneTopic}
	for _, topic := range topics {
		r.produceIDs(topic, 0, "a", numbered("first-in-"+topic, 0, 10))
	}
	c := r.start(newFake())
	r.eventually("all seen", func() bool { return c.count() == 20 })
	c.stop()
	for _, topic := range topics {
		r.produceIDs(topic, 0, "a", numbered("second-in-"+topic, 0, 10))
		if err := r.cluster.DeleteRecords(topic, 0, 15); err != nil {
			t.Fatal(err)
		}
	}
	d := r.start(newFake())
	r.eventually("what is left", func() bool { return d.count() == 10 })
	d.stop()
	for _, topic := range topics {
		r.said(1, "level=ERROR", topic, "offset=10", "earliest=15")
	}
	if !r.allCommitted(20, 1, topics...)() {
		t.Error("not all is committed")
	}
}

// Lanes and timers on several brokers are watched by one poll each, and data wakes the right reader.
func TestIdleLanesOnSeveralBrokers(t *testing.T) {
	r := inProcess(t, 0, 0)
	for range 2 {
		if _, _, err := r.cluster.AddNode(-1, 0); err != nil {
			t.Fatal(err)
		}
	}
	r.with(16, 16)
	c := r.start(newFake())
	r.eventually("joined", c.Joined)
	time.Sleep(2 * longPoll)
	before := c.fetches("lane")
	time.Sleep(2 * longPoll)
	if n := c.fetches("lane") - before; n > 0 {
		t.Errorf("%v fetches of idle lanes", n)
	}
	for p := range 16 {
		r.produceIDs(r.opt.LaneTopic, p, "a", []string{fmt.Sprint("a-", p)})
	}
	start := time.Now()
	r.eventually("all seen", func() bool { return c.count() == 16 })
	if took := time.Since(start); took > 3*longPoll {
		t.Errorf("took %s", took)
	}
}
