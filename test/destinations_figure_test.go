//go:build e2e

package test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// How many destinations there are, and what is sent to them.
const (
	manyShops, deadShops, deafShops = 10_000, 100, 10
	jobsEach                        = 10
)

// shopsRate is how many jobs a second are sent to them: RATE, or 1,000, which takes the greater part of a processor.
func shopsRate(t *testing.T) int {
	t.Helper()
	text := os.Getenv("RATE")
	if text == "" {
		return 1000
	}
	rate, err := strconv.Atoi(text)
	if err != nil || rate < 1 {
		t.Fatalf("RATE=%s: want a number of jobs a second", text)
	}
	return rate
}

// kindOf returns the kind of a destination: the first part of its id.
func kindOf(i int) string {
	switch {
	case i < deadShops:
		return "dead"
	case i < deadShops+deafShops:
		return "deaf"
	case i == deadShops+deafShops:
		return "gone"
	}
	return "fine"
}

// newShops is two daemons and the destinations. The dead ones refuse connections, and the deaf ones never answer.
func newShops(t *testing.T) *hooked {
	silent := newReceiver(t)
	h := newHooks(t, 6, shopsRate(t), "timeout: 10s", silent)
	silent.fails(unanswered, everyRequest)
	h.old.fails(http.StatusGone, func(a arrival) bool { return strings.HasPrefix(a.id, "gone") })
	began := time.Now()
	h.sql(`INSERT INTO pacer.destinations (id, url) SELECT k.kind || '-' || g, CASE k.kind WHEN 'dead' THEN $1 WHEN 'deaf' THEN $2 ELSE $3 END
FROM generate_series(0, $4::int - 1) g, LATERAL (SELECT CASE WHEN g < $5 THEN 'dead' WHEN g < $6 THEN 'deaf' WHEN g = $6 THEN 'gone' ELSE 'fine' END) k (kind)`,
		fmt.Sprintf("http://127.0.0.1:%d/", h.nobody), silent.url, h.old.url, manyShops, deadShops, deadShops+deafShops)
	t.Logf("FIGURE  %d destinations inserted by one statement in %d ms", manyShops, time.Since(began).Milliseconds())
	h.daemons = h.fleet("one", "two")
	return h
}

// TestFigureDestinations: of 10,000 destinations 100 are dead, 10 never answer, and one wants no more. The others get all of theirs about
// as fast as their campaign may send, and rows that are added, changed and disabled meanwhile act within a second. The daemons' memory
// stays small.
func TestFigureDestinations(t *testing.T) {
	h := newShops(t)
	var list []job
	for i := range manyShops * jobsEach {
		id := fmt.Sprintf("%s-%d", kindOf(i%manyShops), i%manyShops)
		list = append(list, jobFor("c", id, fmt.Sprintf("%s/%d", id, i)))
	}
	rand.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	fine := (manyShops - deadShops - deafShops - 1) * jobsEach
	h.publish(list)
	acts := h.changes(10)
	delivered := func() (n int, last int64) {
		seen := map[string]bool{}
		for _, a := range h.old.arrivals("c") {
			if strings.HasPrefix(a.id, "fine-") && !seen[a.id] {
				seen[a.id] = true
				n, last = n+1, max(last, a.at)
			}
		}
		return n, last
	}
	h.await(10*time.Minute, "all jobs of those that work", func() bool {
		time.Sleep(time.Second)
		n, _ := delivered()
		return n >= fine
	})
	_, last := delivered()
	took := float64(last-h.old.arrivals("c")[0].at) / 1e6
	ideal := float64(fine) / float64(shopsRate(t))
	t.Logf("FIGURE  %d jobs of %d destinations that work: %.2f s, ideal is %.2f s: %+.2f %%; %.0f calls of the others", fine, fine/jobsEach,
		took, ideal, 100*(took/ideal-1), h.daemons[0].metric("pacer_sink_seconds_count")+
			h.daemons[1].metric("pacer_sink_seconds_count")-float64(fine))
	if took > 1.02*ideal {
		t.Errorf("the others took %.1f s, more than 2 %% above %.1f s", took, ideal)
	}
	for _, d := range h.daemons {
		series, families := 0, d.families()
		for name, f := range families {
			series += len(f.GetMetric())
			if strings.Contains(f.String(), "fine-") {
				t.Errorf("%s has a destination as a label", name)
			}
		}
		t.Logf("FIGURE  %s: at most %d MiB, %d series of %d metrics, %.0f destinations closed", d.name, d.peakRSS(), series, len(families),
			d.metric("pacer_destinations_closed"))
		if d.peakRSS() > 400 || series > 3000 {
			t.Errorf("%s takes %d MiB and shows %d series", d.name, d.peakRSS(), series)
		}
	}
	h.disabled(fmt.Sprintf("gone-%d", deadShops+deafShops), "410")
	if dead := h.dead(); len(dead) > 0 {
		t.Errorf("%d dead letters", len(dead))
	}
	slices.SortFunc(acts, cmp.Compare[time.Duration])
	t.Logf("FIGURE  %d rows added, changed and disabled: read by both daemons within %d ms (median %d ms)", len(acts), acts[len(acts)-1].Milliseconds(),
		acts[len(acts)/2].Milliseconds())
	if acts[len(acts)-1] > time.Second {
		t.Errorf("a change acts after %s", acts[len(acts)-1])
	}
}

// changes adds, changes and disables n destinations one after another, and returns how long after its commit each change was known to all
// daemons. Later requests go to the row's address.
func (h *hooked) changes(n int) (after []time.Duration) {
	h.t.Helper()
	h.sql(`INSERT INTO pacer.campaigns (id, send_rate, sink) VALUES ('quick', 100, 'hooks')`)
	act := func(statement string, args ...any) {
		h.t.Helper()
		h.sql(statement, args...)
		began := time.Now()
		h.acts(args[0].(string))
		after = append(after, time.Since(began))
	}
	send := func(id string) {
		h.jobs++
		h.publish([]job{jobFor("quick", id, fmt.Sprintf("%s/%d", id, h.jobs))})
	}
	for i := range n {
		id := fmt.Sprintf("new-%d", i)
		act(`INSERT INTO pacer.destinations (id, url) VALUES ($1, $2)`, id, h.old.url)
		send(id)
		h.await(30*time.Second, "a job of one that was added", func() bool { return calls(h.old, id) == 1 })
		act(`UPDATE pacer.destinations SET url = $2 WHERE id = $1`, id, h.moved.url)
		send(id)
		h.await(30*time.Second, "a job of one that was moved", func() bool { return calls(h.moved, id) == 1 })
		act(`UPDATE pacer.destinations SET disabled_at = now() WHERE id = $1`, id)
		send(id)
	}
	time.Sleep(2 * time.Second)
	for i := range n {
		if id := fmt.Sprintf("new-%d", i); calls(h.old, id)+calls(h.moved, id) != 2 {
			h.t.Errorf("%s got %d jobs at its old address and %d at its new one", id, calls(h.old, id), calls(h.moved, id))
		}
	}
	return after
}
