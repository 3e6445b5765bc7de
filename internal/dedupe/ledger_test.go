package dedupe

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

func TestADeliveredJobIsNotSentAgain(t *testing.T) {
	shared := connect(t, testservices.RedisAddr(t))
	to := &destination{}
	o := rigOptions{prefix: prefix(), ttl: 300 * time.Millisecond}
	one, two := newRig(t, to, servers{shared}, o), newRig(t, to, servers{shared}, o)
	if r := one.deliver("a"); r.Class != delivery.Delivered {
		t.Fatalf("%+v", r)
	}
	for _, r := range []*rig{one, two} {
		if res := r.deliver("a"); res.Class != delivery.Duplicate {
			t.Errorf("again: %+v", res)
		}
	}
	other := &delivery.Job{ID: "a", Campaign: "d"}
	if r := one.Deliver(t.Context(), "sink", other); r.Class != delivery.Delivered {
		t.Errorf("the same id in another campaign: %+v", r)
	}
	time.Sleep(350 * time.Millisecond)
	if r := two.deliver("a"); r.Class != delivery.Delivered || to.count() != 3 {
		t.Errorf("after its time: %+v, %d calls", r, to.count())
	}
}

// Whatever else the sink answers leaves the job free for its next attempt, wherever that is made.
func TestAnUndeliveredJobIsFree(t *testing.T) {
	shared := connect(t, testservices.RedisAddr(t))
	for _, class := range delivery.ResultClasses {
		if class == delivery.Delivered {
			continue
		}
		t.Run(class.String(), func(t *testing.T) {
			to := &destination{answer: func(context.Context, *delivery.Job) delivery.ResultClass { return class }}
			o := rigOptions{prefix: prefix(), timeout: time.Minute}
			one, two := newRig(t, to, servers{shared}, o), newRig(t, to, servers{shared}, o)
			if r := one.deliver("a"); r.Class != class {
				t.Fatalf("%+v", r)
			}
			to.answer = nil
			if r := one.deliver("a"); r.Class != delivery.Delivered { // the release goes before the lease
				t.Errorf("again: %+v", r)
			}
			if r := two.deliver("a"); r.Class != delivery.Duplicate || to.count() != 2 {
				t.Errorf("elsewhere: %+v, %d calls", r, to.count())
			}
		})
	}
}

// Delivered jobs are found before they need a slot; doubtful ones are left to Deliver.
func TestFilter(t *testing.T) {
	server := testservices.FreshRedis(t)
	client := connect(t, server.Addr)
	r := newRig(t, &destination{}, servers{client, client, client}, rigOptions{})
	const n = 3 * shards.MaxBatch
	for i := range n / 2 {
		r.insist(t.Context(), fmt.Sprint("job-", 2*i))
	}
	client.Set(t.Context(), idOf("c", "job-1", "").key(r.shard(idOf("c", "job-1", "")).tag), r.token(), time.Minute) // leased
	offer := func() (jobs []*delivery.Job) {
		for i := range n {
			jobs = append(jobs, &delivery.Job{ID: fmt.Sprint("job-", i), Campaign: "c"})
		}
		jobs[0].Flaw = &delivery.Flaw{Defect: delivery.ReasonInvalidHeader}
		jobs[2].Campaign = "nobody"
		r.Filter(t.Context(), jobs)
		return jobs
	}
	for i, j := range offer() {
		if want := i%2 == 0 && i > 2; j.Duplicate != want {
			t.Errorf("job %d: %v", i, j.Duplicate)
		}
	}
	server.Freeze()
	defer server.Thaw()
	begun := time.Now()
	for i, j := range offer() {
		if j.Duplicate {
			t.Errorf("job %d is said to be a duplicate by a frozen Redis", i)
		}
	}
	if took := time.Since(begun); took > 10*filterTimeout {
		t.Errorf("took %s", took)
	}
}

// While a job may be in flight, no other daemon sends it; when its daemon has died, the lease ends.
func TestAClaimHoldsOthersOff(t *testing.T) {
	shared := connect(t, testservices.RedisAddr(t))
	hold := make(chan struct{})
	slow := &destination{answer: func(context.Context, *delivery.Job) delivery.ResultClass { <-hold; return delivery.Delivered }}
	to := &destination{}
	o := rigOptions{prefix: prefix(), timeout: 5 * time.Second}
	one, two := newRig(t, slow, servers{shared}, o), newRig(t, to, servers{shared}, o)
	first := make(chan delivery.Result, 1)
	go func() { first <- one.deliver("a") }()
	for slow.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	for name, r := range map[string]*rig{"this daemon": one, "another": two} {
		res := r.deliver("a")
		if res.Class != delivery.Withheld || res.RetryAfter <= 0 || res.RetryAfter > maxPause {
			t.Errorf("%s: %+v", name, res)
		}
	}
	key := idOf("c", "a", "").key(one.shards[0].tag)
	left, err := shared.PTTL(t.Context(), key).Result()
	if err != nil || left < o.timeout+leaseMargin/2 || left > o.timeout+leaseMargin {
		t.Errorf("the lease lasts %s more, %v", left, err)
	}
	shared.PExpire(t.Context(), key, time.Millisecond) // as if its time were over
	time.Sleep(5 * time.Millisecond)
	if r := two.deliver("a"); r.Class != delivery.Delivered {
		t.Errorf("after the lease's end: %+v", r)
	}
	close(hold)
	if r := <-first; r.Class != delivery.Delivered {
		t.Errorf("%+v", r)
	}
}

// A lease that was made and whose answer was lost is the daemon's own when it asks again; a release that comes late does
// not undo a newer lease.
func TestLostAnswersAndLateReleases(t *testing.T) {
	shared := connect(t, testservices.RedisAddr(t))
	o := rigOptions{prefix: prefix()}
	one, two := newRig(t, &destination{}, servers{shared}, o), newRig(t, &destination{}, servers{shared}, o)
	i := idOf("c", "a", "")
	call := func(r *rig, e *entry) int64 {
		t.Helper()
		s := r.shards[0]
		answers, err := execute(t.Context(), s.client, s.tag, s.node, []*entry{e})
		if err != nil {
			t.Fatal(err)
		}
		return answers[0]
	}
	lost := newEntry(leaseEntry, i, one.token(), time.Minute)
	again := newEntry(leaseEntry, i, one.token(), time.Minute)
	for name, step := range map[string]*entry{"first": lost, "repeated as it was": lost, "by a new token": again} {
		if a := call(one, step); a != leased {
			t.Fatalf("%s: %d", name, a)
		}
	}
	call(one, again)
	call(one, newEntry(releaseEntry, i, lost.token, 0))
	if a := call(two, newEntry(leaseEntry, i, two.token(), time.Minute)); a <= 0 || a > time.Minute.Milliseconds() {
		t.Errorf("a late release undid the lease: %d", a)
	}
	call(one, newEntry(releaseEntry, i, again.token, 0))
	if a := call(two, newEntry(leaseEntry, i, two.token(), time.Minute)); a != leased {
		t.Errorf("released: %d", a)
	}
	call(one, newEntry(markEntry, i, "", time.Minute))
	call(one, newEntry(releaseEntry, i, again.token, 0))
	for _, r := range []*rig{one, two} {
		if a := call(r, newEntry(leaseEntry, i, r.token(), time.Minute)); a != delivered {
			t.Errorf("marked: %d", a)
		}
	}
}

// Jobs wait for a Redis that does not answer; jobs delivered meanwhile are marked before their result is
// returned.
func TestAFrozenRedis(t *testing.T) {
	server := testservices.FreshRedis(t)
	var log lockedBuffer
	proceed := make(chan struct{})
	to := &destination{answer: func(_ context.Context, j *delivery.Job) delivery.ResultClass {
		if j.ID == "on its way" {
			<-proceed
		}
		return delivery.Delivered
	}}
	o := rigOptions{log: slog.NewTextHandler(&log, nil)}
	one := newRig(t, to, servers{connect(t, server.Addr)}, o)
	two := newRig(t, to, servers{connect(t, server.Addr)}, rigOptions{})
	under := make(chan delivery.Result, 1)
	go func() { under <- one.deliver("on its way") }()
	for to.count() == 0 {
		time.Sleep(time.Millisecond)
	}
	server.Freeze()
	close(proceed)
	waiting := make(chan delivery.Result, 1)
	go func() { waiting <- one.insist(context.Background(), "new") }()
	time.Sleep(1500 * time.Millisecond)
	select {
	case r := <-under:
		t.Errorf("answered without a mark: %+v", r)
	case r := <-waiting:
		t.Errorf("answered without a lease: %+v", r)
	default:
	}
	if to.count() != 1 {
		t.Errorf("%d sent", to.count())
	}
	server.Thaw()
	for name, answer := range map[string]chan delivery.Result{"on its way": under, "new": waiting} {
		select {
		case r := <-answer:
			if r.Class != delivery.Delivered {
				t.Errorf("%s: %+v", name, r)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: no answer after the thaw", name)
		}
		if r := two.insist(t.Context(), name); r.Class != delivery.Duplicate {
			t.Errorf("%s: again: %+v", name, r)
		}
	}
	if n := log.count("level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	if n := log.count("answers again"); n != 1 {
		t.Errorf("%d times back:\n%s", n, log.String())
	}
}

// With policy open, jobs are sent while there is no Redis, and marked once there is one.
func TestOpenSendsWithoutRedis(t *testing.T) {
	server := testservices.FreshRedis(t)
	to := &destination{}
	one := newRig(t, to, servers{connect(t, server.Addr)}, rigOptions{open: true})
	server.Kill()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for i := range 20 {
		if r := one.insist(ctx, fmt.Sprint("job-", i)); r.Class != delivery.Delivered {
			t.Fatalf("job %d: %+v", i, r)
		}
	}
	server.Start(t)
	two := newRig(t, to, servers{connect(t, server.Addr)}, rigOptions{})
	for one.shards[0].Failing() && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	for i := range 20 {
		if r := two.insist(ctx, fmt.Sprint("job-", i)); r.Class != delivery.Duplicate {
			t.Errorf("job %d was not marked: %+v", i, r)
		}
	}
}

// TestOpenAsksTheLedgerOnceItAnswers: after an outage in which the sink took nothing, policy open suppresses duplicates again.
func TestOpenAsksTheLedgerOnceItAnswers(t *testing.T) {
	server := testservices.FreshRedis(t)
	to := &destination{}
	one := newRig(t, to, servers{connect(t, server.Addr)}, rigOptions{open: true})
	if r := one.deliver("a"); r.Class != delivery.Delivered {
		t.Fatalf("%+v", r)
	}
	to.answer = func(context.Context, *delivery.Job) delivery.ResultClass { return delivery.Temporary }
	server.Freeze()
	for _, id := range []string{"b", "c"} {
		if r := one.insist(t.Context(), id); r.Class != delivery.Temporary {
			t.Fatalf("%+v", r)
		}
	}
	time.Sleep(2 * batchTimeout)
	server.Thaw()
	for deadline := time.Now().Add(2 * time.Second); one.shards[0].Failing() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	to.answer = nil
	if r := one.deliver("a"); r.Class != delivery.Duplicate {
		t.Errorf("a job that was delivered before the outage, after it: %+v", r)
	}
}

// A Redis that is slower than a slot's tolerance makes jobs wait for their next slot, not for ever.
func TestALateAnswerServesTheNextSlot(t *testing.T) {
	server := testservices.FreshRedis(t)
	to := &destination{}
	one := newRig(t, to, servers{connect(t, server.Addr)}, rigOptions{})
	one.deliver("connect")
	server.Freeze()
	job := func() *delivery.Job {
		return &delivery.Job{ID: "a", Campaign: "c", Timing: delivery.Timing{SendBy: delivery.StampOf(time.Now().Add(5 * time.Millisecond))}}
	}
	if r := one.Deliver(t.Context(), "sink", job()); r.Class != delivery.Withheld || r.RetryAfter != 0 {
		t.Fatalf("too late: %+v", r)
	}
	server.Thaw()
	time.Sleep(20 * time.Millisecond)
	server.Freeze()
	defer server.Thaw()
	sent := make(chan delivery.Result, 1)
	go func() { sent <- one.Deliver(t.Context(), "sink", job()) }()
	for begun := time.Now(); to.count() != 2; time.Sleep(time.Millisecond) {
		if time.Since(begun) > 300*time.Millisecond {
			t.Fatal("the answer to the first question was not used")
		}
	}
	server.Thaw()
	if r := <-sent; r.Class != delivery.Delivered {
		t.Errorf("%+v", r)
	}
}

// An unused lease is released after a moment, or at the end of its daemon, so that the job's new daemon can send it.
func TestUnusedLeasesAreReleased(t *testing.T) {
	shared := connect(t, testservices.RedisAddr(t))
	for name, end := range map[string]func(*rig){
		"after a moment":         func(r *rig) { r.sweep(time.Now().Add(keptFor)) },
		"at the end of a daemon": func(r *rig) { r.stop() },
	} {
		o := rigOptions{prefix: prefix(), timeout: time.Hour}
		one, two := newRig(t, &destination{}, servers{shared}, o), newRig(t, &destination{}, servers{shared}, o)
		passed := &delivery.Job{ID: "a", Campaign: "c", Timing: delivery.Timing{SendBy: delivery.StampOf(time.Now())}}
		if r := one.Deliver(t.Context(), "sink", passed); r.Class != delivery.Withheld {
			t.Fatalf("%+v", r)
		}
		one.mu.Lock()
		e := one.leases[idOf("c", "a", "")].entry
		one.mu.Unlock()
		<-e.done
		if r := two.deliver("a"); r.Class != delivery.Withheld {
			t.Errorf("while the lease is kept: %+v", r)
		}
		end(one)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if r := two.insist(ctx, "a"); r.Class != delivery.Delivered {
			t.Errorf("%s: %+v", name, r)
		}
		cancel()
		one.mu.Lock()
		if len(one.leases) != 0 {
			t.Errorf("%s: %d leases remain", name, len(one.leases))
		}
		one.mu.Unlock()
	}
}

// Several daemons are given the same jobs again and again, sinks fail at random, daemons are replaced and Redis freezes.
// No job is ever in two calls at once, and none is sent after it was delivered.
func TestNoJobIsSentTwice(t *testing.T) {
	server := testservices.FreshRedis(t)
	const jobs, daemons, tries = 60, 3, 12
	var mu sync.Mutex
	sending, done, sent := map[string]bool{}, map[string]bool{}, 0
	to := &destination{answer: func(_ context.Context, j *delivery.Job) delivery.ResultClass {
		mu.Lock()
		if sending[j.ID] {
			t.Errorf("%s: sent twice at once", j.ID)
		}
		if done[j.ID] {
			t.Errorf("%s: sent after it had been delivered", j.ID)
		}
		sending[j.ID] = true
		sent++
		mu.Unlock()
		time.Sleep(rand.N(5 * time.Millisecond))
		class := delivery.Delivered // a fifth of them: all tries of a job fail in one run of a hundred thousand
		if n := rand.IntN(len(delivery.ResultClasses) + 1); n < len(delivery.ResultClasses) {
			class = delivery.ResultClasses[n]
		}
		mu.Lock()
		sending[j.ID], done[j.ID] = false, class == delivery.Delivered
		mu.Unlock()
		return class
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	var all sync.WaitGroup
	for range daemons {
		for range 2 { // a daemon and its successor
			all.Go(func() {
				clients := servers{connect(t, server.Addr), connect(t, server.Addr), connect(t, server.Addr)}
				r := newRig(t, to, clients, rigOptions{timeout: 10 * time.Second})
				var calls sync.WaitGroup
				for _, k := range rand.Perm(jobs * tries) {
					time.Sleep(rand.N(2 * time.Millisecond))
					calls.Go(func() { r.insist(ctx, fmt.Sprint("job-", k%jobs)) })
				}
				calls.Wait()
				r.stop()
			})
		}
	}
	all.Go(func() {
		time.Sleep(300 * time.Millisecond)
		server.Freeze()
		time.Sleep(time.Second)
		server.Thaw()
	})
	all.Wait()
	if ctx.Err() != nil {
		t.Fatal("not through in time")
	}
	for k := range jobs {
		if id := fmt.Sprint("job-", k); !done[id] {
			t.Errorf("%s: not delivered in %d tries", id, 2*daemons*tries)
		}
	}
	t.Logf("%d jobs, %d sends", jobs, sent)
}

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (b *lockedBuffer) count(part string) int { return strings.Count(b.String(), part) }

// TestOpenSendsNothingLate: a job whose slot has passed is not sent, though the ledger has failed.
func TestOpenSendsNothingLate(t *testing.T) {
	d := &destination{}
	r := newRig(t, d, servers{connect(t, "127.0.0.1:1")}, rigOptions{prefix: prefix(), open: true})
	r.stop() // entries fail at once from here on
	for range 50 {
		res := r.Deliver(t.Context(), "sink", &delivery.Job{ID: "a", Campaign: "c", Timing: delivery.Timing{SendBy: delivery.StampOf(time.Now().Add(-time.Millisecond))}})
		if res.Class != delivery.Withheld || d.count() > 0 {
			t.Fatalf("%+v, %d sent", res, d.count())
		}
	}
	if res := r.deliver("a"); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

// TestIDsRecurElsewhere: the ids of jobs without one from their producer are places in a topic, which recur in another
// cluster and in a topic made anew, and ids of CloudEvents recur in other sources. They are those of other jobs.
func TestIDsRecurElsewhere(t *testing.T) {
	to := &destination{}
	r := newRig(t, to, servers{connect(t, testservices.RedisAddr(t))}, rigOptions{prefix: prefix()})
	place := func(topic byte) *delivery.Job {
		return &delivery.Job{ID: "pacer.jobs/0/0", Campaign: "c", History: delivery.History{
			Origin: delivery.Origin{Topic: "pacer.jobs", TopicID: delivery.NewTopicID([16]byte{topic})},
		}}
	}
	event := func(source string) *delivery.Job {
		return &delivery.Job{ID: "a", Campaign: "c", Meta: delivery.Meta{Headers: []delivery.Header{
			{Key: delivery.HeaderCloudEvent, Value: []byte("a")}, {Key: delivery.HeaderEventSource, Value: []byte(source)},
		}}}
	}
	for i, j := range []*delivery.Job{place(1), place(2), event("/shop"), event("/till")} {
		if got := r.Deliver(t.Context(), "sink", j).Class; got != delivery.Delivered {
			t.Errorf("job %d: %v", i, got)
		}
	}
	for i, j := range []*delivery.Job{place(1), place(2), event("/shop"), event("/till")} {
		if got := r.Deliver(t.Context(), "sink", j).Class; got != delivery.Duplicate {
			t.Errorf("job %d again: %v", i, got)
		}
	}
	if to.count() != 4 {
		t.Errorf("%d of 4 were sent", to.count())
	}
}
