package consumer

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/testservices"
)

// After a restart, jobs settled out of order are not sent again; open jobs are. Thousands of holes fit into the metadata of a commit that a
// broker takes.
func TestRestartRepeatsOnlyOpenJobs(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		ids := numbered("j", 0, 12_000)
		r.produceIDs(r.jobs(), 0, "c", ids)
		first := r.start(keeping(func(j *delivery.Job) bool { return j.Offset%2 == 0 }))
		r.eventually("all seen", func() bool { return first.count() == len(ids) })
		first.stop()
		if at := r.committed(r.jobs(), 0); at != 0 {
			t.Fatalf("committed %d though the first job is open", at)
		}
		if warns := r.logs.warnings(); len(warns) > 0 {
			t.Errorf("warned of ordinary life: %v", warns)
		}
		r.produceIDs(r.jobs(), 0, "c", []string{"last"})
		second := r.start(newFake())
		r.eventually("the last job", func() bool { return second.saw("last") })
		second.stop()
		want := []string{"last"}
		for i := 0; i < len(ids); i += 2 {
			want = append(want, ids[i])
		}
		slices.Sort(want)
		if got := second.ids(); !slices.Equal(got, want) {
			t.Errorf("second run saw %d jobs, want %d", len(got), len(want))
		}
		if at := r.committed(r.jobs(), 0); at != int64(len(ids)+1) {
			t.Errorf("committed %d at the end", at)
		}
	})
}

// After a crash the jobs that no acknowledged commit covers are repeated, and no others.
func TestCrashRepeatsOnlyWhatIsNotCommitted(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		ids := numbered("j", 0, 300)
		r.produceIDs(r.jobs(), 0, "c", ids)
		var cut atomic.Bool
		first := r.start(keeping(all), r.through(func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
			if request.ApiKey() == protocol.OffsetCommit && cut.Load() {
				return nil, context.DeadlineExceeded
			}
			return send(ctx)
		}))
		r.eventually("all seen", func() bool { return first.count() == len(ids) })
		var src *source
		first.settle(func(j *delivery.Job) bool { src = j.Source.(*source); return j.Offset < 100 || j.Offset >= 250 })
		if err := src.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if at := r.committed(r.jobs(), 0); at != 100 {
			t.Fatalf("flushed, and %d is committed", at)
		}
		cut.Store(true)
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

// encoded is a record in kafka-go's form.
func encoded(r delivery.Record) kafka.Record {
	rec := kafka.Record{Value: kafka.NewBytes(bytes.Clone(r.Value))}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kafka.Header(h))
	}
	return rec
}

// After a crash between the write to a lane and its commit, jobs are in the lane and in ingress: they are handed over once.
func TestJobsThatAreInALaneAlreadyAreNotRepeated(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		const jobs, moved = 3000, 2000
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, jobs))
		first := r.start(keeping(all))
		var records []kafka.Record
		r.eventually("all are read", func() bool { return first.count() == jobs })
		for j := range first.open {
			if j.Offset < moved {
				records = append(records, encoded(new(record.Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToLane}, time.Now())))
			}
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
		handedOnce(t, jobs, waits.fake, second.fake)
	})
}

// A timer's jobs come back in order, none before it is due, and a job whose own time is earlier at that time.
func TestTimers(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		const delay = 700 * time.Millisecond
		timer, stale := r.timer(delay), 0
		c := r.start(keeping(func(j *delivery.Job) bool {
			if time.Since(j.ReadAt) > delay/2 { // it is open since it came back, not since it was fetched
				stale++
			}
			return false
		}))
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

// A topic that does not exist is named once. Only pacer's own are waited for, that of results, too; one of ingress is read when it appears.
func TestMissingTopic(t *testing.T) {
	onBrokers(t, 1, 0, func(t *testing.T, r *rig) {
		missing, results := r.jobs()+".missing", r.jobs()+".results"
		r.opt.Ingress = append(r.opt.Ingress, missing)
		c := r.start(newFake(), func(o *Options) { o.topicsWatched, o.Written = 50*time.Millisecond, []string{results} })
		r.says(3, "level=WARN", "a topic does not exist")
		time.Sleep(topicCheck + topicCheck/2)
		for topic, words := range map[string][2]string{
			r.opt.LaneTopic: {"others_wait=true", "pacer migrate up"}, missing: {"others_wait=false", "kafka.topics"},
			results: {"others_wait=true", "pacer migrate up"},
		} {
			r.said(1, "level=WARN", "topic="+topic, words[0], words[1])
		}
		for what, topic := range map[string]string{"lanes": r.opt.LaneTopic, "results": results} {
			if c.Joined() {
				t.Errorf("joined without %s", what)
			}
			r.create(1, topic)
			time.Sleep(topicCheck + topicCheck/2)
		}
		r.produceIDs(r.jobs(), 0, "c", []string{"a"})
		r.eventually("the job", func() bool { return c.saw("a") })
		r.create(1, missing)
		r.produceIDs(missing, 0, "c", []string{"b"})
		r.eventually("the other topic's job", func() bool { return c.saw("b") })
	})
}

// Without a broker at the start, and when it goes away later, there are few lines, each outage ends with one, and everything goes on
// by itself.
func TestBrokerDownAndUp(t *testing.T) {
	t.Parallel()
	dir, port := t.TempDir(), testservices.FreePort(t)
	up := func() *kfake.Cluster {
		t.Helper()
		c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(port), kfake.DataDir(dir), kfake.SyncWrites())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	r := newRig(t, []string{fmt.Sprintf("127.0.0.1:%d", port)})
	c := r.start(newFake())
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
	handedOnce(t, 100, c.fake)
	lost := len(r.logs.lines("level=WARN", "does not answer"))
	if lost < 2 || lost > 3 { // a connection of the group may outlive the broker, and fail after the first fetch has worked
		t.Errorf("%d lines for two outages:\n%s", lost, r.logs)
	}
	r.said(lost, "answers again")
}

// A window that fills up is relieved of its older half, and reading goes on. If that does not help, reading stops, and goes on as soon as
// something is settled.
func TestAFullWindow(t *testing.T) {
	t.Parallel()
	for name, stubborn := range map[string]bool{"is relieved": false, "holds reading": true} {
		t.Run(name, func(t *testing.T) {
			r := inProcess(t, 1, 1)
			r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 2000))
			f := keeping(all)
			f.stubborn = stubborn
			c := r.start(f, func(o *Options) { o.MaxOpen, o.MaxBufferBytes = 800, 4*maxFetchBytes })
			seen := func() bool {
				if held := c.budget.inUse(); held > 4*maxFetchBytes+offerJobs*2000 {
					t.Fatalf("%d bytes are held", held)
				}
				return c.count() == 2000
			}
			if stubborn {
				r.eventually("the window is full", func() bool { return c.count() >= 400 })
				time.Sleep(300 * time.Millisecond)
				if n := c.count(); n > 800 {
					t.Fatalf("%d jobs are open in a window of 800", n)
				}
				r.eventually("the rest", func() bool { c.settle(all); return seen() })
				return
			}
			r.eventually("all seen", seen)
			if c.stop(); f.relieved == 0 {
				t.Error("never relieved")
			}
		})
	}
}

// Lanes remember what they pass over until the last ingress that was gained has waited for them.
func TestLanesRecallForEachGain(t *testing.T) {
	r := inProcess(t, 1, 1)
	o := r.opt
	o.Client = r.broker()
	a := &assignment{Consumer: New(o), work: t.Context()}
	for range 2 {
		a.recalls.Add(1)
	}
	a.awaitLanes()
	if a.recalls.Load() == 0 {
		t.Error("lanes forget while ingress waits that was gained later")
	}
	a.awaitLanes()
	if a.recalls.Load() != 0 {
		t.Error("lanes go on to remember what they pass over")
	}
}
