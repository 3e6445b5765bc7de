package test

import (
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// destination is where the jobs of one sink go: it decides what is done with each request, and notes what was. Its stand-in
// asks it. Safe for concurrent use.
type destination struct {
	clock *receiver // whose time is that of all arrivals

	mu       sync.Mutex
	jobs     map[string]*fated
	visits   []*visit
	answered map[int][]*visit // by connection, in order, of the last moments
	closed   map[int]int64    // connections that were reset
	deaf     bool
	expired  bool
	strange  []string // ids that nobody published
}

// role is what a request is of its job, where a job takes several.
type role struct {
	begins bool // takes the job's slot
	faulty bool // the job's fault is to be met here
	ends   bool // the job is taken if this is
}

// single is the role of a request that is a job's only one.
var single = role{begins: true, faulty: true, ends: true}

// visit is a request.
type visit struct {
	arrival
	role
	job  *fated
	conn int
	does fault
	lost bool
	done int64       // when it was answered; 0: not yet
	late func() bool // reports whether the answer came too late; nil: no
}

// lateAnswer is how long after its request an answer may come too late.
const lateAnswer = time.Second / 2

// answerReach is how long before the end of its connection an answer may have been written and yet be lost with it.
const answerReach = time.Second

func newDestination(clock *receiver) *destination {
	return &destination{clock: clock, jobs: map[string]*fated{}, answered: map[int][]*visit{}, closed: map[int]int64{}}
}

// expect gives the jobs their faults at random, to each of them a share of the jobs.
func (d *destination) expect(jobs []job, shares map[fault]float64, random *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var faults []fault
	for _, f := range allFaults {
		n := shares[f] * float64(len(jobs))
		for range int(max(n, min(1, 1000*n)) + 0.5) {
			faults = append(faults, f)
		}
	}
	order := random.Perm(len(jobs))
	for i, f := range faults {
		// A job that is never taken uses attempts once others of its sink were taken after it; where none are left, it does so a quarter of an hour later.
		for f == alwaysFails && order[i] >= len(jobs)/3 {
			k := len(faults) + random.IntN(len(jobs)-len(faults))
			order[i], order[k] = order[k], order[i]
		}
	}
	for i, at := range order {
		f := &fated{campaign: jobs[at].campaign}
		if i < len(faults) {
			f.fault = faults[i]
		}
		d.jobs[jobs[at].id] = f
	}
}

// arrives notes a request for a job on a connection, and decides what is done with it.
func (d *destination) arrives(id string, conn int, r role) *visit {
	v := d.decides(id, conn, r)
	d.does(v)
	return v
}

// decides notes the beginning of a request, and decides what is to be done with it: see does.
func (d *destination) decides(id string, conn int, r role) *visit {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := &visit{arrival: arrival{at: d.clock.now(), id: id}, role: r, conn: conn}
	_, never := d.begins(v, refuses).fault.forGood()
	switch {
	case v.does != faultless:
	case v.job.fault == goesAway: // in leaves, before the request is served, unless it was deaf or distrustful just then
	case r.faulty && (never || !v.job.spent):
		v.does, v.job.spent = v.job.fault, true
	}
	return v
}

// begins notes a request, and what is done with all of them now: faultless, if each meets its own fault. That of a job that nobody has
// published is given. The caller holds the lock.
func (d *destination) begins(v *visit, unknown fault) *fated {
	if v.job = d.jobs[v.id]; v.job == nil {
		d.strange = append(d.strange, v.id)
		v.job = &fated{fault: unknown}
	}
	v.campaign, v.does = v.job.campaign, d.now()
	d.visits = append(d.visits, v)
	return v.job
}

// now is what is done with all requests now. The caller holds the lock.
func (d *destination) now() fault {
	switch {
	case d.deaf:
		return deaf
	case d.expired:
		return distrusts
	}
	return faultless
}

// does notes that it is done, since the request was read to its end.
func (d *destination) does(v *visit) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch v.does {
	case faultless, loses, resets, goesAwayNow, deaf:
		if v.ends && v.isTaken() {
			v.job.taken, v.job.takenAt = v.job.taken+1, v.at
		}
	case gone, refuses:
		v.job.concluded++
	case fails, alwaysFails:
		v.job.failed++
	}
}

// isTaken reports whether the destination does what the request asks for, whether it answers or not.
func (v *visit) isTaken() bool {
	switch v.does {
	case faultless, loses, resets, goesAwayNow:
		return true
	case deaf:
		_, never := v.job.fault.forGood()
		return !never && takenThough(v.id)
	}
	return false
}

// takenThough reports whether a destination that is deaf takes the job: it does half of them.
func takenThough(id string) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32()%2 == 0
}

// leaves reports whether a connection goes away before the request.
func (d *destination) leaves(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	j := d.jobs[id]
	if j == nil || j.fault != goesAway || j.spent || d.deaf || d.expired {
		return false
	}
	j.spent = true
	return true
}

// lose notes that the answer of a visit did not arrive, or may not have. Earlier answers do not decide whether the last request is
// repeated.
func (d *destination) lose(v *visit) {
	if !v.lost && (v.ends || v.does == gone || v.does == refuses) {
		v.lost = true
		v.job.lost++
	}
}

// over notes that a visit is over. An answer may have come too late.
func (d *destination) over(v *visit, arrived bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v.done = d.clock.now()
	_, closed := d.closed[v.conn]
	if !arrived || closed || v.done-v.at > lateAnswer.Microseconds() {
		d.lose(v)
	}
	list := d.answered[v.conn]
	for len(list) > 0 && list[0].done < v.done-answerReach.Microseconds() {
		list = list[1:]
	}
	d.answered[v.conn] = append(list, v)
}

// breaks notes that a connection is reset: what it answered a moment ago may be lost.
func (d *destination) breaks(conn int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.now()
	d.closed[conn] = now
	for _, v := range d.answered[conn] {
		if v.done >= now-answerReach.Microseconds() {
			d.lose(v)
		}
	}
}

// serve treats a request over HTTP for a job. say answers it in the words of the protocol; for faultless, and for what is
// done with a job that is taken, it says that it is.
func (d *destination) serve(c *sinktest.Call, id string, say func(v *visit)) {
	d.treat(c, d.arrives(id, c.Connection, single), say)
}

// treat is serve for a request that has been noted.
func (d *destination) treat(c *sinktest.Call, v *visit, say func(v *visit)) {
	v.late = c.Cancelled
	switch v.does {
	case deaf, loses:
		c.Hang()
		d.over(v, false)
		return
	case resets:
		d.breaks(c.Connection)
		c.Reset()
		d.over(v, false)
		return
	case refusesOne:
		c.Refuse(7)
		d.over(v, true)
		return
	case goesAwayNow:
		c.GoAway(true)
	}
	say(v)
	d.over(v, !c.GivenUp())
}

// deafOrDoubts tells what is done with a request that is for no job that is known.
func (d *destination) deafOrDoubts() fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.now()
}

// doubts reports whether the credential is not accepted.
func (d *destination) doubts() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.expired
}

// set says whether the destination is deaf, and whether the credential has expired.
func (d *destination) set(isDeaf, isExpired bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deaf, d.expired = isDeaf, isExpired
}

// progress tells how many jobs have come to their end, as far as the destination knows, of how many. A job that always fails
// has not.
func (d *destination) progress() (done, of int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, j := range d.jobs {
		if j.fault == alwaysFails {
			continue
		}
		of++
		if j.taken > 0 || j.concluded > 0 {
			done++
		}
	}
	return done, of
}

// requests are those of a campaign that took a slot, in order of time: a request that was certainly not processed is made
// again within its own.
func (d *destination) requests(campaign string) (list []arrival) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.visits {
		if v.begins && v.campaign == campaign && v.does != refusesOne && v.does != goesAway {
			list = append(list, v.arrival)
		}
	}
	sortByTime(list)
	return list
}

// fates are the jobs. Answers are lost as well that came too late, and those that this process may have given late, since
// it was kept from running.
func (d *destination) fates() map[string]fated {
	stalled := d.clock.blur()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.visits {
		if v.late != nil && v.late() || stalled(v.at) > lateAnswer.Microseconds() {
			d.lose(v)
		}
	}
	all := map[string]fated{}
	for id, j := range maps.All(d.jobs) {
		all[id] = *j
	}
	return all
}

// batch notes a request for several jobs, by partition, and decides what is done with each partition: the worst of what is to
// be done with its jobs. If that breaks the connection or leaves the request without an answer, it is done with all.
func (d *destination) batch(ids map[int32][]string, worst []fault) map[int32]fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, all, does, visits := d.clock.now(), faultless, map[int32]fault{}, map[int32][]*visit{}
	worse := func(a, b fault) bool { return slices.Index(worst, a) > slices.Index(worst, b) }
	for p, list := range ids {
		for _, id := range list {
			v := d.isTo(&visit{arrival: arrival{at: now, id: id}, role: single, done: now})
			if visits[p] = append(visits[p], v); worse(v.does, does[p]) {
				does[p] = v.does
			}
		}
		if (does[p] == resets || does[p] == deaf) && worse(does[p], all) {
			all = does[p]
		}
	}
	for p, list := range visits {
		if all != faultless {
			does[p] = all
		}
		for _, v := range list {
			d.isDone(v, does[p], len(list) > 1)
		}
	}
	return does
}

// isTo decides what is to be done with one job of a batch. The caller holds the lock.
func (d *destination) isTo(v *visit) *visit {
	_, never := d.begins(v, faultless).fault.forGood()
	if v.does == faultless && (never || !v.job.spent) {
		v.does = v.job.fault
	}
	return v
}

// isDone notes what is done with one job of a batch, which may have others. The caller holds the lock.
func (d *destination) isDone(v *visit, does fault, others bool) {
	// Jobs that are refused for one of them are written again without it, in their slots.
	again := does == refuses && others
	if does != faultless && does != deaf && does != distrusts && !again {
		v.job.spent = true // those that failed with others, too, so that none meets the faults of others again and again
	}
	switch v.does = does; {
	case again:
		v.does = refusesOne
	case does == faultless:
		v.job.taken, v.job.takenAt = v.job.taken+1, v.at
	case does == loses:
		v.job.taken++
		d.lose(v)
	case does == refuses:
		v.job.concluded++
	case does == fails:
		v.job.failed++
	}
}
