package test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/sink/sinktest"
)

// crashPoint is where a request is when the daemon is killed, and what may have been called by the end.
type crashPoint struct {
	call  string // during this call
	taken bool   // the destination has done what it was asked to
	once  []string
	twice []string
}

var crashPoints = map[string]crashPoint{
	"looked-up": {call: "find", once: []string{"new", "close"}, twice: []string{"find"}},
	"asked":     {call: "new", once: []string{"close"}, twice: []string{"find", "new"}},
	"made":      {call: "new", taken: true, once: []string{"new", "close"}, twice: []string{"find"}},
	"polled":    {call: "state", once: []string{"find", "new", "close"}},
	"waiting":   {once: []string{"find", "new", "close"}}, // between two polls, of which some may be repeated
	"closed":    {call: "close", once: []string{"find", "new"}, twice: []string{"close"}},
}

// halts has each request stop at its point, until the daemon is dead.
type halts struct {
	mu    sync.Mutex
	at    map[string]bool
	ended bool
}

// reached returns how many requests are at their points.
func (s *halts) reached() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.at)
}

// end lets all go on.
func (s *halts) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// stops reports whether the request stops here.
func (s *halts) stops(key, call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok := crashPoints[key]; !ok || s.ended || p.call != call {
		return false
	}
	s.at[key] = true
	return true
}

// polls reports whether the request is between polls until the daemon is dead.
func (s *halts) polls(key, call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key != "waiting" || call != "state" || s.ended {
		return false
	}
	s.at[key] = true
	return true
}

// TestStepsOverACrash: a daemon is killed while requests are at each of their points. Only documented steps are repeated, and no order is
// made twice.
func TestStepsOverACrash(t *testing.T) {
	t.Parallel()
	waits := &halts{at: map[string]bool{}}
	var g *sinktest.Registry
	g = sinktest.StartRegistry(t, 1, func(c *sinktest.Call, what, key string, _ int) bool {
		if waits.polls(key, what) {
			c.JSON(200, `{"state":"working"}`)
			return true
		}
		if !waits.stops(key, what) {
			return false
		}
		if crashPoints[key].taken {
			g.Take(key)
		}
		c.Hang()
		return true
	})
	s := newStack(t, stackOptions{partitions: 2, sinks: fmt.Sprintf(`
  registry:
    type: steps
    ca_file: %[2]s
    timeout: 60s
    steps:
      - id: create
        url: '%[1]s/new?key={{ .ID }}'
        take: {id: body.order.id}
        once: true
        lookup: {url: '%[1]s/find?key={{ .ID }}', found: 'len(body.items) > 0', take: {id: 'body.items[0].id'}}
      - id: ready
        url: '%[1]s/state?id={{ .Vars.id }}'
        poll: {every: 500ms, until: 'body.state == "done"'}
      - {id: close, method: DELETE, url: '%[1]s/close?id={{ .Vars.id }}'}
`, g.URL, g.CAFile)})
	s.withResults()
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('orders', 100, 'registry')`)
	var jobs []job
	for id := range crashPoints {
		jobs = append(jobs, job{campaign: "orders", id: id})
	}
	for i := range 20 {
		jobs = append(jobs, job{campaign: "orders", id: fmt.Sprint("plain-", i)})
	}
	d := s.started("a")
	s.publish(jobs)
	s.await(40*time.Second, "each request to be at its point, and the others to be done", func() bool {
		return waits.reached() == len(crashPoints) && len(s.events()) == len(jobs)-len(crashPoints)
	})
	time.Sleep(2 * time.Second) // until what was settled before is committed
	d.kill()
	waits.end()
	d.launch()
	s.await(60*time.Second, "all requests to be done", func() bool { return len(s.events()) == len(jobs) })
	for id, events := range s.events() {
		if len(events) != 1 || events[0].Outcome != "delivered" {
			t.Errorf("%s: %+v", id, events)
		}
		if n := g.Orders(id); n != 1 {
			t.Errorf("%s: %d orders", id, n)
		}
	}
	for id, p := range crashPoints {
		for n, calls := range map[int][]string{1: p.once, 2: p.twice} {
			for _, what := range calls {
				if got := g.Calls(what, id); got != n {
					t.Errorf("%s: %d calls of %s, want %d", id, got, what, n)
				}
			}
		}
	}
}
