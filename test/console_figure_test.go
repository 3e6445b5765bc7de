//go:build e2e

package test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"
)

// TestFigureManyCampaigns: what a page, a stream and a scrape are of a daemon in which each of 10,000 campaigns has jobs. A page is asked
// for four times a second, so that the first of each second waits for what is computed for all who look.
func TestFigureManyCampaigns(t *testing.T) {
	const campaigns, each = 10_000, 10
	s := newStack(t, stackOptions{partitions: 6, lanes: 256})
	ids := numbered(campaigns)
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, send_per) SELECT unnest($1::text[]), 2, '1 minute'`, ids)
	d := s.start("one")
	d.awaitReady(30 * time.Second)
	s.publishTurns(ids, 0, each)
	var status struct{ Backlog int64 }
	s.await(2*time.Minute, "a backlog of all campaigns", func() bool {
		time.Sleep(time.Second)
		d.ask("/status", &status)
		return status.Backlog > campaigns*each/2
	})
	for _, one := range []struct {
		path  string
		bytes int
	}{
		{"/", 100_000}, {"/campaigns", 100_000}, {"/campaigns?sort=backlog", 100_000}, {"/campaign?id=c4711", 100_000}, {"/api/v1/campaigns", 100_000}, {"/metrics", 2_000_000},
	} {
		took, size := d.answers(one.path, 40, 250*time.Millisecond)
		t.Logf("FIGURE  %-24s %8d bytes, within %3d ms (median), %3d ms (most)", one.path, size, took[len(took)/2].Milliseconds(), took[len(took)-1].Milliseconds())
		if size > one.bytes || took[len(took)/2] > 100*time.Millisecond {
			t.Errorf("%s has %d bytes and takes %s", one.path, size, took[len(took)/2])
		}
	}
	for _, path := range []string{"/live?page=campaigns&sort=backlog", "/api/v1/live?of=campaigns&sort=backlog"} {
		rate := d.streams(path, 20*time.Second)
		t.Logf("FIGURE  %-40s %8d bytes/s", path, rate)
		if rate > 100_000 {
			t.Errorf("%s sends %d bytes a second", path, rate)
		}
	}
}

// answers asks for a path again and again: how long each answer takes, sorted, and how large the largest is.
func (d *daemon) answers(path string, times int, every time.Duration) (took []time.Duration, most int) {
	d.s.t.Helper()
	for range times {
		began := time.Now()
		r, err := http.Get("http://" + d.listen + path)
		if err != nil {
			d.s.t.Fatal(err)
		}
		size, err := io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
		if err != nil || r.StatusCode != http.StatusOK {
			d.s.t.Fatalf("%s: %d, %v", path, r.StatusCode, err)
		}
		took, most = append(took, time.Since(began)), max(most, int(size))
		time.Sleep(every - time.Since(began))
	}
	slices.Sort(took)
	return took, most
}

// streams reads a stream for a time: bytes a second.
func (d *daemon) streams(path string, span time.Duration) int {
	d.s.t.Helper()
	ctx, cancel := context.WithTimeout(d.s.t.Context(), span)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.listen+path, nil)
	if err != nil {
		d.s.t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		d.s.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	size, err := io.Copy(io.Discard, r.Body)
	if r.StatusCode != http.StatusOK || !errors.Is(err, context.DeadlineExceeded) {
		d.s.t.Fatalf("%s: %d, %v", path, r.StatusCode, err)
	}
	return int(size) / int(span.Seconds())
}
