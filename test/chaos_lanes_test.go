package test

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
)

// laneCases are about jobs that wait in lanes while rates and statuses change.
var laneCases = []chaosCase{
	{"rate-up-and-down-mid-backlog", false, rateUpAndDown, telling{}},
	{"rate-0", false, rateZero, telling{}},
	{"two-on-a-lane-one-paused", false, onePaused, telling{}},
	{"more-campaigns-than-lanes", false, moreThanLanes, telling{}},
	{"lane-drained-while-a-job-arrives", false, laneDrained, telling{}},
	{"cancel-with-many-queued", false, cancelQueued, telling{}},
	{"a-hundred-paused-campaigns", false, hundredPaused, telling{}},
	{"behind-a-backlog-in-one-partition", false, behindBacklog, telling{}},
	{"slow-destination-of-a-backlog", false, slowDestination, telling{}},
}

// rateUpAndDown raises the rate of a campaign whose jobs wait in a lane from 50 to 1,000 a second and lowers it again.
// Each change acts on what waits, and the other campaign on the lane does not notice.
func rateUpAndDown(t *testing.T, c *chaos) {
	const low, high, other = 50, 1000, 60
	c.world(t, stackOptions{partitions: 6, lanes: 1})
	fast := c.seconds(1.5)
	n := int(2*3*low + 1.5*high*fast.Seconds())
	c.campaign("changes", low)
	c.campaign("other", other)
	c.publish(mix(map[string]int{"changes": n, "other": 8 * other}))
	c.joinAll("one", "two")
	c.inLanes(n / 2)
	c.jitter()
	at := []int64{c.receiver.now()}
	for _, step := range []struct {
		rate float64
		last time.Duration
	}{{low, 2 * time.Second}, {high, fast}, {low, 2 * time.Second}} {
		c.setRate("changes", step.rate, 300*time.Millisecond)
		time.Sleep(step.last)
		at = append(at, c.receiver.now())
	}
	for i, want := range []float64{low, high, low} {
		from := at[i] + 300_000 // a change acts within 100 ms
		if got := rate(c.receiver.arrivals("changes"), from, at[i+1]); got < enough*want {
			t.Errorf("%.1f/s in phase %d at %g/s", got, i, want)
		}
	}
	c.keptRate("other", other, at[0], min(at[3], c.lastOf("other")))
	c.setRate("changes", high, 0)
	c.healed()
	c.deliveredQuietly(60 * time.Second)
}

// rateZero sets the rate to 0 with jobs in queues and in a lane: nothing more is sent, and daemons that only wait use no
// processor.
func rateZero(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.load(5, map[string]float64{"stops": 100, "stops-too": 3})
	one, two := c.join("one"), c.join("two")
	c.arrived(0.3)
	c.setRate("stops", 0, time.Second)
	c.setRate("stops-too", 0, time.Second)
	time.Sleep(1500 * time.Millisecond)
	sent := c.receiver.count("")
	c.idle(one, two)
	if more := c.receiver.count("") - sent; more > 0 {
		t.Errorf("%d jobs were sent at rate 0", more)
	}
	c.setRate("stops", c.rate(200), 0)
	c.setRate("stops-too", c.rate(200), 0)
	c.healed()
	c.deliveredQuietly(30 * time.Second)
}

// onePaused pauses one of two campaigns that share the only lane, in the middle of its backlog, and resumes it.
func onePaused(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6, lanes: 1})
	goes, stops := c.rate(150), c.rate(150)
	c.campaign("goes", goes)
	c.campaign("stops", stops)
	n := map[string]int{"goes": 8 * int(goes), "stops": 8 * int(stops)}
	c.publish(mix(n))
	c.joinAll("one", "two")
	c.inLanes(2 * int(stops))
	c.jitter()
	c.setStatus("stops", "paused")
	paused := c.receiver.now()
	time.Sleep(3 * time.Second)
	resumed := c.receiver.now()
	if late := c.between("stops", paused+1_000_000, resumed); late > 0 {
		t.Errorf("%d jobs were sent later than a second after the pause", late)
	}
	c.keptRate("goes", goes, paused, min(resumed, c.lastOf("goes")))
	c.setStatus("stops", "active")
	c.healed()
	c.deliveredQuietly(60 * time.Second)
}

// moreThanLanes has ten times as many campaigns overflow as there are lanes, at uneven rates. None is held up by those
// that it shares a lane with.
func moreThanLanes(t *testing.T, c *chaos) {
	const lanes, seconds = 4, 9
	c.world(t, stackOptions{partitions: 6, lanes: lanes})
	rates, numbers := map[string]float64{}, map[string]int{}
	for i := range 10 * lanes {
		id := fmt.Sprintf("c%d", i)
		rates[id] = []float64{2, 5, 10, 20}[i%4]
		numbers[id] = int(rates[id] * seconds)
		if c.full {
			numbers[id] *= 2
		}
		c.campaign(id, rates[id])
	}
	c.publish(mix(numbers))
	c.joinAll("one", "two")
	time.Sleep(time.Second)
	from := c.receiver.now()
	time.Sleep(4 * time.Second)
	for id, rate := range rates {
		c.keptRate(id, rate, from, c.receiver.now())
	}
	c.deliveredQuietly(60 * time.Second)
}

// laneDrained lets single jobs arrive while a campaign's backlog comes to its end, and after: each of them is late by
// the backlog at most, wherever it went, and the campaign goes direct again.
func laneDrained(t *testing.T, c *chaos) {
	const perSecond = 40
	c.world(t, stackOptions{partitions: 6})
	c.campaign("c", perSecond)
	c.joinAll("one", "two")
	direct := func() bool {
		before := c.written(requeue.LaneTopic(c.prefix))
		for i := range 20 {
			c.publish([]job{{campaign: "c", id: fmt.Sprintf("probe-%d-%d", len(c.published), i)}})
			time.Sleep(50 * time.Millisecond)
		}
		return c.written(requeue.LaneTopic(c.prefix)) == before
	}
	for turn := range 3 {
		c.publish(further("c", fmt.Sprintf("burst%d", turn), 8*perSecond+c.random.IntN(4*perSecond)))
		for i := 0; c.receiver.count("") < len(c.published)-1; i++ { // one at a time, until it is drained
			c.publish([]job{{campaign: "c", id: fmt.Sprintf("drip%d-%d", turn, i)}})
			time.Sleep(time.Duration(20+c.random.IntN(180)) * time.Millisecond)
		}
		time.Sleep(time.Duration(c.random.IntN(2000)) * time.Millisecond)
	}
	c.await(40*time.Second, "the campaign to go past its lane", direct)
	c.deliveredQuietly(20 * time.Second)
}

// cancelQueued cancels a campaign with tens of thousands of jobs in the only lane, before and between those of others. The others keep
// their rate. Its jobs are settled without being sent.
func cancelQueued(t *testing.T, c *chaos) {
	const perSecond = 60
	c.world(t, stackOptions{partitions: 6, lanes: 1})
	n := c.jobs(20_000)
	c.campaign("gone", c.rate(100))
	c.cancelled["gone"] = true
	numbers := map[string]int{"gone": n}
	for _, id := range []string{"a", "b"} {
		c.campaign(id, perSecond)
		numbers[id] = 8 * perSecond
	}
	c.publish(mix(numbers))
	one, two := c.join("one"), c.join("two")
	c.inLanes(n * 3 / 4)
	c.jitter()
	c.setStatus("gone", "cancelled")
	at := c.receiver.now()
	lanes := requeue.LaneTopic(c.prefix)
	c.await(30*time.Second, "the cancelled jobs to be settled", func() bool { return c.openIn(lanes)+c.openIn(c.ingress) <= 16*perSecond })
	t.Logf("settled %.1f s after the cancel", float64(c.receiver.now()-at)/1e6)
	c.await(60*time.Second, "the others' jobs", func() bool {
		return c.receiver.count("a")+c.receiver.count("b") == numbers["a"]+numbers["b"]
	})
	for _, id := range []string{"a", "b"} {
		c.keptRate(id, perSecond, at, c.lastOf(id))
	}
	if late := c.between("gone", at+1_000_000, math.MaxInt64); late > 0 {
		t.Errorf("%d jobs were sent later than a second after the cancel", late)
	}
	c.await(20*time.Second, "nothing to be left", func() bool { return c.openIn(lanes)+c.openIn(c.ingress) == 0 })
	c.oneHop(len(c.published))
	c.small(one, two)
	c.quiet()
}

// hundredPaused has jobs of a hundred paused campaigns lie between those of one that sends. It keeps its rate; what waits
// costs no processor, and is sent when it may be, also by daemons that did not put it there.
func hundredPaused(t *testing.T, c *chaos) {
	const campaigns, each = 100, 20
	c.world(t, stackOptions{partitions: 6})
	busy := c.rate(200)
	c.campaign("busy", busy)
	numbers := map[string]int{"busy": 6 * int(busy)}
	for i := range campaigns {
		id := fmt.Sprintf("paused-%d", i)
		c.campaign(id, 20)
		numbers[id] = each
	}
	c.sql(`UPDATE pacer.campaigns SET status = 'paused' WHERE id LIKE 'paused-%'`)
	one, two := c.join("one"), c.join("two")
	from := c.receiver.now()
	c.publish(mix(numbers))
	c.await(30*time.Second, "the busy campaign", func() bool { return c.receiver.count("busy") == numbers["busy"] })
	c.keptRate("busy", busy, max(from, c.receiver.arrivals("busy")[0].at), c.lastOf("busy"))
	if more := c.receiver.count("") - numbers["busy"]; more > 0 {
		t.Errorf("%d jobs of paused campaigns were sent", more)
	}
	c.await(10*time.Second, "an empty ingress", func() bool { return c.openIn(c.ingress) == 0 })
	c.idle(one, two)
	c.leave(one)
	c.again(one)
	one.awaitReady(20 * time.Second)
	c.sql(`UPDATE pacer.campaigns SET status = 'active'`)
	c.healed()
	c.deliveredQuietly(30 * time.Second)
}

// slowDestination makes the destination of a backlog slow that was written at a low rate, and raises the rate. All daemons send it with all
// their calls, and no job is moved once more.
func slowDestination(t *testing.T, c *chaos) {
	const jobs, calls, took = 3000, 16, time.Second
	c.world(t, stackOptions{partitions: 6, lanes: 64})
	daemons := c.joinAll("one", "two", "three")
	c.campaign("large", 20)
	c.sql(`UPDATE pacer.campaigns SET max_in_flight = $1 WHERE id = 'large'`, calls)
	c.publish(ofCampaign("large", 0, jobs))
	c.await(30*time.Second, "an empty ingress", func() bool { return c.openIn(c.ingress) == 0 })
	c.await(10*time.Second, "jobs from the lanes", func() bool { return c.receiver.count("large") > 100 })
	c.receiver.answersAfter("large", took)
	c.setRate("large", 300, time.Second)
	time.Sleep(2 * took)
	from := c.receiver.now()
	const span = 10 * time.Second
	time.Sleep(span)
	sent := float64(c.between("large", from, from+span.Microseconds())) / span.Seconds()
	possible := float64(len(daemons)*calls) / took.Seconds()
	var each []int
	for _, d := range daemons {
		each = append(each, d.settledBy("large"))
	}
	t.Logf("%.1f/s of %.0f/s possible; sent by the daemons: %v; in lanes: %v", sent, possible, each, c.stack.inLanes("large"))
	if sent < 0.8*possible {
		t.Errorf("%.1f/s are sent, of %.1f/s possible", sent, possible)
	}
	c.receiver.answersAfter("large", 0)
	c.healed()
	c.deliveredQuietly(60 * time.Second)
}

// seconds is a length of time: twice as long in the full form.
func (c *chaos) seconds(n float64) time.Duration {
	if c.full {
		n *= 2
	}
	return time.Duration(n * float64(time.Second))
}

// jitter waits for a moment of random length, so that what follows comes at another instant each time.
func (c *chaos) jitter() { time.Sleep(time.Duration(c.random.IntN(400)) * time.Millisecond) }

// setStatus changes the status of a campaign.
func (c *chaos) setStatus(id, status string) {
	c.t.Helper()
	c.sql(`UPDATE pacer.campaigns SET status = $1 WHERE id = $2`, status, id)
}

// inLanes waits until a number of records has been written to lanes.
func (c *chaos) inLanes(n int) {
	c.t.Helper()
	c.await(30*time.Second, fmt.Sprintf("%d jobs in lanes", n), func() bool {
		return c.written(requeue.LaneTopic(c.prefix)) >= int64(n)
	})
}

// lastOf is when the last job of a campaign arrived.
func (c *chaos) lastOf(id string) int64 {
	list := c.receiver.arrivals(id)
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].at
}

// enough is the part of its rate that a campaign has to reach where nothing is wrong. Who is blocked is far below it, and
// so may be who shares two processors with everything else.
const enough = 0.6

// keptRate expects that a campaign with a backlog was sent at its rate from one time of the receiver to another. A busy
// machine costs slots, so that enough of it will do, less one job at each end.
func (c *chaos) keptRate(id string, want float64, from, to int64) {
	c.t.Helper()
	seconds := float64(to-from) / 1e6
	got := c.between(id, from, to)
	if due := enough*want*seconds - 2; float64(got) < due {
		c.t.Errorf("%s: %d jobs in %.1f s at %g/s", id, got, seconds, want)
	}
}

// oneHop expects that none of a number of jobs was written to lanes twice.
func (c *chaos) oneHop(n int) {
	c.t.Helper()
	if written := c.written(requeue.LaneTopic(c.prefix)); written > int64(n) {
		c.t.Errorf("%d records were written to lanes for %d jobs", written, n)
	}
	if hops := c.maxHops(); hops > 1 {
		c.t.Errorf("a job made %d hops", hops)
	}
}

// deliveredQuietly expects that every job is accepted, after one hop at most, and that nothing is said.
func (c *chaos) deliveredQuietly(within time.Duration) {
	c.t.Helper()
	c.delivered(within)
	c.oneHop(len(c.published))
	c.quiet()
}

// quiet expects no warnings in the daemons' logs, but those of a quota store that answers late: that is what a machine
// brings about that keeps Redis or a daemon from running for a while. So does one that runs other tests, in the short form.
func (c *chaos) quiet() {
	c.t.Helper()
	if !c.full {
		return
	}
	for _, d := range c.silence.daemons {
		for line := range strings.Lines(d.log.String()) {
			loud := strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR")
			if loud && !strings.Contains(line, "the quota store does not answer") {
				c.t.Errorf("%s says: %s", d.name, strings.TrimSpace(line))
			}
		}
	}
}

// small expects that the daemons' memory stayed in its bound.
func (c *chaos) small(daemons ...*daemon) {
	c.t.Helper()
	for _, d := range daemons {
		if mib := d.peakRSS(); mib > 256 {
			c.t.Errorf("%s: %d MiB resident at the peak", d.name, mib)
		}
	}
}

// idle expects that the daemons use next to no processor while everything waits.
func (c *chaos) idle(daemons ...*daemon) {
	c.t.Helper()
	const span, most = 3 * time.Second, 0.1
	spent := make([]time.Duration, len(daemons))
	c.still(func() {
		for i, d := range daemons {
			spent[i] = -d.processor()
		}
		time.Sleep(span)
		for i, d := range daemons {
			spent[i] += d.processor()
		}
	})
	for i, d := range daemons {
		used := spent[i]
		c.t.Logf("%s used %s of processor time in %s of waiting", d.name, used, span)
		if used.Seconds() > most*span.Seconds() {
			c.t.Errorf("%s used %s of processor time in %s while everything waits", d.name, used, span)
		}
	}
}

// atTime is a header with a time.
func atTime(key string, when time.Time) kafka.Header {
	return header(key, when.UTC().Format(time.RFC3339Nano))
}

// withHeaders adds headers to jobs.
func withHeaders(jobs []job, headers ...kafka.Header) []job {
	for i := range jobs {
		jobs[i].headers = append(jobs[i].headers, headers...)
	}
	return jobs
}

// throttled answers 429 with a Retry-After.
func throttled(wait time.Duration) func(arrival) (int, time.Duration) {
	return func(arrival) (int, time.Duration) { return http.StatusTooManyRequests, wait }
}

// behindBacklog publishes single jobs of a slow campaign behind a backlog of another, all in one partition. Jobs that are sent soon are
// not relayed, which stops the partition again and again. Yet the single jobs wait only until the backlog is read, not until it is sent.
func behindBacklog(t *testing.T, c *chaos) {
	const perSecond, seconds, within = 300, 40, 15 * time.Second
	c.world(t, stackOptions{partitions: 1})
	c.campaign("fast", perSecond)
	c.campaign("single", 20)
	payload := fmt.Appendf(nil, `{"rows":"%s"}`, bytes.Repeat([]byte("0123456789abcdef"), 1280)) // 600 of them are more than the memory of a queue
	backlog := ofCampaign("fast", 0, perSecond*seconds)
	for i := range backlog {
		backlog[i].payload = payload
	}
	c.joinAll("one", "two")
	c.publish(backlog)
	published := map[string]int64{}
	for i := range 50 {
		single := job{campaign: "single", id: fmt.Sprintf("single-%d", i)}
		c.publish([]job{single})
		published[single.id] = c.receiver.now()
		time.Sleep(200 * time.Millisecond)
	}
	c.await(seconds*time.Second, "the single jobs", func() bool { return c.receiver.count("single") == len(published) })
	for _, a := range c.receiver.arrivals("single") {
		if waited := time.Duration(a.at-published[a.id]) * time.Microsecond; waited > within {
			t.Errorf("%s arrived %s after it was published behind a backlog of %d s", a.id, waited, seconds)
		}
	}
	c.deliveredQuietly(60 * time.Second)
}
