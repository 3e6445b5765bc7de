package test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/testservices"
)

// hooked is a stack with a sink for pacer.destinations, running daemons, and two receivers.
type hooked struct {
	*stack
	old, moved *receiver
	nobody     int // a port where nobody listens
	daemons    []*daemon
	jobs       int
}

func newHooked(t *testing.T) *hooked {
	h := newHooks(t, 2, 200, "disable_after: 2s")
	h.daemons = h.fleet("one", "two")
	return h
}

// newHooks is the stack without daemons. Its sink has more settings, and may call more receivers than the two.
func newHooks(t *testing.T, partitions, rate int, settings string, more ...*receiver) *hooked {
	h := &hooked{old: newReceiver(t), moved: newReceiver(t), nobody: testservices.FreePort(t)}
	ports := fmt.Sprint(h.nobody)
	for _, r := range append(more, h.old, h.moved) {
		ports += ", " + portOf(t, r)
	}
	h.stack = newStack(t, stackOptions{partitions: partitions, sinks: fmt.Sprintf(
		"  hooks: {type: http, destinations: true, %s, guard: {ports: [%s], allow: [127.0.0.0/8], allow_http: true}}", settings, ports)})
	h.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('c', $1, 'hooks')`, rate)
	return h
}

func portOf(t *testing.T, r *receiver) string {
	t.Helper()
	u, err := url.Parse(r.url)
	noError(t, err)
	return u.Port()
}

// send publishes n jobs for a destination, whose ids begin with it.
func (h *hooked) send(destination string, n int) {
	h.t.Helper()
	list := make([]job, n)
	for i := range list {
		h.jobs++
		list[i] = jobFor("c", destination, fmt.Sprintf("%s/%d", destination, h.jobs))
	}
	h.publish(list)
}

// jobFor is a job for a destination.
func jobFor(campaign, destination, id string) job {
	return job{campaign: campaign, id: id, headers: []kafka.Header{header("pacer-destination", destination)}}
}

// calls is how many requests for jobs of a destination a receiver got.
func calls(r *receiver, destination string) (n int) {
	for _, a := range r.arrivals("") {
		if strings.HasPrefix(a.id, destination+"/") {
			n++
		}
	}
	return n
}

// acts waits until all daemons have read what the row of a destination says now.
func (h *hooked) acts(destination string) {
	h.t.Helper()
	var revision float64
	noError(h.t, h.db.QueryRow(context.Background(), `SELECT revision FROM pacer.destinations WHERE id = $1`, destination).Scan(&revision))
	h.await(30*time.Second, "all daemons have read the row of "+destination, func() bool {
		return !slices.ContainsFunc(h.daemons, func(d *daemon) bool { return d.metric("pacer_config_revision") < revision })
	})
}

// disabled waits until pacer has disabled a destination for a reason.
func (h *hooked) disabled(destination, because string) {
	h.t.Helper()
	h.await(time.Minute, destination+" is disabled: "+because, func() bool {
		var reason string
		err := h.db.QueryRow(context.Background(), `SELECT coalesce(disabled_reason, '') FROM pacer.destinations
WHERE id = $1 AND disabled_at IS NOT NULL`, destination).Scan(&reason)
		return err == nil && strings.Contains(reason, because)
	})
	h.acts(destination)
}

// TestADestinationThatIsNotThere: its first answers are all 404. A few of its jobs die, and the others wait on all daemons until its address is
// corrected. Its answers are counted.
func TestADestinationThatIsNotThere(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.old.fails(http.StatusNotFound, everyRequest)
	h.run("destination", "create", "shop", "--url", h.old.url)
	h.acts("shop")
	const n = 100
	h.send("shop", n)
	h.disabled("shop", "has failed since")
	dead := len(h.dead())
	if dead < 5 || dead > 2*5 {
		t.Errorf("%d dead letters", dead)
	}
	failed := metricOf(h.daemons, `pacer_destination_answers_total{answer="failed",destination="shop",sink="hooks"}`)
	if got := calls(h.old, "shop"); int(failed) != got {
		t.Errorf("%v answers are counted, and %d were given", failed, got)
	}
	shows := func(answer string, times int) {
		t.Helper()
		h.await(10*time.Second, answer, func() bool { return strings.Count(h.run("destination", "show", "shop"), answer) >= times })
	}
	shows("  404 permanent  job ", dead)
	h.run("destination", "set", "shop", "--url", h.moved.url)
	h.run("destination", "enable", "shop")
	h.await(time.Minute, "the other jobs at its new address", func() bool { return calls(h.moved, "shop") == n-dead })
	if got := len(h.dead()); got != dead {
		t.Errorf("%d dead letters in the end", got)
	}
	shows("  200 delivered  job ", 1)
}

// counted is what pacer.destination_progress says of a destination.
func (h *hooked) counted(destination string) (delivered, dead, waiting int) {
	_ = h.db.QueryRow(context.Background(), `SELECT delivered, dead, waiting FROM pacer.destination_progress WHERE destination_id = $1`, destination).
		Scan(&delivered, &dead, &waiting) // there is no row before the first count
	return delivered, dead, waiting
}

// TestCountsOfDestinationsAreTrue: of jobs that are delivered, refused, or wait for a destination that is down, in memory or in timers. What a killed
// daemon has not saved is made good when nothing is left, and replayed jobs are dead no more.
func TestCountsOfDestinationsAreTrue(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	var works, corrected atomic.Bool
	h.moved.answer = func(a arrival) (int, time.Duration) {
		switch {
		case strings.HasPrefix(a.id, "down/") && !works.Load():
			return http.StatusServiceUnavailable, 0
		case strings.HasPrefix(a.id, "bad/") && strings.HasSuffix(a.id, "0") && !corrected.Load():
			return http.StatusBadRequest, 0
		}
		return http.StatusOK, 0
	}
	h.sql(`UPDATE pacer.campaigns SET expected_total = 1700 WHERE id = 'c'`)
	for _, id := range []string{"fine", "bad", "down"} {
		h.run("destination", "create", id, "--url", h.moved.url)
		h.acts(id)
	}
	h.send("down", 300)
	h.await(time.Minute, "the jobs of the one that is down to wait", func() bool {
		delivered, dead, waiting := h.counted("down")
		return delivered == 0 && dead == 0 && waiting >= 290 && waiting <= 300
	})
	h.send("bad", 400)
	h.send("fine", 1000)
	h.await(time.Minute, "half of the jobs", func() bool { return calls(h.moved, "fine") > 500 })
	h.daemons[0].kill()
	works.Store(true)
	h.run("destination", "enable", "down")
	// What waits in timers for a destination that was enabled comes within five minutes, and is counted then.
	h.await(6*time.Minute, "true counts", func() bool {
		fine, _, left := h.counted("fine")
		bad, dead, _ := h.counted("bad")
		down, _, waiting := h.counted("down")
		return left == 0 && waiting == 0 && fine >= 1000 && fine <= 1050 && bad >= 360 && dead >= 40 && bad+dead <= 450 && down >= 300 && down <= 350
	})
	corrected.Store(true)
	h.run("dead", "replay", "--campaign", "c")
	h.await(time.Minute, "replayed jobs to count as delivered only", func() bool {
		bad, dead, waiting := h.counted("bad")
		return dead == 0 && waiting == 0 && bad >= 400 && bad <= 450
	})
}

// TestDestinationsActWithoutARestart: an added destination gets its jobs. A disabled one gets none, also if it was disabled as gone or
// failing. A moved one gets them at its new address only. None becomes a dead letter.
func TestDestinationsActWithoutARestart(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.old.fails(http.StatusGone, func(a arrival) bool { return strings.HasPrefix(a.id, "gone/") })
	h.run("destination", "create", "fine", "--url", h.old.url)
	h.run("destination", "create", "gone", "--url", h.old.url)
	h.run("destination", "create", "dead", "--url", fmt.Sprintf("http://127.0.0.1:%d/", h.nobody))
	for _, id := range []string{"fine", "gone", "dead"} {
		h.send(id, 20)
	}
	h.await(30*time.Second, "the jobs of one that was added", func() bool { return calls(h.old, "fine") == 20 })
	h.disabled("gone", "410")
	h.disabled("dead", "has failed since")
	h.run("destination", "disable", "fine")
	h.acts("fine")
	h.run("destination", "create", "other", "--url", h.old.url)
	h.acts("other") // and so what was read before
	fine, gone := calls(h.old, "fine"), calls(h.old, "gone")
	for _, id := range []string{"fine", "gone", "other"} {
		h.send(id, 20)
	}
	h.await(30*time.Second, "the jobs of another", func() bool { return calls(h.old, "other") == 20 })
	if n, m := calls(h.old, "fine"), calls(h.old, "gone"); n != fine || m != gone {
		t.Errorf("disabled destinations got %d and %d more calls", n-fine, m-gone)
	}
	for _, id := range []string{"fine", "gone", "dead"} {
		h.run("destination", "set", id, "--url", h.moved.url)
		h.run("destination", "enable", id)
		h.acts(id)
		h.send(id, 20)
		h.await(30*time.Second, "new jobs of one that was moved", func() bool { return calls(h.moved, id) >= 20 })
	}
	if n, m := calls(h.old, "fine"), calls(h.old, "gone"); n != fine || m != gone {
		t.Errorf("the old address got %d and %d more calls", n-fine, m-gone)
	}
	if dead := h.dead(); len(dead) > 0 {
		t.Errorf("dead letters: %v", dead)
	}
}
