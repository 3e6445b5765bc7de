package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// jobCases are about single jobs: odd ones, late ones, those that wait for a time, and those sent again.
var jobCases = []chaosCase{
	{"poison-and-the-largest-record", true, poison, telling{metric: "pacer_defects_total"}},
	{"429-storm-beyond-expiry", false, throttledStorm, telling{metric: "pacer_dead_letters_total"}},
	{"expiry-while-waiting", false, expiryWaiting, telling{metric: "pacer_dead_letters_total"}},
	{"not-before-in-90-days", false, notBefore, telling{}},
	{"retries-through-timers", false, retries, telling{metric: "pacer_dead_letters_total"}},
	{"paused-while-retries-wait", false, pausedRetries, telling{}},
	{"one-campaign-fails-on-a-shared-sink", true, oneFails, telling{metric: `pacer_sink_seconds_count{class="temporary",sink="receiver"}`}},
	{"rolling-restart", false, rollingRestart, telling{}},
}

// maxMessage is Kafka's default of max.message.bytes, for a whole batch.
const maxMessage = 1_048_588

// odd is a record that cannot be delivered, and why.
type odd struct {
	kafka.Message
	reason string
}

// oddRecords are of each kind that becomes a dead letter.
func oddRecords() []odd {
	of := func(reason, campaign string, more ...kafka.Header) odd {
		return odd{kafka.Message{Headers: append([]kafka.Header{header("pacer-campaign", campaign)}, more...)}, reason}
	}
	value := func(text string) odd { return odd{kafka.Message{Value: []byte(text)}, "undecodable"} }
	strange := of("invalid_header", "\xff\xfe")
	strange.Value = []byte("\xff\xfe\x00")
	return []odd{
		value(""), value("{"), value("[]"), value(`{"campaign":7}`), value(strings.Repeat("[", 100_000)), value("neither headers nor an envelope"), strange,
		{kafka.Message{Value: []byte(`{"campaign":"good","id":"` + strings.Repeat("x", 10_000) + `","payload":1}`)}, "invalid_header"},
		{kafka.Message{Key: bytes.Repeat([]byte("k"), 100_000), Headers: []kafka.Header{{Key: "pacer-campaign"}}}, "invalid_header"},
		of("unknown_campaign", "nobody", header("pacer-job-id", "nobody's")),
		of("overweight", "good", header("pacer-weight", "1001")),
		of("invalid_header", "good", header("pacer-weight", "much")),
		of("invalid_header", "good", header("pacer-weight", "-9223372036854775809")),
		of("invalid_header", "good", header("pacer-not-before", "99999-01-01T00:00:00Z")),
		of("invalid_header", "waits", header("pacer-expires-at", "soon")),
		of("expired", "good", header("pacer-expires-at", "2020-01-01T00:00:00Z")),
	}
}

// poison mixes records that cannot be delivered, an envelope, and the largest that ingress takes, with the jobs of a campaign that
// goes on and of one that has to put them into its lane.
func poison(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 2, settings: "unknown_grace: 2s"})
	c.load(5, map[string]float64{"good": 200})
	c.campaign("waits", 50)
	c.setStatus("waits", "paused")
	list, want := oddRecords(), map[string]int{}
	publish := func(o odd) {
		c.publishRaw(o.Message)
		want[o.reason]++
	}
	for _, o := range list {
		publish(o)
	}
	c.publishRaw(kafka.Message{Value: []byte(`{"campaign":"good","id":"enveloped","payload":{"a":1}}`)})
	c.published["enveloped"] = "good"
	sizes := map[string]int64{}
	for i := range c.jobs(3) {
		for _, campaign := range []string{"good", "waits"} {
			id := fmt.Sprintf("largest-%s-%d", campaign, i)
			sizes[id] = int64(c.largest(campaign, id))
			publish(list[c.random.IntN(len(list))])
		}
	}
	c.publish(further("waits", "after", 50))
	one, two := c.pair()
	c.await(20*time.Second, "the good jobs", func() bool { n, _ := c.receiver.accepted("good"); return n == c.of("good") })
	c.inLanes(c.of("waits"))
	c.jitter()
	c.setStatus("waits", "active")
	c.recovers(20 * time.Second)
	c.await(20*time.Second, "the dead letters", func() bool { return c.written(requeue.DeadTopic(c.prefix)) >= int64(len(list)+2*c.jobs(3)) })
	got := map[string]int{}
	c.each("dead", func(_ string, r delivery.Record) { got[r.Header("pacer-reason")]++ })
	if !maps.Equal(got, want) {
		t.Errorf("dead letters %v, want %v", got, want)
	}
	for _, a := range c.receiver.arrivals("") {
		if size, known := sizes[a.id]; known && a.bytes != size {
			t.Errorf("%s arrived with %d bytes of %d", a.id, a.bytes, size)
		}
	}
	c.await(10*time.Second, "nothing to be left", func() bool { return c.openIn(requeue.LaneTopic(c.prefix))+c.openIn(c.ingress) == 0 })
	c.oneHop(len(c.published))
	c.small(one, two)
	c.quiet()
}

// throttledStorm has a destination answer 429 with a Retry-After beyond the expiry of half the jobs. When it is over,
// those are dead letters, without having been sent again, and the others are sent; another sink's campaign keeps its rate.
func throttledStorm(t *testing.T, c *chaos) {
	const wait = 7 * time.Second
	other := newReceiver(t)
	c.world(t, stackOptions{partitions: 6, sinks: fmt.Sprintf("  other: {type: http, url: %q}", other.url)})
	c.campaign("throttled", c.rate(200))
	c.stack.campaign("other", 50)
	c.sql(`UPDATE pacer.campaigns SET sink = 'other' WHERE id = 'other'`)
	n := c.jobs(300)
	ends := time.Now().Add(4 * time.Second)
	jobs := withHeaders(further("throttled", "dies", n), atTime("pacer-expires-at", ends))
	c.receiver.answers(throttled(wait))
	c.publish(slices.Concat(jobs, further("throttled", "lives", n)))
	c.stack.publish(mix(map[string]int{"other": 6 * 50}))
	c.joinAll("one", "two")
	c.figures("throttled")
	c.await(10*time.Second, "the first answer", func() bool { return c.receiver.count("") > 0 })
	from := other.now()
	time.Sleep(time.Until(ends) + time.Second)
	asked := c.receiver.count("throttled")
	c.receiver.answers(nil)
	c.await(wait+5*time.Second, "dead letters of those that expired", func() bool {
		return c.written(requeue.DeadTopic(c.prefix)) == int64(n)
	})
	if got := rate(other.arrivals("other"), from+500_000, min(other.now(), from+4_000_000)); got < 40 {
		t.Errorf("another sink's campaign was sent at %.1f of 50/s", got)
	}
	for id, reason := range c.dead() {
		if reason != "expired" || !strings.HasPrefix(id, "dies-") {
			t.Errorf("%s is a dead letter: %s", id, reason)
		}
	}
	c.await(30*time.Second, "the others", func() bool { ok, _ := c.receiver.accepted(""); return ok == n })
	if asked > 100 { // those in flight when it begins, then a few probes of each daemon
		t.Errorf("%d requests in the storm, in which the rate allows a thousand", asked)
	}
	c.oneHop(len(c.published) + 6*50)
	c.quiet()
}

// expiryWaiting lets jobs expire wherever they wait: in a queue and a lane of a slow campaign, in those of a paused one,
// and in a timer. None is sent after its time, and each becomes one dead letter.
func expiryWaiting(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6})
	c.timers("500ms", "2s")
	slow := c.rate(10)
	c.campaign("slow", slow)
	c.campaign("paused", 10)
	c.setStatus("paused", "paused")
	began := time.Now()
	ends := began.Add(time.Duration(4000+c.random.IntN(1500)) * time.Millisecond)
	expires := atTime("pacer-expires-at", ends)
	n := c.jobs(200)
	c.publish(slices.Concat(
		withHeaders(further("slow", "dies", n), expires),
		withHeaders(further("paused", "dies", 50), expires),
		withHeaders(further("slow", "too-late", 50), expires, atTime("pacer-not-before", ends.Add(time.Hour))),
	))
	c.joinAll("one", "two")
	time.Sleep(time.Until(ends))
	late := c.receiver.now() + 300_000
	c.setStatus("paused", "active")
	c.await(15*time.Second, "every job's end", func() bool {
		return c.receiver.count("")+int(c.written(requeue.DeadTopic(c.prefix))) >= len(c.published)
	})
	if sent := c.between("", late, c.receiver.now()); sent > 0 {
		t.Errorf("%d jobs were sent after they had expired", sent)
	}
	if sent := c.receiver.count("paused"); sent > 0 {
		t.Errorf("%d jobs of a paused campaign were sent", sent)
	}
	if sent := c.receiver.count("slow"); float64(sent) < 0.5*slow*time.Until(ends).Abs().Seconds() {
		t.Errorf("only %d jobs of the slow campaign were sent in time", sent)
	}
	c.oneHop(len(c.published))
	c.quiet()
}

// notBefore watches jobs pass through short timers: some for some seconds, others for what would be 90 days. They are in
// one place at a time, also over a restart in order and a crash, and none is sent early.
func notBefore(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 4, settings: "pacing: {max_open_age: 1s}"})
	c.timers("300ms", "1s")
	c.campaign("c", c.rate(500))
	far, near := c.jobs(60), c.jobs(60)
	due := time.Now().Add(time.Duration(7000+c.random.IntN(2000)) * time.Millisecond)
	dueAt := c.receiver.now() + time.Until(due).Microseconds()
	c.publish(slices.Concat(
		withHeaders(further("c", "far", far), atTime("pacer-not-before", time.Now().AddDate(0, 0, 90))),
		withHeaders(further("c", "near", near), atTime("pacer-not-before", due)),
	))
	one, two := c.join("one"), c.join("two")
	timer := requeue.TimerTopic(c.prefix, time.Second)
	c.await(10*time.Second, "jobs in the timer", func() bool { return c.written(timer) >= int64(far+near) })
	c.jitter()
	c.leave(one)
	c.again(one)
	one.awaitReady(20 * time.Second)
	c.await(30*time.Second, "those due soon", func() bool { ok, _ := c.receiver.accepted(""); return ok >= near })
	late := 2 * time.Second
	if !c.full { // beside other tests
		late = 15 * time.Second
	}
	for _, a := range c.receiver.arrivals("") {
		if after := time.Duration(a.at-dueAt) * time.Microsecond; !strings.HasPrefix(a.id, "near-") || after < 0 || after > late {
			t.Errorf("%s was sent %s after its time", a.id, after)
		}
	}
	c.await(20*time.Second, "hops through timers", func() bool { return c.written(timer) >= int64(4*far) })
	c.leave(one)
	c.leave(two)
	places := map[string]int{}
	c.eachOpen(func(topic string, r delivery.Record) {
		places[r.Header("pacer-job-id")]++
		hops, _ := strconv.Atoi(r.Header("pacer-timer-hops"))
		if hops < 3 || r.Header("pacer-hops") != "" || !strings.Contains(topic, "timer") {
			t.Errorf("%s is in %s after %d timers and %q lanes", r.Header("pacer-job-id"), topic, hops, r.Header("pacer-hops"))
		}
	})
	for id, n := range places {
		if n != 1 {
			t.Errorf("%s waits in %d places", id, n)
		}
	}
	if len(places) != far {
		t.Errorf("%d of %d jobs wait", len(places), far)
	}
	c.quiet()
}

// retries answers 500 to the first two attempts of some jobs and to every one of others, amid jobs that succeed. Waits
// double from the first on and vary by the jitter; attempts are counted over timers and a restart; the last makes a dead
// letter.
func retries(t *testing.T, c *chaos) {
	const initial, jitter, attempts = 1500 * time.Millisecond, 0.3, 3
	c.world(t, stackOptions{
		partitions: 6,
		settings:   fmt.Sprintf("pacing: {max_open_age: 1s}\nretry: {initial: %s, jitter: %g, max_attempts: %d}", initial, jitter, attempts),
	})
	c.timers("500ms", "1s", "2s")
	n := c.jobs(1000)
	// Late ones would have no successes between them, and be an outage.
	among := func(id, ends string) bool {
		i, _ := strconv.Atoi(id[strings.LastIndexByte(id, '-')+1:])
		return i < n/5 && strings.HasSuffix(id, ends)
	}
	hopeless := func(id string) bool { return among(id, "77") }
	c.receiver.fails(http.StatusInternalServerError, func(a arrival) bool { return hopeless(a.id) || a.attempt <= 2 && among(a.id, "33") })
	c.campaign("c", c.rate(200))
	one := c.joinAll("one", "two")[0]
	// A daemon that has nothing else to send for a fifth of a second takes its retries for an outage. So jobs come steadily,
	// also while the other one is away, and nearly as fast as they may be sent: they do not go through a lane.
	const batches = 100
	restarted := make(chan struct{})
	for i, list := range slices.Collect(slices.Chunk(mix(map[string]int{"c": n}), n/batches)) {
		c.publish(list)
		time.Sleep(100 * time.Millisecond)
		if i == batches/5 {
			go func() {
				defer close(restarted)
				c.leave(one)
				c.again(one)
			}()
		}
	}
	<-restarted
	c.healed()
	dead := 0
	for id := range c.published {
		if hopeless(id) {
			dead++
		}
	}
	c.await(60*time.Second, "every job's end", func() bool {
		ok, _ := c.receiver.accepted("")
		return ok+int(c.written(requeue.DeadTopic(c.prefix))) >= len(c.published)
	})
	if n := c.written(requeue.DeadTopic(c.prefix)); n != int64(dead) {
		t.Errorf("%d dead letters, want %d", n, dead)
	}
	c.backOffs(initial, jitter, attempts)
	c.quiet()
}

// backOffs looks at the waits between the attempts of each job.
func (c *chaos) backOffs(initial time.Duration, jitter float64, attempts int) {
	c.t.Helper()
	last := map[string]arrival{}
	spread := map[int][2]float64{} // the shortest and the longest wait after an attempt, as parts of the planned one
	for _, a := range c.receiver.arrivals("c") {
		before, again := last[a.id]
		last[a.id] = a
		if !again {
			if a.attempt != 1 {
				c.t.Errorf("the first request for %s says attempt %d", a.id, a.attempt)
			}
			continue
		}
		if a.attempt != before.attempt+1 || a.attempt > attempts {
			c.t.Errorf("%s: attempt %d after %d", a.id, a.attempt, before.attempt)
		}
		planned := initial << (before.attempt - 1)
		part := float64(a.at-before.at) / float64(planned.Microseconds())
		if most := 1 + jitter + 1.5/planned.Seconds(); part < 1-jitter-0.02 || part > most {
			c.t.Errorf("%s: %.2f s after attempt %d, planned %s", a.id, float64(a.at-before.at)/1e6, before.attempt, planned)
		}
		s, known := spread[before.attempt]
		if !known {
			s = [2]float64{part, part}
		}
		spread[before.attempt] = [2]float64{min(s[0], part), max(s[1], part)}
	}
	for attempt, s := range spread {
		c.t.Logf("after attempt %d: %.2f to %.2f of the planned wait", attempt, s[0], s[1])
	}
	if s := spread[1]; s[1]-s[0] < jitter/2 {
		c.t.Errorf("waits after the first attempt vary between %.2f and %.2f of the planned one only", s[0], s[1])
	}
}

// pausedRetries pauses a campaign with a backlog while jobs of it wait in timers: they come back to a campaign that may not
// send, and go to its lane, once more if they were there before. After the resume each is sent.
func pausedRetries(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6, settings: "pacing: {max_open_age: 1s}\nretry: {initial: 2s}"})
	c.timers("1s", "2s")
	c.receiver.failsOnce(func(a arrival) bool { return strings.HasSuffix(a.id, "3") })
	c.campaign("c", c.rate(100))
	c.publish(mix(map[string]int{"c": c.jobs(1000)}))
	one, two := c.join("one"), c.join("two")
	c.arrived(0.5)
	c.setStatus("c", "paused")
	time.Sleep(5 * time.Second) // longer than the longest back-off
	sent := c.receiver.count("")
	c.idle(one, two)
	if more := c.receiver.count("") - sent; more > 0 {
		t.Errorf("%d jobs were sent though the campaign is paused", more)
	}
	c.setStatus("c", "active")
	c.recovers(30 * time.Second)
	if hops := c.maxHops(); hops > 2 {
		t.Errorf("a job made %d hops", hops)
	}
	if again := c.written(requeue.LaneTopic(c.prefix)) - int64(len(c.published)); again > int64(len(c.published)/10) {
		t.Errorf("%d jobs were written to a lane again, more than ever waited in a timer", again)
	}
	c.quiet()
}

// oneFails has every request of one campaign fail on a sink that it shares with others, at a daemon that has nothing else
// to send, too. The others keep their rate, and no attempt of its own is used up while nothing of it succeeds.
func oneFails(t *testing.T, c *chaos) {
	const perSecond = 60
	c.world(t, stackOptions{partitions: 6, lanes: 1, settings: "retry: {initial: 1s, max_attempts: 6}"}) // probes use up attempts
	c.receiver.fails(http.StatusInternalServerError, func(a arrival) bool { return a.campaign == "fails" })
	c.campaign("fails", 20)
	c.campaign("works", perSecond)
	c.campaign("works-too", perSecond)
	c.publish(mix(map[string]int{"fails": 60, "works": 9 * perSecond, "works-too": 9 * perSecond}))
	one, two := c.join("one"), c.join("two")
	c.await(20*time.Second, "the first jobs", func() bool { return c.receiver.count("works-too") > 0 })
	from := c.receiver.now()
	time.Sleep(c.seconds(5))
	for _, id := range []string{"works", "works-too"} {
		c.keptRate(id, perSecond, from, min(c.receiver.now(), max(from, c.lastOf(id))))
	}
	c.receiver.answers(nil)
	c.recovers(30 * time.Second)
	c.oneHop(len(c.published))
	if n := c.written(requeue.DeadTopic(c.prefix)); n > 0 {
		t.Errorf("%d jobs of an outage are dead letters", n)
	}
	for _, d := range []*daemon{one, two} {
		if d.log.lines("its gate is closed") > 0 {
			t.Errorf("%s closed the sink's gate for everybody", d.name)
		}
	}
}

// rollingRestart replaces two daemons one after the other, in order, while jobs are sent directly, from lanes and after
// back-off: nothing is sent twice.
func rollingRestart(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 6, lanes: 2, settings: "retry: {initial: 2s}"})
	c.receiver.failsOnce(func(a arrival) bool { return strings.HasSuffix(a.id, "77") })
	c.load(8, map[string]float64{"fast": 250, "slow": 30, "slower": 10})
	lanes := map[string]int{"backlog-a": c.jobs(600), "backlog-b": c.jobs(300)}
	for id := range lanes {
		c.campaign(id, c.rate(50))
	}
	c.publish(mix(lanes))
	one, two := c.join("one"), c.join("two")
	for _, d := range []*daemon{one, two} {
		c.jitter()
		c.leave(d)
		c.again(d)
		d.awaitReady(20 * time.Second)
		time.Sleep(c.seconds(1))
	}
	for id := range lanes {
		c.setRate(id, c.rate(300), 0)
	}
	c.healed()
	c.deliveredQuietly(60 * time.Second)
}

// of is how many jobs of a campaign were published.
func (c *chaos) of(campaign string) (n int) {
	for _, other := range c.published {
		if other == campaign {
			n++
		}
	}
	return n
}

// timers gives the world timers of these delays.
func (c *chaos) timers(delays ...string) {
	c.t.Helper()
	config := readFile(c.t, c.config())
	with := strings.Replace(config, "kafka:    {", "kafka:    {timer_delays: ["+strings.Join(delays, ", ")+"], ", 1)
	noError(c.t, os.WriteFile(c.config(), []byte(with), 0o600))
	c.run("migrate", "up")
	c.await(10*time.Second, "the timers", func() bool {
		return len(c.topics(context.Background())[c.prefix+"timer."+delays[len(delays)-1]]) > 0
	})
}

// publishRaw publishes a record as it is.
func (c *chaos) publishRaw(m kafka.Message) {
	c.t.Helper()
	noError(c.t, c.write([]kafka.Message{m}, unbatched))
}

// unbatched has each record be a request, also one that is too large.
func unbatched(w *kafka.Writer) { w.BatchSize, w.BatchBytes, w.MaxAttempts = 1, 2*maxMessage, 1 }

// largest publishes a job in the largest record that the topic of ingress takes, and returns the bytes of its payload.
func (c *chaos) largest(campaign, id string) (n int) {
	c.t.Helper()
	n = maxMessage - 100 - len(campaign) - len(id)
	for {
		largest := job{campaign: campaign, id: id, payload: bytes.Repeat([]byte("x"), n)}
		err := c.write([]kafka.Message{largest.message()}, unbatched)
		if err == nil {
			break
		}
		if refusals := (kafka.WriteErrors{}); !errors.As(err, &refusals) || !errors.Is(refusals[0], kafka.MessageSizeTooLarge) {
			c.t.Fatalf("publish a record with %d bytes: %v", n, err)
		}
		n--
	}
	c.published[id] = campaign
	return n
}
