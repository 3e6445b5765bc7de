//go:build e2e

package test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestFigureSteps: requests that wait in polls are in timers: they hold no memory of the daemon, no place among its calls, and make
// no calls. JOBS is how many there are, 100,000 unless it says otherwise. A fifth of as many go before: what a daemon that has sent
// much keeps, such as connections and buffers, is not theirs.
func TestFigureSteps(t *testing.T) {
	n := 100_000
	if text := os.Getenv("JOBS"); text != "" {
		n, _ = strconv.Atoi(text)
	}
	g := sinktest.StartRegistry(t, 1, nil)
	s := newStack(t, stackOptions{partitions: 6, sinks: fmt.Sprintf(`
  registry:
    type: steps
    ca_file: %[2]s
    timeout: 10s
    steps:
      - {id: create, url: '%[1]s/new?key={{ .ID }}', take: {id: body.order.id}}
      - {id: ready, url: '%[1]s/state?id={{ .Vars.id }}', poll: {every: 1h, until: 'body.state == "done"'}}
      - {id: close, method: DELETE, url: '%[1]s/close?id={{ .Vars.id }}'}
`, g.URL, g.CAFile)})
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('orders', 20000, 'registry')`)
	d := s.started("one")
	time.Sleep(5 * time.Second) // for what follows a start
	const mib = 1 << 20
	heap := func() float64 { // the least, since what is not used any more counts until it is collected
		least := d.metric("go_memstats_heap_alloc_bytes")
		for range 130 { // the runtime collects every two minutes
			time.Sleep(time.Second)
			least = min(least, d.metric("go_memstats_heap_alloc_bytes"))
		}
		return least / mib
	}
	calls := func() int { return len(g.Seen()) }
	waiting := func() (timers, elsewhere int) {
		s.eachOpen(func(topic string, _ delivery.Record) {
			if strings.HasPrefix(topic, s.prefix+"timer.") {
				timers++
			} else {
				elsewhere++
			}
		})
		return timers, elsewhere
	}
	all := 0
	send := func(n int) (made, stored time.Duration) {
		jobs := make([]job, n)
		for i := range jobs {
			jobs[i] = job{campaign: "orders", id: fmt.Sprint("o-", all+i)}
		}
		all += n
		began := time.Now()
		s.publish(jobs)
		s.await(8*time.Minute, "all orders to be made", func() bool { return calls() >= all })
		made = time.Since(began)
		s.await(2*time.Minute, "all requests to be in timers", func() bool { timers, elsewhere := waiting(); return timers == all && elsewhere == 0 })
		return made, time.Since(began)
	}
	send(n / 5)
	before, resident := heap(), d.resident()
	made, stored := send(n)
	then := calls()
	d.calm()
	idle := d.idle(10 * time.Second)
	after := heap()
	perJob := (after - before) * mib / float64(n)
	t.Logf("FIGURE  steps: %d orders made in %.0f s and all in timers after %.0f s; the heap is %.1f MiB, and was %.1f before (%.0f bytes a request); "+
		"resident %.0f MiB, before %.0f; peak %d MiB; %d in flight; %.1f ms of a processor a second", n, made.Seconds(), stored.Seconds(), after, before, perJob,
		d.resident(), resident, d.peakRSS(), int(d.metric(`pacer_jobs_in_flight{sink="registry"}`)), float64(idle.cpu.Microseconds())/1e3)
	if in := d.metric(`pacer_jobs_in_flight{sink="registry"}`); in != 0 || calls() != then {
		t.Errorf("%.0f calls are in flight, and %d were made while all requests wait", in, calls()-then)
	}
	if after > before+16 {
		t.Errorf("the heap was %.1f MiB, and is %.1f MiB with %d requests waiting", before, after, n)
	}
	d.stop()
}
