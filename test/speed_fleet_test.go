//go:build e2e

package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// backlogSeconds is how many seconds of a campaign's jobs are published at once.
const backlogSeconds = 25

// fleetCase is three daemons that send the backlog of one campaign over HTTP.
type fleetCase struct {
	row         string
	rate, calls int // calls in flight of each daemon
	answer      time.Duration
	from, to    time.Duration // from the publishing on
	possible    float64       // jobs a second
}

func measureFleetFast(t *testing.T, table *speedTable) {
	fleetCase{"fleet-fast", 6000, 256, 100 * time.Millisecond, 2 * time.Second, 15 * time.Second, 6000}.measure(t, table)
}

func measureFleetSlow(t *testing.T, table *speedTable) {
	fleetCase{"fleet-slow", 500, 64, 4 * time.Second, 10 * time.Second, 42 * time.Second, 3 * 64 / 4.0}.measure(t, table)
}

func (c fleetCase) measure(t *testing.T, table *speedTable) {
	target, s, daemons := newFleet(t, 3, c.calls, c.answer)
	s.campaigns("counted", "active", []string{"c"}, func(int) float64 { return float64(c.rate) })
	from, length := scaledTime(t, c.from), scaledTime(t, c.to-c.from)
	s.publishOf("c", int(float64(backlogSeconds*c.rate)*max(sizeOf(t), 0.3)), nil)
	published := target.now()
	time.Sleep(from + length)
	n := target.between(-1, published+from, published+from+length)
	table.add(t, c.row, speedSample{
		Figure: float64(n) / length.Seconds(), Yardstick: c.possible, Note: s.shares(target, daemons, published+from, length),
	})
	target.check(t, false)
	if hops := s.maxHops(); hops > 1 {
		t.Errorf("a job was written to a lane %d times", hops)
	}
}

// newFleet is a stack of daemons whose sink "counted" leads to a counter by daemon.
func newFleet(t *testing.T, daemons, calls int, answer time.Duration) (*counter, *stack, []*daemon) {
	t.Helper()
	target := newCounter(t)
	target.answer = answer
	s := newStack(t, stackOptions{
		partitions: 12, lanes: 256,
		sinks: fmt.Sprintf(`  counted: {type: http, url: "%s0", max_in_flight: %d, timeout: 20s}`, target.url, calls),
	})
	var all []*daemon
	for i := range daemons {
		all = append(all, s.startCounted(target, i))
	}
	s.awaitWhole(daemons, all...)
	return target, s, all
}

// startCounted starts the daemon that sends to the path of this number.
func (s *stack) startCounted(target *counter, i int) *daemon {
	s.t.Helper()
	return s.start(fmt.Sprintf("daemon-%d", i), fmt.Sprintf("PACER_SINKS_COUNTED_URL=%s%d", target.url, i))
}

// awaitWhole waits until these daemons are ready and the group is stable with that many members.
func (s *stack) awaitWhole(members int, daemons ...*daemon) {
	s.t.Helper()
	for _, d := range daemons {
		d.awaitReady(30 * time.Second)
		s.await(30*time.Second, "its partitions", func() bool { return d.metric("pacer_partitions") > 0 }) // others let go of them first
	}
	s.await(time.Minute, "the group to agree", func() bool {
		ctx := s.soon()
		n, stable, err := s.cluster.Members(ctx, s.ingress)
		return err == nil && stable && n == members
	})
}

// shares says what each daemon sent in a stretch of time, and what was written to lanes at all.
func (s *stack) shares(target *counter, daemons []*daemon, from, length time.Duration) string {
	var each []int
	for i := range daemons {
		each = append(each, target.between(i, from, from+length))
	}
	return fmt.Sprintf("by daemon %v, %d records in lanes", each, s.everWritten("lanes"))
}

// publishOf publishes jobs of one campaign, numbered from 0 on, each with these headers of its own.
func (s *stack) publishOf(campaign string, n int, payload []byte, headers ...func(i int) kafka.Header) {
	s.t.Helper()
	const atOnce = 120_000
	for first := 0; first < n; first += atOnce {
		jobs := ofCampaign(campaign, first, min(atOnce, n-first))
		for i := range jobs {
			jobs[i].payload = payload
			for _, of := range headers {
				jobs[i].headers = append(jobs[i].headers, of(first+i))
			}
		}
		s.publish(jobs)
	}
}

// measureFleetDiscard: three daemons and a sink that takes everything at once.
func measureFleetDiscard(t *testing.T, table *speedTable) {
	const perSecond = 50_000
	s, sent := newLaneStack(t, 256)
	s.startThree()
	s.campaigns("noted", "active", []string{"c"}, func(int) float64 { return perSecond })
	from, length := scaledTime(t, 2*time.Second), scaledTime(t, 13*time.Second)
	s.publishOf("c", scaled(t, backlogSeconds*perSecond), nil)
	published := time.Now()
	time.Sleep(from + length + time.Second) // the rest for what is still being written down
	sent.read()
	n := sent.in("c", published.Add(from), published.Add(from+length))
	table.add(t, "fleet-discard", speedSample{
		Figure: float64(n) / length.Seconds(), Yardstick: perSecond,
		Note: fmt.Sprintf("%d sent before, %d records in lanes", sent.in("c", time.Time{}, published), s.everWritten("lanes")),
	})
	sent.notAgain("c")
}

// measureFleetKilled: one of three daemons is killed while they send a backlog that two of them can send as well.
func measureFleetKilled(t *testing.T, table *speedTable) {
	const perSecond, seconds = 4000, 50
	target, s, daemons := newFleet(t, 3, 256, 100*time.Millisecond)
	s.campaigns("counted", "active", []string{"c"}, func(int) float64 { return perSecond })
	s.publishOf("c", seconds*perSecond, nil)
	time.Sleep(5 * time.Second)
	killed := target.now()
	daemons[0].kill()
	s.awaitWhole(2, daemons[1:]...)
	whole, length := target.now(), scaledTime(t, 15*time.Second)
	time.Sleep(length)
	n := target.between(-1, whole, whole+length)
	table.add(t, "fleet-killed", speedSample{
		Figure: float64(n) / length.Seconds(), Yardstick: perSecond,
		Note: fmt.Sprintf("whole %.1f s after the kill, %d/s until then; %s", (whole - killed).Seconds(),
			int(float64(target.between(-1, killed, whole))/(whole-killed).Seconds()), s.shares(target, daemons, whole, length)),
	})
	target.check(t, true)
	if target.count() >= seconds*perSecond {
		t.Errorf("the backlog ended before the measuring")
	}
}
