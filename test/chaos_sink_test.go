package test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/requeue"
)

// sinkCases are about destinations: what they answer, and when.
var sinkCases = []chaosCase{
	{"sink-slow", false, sinkSlow, telling{}},
	{"sink-deaf", false, sinkDeaf, telling{line: "the sink does not work"}},
	{"sink-answers-401", false, sinkRefusesCredentials(http.StatusUnauthorized), telling{line: "the sink refuses pacer's credentials or settings"}},
	{"sink-answers-302", false, sinkRefusesCredentials(http.StatusFound), telling{line: "the sink refuses pacer's credentials or settings"}},
	{"sink-asks-to-wait-a-day", false, sinkAsksForADay, telling{line: "the destination asks to wait"}},
	{"sink-trickles", false, sinkTrickles, telling{}},
	{"jobs-that-are-never-answered", false, jobsNeverAnswered, telling{metric: "pacer_dead_letters_total"}},
	{"jobs-that-always-fail", false, jobsAlwaysFail, telling{metric: "pacer_dead_letters_total"}},
}

// unanswered is the status of a request that gets no answer while its client waits.
const unanswered = 0

// misbehaves has the destination misbehave from a fifth of the jobs on until damage returns. No job is given up for that.
func (c *chaos) misbehaves(within time.Duration, damage func()) {
	c.t.Helper()
	c.arrived(0.2)
	damage()
	c.receiver.answersAfter("", 0)
	c.receiver.answers(nil)
	c.recovers(within)
	c.noneDead()
}

// sinkSlow has the destination answer after two seconds for a while: as many calls as may be open at once are then too few.
func sinkSlow(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.load(10, map[string]float64{"fast": 200, "slow": 20})
	c.pair()
	c.misbehaves(60*time.Second, func() {
		c.receiver.answersAfter("", 2*time.Second)
		time.Sleep(10 * time.Second)
	})
}

// sinkDeaf has the destination accept connections and answer nothing for longer than a call may last.
func sinkDeaf(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.load(10, map[string]float64{"fast": 200, "slow": 20})
	c.pair()
	c.misbehaves(90*time.Second, func() {
		c.receiver.fails(unanswered, everyRequest)
		time.Sleep(15 * time.Second)
	})
}

// sinkRefusesCredentials has the destination refuse everything for ten seconds because of how it is asked. Each daemon reports that at most once.
func sinkRefusesCredentials(status int) func(*testing.T, *chaos) {
	return func(t *testing.T, c *chaos) {
		c.world(t, stackOptions{partitions: 6})
		const rate, seconds = 500, 20
		c.campaign("fast", rate)
		c.publish(mix(map[string]int{"fast": rate * seconds}))
		daemons := c.joinAll("one", "two", "three")
		c.misbehaves(60*time.Second, func() {
			c.receiver.fails(status, everyRequest)
			time.Sleep(10 * time.Second)
		})
		for _, d := range daemons {
			if n := d.log.lines("level=ERROR"); n > 1 {
				t.Errorf("%s says it %d times", d.name, n)
			}
		}
	}
}

// sinkAsksForADay has the destination answer everything with 429 and a Retry-After of a day for a while. It is asked seldom meanwhile, and again
// within max_retry_after.
func sinkAsksForADay(t *testing.T, c *chaos) {
	const believed = 20 * time.Second
	c.world(t, stackOptions{partitions: 6})
	c.sinkSettings(fmt.Sprintf("max_in_flight: 256, timeout: 5s, max_retry_after: %s", believed))
	c.load(10, map[string]float64{"fast": 200, "slow": 20})
	c.joinAll("one", "two", "three")
	c.misbehaves(2*believed+60*time.Second, func() {
		c.receiver.answers(throttled(24 * time.Hour))
		time.Sleep(2 * time.Second)
		before := c.receiver.count("")
		time.Sleep(believed)
		if n := c.receiver.count("") - before; n > 3*8 {
			t.Errorf("%d requests in %s of a destination that asks to wait", n, believed)
		}
	})
}

// sinkTrickles has the destination accept each job at once and then send a body of a byte a second. Accepted jobs are delivered: the rate
// is kept.
func sinkTrickles(t *testing.T, c *chaos) {
	const rate, seconds = 500, 15
	c.world(t, stackOptions{partitions: 6})
	c.receiver.trickles = true
	c.campaign("fast", rate)
	c.publish(mix(map[string]int{"fast": rate * seconds}))
	c.joinAll("one", "two")
	c.await(20*time.Second, "the first jobs", func() bool { return c.receiver.count("") > 0 })
	from := c.receiver.now()
	c.delivered(3 * seconds * time.Second)
	c.keptRate("fast", rate, from, c.lastOf("fast"))
	c.noneDead()
}

// jobsNeverAnswered has one job of a hundred get no answer, ever. They come to their end, and the others are sent at the
// rate less the calls that wait.
func jobsNeverAnswered(t *testing.T, c *chaos) {
	const rate, jobs, each = 200, 6000, 100
	c.world(t, stackOptions{partitions: 6, settings: "retry: {max_attempts: 3, initial: 200ms}"})
	c.sinkSettings("max_in_flight: 64, timeout: 1s")
	c.endless(rate, jobs, each, unanswered)
}

// jobsAlwaysFail has every ninth job answered with 500, always. They come to their end, also when they are all that is left.
func jobsAlwaysFail(t *testing.T, c *chaos) {
	const rate, jobs, each = 100, 1000, 9
	c.world(t, stackOptions{partitions: 6, settings: "retry: {max_attempts: 4, initial: 200ms}"})
	c.endless(rate, jobs, each, http.StatusInternalServerError)
}

// endless sends jobs over three daemons. One in each number of jobs always gets the status. These become dead letters soon after the
// others are delivered at the rate.
func (c *chaos) endless(rate float64, jobs, each, status int) {
	c.t.Helper()
	fails := map[string]bool{}
	list := ofCampaign("c", 0, jobs)
	for i := each - 1; i < len(list); i += each {
		fails[list[i].id] = true
	}
	c.receiver.fails(status, func(a arrival) bool { return fails[a.id] })
	c.campaign("c", rate)
	c.campaign("works", 10) // shows that the destination works
	c.joinAll("one", "two", "three")
	began := time.Now()
	ideal := time.Duration(float64(jobs) / rate * float64(time.Second))
	c.publish(append(list, ofCampaign("works", 0, int(10*(ideal+time.Minute).Seconds()))...))
	healthy := jobs - len(fails)
	c.await(3*ideal, "all healthy jobs", func() bool { n, _ := c.receiver.accepted("c"); return n == healthy })
	took := time.Since(began)
	c.await(30*time.Second, "the others to be dead letters", func() bool {
		return c.written(requeue.DeadTopic(c.prefix)) >= int64(len(fails))
	})
	c.t.Logf("%d healthy jobs took %s at an ideal of %s; %d dead letters after %s", healthy, took.Round(time.Millisecond), ideal,
		len(fails), time.Since(began).Round(time.Millisecond))
	if took > ideal*3/2+5*time.Second {
		c.t.Errorf("%d healthy jobs took %s, ideal is %s", healthy, took, ideal)
	}
	if n := c.written(requeue.DeadTopic(c.prefix)); n != int64(len(fails)) {
		c.t.Errorf("%d dead letters of %d jobs that fail", n, len(fails))
	}
}

// noneDead expects that no job was given up.
func (c *chaos) noneDead() {
	c.t.Helper()
	if n := c.written(requeue.DeadTopic(c.prefix)); n > 0 {
		c.t.Errorf("%d jobs are dead letters", n)
	}
}

// sinkSettings replaces the settings of the receiver's sink.
func (c *chaos) sinkSettings(settings string) {
	c.t.Helper()
	const usual = "max_in_flight: 256, timeout: 5s"
	config, err := os.ReadFile(c.config())
	if err == nil && !strings.Contains(string(config), usual) {
		err = fmt.Errorf("the configuration does not contain %q", usual)
	}
	if err == nil {
		err = os.WriteFile(c.config(), []byte(strings.Replace(string(config), usual, settings, 1)), 0o600)
	}
	noError(c.t, err)
}
