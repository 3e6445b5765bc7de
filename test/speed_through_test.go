//go:build e2e

package test

import (
	"bytes"
	"fmt"
	"testing"
	"time"
)

// unlimited is the largest rate there is, a second. Nothing here reaches it.
const unlimited = 1_000_000

// speedPayload is that of jobs that go through as fast as they can.
var speedPayload = bytes.Repeat([]byte("0123456789"), 20)

// unlimited creates a campaign whose jobs wait in ingress until they can be sent, not in lanes.
func (s *stack) unlimited(sink, id string) {
	s.t.Helper()
	s.sql(`INSERT INTO pacer.campaigns (id, sink, send_rate, overflow) VALUES ($1, $2, $3, 'block')`, id, sink, unlimited)
}

// throughput is what a daemon did between a tenth and nine tenths of its jobs.
type throughput struct {
	perSecond float64
	job       cost // without what the daemon uses without jobs
}

// micros is the CPU time of a job, in microseconds.
func (p throughput) micros() float64 { return float64(p.job.cpu.Nanoseconds()) / 1e3 }

// through waits until the daemon has done that many jobs. count returns how many are done; about is a cheaper, less exact count.
func (d *daemon) through(total int, idle cost, about, count func() int64) throughput {
	d.s.t.Helper()
	type look struct {
		n  int64
		at time.Time
		cost
	}
	pass := func(percent int) look {
		deadline := time.Now().Add(5 * time.Minute)
		for about() < int64(total)*int64(percent)/100 {
			if time.Now().After(deadline) {
				d.s.t.Fatalf("%d of %d jobs are done", about(), total)
			}
			time.Sleep(200 * time.Millisecond)
		}
		l := look{n: count(), at: time.Now()}
		l.cost = d.spent()
		return l
	}
	first, last := pass(10), pass(90)
	d.s.await(time.Minute, "the rest of the jobs", func() bool {
		time.Sleep(200 * time.Millisecond)
		return count() >= int64(total)
	})
	jobs, seconds := float64(last.n-first.n), last.at.Sub(first.at).Seconds()
	return throughput{perSecond: jobs / seconds, job: last.cost.since(first.cost).less(idle, seconds).over(jobs)}
}

// measureHTTP: one daemon sends over HTTP as fast as 64 calls, and 256 calls, can. It and the yardstick take turns: the speed of the
// machine changes within seconds.
func measureHTTP(t *testing.T, table *speedTable) {
	target := newCounter(t)
	sink := `  calls%[1]d: {type: http, url: "%[2]s0", max_in_flight: %[1]d, timeout: 20s}`
	s := newStack(t, stackOptions{
		partitions: 6, lanes: 256, sinks: fmt.Sprintf(sink, 64, target.url) + "\n" + fmt.Sprintf(sink, 256, target.url),
	})
	const turns = 4
	jobs := scaled(t, 75_000)
	d := s.start("one")
	s.awaitWhole(1, d)
	time.Sleep(2 * time.Second)
	idle, more := d.idle(scaledTime(t, 3*time.Second)), 0.0
	for _, calls := range []int{64, 256} {
		row := fmt.Sprintf("http-%d", calls)
		s.unlimited(fmt.Sprintf("calls%d", calls), row)
		time.Sleep(time.Second)              // until the daemon knows the campaign
		var seconds, micros, mallocs float64 // sums over the turns
		var bare yardstick
		for range turns {
			bare.add(measureYardstick(t, "-url", target.url+"1", "-calls", fmt.Sprint(calls), "-bytes", fmt.Sprint(len(speedPayload)),
				"-last", scaledTime(t, 2500*time.Millisecond).String()))
			target.check(t, false)
			target.reset()
			s.publishOf(row, jobs, speedPayload)
			p := d.through(jobs, idle, target.count, target.count)
			seconds, micros, mallocs = seconds+1/p.perSecond, micros+p.micros(), mallocs+p.job.mallocs
		}
		table.add(t, row, speedSample{Figure: turns / seconds, Yardstick: bare.perSecond()})
		table.add(t, row+"-cpu", speedSample{Figure: micros / turns, Yardstick: bare.micros()})
		more = max(more, mallocs/turns-bare.mallocs())
	}
	table.add(t, "http-allocs", speedSample{Figure: more})
	target.check(t, false)
}

// measureDiscard: one daemon reads what waits in ingress, as fast as it can, into a sink that takes everything at once;
// then other jobs, which go through lanes: first all into them, then all out of them.
func measureDiscard(t *testing.T, table *speedTable) {
	s := newStack(t, stackOptions{partitions: 6, lanes: 256, sinks: `  nowhere: {type: discard}`})
	s.unlimited("nowhere", "straight")
	jobs := scaled(t, fullJobs)
	s.publishOf("straight", jobs, speedPayload)
	bare := measureYardstick(t, "-broker", s.brokers[0], "-topic", s.ingress, "-partitions", "6")
	if bare.Jobs != int64(jobs) {
		t.Errorf("the yardstick read %d of %d records", bare.Jobs, jobs)
	}
	d := s.start("one")
	straight := d.through(jobs, cost{}, func() int64 { return s.committed(s.ingress) }, s.delivered)
	time.Sleep(2 * time.Second)
	idle := d.idle(scaledTime(t, 3*time.Second))
	straight.job = straight.job.less(idle, 1/straight.perSecond)
	table.add(t, "discard", speedSample{
		Figure: straight.perSecond, Yardstick: bare.perSecond(),
		Note: fmt.Sprintf("%.2f records read for a job; the loop: %.2f s a million, %.1f allocations a record",
			d.metric(`pacer_records_read_total{place="ingress"}`)/float64(jobs), bare.micros(), bare.mallocs()),
	})
	table.add(t, "discard-cpu", speedSample{Figure: straight.micros()})
	table.add(t, "discard-allocs", speedSample{Figure: straight.job.mallocs})
	d.stop()

	s.campaigns("nowhere", "paused", []string{"over"}, func(int) float64 { return unlimited })
	over, written, delivered := scaled(t, 1_000_000), s.everWritten("lanes"), s.delivered()
	s.publishOf("over", over, speedPayload)
	d.launch()
	wrote := func() int64 { return s.everWritten("lanes") - written }
	in := d.through(over, idle, wrote, wrote)
	s.await(time.Minute, "the commits of what went into lanes", func() bool { return s.committed(s.ingress) == int64(jobs+over) })
	s.sql(`UPDATE pacer.campaigns SET status = 'active'`)
	took := func() int64 { return s.delivered() - delivered }
	out := d.through(over, idle, took, took)
	table.add(t, "overflow", speedSample{
		Figure: 1 / (1/in.perSecond + 1/out.perSecond), Yardstick: straight.perSecond,
		Note: fmt.Sprintf("into lanes %.0f/s, out of them %.0f/s; %.2f records read from lanes for a job", in.perSecond, out.perSecond,
			d.laneReads().read/float64(over)),
	})
	table.add(t, "overflow-cpu", speedSample{
		Figure: in.micros() + out.micros(),
		Note: fmt.Sprintf("into lanes %.2f s and %.1f allocations a job, out of them %.2f s and %.1f", in.micros(), in.job.mallocs,
			out.micros(), out.job.mallocs),
	})
}

// delivered is how many jobs the sinks have taken, as the group's commits tell: those that were settled and not written
// to a lane.
func (s *stack) delivered() int64 {
	s.t.Helper()
	settled := s.committed(s.ingress) + s.committed(s.prefix+"lanes")
	return settled - s.everWritten("lanes")
}
