package consumer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

// Every job is handed over once, while a second consumer joins and the first one leaves.
func TestEveryJobOnceOverARebalance(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(4, r.jobs(), r.opt.LaneTopic)
		const rounds, perRound = 60, 5
		handler := func() *fake {
			f := newFake()
			f.slow = func() time.Duration { return rand.N(30 * time.Millisecond) }
			return f
		}
		first := r.start(handler())
		r.eventually("joined", first.Joined)
		written := make(chan struct{})
		go func() {
			defer close(written)
			for round := range rounds {
				for p := range 4 {
					r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprintf("in-%d-%d", p, round), 0, perRound))
					r.produceIDs(r.opt.LaneTopic, p, "l", numbered(fmt.Sprintf("lane-%d-%d", p, round), 0, perRound))
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		r.eventually("the first works", func() bool { return first.count() > 100 })
		second := r.start(handler())
		r.eventually("the second works", func() bool { return second.count() > 100 })
		first.stop()
		<-written
		const total = rounds * perRound * 4 * 2
		r.eventually("all seen", func() bool { return first.count()+second.count() >= total })
		second.stop()
		for _, f := range []*fake{first.fake, second.fake} {
			for id, n := range f.seen {
				if n != 1 || first.saw(id) && second.saw(id) {
					t.Errorf("%s was handed over more than once", id)
				}
			}
		}
		if n := first.count() + second.count(); n != total {
			t.Errorf("%d of %d jobs", n, total)
		}
		if warns := r.logs.warnings(); len(warns) > 0 {
			t.Errorf("warned of ordinary life: %v", warns)
		}
	})
}

// After a restart, jobs settled out of order are not sent again; open jobs are.
func TestRestartRepeatsOnlyOpenJobs(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		ids := numbered("j", 0, 200)
		r.produceIDs(r.jobs(), 0, "c", ids)
		f := newFake()
		f.keep = func(j *delivery.Job) bool { return j.Offset%2 == 0 }
		first := r.start(f)
		r.eventually("all seen", func() bool { return first.count() == len(ids) })
		first.stop()
		if at := r.committed(r.jobs(), 0); at != 0 {
			t.Fatalf("committed %d though the first job is open", at)
		}
		r.produceIDs(r.jobs(), 0, "c", []string{"new"})
		second := r.start(newFake())
		r.eventually("the new job", func() bool { return second.saw("new") })
		second.stop()
		want := []string{"new"}
		for i, id := range ids {
			if i%2 == 0 {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		if got := second.ids(); !slices.Equal(got, want) {
			t.Errorf("second run saw %d jobs, want %d", len(got), len(want))
		}
		if at := r.committed(r.jobs(), 0); at != 201 {
			t.Errorf("committed %d at the end", at)
		}
	})
}

// severed is a transport that loses every commit once it is cut.
type severed struct {
	kafka.RoundTripper
	cut atomic.Bool
}

func (s *severed) RoundTrip(ctx context.Context, addr net.Addr, m protocol.Message) (protocol.Message, error) {
	if m.ApiKey() == protocol.OffsetCommit && s.cut.Load() {
		return nil, context.DeadlineExceeded
	}
	return s.RoundTripper.RoundTrip(ctx, addr, m)
}

// After a crash the jobs that no acknowledged commit covers are repeated, and no others.
func TestCrashRepeatsOnlyWhatIsNotCommitted(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		ids := numbered("j", 0, 300)
		r.produceIDs(r.jobs(), 0, "c", ids)
		f := newFake()
		f.keep = func(*delivery.Job) bool { return true }
		var network *severed
		first := r.start(f, func(o *Options) {
			o.Client = newBroker(r.t, r.brokers, func(connected kafka.RoundTripper) kafka.RoundTripper {
				network = &severed{RoundTripper: connected}
				return network
			})
		})
		r.eventually("all seen", func() bool { return first.count() == len(ids) })
		var src *source
		first.settle(func(j *delivery.Job) bool { src = j.Source.(*source); return j.Offset < 100 || j.Offset >= 250 })
		if err := src.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := r.committed(r.jobs(), 0); at != 100 {
			t.Fatalf("flushed, and %d is committed", at)
		}
		network.cut.Store(true)
		first.settle(func(j *delivery.Job) bool { return j.Offset < 200 })
		first.stop()
		if err := src.flush(t.Context()); err != nil {
			t.Errorf("flush of a source that is gone: %v", err)
		}
		src.settle(240, "c", "")

		second := r.start(newFake())
		r.eventually("the repeats", func() bool { return second.count() >= 150 })
		second.stop()
		if got := second.ids(); !slices.Equal(got, ids[100:250]) {
			t.Errorf("repeated %d jobs from %s to %s", len(got), got[0], got[len(got)-1])
		}
	})
}

// After a crash between the write to a lane and its commit, jobs are in the lane and in ingress: they are handed over once.
func TestJobsThatAreInALaneAlreadyAreNotRepeated(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		const jobs, moved = 3000, 2000
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, jobs))
		f := newFake()
		f.keep = func(*delivery.Job) bool { return true }
		first := r.start(f)
		var records []kafka.Record
		r.eventually("all are read", func() bool { return first.count() == jobs })
		for _, id := range numbered("j", 0, moved) {
			records = append(records, encoded(new(record.Encoder).Encode(f.open[id], delivery.Reroute{Kind: delivery.ToLane}, time.Now())))
		}
		first.stop()
		r.produce(r.opt.LaneTopic, 0, records...)
		paused := newFake()
		paused.refuse = func(*delivery.Job) bool { return true }
		waits := r.start(paused, func(o *Options) { o.lanesFirst = patience })
		r.eventually("ingress is committed", func() bool { return r.committed(r.jobs(), 0) == jobs })
		waits.stop()
		if n := len(waits.seen); n != jobs-moved {
			t.Fatalf("%d jobs were handed over while those in the lane had to wait, not %d", n, jobs-moved)
		}
		second := r.start(newFake())
		r.eventually("the lane is committed", func() bool { return r.committed(r.opt.LaneTopic, 0) == moved })
		second.stop()
		for id, n := range waits.seen {
			second.seen[id] += n
		}
		if n := len(second.seen); n != jobs {
			t.Errorf("%d of %d jobs were handed over", n, jobs)
		}
		for id, n := range second.seen {
			if n != 1 {
				t.Fatalf("%s was handed over %d times", id, n)
			}
		}
	})
}

// Records up to the size limit are read whole, at any size of a fetch. A record that cannot be decoded is handed over undecoded and
// delays no other job.
func TestLargeAndBrokenRecords(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		large := bytes.Repeat([]byte("x"), 1000_000)
		for _, topic := range []string{r.jobs(), r.opt.LaneTopic} {
			big := job("c", "large in "+topic)
			big.Headers[1].Value = []byte("large-in-" + topic)
			big.Value = kafka.NewBytes(large)
			r.produce(topic, 0, job("c", "before-in-"+topic))
			r.produce(topic, 0, big)
			r.produce(topic, 0, kafka.Record{Value: kafka.NewBytes([]byte("neither")), Key: kafka.NewBytes([]byte("k"))})
			r.produce(topic, 0, job("c", "after-in-"+topic))
		}
		f := newFake()
		sizes := map[string]int{}
		f.keep = func(j *delivery.Job) bool { sizes[j.ID] = len(j.Payload); return false }
		c := r.start(f)
		r.eventually("all seen", func() bool { return c.count() == 8 })
		c.stop()
		for _, topic := range []string{r.jobs(), r.opt.LaneTopic} {
			if n := sizes["large-in-"+topic]; n != len(large) {
				t.Errorf("%d bytes of the large record in %s", n, topic)
			}
			if at := r.committed(topic, 0); at != 4 {
				t.Errorf("%s: committed %d", topic, at)
			}
		}
		for _, j := range c.defects {
			if j.Defect() != delivery.ReasonUndecodable || string(j.Payload) != "neither" || string(j.Key) != "k" || j.Campaign != "" {
				t.Errorf("%+v", j)
			}
		}
		if len(c.defects) != 2 {
			t.Errorf("%d defects", len(c.defects))
		}
	})
}

// A timer's jobs come back in order, none before it is due, and a job whose own time is earlier at that time.
func TestTimers(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		const delay = 700 * time.Millisecond
		timer := r.opt.Group + ".timer"
		r.opt.Timers = []Timer{{timer, delay}}
		r.create(1, r.jobs(), r.opt.LaneTopic, timer)
		f := newFake()
		stale := 0
		f.keep = func(j *delivery.Job) bool {
			if time.Since(j.ReadAt) > delay/2 { // it is open since it came back, not since it was fetched
				stale++
			}
			return false
		}
		c := r.start(f)
		r.eventually("joined", c.Joined)
		start := time.Now()
		write := func(id string, after time.Duration, more ...string) {
			more = append(more, delivery.HeaderOrigin, "jobs/0/7", delivery.HeaderEnqueuedAt, start.Add(after).Format(time.RFC3339Nano))
			r.produce(timer, 0, job("c", id, more...))
		}
		for i := range 5 {
			write(fmt.Sprint(i), time.Duration(i-5)*50*time.Millisecond)
		}
		write("old", -time.Hour)
		write("early", time.Hour, delivery.HeaderDue, start.Format(time.RFC3339Nano))
		write("ahead", time.Hour)
		r.eventually("all seen", func() bool { return c.count() == 8 })
		c.stop()
		if got := fmt.Sprint(c.orderOf("c")); got != "[0 1 2 3 4 old early ahead]" {
			t.Errorf("order %s", got)
		}
		for i := range 5 {
			due := start.Add(time.Duration(i-5)*50*time.Millisecond + delay)
			if late := c.at[fmt.Sprint(i)].Sub(due); late < 0 || late > 2*time.Second {
				t.Errorf("job %d came %s after it was due", i, late)
			}
		}
		if late := c.at["ahead"].Sub(start.Add(delay)); late < 0 || late > 5*time.Second {
			t.Errorf("a job written by a clock ahead of ours came %s after the delay", late)
		}
		if stale > 0 {
			t.Errorf("%d jobs came back as if they had been open for the delay", stale)
		}
	})
}

// TestTimerDropsRepeats: the twin that a lost answer, or a crash between produce and commit, leaves in a timer is dropped; a
// job that comes back once more is not.
func TestTimerDropsRepeats(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		timer := r.opt.Group + ".timer"
		r.opt.Timers = []Timer{{timer, 100 * time.Millisecond}}
		r.create(1, r.jobs(), r.opt.LaneTopic, timer)
		old := time.Now().Add(-time.Hour).Format(time.RFC3339Nano)
		visit := func(id, origin, hops string) kafka.Record {
			return job("a", id, delivery.HeaderOrigin, origin, delivery.HeaderTimerHops, hops, delivery.HeaderAttempt, "1", delivery.HeaderEnqueuedAt, old)
		}
		r.produce(timer, 0, visit("first", "jobs/0/77", "1"), visit("first", "jobs/0/77", "1"), visit("same", "jobs/0/78", "1"),
			visit("first", "jobs/0/77", "2"), job("a", "last", delivery.HeaderEnqueuedAt, old))
		r.produce(timer, 0, visit("first", "jobs/0/77", "1"), visit("end", "jobs/0/79", "1"))
		c := r.start(newFake())
		r.eventually("all seen", func() bool { return c.saw("end") })
		r.eventually("the commit", func() bool { return r.committed(timer, 0) == 7 })
		if got := fmt.Sprint(c.orderOf("a")); got != "[first same first last end]" {
			t.Error(got)
		}
	})
}

// A topic that does not exist is named once. Only pacer's own are waited for; one of ingress is read when it appears.
func TestMissingTopic(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		missing := r.jobs() + ".missing"
		r.opt.Ingress = append(r.opt.Ingress, missing)
		r.create(1, r.jobs())
		c := r.start(newFake(), func(o *Options) { o.partitionsWatched = 50 * time.Millisecond })
		r.eventually("a line of each", func() bool { return len(r.logs.lines("level=WARN", "a topic does not exist")) == 2 })
		time.Sleep(topicCheck + topicCheck/2)
		for topic, words := range map[string][2]string{
			r.opt.LaneTopic: {"others_wait=true", "pacer migrate up"}, missing: {"others_wait=false", "kafka.topics"},
		} {
			if lines := r.logs.lines("level=WARN", "topic="+topic, words[0], words[1]); len(lines) != 1 {
				t.Errorf("%s: %q", topic, lines)
			}
		}
		if c.Joined() {
			t.Error("joined without lanes")
		}
		r.create(1, r.opt.LaneTopic)
		r.produceIDs(r.jobs(), 0, "c", []string{"a"})
		r.eventually("the job", func() bool { return c.saw("a") })
		r.create(1, missing)
		r.produceIDs(missing, 0, "c", []string{"b"})
		r.eventually("the other topic's job", func() bool { return c.saw("b") })
	})
}

// Without a broker at the start, and when it goes away later, there is one line each time, and everything goes on
// by itself.
func TestBrokerDownAndUp(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), freePort(t)
	up := func() *kfake.Cluster {
		t.Helper()
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(dir), kfake.SyncWrites())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	r := newRig(t, []string{fmt.Sprintf("127.0.0.1:%d", port)})
	c := r.start(newFake(), func(o *Options) { o.DrainTimeout = time.Second })
	r.eventually("a line", func() bool { return len(r.logs.lines("level=WARN")) > 0 })
	cluster := up()
	r.create(2, r.jobs(), r.opt.LaneTopic)
	r.produceIDs(r.jobs(), 0, "c", numbered("a", 0, 50))
	r.eventually("the first jobs", func() bool { return c.count() == 50 })
	r.eventually("their commit", func() bool { return r.committed(r.jobs(), 0) == 50 })
	cluster.Close()
	r.eventually("it is missed", func() bool { return !c.Joined() })
	time.Sleep(500 * time.Millisecond)
	cluster = up()
	defer func() { cluster.Close() }()
	r.client = newClient(t, r.brokers) // no stale connections
	r.produceIDs(r.jobs(), 1, "c", numbered("b", 0, 50))
	r.eventually("the other jobs", func() bool { return c.count() == 100 })
	c.stop()
	for id, n := range c.seen {
		if n != 1 {
			t.Errorf("%s was handed over %d times", id, n)
		}
	}
	warned, over := r.logs.lines("level=WARN", "does not answer"), r.logs.lines("answers again")
	if len(warned) != 2 || len(over) != 2 {
		t.Errorf("warned %d times, over %d times:\n%s", len(warned), len(over), r.logs)
	}
}

// A window that fills up is relieved of its older half, and reading goes on; memory stays within the budget.
func TestFullWindowAndBudget(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	for i := range 4 {
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 500*i, 500*i+500))
	}
	f := newFake()
	f.keep = func(*delivery.Job) bool { return true }
	c := r.start(f, func(o *Options) { o.MaxOpen, o.MaxBufferBytes = 800, 4*maxFetchBytes })
	r.eventually("all seen", func() bool {
		if held := c.budget.inUse(); held > 4*maxFetchBytes+offerJobs*2000 {
			t.Fatalf("%d bytes are held", held)
		}
		return c.count() == 2000
	})
	c.stop()
	if f.relieved == 0 {
		t.Error("never relieved")
	}
}

// When nothing is settled, reading stops at the window, and goes on as soon as something is.
func TestWindowHoldsReading(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	for i := range 4 {
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 500*i, 500*i+500))
	}
	f := newFake()
	f.keep = func(*delivery.Job) bool { return true }
	c := r.start(&fake{seen: f.seen, order: f.order, at: f.at, open: f.open, keep: f.keep}, func(o *Options) {
		o.MaxOpen = 800
		o.Handler = noRelief{o.Handler.(*fake)}
	})
	r.eventually("the window is full", func() bool { return c.count() >= 500 })
	time.Sleep(300 * time.Millisecond)
	if n := c.count(); n > 800 {
		t.Fatalf("%d jobs are open in a window of 800", n)
	}
	r.eventually("the rest", func() bool {
		c.settle(nil)
		return c.count() == 2000
	})
}

// A job that stays open, as one in a call that hangs, does not hold up those behind it, however many they are. When the
// partition is read again, only that job is handed over again.
func TestOneOpenJobDoesNotHoldReading(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	r.produceIDs(r.jobs(), 0, "slow", []string{"slow"})
	const jobs = 3000
	for i := range jobs / 500 {
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 500*i, 500*i+500))
	}
	f := newFake()
	f.keep = func(j *delivery.Job) bool { return j.Campaign == "slow" }
	c := r.start(f, func(o *Options) { o.MaxOpen = offerJobs })
	r.eventually("all others are seen", func() bool { return c.count() == jobs+1 })
	if f.relieved > 0 {
		t.Errorf("the window was relieved %d times", f.relieved)
	}
	c.stop()
	again := r.start(newFake())
	r.eventually("all is committed", func() bool { return r.committed(r.jobs(), 0) == jobs+1 })
	if ids := again.ids(); !slices.Equal(ids, []string{"slow"}) {
		t.Errorf("handed over again: %d jobs", len(ids))
	}
}

// noRelief is a handler that ignores Relieve.
type noRelief struct{ *fake }

func (noRelief) Relieve(delivery.Source, int64) {}
