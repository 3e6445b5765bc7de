package test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// The chaos suite breaks one thing at a time under load and counts from outside what became of every job.
//
// A case is a name and a function. The function builds a world (c.world). It creates campaigns with jobs (c.load), or campaigns, quotas
// and bounds (c.campaign, c.quota) and jobs (c.publish). It starts daemons (c.join) and waits for load (c.arrived). It does the damage,
// undoes it and says so (c.healed). It waits for the end (c.delivered). Whatever may be sent twice it says with c.mayRepeat; c.crash does
// so by itself. A case that does not let every job arrive ends without c.delivered: what waits in the broker is not lost. The verdict
// comes by itself at the end: daemons are stopped (which must be in order), and lost jobs, duplicates and broken limits are counted.
//
// Sizes go through c.jobs and c.rate, so that the full form is larger. The short form of a case, in `make test`, has to
// end within about 15 seconds; cases that cannot are not short, nor are those of which another test has the gist. Short
// cases run beside other tests. A new file of cases has its own list, which is added to chaosCases.
type chaosCase struct {
	name  string
	short bool // also in make test
	run   func(t *testing.T, c *chaos)
	tells telling // what tells a person of its fault
}

// chaosCases are all cases, in the order of the table.
func chaosCases() []chaosCase {
	return slices.Concat(crashCases, storeCases, quotaCases, keyCases, brokerCases, catalogCases, laneCases, jobCases, sinkCases,
		anewCases, replicaCases, compressedCases, memoryCases, randomCases)
}

// TestChaos runs the short cases; with CHAOS=full all of them, with more jobs and CHAOS_ROUNDS times (1), and writes
// the table to CHAOS_REPORT, if set. One case alone: -run TestChaos/<name>.
func TestChaos(t *testing.T) {
	t.Parallel()
	full := os.Getenv("CHAOS") == "full"
	report := newChaosReport()
	rounds := 1
	if n := os.Getenv("CHAOS_ROUNDS"); n != "" {
		var err error
		if rounds, err = strconv.Atoi(n); err != nil || rounds < 1 {
			t.Fatalf("CHAOS_ROUNDS is %q and must be a positive number", n)
		}
	}
	t.Cleanup(func() { report.publish(t, os.Getenv("CHAOS_REPORT")) }) // after the parallel ones, too
	for _, each := range chaosCases() {
		if !each.short && !full {
			continue
		}
		for round := range rounds {
			name := each.name
			if round > 0 {
				name = fmt.Sprintf("%s/%d", each.name, round+1)
			}
			t.Run(name, func(t *testing.T) {
				if !full {
					t.Parallel()
				}
				runChaos(t, each, full, report)
			})
		}
	}
}

// commitLag is how long the commit of a settled job may take: it is due every 100 ms and acknowledged within two more.
const commitLag = 300 * time.Millisecond

// chaos is one case while it runs.
type chaos struct {
	*stack

	full      bool
	random    *rand.Rand
	tells     telling
	row       chaosRow
	bystander *bystander
	silence   *silence
	oracle    *oracle // nil: nobody judges the figures

	published  map[string]string      // job id to campaign
	cancelled  map[string]bool        // campaigns whose jobs may vanish
	gone       map[string]bool        // jobs that lay in a log that was deleted or has lost its end
	bounds     map[string][]rateBound // by campaign; the last is in force
	windows    []windowBound
	keys       []keyBound
	up         []*daemon
	healedAt   int64 // the receiver's time; 0 when nothing was healed
	replayed   bool  // dead letters stay, though their jobs were sent
	unfinished bool  // the case did not reach its end
}

// rateBound is what a campaign may send in every second from one time of the receiver to another.
type rateBound struct {
	rate     float64
	from, to int64
}

// windowBound is what campaigns may send together in any span.
type windowBound struct {
	campaigns []string
	limit     int
	span      time.Duration
}

func runChaos(t *testing.T, each chaosCase, full bool, report *report) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &chaos{
		full: full, random: rand.New(rand.NewPCG(seed, 0)), tells: each.tells, row: chaosRow{name: each.name, failed: true},
		published: map[string]string{}, cancelled: map[string]bool{}, gone: map[string]bool{}, bounds: map[string][]rateBound{}, unfinished: true,
	}
	defer func() {
		if c.stack != nil { // else the services were not there
			defer func() { report.add(c.row.name, c.row.String()) }() // also when the verdict cannot be found
			c.verdict()
		}
	}()
	each.run(t, c)
	c.unfinished = false
}

// jobs is a number of jobs: ten times as many in the full form.
func (c *chaos) jobs(n int) int {
	if c.full {
		return 10 * n
	}
	return n
}

// rate is a send_rate: five times as high in the full form, which lasts twice as long then.
func (c *chaos) rate(n float64) float64 {
	if c.full {
		return 5 * n
	}
	return n
}

// campaign creates a campaign; that it never sends faster is a part of the verdict.
func (c *chaos) campaign(id string, rate float64) {
	c.t.Helper()
	c.stack.campaign(id, rate)
	c.bounds[id] = []rateBound{{rate: rate, to: math.MaxInt64}}
}

// setRate changes a campaign's rate. The new one binds every second that begins later than grace after the change; those
// before the change and across it are bound by the rates then in force.
func (c *chaos) setRate(id string, rate float64, grace time.Duration) {
	c.t.Helper()
	list := c.bounds[id]
	list[len(list)-1].to = c.receiver.now()
	c.sql(`UPDATE pacer.campaigns SET send_rate = $1 WHERE id = $2`, rate, id)
	c.bounds[id] = append(list, rateBound{rate: rate, from: c.receiver.now() + grace.Microseconds(), to: math.MaxInt64})
}

// quota puts campaigns under a quota of one window, whose limit is a part of the verdict.
func (c *chaos) quota(id string, limit int, span time.Duration, campaigns ...string) {
	c.t.Helper()
	c.stack.quota(id, "closed", fmt.Sprintf("%d/%s", limit, span))
	c.under(id, campaigns...)
	c.windows = append(c.windows, windowBound{campaigns: campaigns, limit: limit, span: span})
}

// publish publishes jobs and remembers them for the verdict.
func (c *chaos) publish(jobs []job) {
	c.t.Helper()
	for _, j := range jobs {
		c.published[j.id] = j.campaign
	}
	c.stack.publish(jobs)
	c.silence.publishes(jobs)
}

// load creates campaigns with the rates of c.rate, and publishes jobs for a number of seconds of each.
func (c *chaos) load(seconds float64, rates map[string]float64) {
	c.t.Helper()
	numbers := map[string]int{}
	for id, rate := range rates {
		c.campaign(id, c.rate(rate))
		numbers[id] = c.jobs(int(rate * seconds))
	}
	c.publish(mix(numbers))
}

// join starts a daemon and waits until it is ready; more are variables of its environment.
func (c *chaos) join(name string, more ...string) *daemon {
	c.t.Helper()
	d := c.start(name, more...)
	c.silence.listens(d)
	c.up = append(c.up, d)
	c.bystander.resume()
	if len(c.up) > 1 {
		c.bystander.spare(rebalance)
	}
	d.awaitReady(30 * time.Second)
	c.await(30*time.Second, "its partitions", func() bool { return d.metric("pacer_partitions") > 0 }) // others let go of them first
	return d
}

// pair starts two daemons; more are variables of their environment.
func (c *chaos) pair(more ...string) (one, two *daemon) {
	c.t.Helper()
	return c.join("one", more...), c.join("two", more...)
}

// joinAll starts daemons one after the other.
func (c *chaos) joinAll(names ...string) (daemons []*daemon) {
	c.t.Helper()
	for _, name := range names {
		daemons = append(daemons, c.join(name))
	}
	return daemons
}

// figures has the oracle judge what is shown of campaigns, in the full form.
func (c *chaos) figures(campaigns ...string) {
	c.t.Helper()
	if c.full {
		c.oracle = c.stack.watch(campaigns, nil, c.up...)
	}
}

// again starts a daemon that has ended.
func (c *chaos) again(d *daemon, more ...string) {
	c.t.Helper()
	d.launch(more...)
	c.up = append(c.up, d)
	c.oracle.excuse(c.up...)
	c.bystander.resume()
	if len(c.up) > 1 {
		c.bystander.spare(rebalance)
	}
}

// crash ends a daemon as kill -9 does, and counts what it had in flight: the requests that it says are open, and what
// arrived within the lag of a commit.
func (c *chaos) crash(d *daemon) {
	c.t.Helper()
	open := int(d.metric("pacer_jobs_in_flight"))
	since := c.receiver.now() - commitLag.Microseconds()
	c.down(d)
	c.bystander.spare(groupRecovery)
	d.kill()
	c.oracle.excuse(c.up...)
	recent := c.between("", since, c.receiver.now()) + c.bystander.since(commitLag)
	c.mayRepeat(open+recent, "a")
}

// outage runs what happens while nothing can be committed, and waits until all daemons are in the group again. Jobs that were sent
// meanwhile may be sent once more: the group has gone on without the daemon and refuses its commits.
func (c *chaos) outage(damage func()) {
	c.t.Helper()
	since, began := c.receiver.now()-commitLag.Microseconds(), time.Now()
	c.shared(groupRecovery, func() {
		damage()
		c.healed()
		c.await(40*time.Second, "the daemons to be in the group again", func() bool {
			return !slices.ContainsFunc(c.up, func(d *daemon) bool { return d.metric("pacer_group_joined") == 0 })
		})
	})
	repeated := c.between("", since, c.receiver.now()) + c.bystander.since(time.Since(began)+commitLag)
	c.mayRepeat(repeated, "b")
}

// leave stops a daemon in order, which may send nothing twice.
func (c *chaos) leave(d *daemon) {
	c.t.Helper()
	c.down(d)
	d.stop()
}

func (c *chaos) down(d *daemon) {
	c.up = slices.DeleteFunc(c.up, func(other *daemon) bool { return other == d })
	c.bystander.spare(rebalance)
	if len(c.up) == 0 {
		c.bystander.pause(groupRecovery)
	}
}

// mayRepeat raises the bound on duplicates by n and says where the number is from, by a letter of chaosHeading.
func (c *chaos) mayRepeat(n int, how string) {
	c.row.inFlight += n
	if !strings.Contains(c.row.how, how) {
		c.row.how += how
	}
}

// arrived waits until a share of the published jobs, varied by a tenth of them all, has arrived.
func (c *chaos) arrived(share float64) {
	c.t.Helper()
	share += 0.1 * (c.random.Float64() - 0.5)
	n := int(share * float64(len(c.published)))
	c.await(60*time.Second, fmt.Sprintf("%d of %d jobs", n, len(c.published)), func() bool { return c.receiver.count("") >= n })
}

// healed says that the damage has just been undone.
func (c *chaos) healed() { c.healedAt = c.receiver.now() }

// recovers is the end of most cases: the damage is undone, and every job is accepted.
func (c *chaos) recovers(within time.Duration) {
	c.t.Helper()
	c.healed()
	c.delivered(within)
}

// delivered waits until every job has been accepted that is not gone with its log.
func (c *chaos) delivered(within time.Duration) {
	c.t.Helper()
	due, first := 0, ""
	for deadline := time.Now().Add(within); ; time.Sleep(50 * time.Millisecond) {
		if n, _ := c.receiver.accepted(""); n < len(c.published)-len(c.gone) && time.Now().Before(deadline) {
			continue
		}
		accepted := c.receiver.acceptedIDs()
		if due, first = 0, ""; len(accepted) < len(c.published) {
			for id := range c.published {
				if !accepted[id] && !c.gone[id] {
					due, first = due+1, id
				}
			}
		}
		switch {
		case due == 0:
			return
		case time.Now().After(deadline):
			c.t.Fatalf("%d of %d jobs not accepted after %s, %s for example", due, len(c.published), within, first)
		}
	}
}

// verdict stops what runs and fills the row.
func (c *chaos) verdict() {
	c.t.Helper()
	c.judge()
	c.silence.end()
	if c.oracle != nil {
		c.oracle.end()
	}
	if c.full && !c.unfinished {
		c.told()
	}
	time.Sleep(500 * time.Millisecond) // for duplicates that come late
	for len(c.up) > 0 {
		c.leave(c.up[0])
	}
	accepted := map[string]bool{}
	for _, r := range c.receivers() {
		maps.Copy(accepted, r.acceptedIDs())
		_, repeats := r.accepted("")
		c.row.duplicates += repeats
	}
	c.row.jobs = len(c.published)
	var again int
	var waiting map[string]bool
	c.row.lost, again, waiting = c.lost(accepted)
	for _, campaign := range c.silence.unexplained(waiting) {
		c.t.Errorf("stood still in silence: %s", campaign)
	}
	c.identity()
	c.row.over += c.overLimit()
	c.row.recovery = -1
	for _, a := range c.receiver.arrivals("") {
		if c.healedAt > 0 && a.at >= c.healedAt && a.status/100 == 2 {
			c.row.recovery = time.Duration(a.at-c.healedAt) * time.Microsecond
			break
		}
	}
	c.row.duplicates += again // to come: nobody had sent them again when all that was published had been accepted
	c.row.failed = c.t.Failed() || c.unfinished || c.row.lost > 0 || c.row.over > 0 || c.row.duplicates > c.row.inFlight
	c.t.Log(c.row)
	if c.row.lost > 0 || c.row.over > 0 {
		c.t.Errorf("%d jobs lost, limits broken by %d", c.row.lost, c.row.over)
	}
	if c.row.duplicates > c.row.inFlight {
		c.repeats(5)
		c.t.Errorf("%d duplicates, %d of which the next daemon would send: more than the %d that may have been in flight",
			c.row.duplicates, again, c.row.inFlight)
	}
}

// lost counts the jobs that are nowhere: not accepted, not dead, and no longer waiting. Those that were accepted and wait
// nevertheless are to be sent again. Waiting are the campaigns that have jobs in ingress or lanes.
func (c *chaos) lost(accepted map[string]bool) (lost, again int, waiting map[string]bool) {
	c.t.Helper()
	held := map[string]bool{}
	waiting = map[string]bool{}
	c.stack.eachOpen(func(topic string, r delivery.Record) {
		if id := r.Header("pacer-job-id"); !c.replayed || topic != requeue.DeadTopic(c.prefix) || !accepted[id] {
			held[id] = true
		}
		if topic == c.ingress || topic == requeue.LaneTopic(c.prefix) {
			waiting[r.Header("pacer-campaign")] = true
		}
	})
	published := maps.Clone(c.published)
	for _, j := range c.bystander.list(0) {
		published[j.id] = bystanderID
	}
	for id := range c.bystander.gone {
		delete(published, id)
	}
	for id, campaign := range published {
		switch waits := held[id]; {
		case accepted[id] && waits:
			again++
		case !accepted[id] && !waits && !c.cancelled[campaign] && !c.gone[id]:
			lost++
		}
	}
	return lost, again, waiting
}

// repeats logs the first jobs that were accepted again.
func (c *chaos) repeats(n int) {
	for _, r := range c.receivers() {
		first := map[string]int64{}
		for _, a := range r.arrivals("") {
			at, again := first[a.id]
			if again && a.status/100 == 2 && n > 0 {
				n--
				c.t.Logf("%s was sent at %.2f s and at %.2f s, attempt %d", a.id, float64(at)/1e6, float64(a.at)/1e6, a.attempt)
			}
			first[a.id] = a.at
		}
	}
}

// identity expects that every request carried what was published under its id: the campaign and the payload.
func (c *chaos) identity() {
	c.t.Helper()
	wrong := 0
	for _, r := range c.receivers() {
		for _, a := range r.arrivals("") {
			campaign, known := c.published[a.id]
			if r == c.bystander.receiver {
				campaign, known = bystanderID, strings.HasPrefix(a.id, bystanderID+"-")
			}
			if a.foreign || !known || campaign != a.campaign {
				if wrong++; wrong <= 5 {
					c.t.Errorf("a request for %s of campaign %s has another job's payload or campaign", a.id, a.campaign)
				}
			}
		}
	}
	if wrong > 0 {
		c.row.failed = true
	}
}

// held are the jobs that the broker has: as dead letters, or waiting in ingress, lanes and timers beyond what the group
// has committed. It holds while daemons run, too, if asked for before the receiver: a commit comes after the job's fate.
func (c *chaos) held() map[string]bool {
	c.t.Helper()
	found := map[string]bool{}
	c.eachOpen(func(_ string, r delivery.Record) { found[r.Header("pacer-job-id")] = true })
	return found
}

// overLimit counts the requests that begin a second with more than rate * (1 + late_tolerance) + 1, and those that begin a
// window with more than its limit.
func (c *chaos) overLimit() (n int) {
	blur := c.receiver.blur()
	for id, bounds := range c.bounds {
		if len(bounds) > 1 {
			largest := slices.MaxFunc(bounds, func(a, b rateBound) int { return cmp.Compare(a.rate, b.rate) })
			bounds = slices.Concat(bounds, []rateBound{{rate: largest.rate, to: math.MaxInt64}})
		}
		for _, b := range bounds {
			list := slices.DeleteFunc(c.receiver.arrivals(id), func(a arrival) bool { return a.at < b.from || a.at >= b.to })
			most := b.rate*clockError*(time.Second+toleranceOf(b.rate)).Seconds() + 1
			if over := tooMany(list, int(most), time.Second, blur); over > 0 {
				c.t.Logf("%s: %d requests begin a second with more than %d, at most %d, at %g/s from %.1f s to %.1f s", id, over, int(most),
					rolling(list, time.Second), b.rate, float64(b.from)/1e6, float64(min(b.to, c.receiver.now()))/1e6)
				n += over
			}
		}
	}
	for _, w := range c.windows {
		var list []arrival
		for _, id := range w.campaigns {
			list = append(list, c.receiver.arrivals(id)...)
		}
		sortByTime(list)
		if over := tooMany(list, w.limit, w.span, blur); over > 0 {
			c.t.Logf("%v: %d requests begin %s with more than %d, at most %d", w.campaigns, over, w.span, w.limit, rolling(list, w.span))
			n += over
		}
	}
	return n + c.overKeys()
}
