package test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// The suite of sinks sends jobs from Kafka over three daemons to stand-ins of real destinations. These fail some of the jobs (fault),
// hang for a second, and refuse pacer's credentials for a while. The suite finds each job's outcome in the stand-in's notes, the dead
// letters, the results and Kafka.
//
// A kind of sink is a function that starts its stand-in (sinkKinds). The stand-in asks the destination how to treat each
// request, and answers in the words of its protocol. All else is the same for all kinds.

// sinkSize is how much is sent, and how much goes wrong.
type sinkSize struct {
	jobs, campaigns int     // of each sink, over its campaigns
	rate            float64 // of each campaign
	shares          map[fault]float64
	deaf, expired   time.Duration
	timeout         time.Duration // of a request
	attempts        int
	first           time.Duration // back-off
}

var (
	fullSinks = sinkSize{
		jobs: 20_000, campaigns: 4, rate: 125, deaf: time.Second, expired: 5 * time.Second, timeout: 2 * time.Second,
		attempts: 8, first: 500 * time.Millisecond,
		shares: map[fault]float64{
			fails: 0.05, throttlesAll: 0.01, throttlesHost: 0.01, throttlesOne: 0.01, throttlesIt: 0.01, gone: 0.01, refuses: 0.01,
			alwaysFails: 0.001, loses: 0.002, resets: 0.002, goesAway: 0.005, goesAwayNow: 0.005, refusesOne: 0.01,
		},
	}
	// The short form has few waits: each that is asked of the whole sink takes a second.
	shortSinks = sinkSize{
		jobs: 300, campaigns: 2, rate: 100, deaf: 300 * time.Millisecond, expired: 500 * time.Millisecond, timeout: 1500 * time.Millisecond,
		attempts: 6, first: 100 * time.Millisecond,
		shares: map[fault]float64{
			fails: 0.05, throttlesAll: 0.0025, throttlesHost: 0.0025, throttlesOne: 0.005, throttlesIt: 0.01, gone: 0.01, refuses: 0.01,
			alwaysFails: 0.0025, loses: 0.005, resets: 0.005, goesAway: 0.005, goesAwayNow: 0.005, refusesOne: 0.01,
		},
	}
)

func (s sinkSize) full() bool { return s.jobs == fullSinks.jobs }

// of returns what shares of the jobs of a kind have each fault.
func (s sinkSize) of(k sinkKind) map[fault]float64 {
	shares := map[fault]float64{}
	for f, share := range s.shares {
		switch {
		case slices.Contains(k.never, f):
			continue
		case k.batches && f != refuses:
			share /= 5
		}
		shares[f] = share
	}
	return shares
}

// TestSinks runs the short form, all sinks beside each other; with SINKS=full each has a run of its own, of 20,000 jobs, and
// the table goes to SINKS_REPORT, if set. One sink alone: -run TestSinks/<name>.
func TestSinks(t *testing.T) {
	if os.Getenv("SINKS") != "full" {
		t.Parallel()
		runSinks(t, shortSinks, sinkKinds)
		return
	}
	report := newSinksReport()
	t.Cleanup(func() { report.publish(t, os.Getenv("SINKS_REPORT")) })
	for _, k := range sinkKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			for _, row := range runSinks(t, fullSinks, []sinkKind{k}) {
				report.add(row.name, row.String())
			}
		})
	}
}

// sinkRun is one kind of sink while jobs go to it.
type sinkRun struct {
	sinkKind
	sinkEnd
	*destination

	size sinkSize
	jobs []job
}

// sinksWorld is a stack with sinks, and a bystander whose jobs go to the usual receiver.
type sinksWorld struct {
	*stack

	runs      []*sinkRun
	bystander *bystander
	daemons   []*daemon
	known     map[string]bool // ids of the sinks' jobs
	began     time.Time
}

func runSinks(t *testing.T, size sinkSize, kinds []sinkKind) []sinksRow {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &sinksWorld{known: map[string]bool{}}
	w.prepare(t, size, kinds, rand.New(rand.NewPCG(seed, 0)))
	w.daemons = w.fleet("one", "two", "three")
	w.awaitPartitions()
	w.publishAll()
	var disturbed sync.WaitGroup
	for _, r := range w.runs {
		disturbed.Go(r.disturb)
	}
	disturbed.Wait()
	w.awaitEnd()
	share, _ := w.bystander.share()
	for _, d := range w.daemons {
		d.stop()
	}
	return w.verdict(share)
}

// prepare makes the stack, its sinks and its campaigns.
func (w *sinksWorld) prepare(t *testing.T, size sinkSize, kinds []sinkKind, random *rand.Rand) {
	clock := newReceiver(t)
	var sections strings.Builder
	for _, k := range kinds {
		r := &sinkRun{sinkKind: k, destination: newDestination(clock), size: size}
		r.sinkEnd = k.start(t, r.destination)
		fmt.Fprintf(&sections, "  %s: {%s, timeout: %s}\n", k.name, r.settings, size.timeout)
		for i := range size.jobs {
			j := job{campaign: fmt.Sprintf("%s-%d", k.name, i%size.campaigns), id: fmt.Sprintf("%s-job-%d", k.name, i)}
			r.dress(&j)
			r.jobs = append(r.jobs, j)
			w.known[j.id] = true
		}
		r.expect(r.jobs, size.of(k), random)
		w.runs = append(w.runs, r)
	}
	w.stack = newStack(t, stackOptions{
		partitions: 6, kafka: "results: true", sinks: sections.String(),
		settings: fmt.Sprintf("retry: {max_attempts: %d, initial: %s}", size.attempts, size.first),
	})
	w.bystander = &bystander{receiver: w.receiver, rate: 20, jobs: 20 * 1200, pauses: []pause{{to: forever, recovery: 5 * time.Second}}}
	if !size.full() {
		w.bystander.jobs = 20 * 30
	}
	w.campaign(bystanderID, w.bystander.rate)
	for _, r := range w.runs {
		for i := range size.campaigns {
			w.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ($1, $2, $3)`, fmt.Sprintf("%s-%d", r.name, i), size.rate, r.name)
		}
	}
}

// awaitPartitions waits until each daemon has partitions: nothing is to be interrupted by one that joins.
func (w *sinksWorld) awaitPartitions() {
	w.t.Helper()
	w.await(30*time.Second, "the daemons to have partitions", func() bool {
		return !slices.ContainsFunc(w.daemons, func(d *daemon) bool { return d.metric("pacer_partitions") == 0 })
	})
}

// publishAll publishes the jobs of all sinks in turn, and the bystander's.
func (w *sinksWorld) publishAll() {
	w.t.Helper()
	w.publish(w.bystander.list(0))
	w.bystander.resume()
	w.began = time.Now()
	var all []job
	for i := range w.runs[0].jobs {
		for _, r := range w.runs {
			all = append(all, r.jobs[i])
		}
	}
	w.publish(all)
}

// disturb has the credential of the sink expire when some of its jobs are done, and its destination be deaf later.
func (r *sinkRun) disturb() {
	expire := r.expire
	if expire == nil {
		expire = func(is bool) { r.set(false, is) }
	}
	r.awaitDone(0.2)
	expire(true)
	time.Sleep(r.size.expired)
	expire(false)
	r.awaitDone(0.5)
	r.set(true, false)
	time.Sleep(r.size.deaf)
	r.set(false, false)
}

// awaitDone waits until a share of the jobs has come to its end, or for a while that is longer than that should take.
func (r *sinkRun) awaitDone(share float64) {
	for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if done, of := r.progress(); float64(done) >= share*float64(of) {
			return
		}
	}
}

// awaitEnd waits until every job of the sinks has come to its end, and its offset is committed.
func (w *sinksWorld) awaitEnd() {
	w.t.Helper()
	within := time.Minute
	if w.runs[0].size.full() {
		within = 12 * time.Minute
	}
	deadline := time.Now().Add(within)
	left := func() (list []string) {
		for _, r := range w.runs {
			if done, of := r.progress(); done < of {
				list = append(list, fmt.Sprintf("%s: %d of %d", r.name, done, of))
			}
		}
		return list
	}
	for len(left()) > 0 {
		if time.Now().After(deadline) {
			w.t.Errorf("not all jobs have come to their end: %s", strings.Join(left(), ", "))
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	for len(w.open()) > 0 {
		if time.Now().After(deadline.Add(30 * time.Second)) {
			w.t.Errorf("jobs are open: %v", slices.Sorted(maps.Keys(w.open())))
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// open are the jobs of the sinks that the group's commits leave open. smev's answers name them, too, and are not consumed.
func (w *sinksWorld) open() map[string]bool {
	w.t.Helper()
	found := map[string]bool{}
	w.eachOpen(func(topic string, r delivery.Record) {
		if id := r.Header("pacer-job-id"); topic != requeue.DeadTopic(w.prefix) && topic != w.prefix+"smev.responses" && w.known[id] {
			found[id] = true
		}
	})
	return found
}

// verdict compares what became of each job with what had to.
func (w *sinksWorld) verdict(share float64) (rows []sinksRow) {
	w.t.Helper()
	events, dead, open := w.events(), w.dead(), w.open()
	outage := w.outage()
	for id, reason := range dead {
		if !w.known[id] {
			w.t.Errorf("%s is a dead letter, %s", id, reason)
		}
	}
	if w.runs[0].size.full() && share < 0.99 || share < 0.5 {
		w.t.Errorf("the bystander was sent at %.1f %% of its rate", 100*share)
	}
	for _, r := range w.runs {
		row := sinksRow{name: r.name, jobs: len(r.jobs), bystander: min(share, 1), took: time.Since(w.began), unexplained: map[int64]bool{}}
		wrong := map[string][]string{} // ids by what is wrong
		note := func(what, id string) { wrong[what] = append(wrong[what], id) }
		for id, j := range r.fates() {
			w.judge(&row, judged{id: id, job: j, events: events[id], dead: dead[id], open: open[id], again: outage}, note)
		}
		for _, id := range r.strange {
			note("a request for a job that nobody published", id)
		}
		if r.taken != nil && r.taken() != row.taken {
			w.t.Errorf("%s: %d jobs are there, %d were taken", r.name, r.taken(), row.taken)
		}
		if r.check != nil {
			r.check()
		}
		row.over = r.overRates(w.t)
		for what, ids := range wrong {
			slices.Sort(ids)
			w.t.Errorf("%s: %d jobs: %s: %s", r.name, len(ids), what, strings.Join(ids[:min(5, len(ids))], " "))
			r.history(w.t, ids[0])
		}
		row.failed = len(wrong) > 0 || row.over > 0
		w.t.Log(row)
		rows = append(rows, row)
	}
	return rows
}

// outage reports whether Kafka took partitions from daemons that could not commit, so that jobs may be sent again that arrived. Another
// test covers that; this one needs a machine without such stalls.
func (w *sinksWorld) outage() bool {
	w.t.Helper()
	for _, d := range w.daemons {
		if d.log.lines("they may be sent twice") > 0 {
			if w.t.Log("Kafka failed meanwhile: what was sent more than once is not judged"); w.runs[0].size.full() {
				w.t.Error("Kafka failed meanwhile; run it again")
			}
			return true
		}
	}
	return false
}

// judged is a job and what became of it.
type judged struct {
	id     string
	job    fated
	events []event
	dead   string // the reason; "" for none
	open   bool
	again  bool // it may have been sent and settled again, since Kafka failed
}

// judge adds the job to the row, and notes what is wrong with what became of it.
func (w *sinksWorld) judge(row *sinksRow, x judged, note func(what, id string)) {
	want, never := x.job.fault.forGood()
	got := ""
	for _, e := range x.events {
		got += strings.TrimSpace(e.Outcome+" "+e.Reason) + " "
	}
	if got = strings.TrimSpace(got); got != want && (!x.again || !strings.HasPrefix(got, want)) {
		note(fmt.Sprintf("%q, and not %q", cmp.Or(got, "no event"), want), x.id)
	}
	kept, wanted := x.dead, strings.TrimPrefix(want, "dead ")
	if wanted == want {
		wanted = ""
	}
	if kept != wanted {
		note(fmt.Sprintf("dead letter %q, and not %q", kept, wanted), x.id)
	}
	answers := x.job.taken + x.job.concluded
	row.taken += x.job.taken
	row.duplicates += max(0, x.job.taken-1)
	row.unheard += x.job.lost
	switch {
	case x.dead == "" && answers == 0:
		row.lost++
		note("lost", x.id)
	case x.dead != "":
		row.dead++
	}
	if want == "rejected" && got == want {
		row.rejected++
	}
	if x.open {
		note("still open", x.id)
	}
	if answers > 1+x.job.lost && !x.again {
		if row.unexplained[x.job.takenAt] = true; len(row.unexplained) > stalledRepeats {
			note(fmt.Sprintf("%d answers that end a job, though only %d may not have arrived", answers, x.job.lost), x.id)
		}
	}
	if never && x.job.taken > 0 {
		note("taken, though it never is", x.id)
	}
}

// stalledRepeats is how many requests of a sink may take jobs again although their answers arrived: a call's time includes the wait for a connection,
// and may end just before the answer while the machine stands still.
const stalledRepeats = 2

// dialTime is how long requests may wait while a connection is made instead of one that was reset or has gone away.
const dialTime = 250 * time.Millisecond

// overRates tells by how many requests the campaigns exceed their rates in their worst stretches: 0 if none does. Jobs sent within a rate
// may each wait for that long, so the rate holds for stretches that are longer by that time.
func (r *sinkRun) overRates(t *testing.T) (most float64) {
	t.Helper()
	blur, late := r.clock.blur(), toleranceOf(r.size.rate)+dialTime
	if r.queues || !r.size.full() {
		late += r.size.timeout
	}
	for i := range r.size.campaigns {
		list := r.requests(fmt.Sprintf("%s-%d", r.name, i))
		over := overRate(list, r.size.rate*clockError, late, blur)
		t.Logf("%s-%d: %d requests, the worst stretch is %.1f above rate * (L + %s)", r.name, i, len(list), over, late)
		if over > 1.01 {
			t.Errorf("%s-%d: a stretch carries %.1f more than rate * (L + %s)", r.name, i, over, late)
			most = max(most, over-1)
		}
	}
	return most
}

// history logs all requests for a job.
func (r *sinkRun) history(t *testing.T, id string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.visits {
		if v.id == id {
			t.Logf("%s: at %.3f s on connection %d: %q, answered at %.3f s, lost: %t; fault %q", id, float64(v.at)/1e6, v.conn, v.does,
				float64(v.done)/1e6, v.lost, v.job.fault)
		}
	}
}
