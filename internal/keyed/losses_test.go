package keyed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// adopt writes the store's clock as package limits does, with the epoch of the data; daemons expect it.
func (r *rig) adopt(epoch int64) {
	r.t.Helper()
	clock := append(make([]byte, 14), binary.LittleEndian.AppendUint64(nil, uint64(epoch))[:7]...)
	info, err := r.redis.Info(context.Background(), "server").Result()
	_, process, found := strings.Cut(info, "run_id:")
	if err != nil || !found {
		r.t.Fatalf("%v in %s", err, info)
	}
	if err := r.redis.Set(context.Background(), shards.Tag("pacer.", 0)+shards.ClockKey, string(clock)+process[:40], 0).Err(); err != nil {
		r.t.Fatal(err)
	}
	r.epoch.Store(epoch)
}

// TestAStoreThatHasLostItsData: a closed quota sends nothing until the loss is known and a span has passed since. An open one goes on when the data
// has been away for a second: data that is rebuilt sooner limits again.
func TestAStoreThatHasLostItsData(t *testing.T) {
	t.Parallel()
	const span = 2 * time.Second
	for _, policy := range []string{delivery.PolicyClosed, delivery.PolicyOpen} {
		r := newRig(t, unlimited(delivery.Quota{OnStoreFailure: policy, Windows: []delivery.Window{window(1, span)}}))
		sends := func(when string, want bool) {
			t.Helper()
			j := job("a")
			j.Turned = true
			if res := r.sendSoon(j); (res.Class == delivery.Delivered) != want {
				t.Errorf("%s, %s: %+v", policy, when, res)
			}
		}
		r.adopt(1)
		sends("at first", true)
		sends("within the window", false)
		r.server.Flush(t)
		gone := time.Now()
		if policy == delivery.PolicyOpen {
			r.eventually("a job without the data", func() bool {
				j := job("a")
				j.Turned = true
				return r.send(j).Class == delivery.Delivered
			})
			if took := time.Since(gone); took < time.Second {
				t.Errorf("a job was sent %s after the data had gone", took)
			}
		} else {
			sends("when the data is gone", false)
		}
		r.epoch.Store(-1)
		sends("while it is rebuilt", policy == delivery.PolicyOpen)
		r.adopt(2)
		begun := time.Now()
		r.eventually("the store answers", func() bool { r.send(job("other")); return !r.shards[0].Failing() })
		if policy == delivery.PolicyClosed {
			sends("once it was rebuilt", false)
			r.eventually("a job after a span", func() bool {
				j := job("a")
				j.Turned = true
				return r.send(j).Class == delivery.Delivered
			})
			if took := time.Since(begun); took < span {
				t.Errorf("the span was %s", took)
			}
		}
	}
}

// askedSlowly asks the keys of a job while Redis takes a time to answer.
func (r *rig) askedSlowly(j *delivery.Job, d time.Duration) <-chan delivery.KeyAnswer {
	answer := make(chan delivery.KeyAnswer, 1)
	r.server.Freeze()
	r.Count(r.askFor(j), func(a delivery.KeyAnswer) { answer <- a })
	time.Sleep(d)
	r.server.Thaw()
	return answer
}

// TestALateTakeCapsNoJob: a take that is answered too late counts the job for a moment. The job's next take does not meet that.
func TestALateTakeCapsNoJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, delivery.Quota{Windows: []delivery.Window{window(1, 8*time.Second)}})
	r.send(job("first")) // the script is loaded
	late := 0
	for i := range 30 {
		j := job(fmt.Sprint("k", i))
		a := <-r.askedSlowly(j, 3*delivery.LeastKeyMargin/2)
		if a.SendBy == 0 {
			late++
		} else {
			r.Checker.Release(j)
		}
		if a.Capped != "" || r.sendSoon(j).Class != delivery.Delivered {
			t.Fatalf("job %d is capped by itself", i)
		}
	}
	if late == 0 {
		t.Error("no take was late: the test shows nothing")
	}
	left := 0
	r.counted.Range(func(any, any) bool { left++; return true })
	if left > 0 {
		t.Errorf("%d takes are remembered", left)
	}
}

// TestATakeThatWaitedForTooLongIsNotAsked: it would count a job that is not sent.
func TestATakeThatWaitedForTooLongIsNotAsked(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, 8*time.Second)}}))
	r.send(job("first")) // the script is loaded
	r.server.Freeze()
	before := make(chan delivery.KeyAnswer, 1)
	r.Count(r.askFor(job("before")), func(a delivery.KeyAnswer) { before <- a })
	time.Sleep(20 * time.Millisecond) // its batch is under way
	gone := r.askedSlowly(job("gone"), 2*delivery.LeastKeyMargin)
	if a := <-gone; a != (delivery.KeyAnswer{}) {
		t.Errorf("%+v", a)
	}
	<-before
	if n := r.redis.Exists(context.Background(), idOf("cap", "gone").hash("pacer.", 0)).Val(); n != 0 {
		t.Error("a take was asked that came too late")
	}
	epochs := 0
	s := newShard(shard{epochOf: func(int) (int64, bool) { epochs++; return 0, false }, log: slog.New(slog.DiscardHandler)})
	late := &group{by: time.Now().Add(-time.Millisecond)}
	k := &check{what: take, group: late}
	late.left.Store(1)
	if _, err := s.send([]*check{k}); err != nil || epochs > 0 || k.err == nil {
		t.Errorf("%v, %v, and it was asked %d times", err, k.err, epochs)
	}
}

// TestAnOutageIsLoggedAlsoAtTheStart: that the epoch is not known yet is no outage, and what fails from then on is one.
func TestAnOutageIsLoggedAlsoAtTheStart(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	var known atomic.Bool
	var running sync.WaitGroup
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	s := newShard(shard{client: client, epochOf: func(int) (int64, bool) { return 7, known.Load() }, log: slog.New(slog.NewTextHandler(&log, nil))})
	ctx, stop := context.WithCancel(t.Context())
	running.Go(func() { s.Run(ctx) })
	for _, now := range []bool{false, true, true} {
		known.Store(now)
		answered := make(chan struct{})
		g := &group{ended: func(*group) { close(answered) }}
		g.checks = []*check{{group: g, what: take, quota: &delivery.Quota{}}}
		g.left.Store(1)
		s.Add(g.checks...)
		<-answered
	}
	stop()
	running.Wait()
	_ = client.Close()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
}

// TestWhatIsCountedIsGivenBack if the job is not sent after all, or its sink has not been asked.
func TestWhatIsCountedIsGivenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(1, time.Hour)}}))
	used := func(want int64) func() bool {
		return func() bool {
			s, err := r.Show(context.Background(), r.quota, "a")
			return err == nil && s.Used[0] == want
		}
	}
	counted := func() *delivery.Job {
		j := job("a")
		r.eventually("it is counted", func() bool { return r.asked(j).SendBy != 0 })
		return j
	}
	r.Checker.Release(counted())
	r.eventually("a released job counts no more", used(0))
	r.answer = func(*delivery.Job) delivery.Result { return delivery.Result{Class: delivery.Duplicate} }
	r.Checker.Deliver(context.Background(), "sink", counted())
	r.eventually("nor does a duplicate", used(0))
	r.answer = func(*delivery.Job) delivery.Result { return delivery.Result{Class: delivery.Temporary} }
	r.Checker.Deliver(context.Background(), "sink", counted())
	time.Sleep(50 * time.Millisecond)
	r.eventually("an attempt does", used(1))
}

// TestAValueThatCannotBeReadCostsItsKeyOnly: a value counts as none. Where another program has overwritten the hash, jobs of an open quota pass, and
// those of a closed one wait. The log names the hash, and others of the batch are counted.
func TestAValueThatCannotBeReadCostsItsKeyOnly(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{delivery.PolicyOpen, delivery.PolicyClosed} {
		r := newRig(t, delivery.Quota{OnStoreFailure: policy, Windows: []delivery.Window{window(3, time.Hour)}})
		var log syncBuffer
		r.shards[0].log = slog.New(slog.NewTextHandler(&log, nil))
		ctx, bad, worse := context.Background(), idOf("cap", "bad"), idOf("cap", "worse")
		if err := r.redis.HSet(ctx, bad.hash("pacer.", 0), bad.field(), "\x00\xa1x\x00\x00\x00").Err(); err != nil { // numbers, and a text
			t.Fatal(err)
		}
		must(t, r.redis.Set(ctx, worse.hash("pacer.", 0), "no hash", 0).Err())
		if res := r.sendSoon(job("bad")); res.Class != delivery.Delivered {
			t.Errorf("%+v for a value that cannot be read", res)
		}
		for range 3 {
			r.server.Freeze() // so that both are in one batch, after one in front
			answers := map[string]chan delivery.KeyAnswer{}
			for _, key := range []string{"first", "good", "worse"} {
				answer := make(chan delivery.KeyAnswer, 1)
				answers[key] = answer
				r.Count(r.askFor(job(key)), func(a delivery.KeyAnswer) { answer <- a })
			}
			r.server.Thaw()
			<-answers["first"]
			if a := <-answers["good"]; a.SendBy == 0 && !a.Late && a != (delivery.KeyAnswer{}) { // it is late on a busy machine
				t.Errorf("%s: %+v for another key", policy, a)
			}
			if a := <-answers["worse"]; !a.Late && a != (delivery.KeyAnswer{}) && (a.SendBy != 0) != (policy == delivery.PolicyOpen) {
				t.Errorf("%s: %+v for a key that is no hash", policy, a)
			}
		}
		if res := r.sendSoon(job("worse")); (res.Class == delivery.Delivered) != (policy == delivery.PolicyOpen) {
			t.Errorf("%s: %+v for a key that is no hash", policy, res)
		}
		if _, err := r.Show(ctx, r.quota, "worse"); !errors.Is(err, errForeign) {
			t.Errorf("%v", err)
		}
		spelled := fmt.Sprintf(`redis_key={pacer.0}k:\x%02x`, worse.hash("pacer.", 0)[len("{pacer.0}k:")])
		if text := log.String(); strings.Count(text, "level=ERROR") != 1 || strings.Contains(text, "level=WARN") || !strings.Contains(text, spelled) {
			t.Errorf("%s: the log lacks %s, or has more: %s", policy, spelled, text)
		}
	}
}

// syncBuffer is a log that others write.
type syncBuffer struct {
	mu sync.Mutex
	strings.Builder
}

func (b *syncBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.Write(line)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Builder.String()
}
