//go:build e2e

package test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFigureManyCampaigns: the size and time of a page, a stream and a scrape of a daemon with 10,000 campaigns that have jobs. They are
// requested in turn, for a minute, so that some coincide with the daemon's other work. The slowest answer of a page is within the bound,
// but for what the machine kept this process from running then; of pages that Kafka or the database answers, and of a scrape, the median
// is.
func TestFigureManyCampaigns(t *testing.T) {
	const campaigns, each, rounds, within = 10_000, 10, 50, 100 * time.Millisecond
	stalls.watch()
	s := newStack(t, stackOptions{partitions: 6, lanes: 256})
	ids := numbered(campaigns)
	s.sql(`INSERT INTO pacer.quotas (id) VALUES ('shared')`)
	s.sql(`INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('shared', '1 hour', 1000000)`)
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, send_per) SELECT unnest($1::text[]), 2, '1 minute'`, ids)
	s.sql(`INSERT INTO pacer.campaign_quotas (campaign_id, quota_id) SELECT id, 'shared' FROM pacer.campaigns LIMIT 1000`)
	d := s.started("one")
	s.publishTurns(ids, 0, each)
	var status struct{ Backlog int64 }
	s.await(2*time.Minute, "a backlog of all campaigns", func() bool {
		time.Sleep(time.Second)
		d.ask("/status", &status)
		return status.Backlog > campaigns*each/2
	})
	pages := []struct {
		path  string
		known bool // what it shows is known to the process
		answers
	}{
		{path: "/", known: true}, {path: "/campaigns", known: true}, {path: "/campaigns?sort=backlog", known: true}, {path: "/campaigns?q=47&state=sending&sort=sent", known: true},
		{path: "/campaign?id=c4711", known: true}, {path: "/quotas", known: true}, {path: "/quota?id=shared", known: true}, {path: "/sinks", known: true}, {path: "/daemons", known: true},
		{path: "/api/v1/status", known: true}, {path: "/api/v1/campaigns?sort=backlog", known: true},
		{path: "/api/v1/campaigns/c4711"}, {path: "/dead"}, {path: "/destinations"}, {path: "/changes"}, {path: "/replays"}, {path: "/metrics"},
	}
	for range rounds {
		for i := range pages {
			pages[i].add(d.fetch(pages[i].path))
			time.Sleep(50 * time.Millisecond)
		}
	}
	for i := range pages {
		p := &pages[i]
		median, most, stalled := p.times()
		t.Logf("FIGURE  %-40s %8d bytes, within %3d ms (median), %3d ms (most, of which the machine may be to blame for %d ms)", p.path, p.size,
			median.Milliseconds(), most.Milliseconds(), min(most, stalled).Milliseconds())
		bytes := 100_000
		if p.path == "/metrics" {
			bytes = 2_000_000
		}
		if p.size > bytes || median > within || p.known && most-stalled > within {
			t.Errorf("%s has %d bytes and takes %s, and once %s", p.path, p.size, median, most)
		}
	}
	for _, path := range []string{"/live?page=campaigns&sort=backlog", "/api/v1/live?of=campaigns&sort=backlog"} {
		rate := d.streams(path, 20*time.Second)
		t.Logf("FIGURE  %-40s %8d bytes/s", path, rate)
		if rate > 100_000 {
			t.Errorf("%s sends %d bytes a second", path, rate)
		}
	}
	if n := strings.Count(d.log.String(), "cause=stalled"); n > 0 { // each of them has a slot every 30 s
		t.Errorf("%d campaigns were seen to stand still", n)
	}
}

// answers are the answers to one request that is made again and again.
type answers struct {
	list []answer
	size int // of the largest
}

type answer struct {
	at   time.Time // when it was there
	took time.Duration
}

func (a *answers) add(one answer, size int) {
	a.list, a.size = append(a.list, one), max(a.size, size)
}

// times returns how long an answer takes, how long the slowest took, and for how long the machine kept this process from running then.
func (a *answers) times() (median, most, stalled time.Duration) {
	slices.SortFunc(a.list, func(a, b answer) int { return cmp.Compare(a.took, b.took) })
	slowest := a.list[len(a.list)-1]
	stalls.mu.Lock()
	near := nearby(slices.Clone(stalls.list))
	stalls.mu.Unlock()
	return a.list[len(a.list)/2].took, slowest.took, handovers * near(slowest.at.Add(-slowest.took/2))
}

// fetch asks for a path.
func (d *daemon) fetch(path string) (one answer, size int) {
	d.s.t.Helper()
	began := time.Now()
	body := d.body(path)
	return answer{time.Now(), time.Since(began)}, len(body)
}

// streams reads a stream for a time: bytes a second.
func (d *daemon) streams(path string, span time.Duration) int {
	d.s.t.Helper()
	ctx, cancel := context.WithTimeout(d.s.t.Context(), span)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.listen+path, nil)
	noError(d.s.t, err)
	r, err := http.DefaultClient.Do(request)
	noError(d.s.t, err)
	defer func() { _ = r.Body.Close() }()
	size, err := io.Copy(io.Discard, r.Body)
	if r.StatusCode != http.StatusOK || !errors.Is(err, context.DeadlineExceeded) {
		d.s.t.Fatalf("%s: %d, %v", path, r.StatusCode, err)
	}
	return int(size) / int(span.Seconds())
}
