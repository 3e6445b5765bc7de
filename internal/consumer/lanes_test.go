package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// queues is a handler with a bounded queue per campaign and campaign by campaign control over who may send. It grants
// room like the pacer: when a queue that refused has been drained.
type queues struct {
	*fake
	mu       sync.Mutex
	capacity int
	paused   map[string]bool
	queue    map[string][]*delivery.Job
	waiting  map[string]delivery.Source
	offers   int
	sent     map[string]int
}

func newQueues(capacity int, paused ...string) *queues {
	q := &queues{
		fake: newFake(), capacity: capacity, paused: map[string]bool{}, queue: map[string][]*delivery.Job{},
		waiting: map[string]delivery.Source{}, sent: map[string]int{},
	}
	for _, c := range paused {
		q.paused[c] = true
	}
	q.keep = func(*delivery.Job) bool { return true }
	return q
}

func (q *queues) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.offers++
	var taken []*delivery.Job
	full := map[string]bool{}
	for _, j := range jobs {
		if full[j.Campaign] || len(q.queue[j.Campaign]) >= q.capacity {
			full[j.Campaign] = true
			q.waiting[j.Campaign] = j.Source
			refused = append(refused, j)
			continue
		}
		q.queue[j.Campaign] = append(q.queue[j.Campaign], j)
		taken = append(taken, j)
	}
	_, err = q.fake.Offer(ctx, taken)
	return refused, err
}

// send settles what is queued of campaigns that are not paused, and grants room.
func (q *queues) send() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for id, jobs := range q.queue {
		if q.paused[id] || len(jobs) == 0 {
			continue
		}
		for _, j := range jobs {
			q.forget(j.ID)
			j.Settle(delivery.OutcomeDelivered)
			q.sent[id]++
		}
		q.queue[id] = nil
		if src := q.waiting[id]; src != nil {
			delete(q.waiting, id)
			src.GrantCapacity(id, int64(q.capacity))
		}
	}
}

func (q *queues) calls() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.offers
}

func (q *queues) sentOf(campaign string) int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.sent[campaign]
}

func (q *queues) resume(campaign string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.paused, campaign)
}

func (f *fake) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.open, id)
}

// run sends until the test ends.
func (q *queues) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for retry.Sleep(ctx, 3*time.Millisecond) == nil {
			q.send()
		}
	})
	return func() { cancel(); wg.Wait() }
}

// Three campaigns share a lane. One stands still for long: the others pass it. When it goes on, it gets all of its
// jobs, in order, and a restart in the middle repeats nothing that was settled.
func TestLaneLetsOthersPass(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
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
		first := newQueues(7, "a")
		stop := first.run(t)
		c := r.start(first.fake, func(o *Options) { o.Handler = first })
		r.eventually("b and c are through", func() bool { return len(c.orderOf("b"))+len(c.orderOf("c")) == 2*each })
		for _, id := range []string{"b", "c"} {
			if got := c.orderOf(id); !slices.Equal(got, ids[id]) {
				t.Errorf("campaign %s out of order: %v", id, got)
			}
		}
		if got := c.orderOf("a"); !slices.Equal(got, ids["a"][:7]) {
			t.Errorf("a stands still, and was handed %v", got)
		}
		offers := first.calls()
		time.Sleep(100 * time.Millisecond)
		if n := first.calls() - offers; n > 2 {
			t.Errorf("%d calls for a campaign that has no room", n)
		}
		first.resume("a")
		r.eventually("a is half through", func() bool { return len(c.orderOf("a")) > each/2 })
		stop()
		first.send()
		c.stop()
		got := c.orderOf("a")
		settled := first.sentOf("a") // what was handed over after the last send was forgotten

		second := newQueues(7)
		defer second.run(t)()
		d := r.start(second.fake, func(o *Options) { o.Handler = second })
		r.eventually("the rest of a", func() bool { return d.saw(ids["a"][each-1]) })
		r.eventually("the last commit", func() bool { return r.committed(r.opt.LaneTopic, 0) == 3*each })
		d.stop()
		if rest := d.orderOf("a"); !slices.Equal(append(got[:settled:settled], rest...), ids["a"]) {
			t.Errorf("a was settled up to %d; after the restart came %d: %v", settled, len(rest), rest)
		}
		if n := len(d.orderOf("b")) + len(d.orderOf("c")); n != 0 {
			t.Errorf("%d jobs of the others were repeated", n)
		}
		if factor := d.metrics.lanes.readFactor(); factor < 1 {
			t.Errorf("read factor %f", factor)
		}
	})
}

// A job given back is offered again, after room.
func TestLaneRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	r.produceIDs(r.opt.LaneTopic, 0, "a", numbered("a", 0, 10))
	r.produceIDs(r.opt.LaneTopic, 0, "b", numbered("b", 0, 10))
	f := newFake()
	f.keep = func(j *delivery.Job) bool { return j.Campaign == "a" }
	c := r.start(f)
	r.eventually("all seen", func() bool { return c.count() == 20 })
	var src delivery.Source
	f.mu.Lock()
	for id, j := range f.open {
		if src = j.Source; j.Offset >= 3 {
			delete(f.open, id)
			j.Source.(*source).Release("a", j.Offset)
		}
	}
	f.mu.Unlock()
	r.produceIDs(r.opt.LaneTopic, 0, "b", []string{"b-more"})
	r.eventually("the others go on", func() bool { return c.saw("b-more") })
	if got := len(c.orderOf("a")); got != 10 {
		t.Fatalf("%d jobs of a were handed over, without room", got)
	}
	if n := f.settle(nil); n != 3 {
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
	r.eventually("the commit", func() bool { return r.committed(r.opt.LaneTopic, 0) == 21 })
}

// The twin that a crash between produce and commit leaves in a lane is dropped; a job that comes back is not.
func TestLaneDropsRepeats(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	twin := func(id, attempt string) kafka.Record {
		return job("a", id, delivery.HeaderOrigin, "jobs/0/77", delivery.HeaderHops, "1", delivery.HeaderAttempt, attempt)
	}
	r.produce(r.opt.LaneTopic, 0, twin("first", "0"), twin("first", "0"), twin("retried", "1"), job("a", "last"))
	c := r.start(newFake())
	r.eventually("all seen", func() bool { return c.saw("last") })
	r.eventually("the commit", func() bool { return r.committed(r.opt.LaneTopic, 0) == 4 })
	if got := fmt.Sprint(c.orderOf("a")); got != "[first retried last]" {
		t.Error(got)
	}
}

// Producers may write into lanes themselves: records that look alike are jobs of their own, in any lane. A job that comes back from a
// timer is no repeat of them.
func TestLaneTakesDirectJobs(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(3, r.jobs(), r.opt.LaneTopic)
		bare := kafka.Record{Value: kafka.NewBytes([]byte("p")), Headers: []kafka.Header{{Key: delivery.HeaderCampaign, Value: []byte("a")}}}
		envelope := kafka.Record{Value: kafka.NewBytes([]byte(`{"campaign":"a","id":"e","payload":{}}`))}
		for lane := range 3 {
			r.produce(r.opt.LaneTopic, lane, bare, bare, job("a", "same"), job("a", "same"), envelope)
			rewind(bare.Value)
			rewind(envelope.Value)
		}
		back := fmt.Sprint(r.opt.LaneTopic, "/0/0")
		r.produce(r.opt.LaneTopic, 0, job("a", back, delivery.HeaderOrigin, back, delivery.HeaderHops, "1", delivery.HeaderTimerHops, "1"))
		f := newFake()
		c := r.start(f)
		total := func() (n int) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, seen := range f.seen {
				n += seen
			}
			return n
		}
		r.eventually("all seen", func() bool { return total() == 16 })
		for lane := range 3 {
			for offset := range 2 {
				id := fmt.Sprintf("%s/%d/%d", r.opt.LaneTopic, lane, offset)
				if want := 1 + max(0, 1-lane-offset); c.seen[id] != want {
					t.Errorf("%s was seen %d times, want %d", id, c.seen[id], want)
				}
			}
		}
		if c.seen["same"] != 6 || c.seen["e"] != 3 {
			t.Errorf("seen %v", c.seen)
		}
		r.eventually("the commit", func() bool { return r.committed(r.opt.LaneTopic, 0) == 6 })
	})
}

// keptPositions is a Positions in memory.
type keptPositions struct {
	mu    sync.Mutex
	saved map[string]delivery.Position
	err   error
}

func (k *keptPositions) SavePositions(_ context.Context, _ string, list []delivery.Position) error {
	k.mu.Lock()
	defer k.mu.Unlock()
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
	for _, p := range k.saved {
		list = append(list, p)
	}
	return list, nil
}

// When the group's offsets are gone, lanes go on from the positions kept elsewhere.
func TestOffsetsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(2, r.jobs(), r.opt.LaneTopic)
	r.produceIDs(r.opt.LaneTopic, 0, "a", numbered("a", 0, 10))
	r.produceIDs(r.opt.LaneTopic, 1, "b", numbered("b", 0, 10))
	kept := &keptPositions{err: errors.New("read-only")}
	use := func(o *Options) { o.Positions, o.PositionInterval = kept, 20*time.Millisecond }
	f := newFake()
	f.keep = func(j *delivery.Job) bool { return j.ID == "a-0002" || j.ID == "a-0003" || j.ID == "b-0005" }
	c := r.start(f, use)
	r.eventually("all seen", func() bool { return c.count() == 20 })
	r.eventually("the line", func() bool { return len(r.logs.lines("level=WARN", "cannot be saved")) == 1 })
	c.stop()
	if p := kept.saved[fmt.Sprint(r.opt.LaneTopic, 0)]; p.Committed != 2 {
		t.Fatalf("kept %+v", p)
	}
	r.opt.Group += "-other"
	d := r.start(newFake(), use)
	r.eventually("the open ones", func() bool { return d.count() == 3 })
	d.stop()
	if got := fmt.Sprint(d.ids()); got != "[a-0002 a-0003 b-0005]" {
		t.Errorf("read again: %s", got)
	}
	if n := len(r.logs.lines("level=WARN", "kept in the catalog")); n != 2 {
		t.Errorf("said %d times", n)
	}
	if n := len(r.logs.lines("level=WARN", "cannot be saved")); n != 2 {
		t.Errorf("%d warnings of two runs", n)
	}
}

// An offset that is not in the log any more is an error that a person hears of; reading goes on at the earliest record.
func TestOffsetOutOfRange(t *testing.T) {
	t.Parallel()
	cluster := inProcess(t)
	r := newRig(t, cluster.ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	topics := []string{r.jobs(), r.opt.LaneTopic}
	for _, topic := range topics {
		r.produceIDs(topic, 0, "a", numbered("first-in-"+topic, 0, 10))
	}
	c := r.start(newFake())
	r.eventually("all seen", func() bool { return c.count() == 20 })
	c.stop()
	for _, topic := range topics {
		r.produceIDs(topic, 0, "a", numbered("second-in-"+topic, 0, 10))
		if err := cluster.DeleteRecords(topic, 0, 15); err != nil {
			t.Fatal(err)
		}
	}
	d := r.start(newFake())
	r.eventually("what is left", func() bool { return d.count() == 10 })
	d.stop()
	for _, topic := range topics {
		if n := len(r.logs.lines("level=ERROR", topic, "offset=10", "earliest=15")); n != 1 {
			t.Errorf("%s: %d lines", topic, n)
		}
		if at := r.committed(topic, 0); at != 20 {
			t.Errorf("%s: committed %d", topic, at)
		}
	}
}

// Lanes and timers on several brokers are watched by one poll each, and data wakes the right reader.
func TestIdleLanesOnSeveralBrokers(t *testing.T) {
	t.Parallel()
	cluster := inProcess(t)
	for range 2 {
		if _, _, err := cluster.AddNode(-1, 0); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, cluster.ListenAddrs())
	r.create(16, r.jobs(), r.opt.LaneTopic)
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
