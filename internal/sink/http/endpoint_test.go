package http

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/signature"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// table is pacer.destinations, by id.
type table map[string]*delivery.Destination

// tableSink is a sink that sends to the rows, on this machine as well.
func tableSink(t *testing.T, x table, srv *sinktest.Server, changes ...func(*Config)) *Sink {
	t.Helper()
	for id, row := range x {
		row.ID = id
	}
	s := newSink(t, "", append([]func(*Config){func(c *Config) { c.Destinations = true }, allowed(t, srv)}, changes...)...)
	s.Endpoints = func(id string) *delivery.Destination { return x[id] }
	return s
}

func jobFor(id string) *delivery.Job {
	j := job()
	j.Destination = id
	return j
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDestinationsOfTheTable: each has its own address, headers and secrets, and what changes acts with the next job.
func TestDestinationsOfTheTable(t *testing.T) {
	calls := make(chan *sinktest.Call, 1)
	srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{}, func(c *sinktest.Call) { calls <- c; c.Answer(200) })
	at := strings.TrimSuffix(srv.URL, "/deliver")
	dir := t.TempDir()
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 24)))
	put(t, dir, "shop-7", "Bearer opensesame\n")
	t.Setenv("DESTINATION_SHOP_7", secret)
	x := table{
		"shop-7": {
			URL: at + "/a?b=c", Secrets: []string{"env:DESTINATION_SHOP_7"},
			Headers: []delivery.DestinationHeader{{Name: "Authorization", Value: "file:shop-7"}, {Name: "x-tenant", Value: "blue"}},
		},
		"other": {URL: at + "/o"},
	}
	s := tableSink(t, x, srv, func(c *Config) {
		c.SecretsDir, c.Headers = dir, map[string]string{"X-Tenant": `{{ "none" }}`, "x-all": "y"}
	})
	send := func(id string) *sinktest.Call {
		t.Helper()
		if r := s.Deliver(t.Context(), jobFor(id), nil); r.Class != delivery.Delivered {
			t.Fatalf("%s: %+v", id, r)
		}
		return <-calls
	}
	signer, err := signature.New([]string{secret})
	if err != nil {
		t.Fatal(err)
	}
	c := send("shop-7")
	signed := signer.Sign(c.ID, c.Header.Get("Webhook-Timestamp"), c.Payload)
	if c.Path != "/a?b=c" || c.Header.Get("Authorization") != "Bearer opensesame" || c.Header.Get("X-Tenant") != "blue" || c.Header.Get("X-All") != "y" ||
		c.Header.Get("Webhook-Signature") != signed || signed == "" {
		t.Errorf("%s %v", c.Path, c.Header)
	}
	if c = send("other"); c.Path != "/o" || c.Header.Get("Authorization") != "" || c.Header.Get("X-Tenant") != "none" || c.Header.Get("Webhook-Signature") != "" {
		t.Errorf("%s %v", c.Path, c.Header)
	}
	x["shop-7"] = &delivery.Destination{ID: "shop-7", URL: at + "/new"}
	if c = send("shop-7"); c.Path != "/new" || c.Header.Get("Authorization") != "" {
		t.Errorf("%s %v", c.Path, c.Header)
	}
	if s.Destinations() == nil || s.destination(jobFor("other")) != "" {
		t.Error("the jobs name their destinations themselves")
	}
}

// TestJobsWithoutADestination: such a job is sent nowhere, waits, and is not to blame.
func TestJobsWithoutADestination(t *testing.T) {
	srv := sinktest.Start(t, sinktest.TLS, sinktest.Options{}, func(*sinktest.Call) { t.Error("a request was sent") })
	s := tableSink(t, table{"disabled": {URL: srv.URL, DisabledAt: 1, DisabledReason: "by hand"}}, srv)
	for id, want := range map[string]string{
		"":         "the job names no destination; pacer sink test SINK --destination ID sends one to the destination ID",
		"unknown":  "there is no destination unknown",
		"disabled": "the destination is disabled: by hand",
	} {
		if r := s.Deliver(t.Context(), jobFor(id), nil); r != (delivery.Result{Class: delivery.Unreachable, Scope: delivery.ScopeDestination, Detail: want}) {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

// TestNoDestinationHasTheSecretOfAnother: a reference names a secret of its own destination, with any ids.
func TestNoDestinationHasTheSecretOfAnother(t *testing.T) {
	srv := sinktest.Start(t, sinktest.TLS, sinktest.Options{}, func(c *sinktest.Call) { c.Answer(200) })
	dir := t.TempDir()
	for _, sub := range []string{"shop-7", "shop", "a", "..data"} {
		if err := os.Mkdir(filepath.Join(dir, sub+".d"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(sub+".d", filepath.Join(dir, sub)); err != nil {
			t.Fatal(err)
		}
		put(t, dir, sub+"/key", "opensesame")
	}
	put(t, dir, "bank-7", "opensesame")
	put(t, dir, "shop__old", "opensesame")
	for _, name := range []string{"SHOP_7", "SHOP_7__OLD", "BANK_7", "SHOP", ""} {
		t.Setenv("DESTINATION_"+name, "opensesame")
	}
	s := tableSink(t, table{}, srv, func(c *Config) { c.SecretsDir = dir })
	for reference, owner := range map[string]string{
		"file:bank-7": "bank-7", "file:shop-7/key": "shop-7", "file:./shop/key": "shop", "file:shop__old": "shop", "file:a/key": "a",
		"file:shop-7/../bank-7": "bank-7", "file:" + dir + "/shop/key": "shop",
		"env:DESTINATION_SHOP_7": "shop-7", "env:DESTINATION_SHOP_7__OLD": "shop-7", "env:DESTINATION_BANK_7": "bank-7", "env:DESTINATION_SHOP": "shop",
		"env:DESTINATION_": "", "file:..data/key": "",
	} {
		for _, id := range []string{"shop-7", "shop", "bank-7", "shop_7", "SHOP-7", "shop.7", "shop-", "shop-7-old", "shop-7--old", "shop__old", "a", "a/key", "shop/../a", "..", "..data", "evil"} {
			err := s.CheckRow(&delivery.Destination{ID: id, URL: srv.URL, Headers: []delivery.DestinationHeader{{Name: "x-key", Value: reference}}})
			if (err == nil) != (id == owner) || err != nil && strings.Contains(err.Error(), "opensesame") {
				t.Errorf("%s for %s: %v", reference, id, err)
			}
		}
	}
}

// TestAnswersOfDestinations: what one says is about it, and not about the sink or other destinations, whether a job names its address or its
// row. The row's operator may correct what is wrong with it; an address of a job is as it is.
func TestAnswersOfDestinations(t *testing.T) {
	for _, tt := range []struct {
		status         int
		own            string // class that the sink's settings give it
		ofRow, ofJob   delivery.ResultClass
		ofDestination  bool // else of the job
		detail, byName string
	}{
		{410, "", delivery.Misconfigured, delivery.Permanent, true, "410 Gone", ""},
		{401, "", delivery.Misconfigured, delivery.Misconfigured, true, "401", "check the destination's credentials"},
		{302, "", delivery.Misconfigured, delivery.Permanent, true, "redirects are not followed", ""},
		{429, "", delivery.Throttled, delivery.Throttled, true, "", ""},
		{400, "", delivery.Permanent, delivery.Permanent, false, "", ""},
		{500, "", delivery.Temporary, delivery.Temporary, false, "", ""},
		{410, "rejected", delivery.Rejected, delivery.Rejected, false, "", ""},
		{410, "permanent", delivery.Permanent, delivery.Permanent, false, "", ""},
	} {
		srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{}, func(c *sinktest.Call) {
			c.Answer(tt.status, "Location", "https://169.254.169.254/latest")
		})
		own := func(c *Config) {
			if tt.own != "" {
				c.Classes = map[string]string{strconv.Itoa(tt.status): tt.own}
			}
		}
		byRow := tableSink(t, table{"shop-7": {URL: srv.URL}}, srv, own).Deliver(t.Context(), jobFor("shop-7"), nil)
		byJob := newSink(t, `{{ .Header "to" }}`, allowed(t, srv), own).Deliver(t.Context(), toward(srv.URL), nil)
		for of, got := range map[string]struct {
			res  delivery.Result
			want delivery.ResultClass
		}{"a row": {byRow, tt.ofRow}, "a job": {byJob, tt.ofJob}} {
			scope := delivery.ScopeSink
			if tt.ofDestination && got.want != delivery.Permanent {
				scope = delivery.ScopeDestination
			}
			if r := got.res; r.Class != got.want || r.Scope != scope || r.Status != tt.status || !strings.Contains(r.Detail, tt.detail) {
				t.Errorf("%d of %s: %+v", tt.status, of, r)
			}
		}
		if !strings.Contains(byRow.Detail, tt.byName) || byRow.Gone != (tt.status == 410 && tt.own == "") || byJob.Gone {
			t.Errorf("%d: %+v and %+v", tt.status, byRow, byJob)
		}
		if n := len(srv.Seen()); n != 2 {
			t.Errorf("%d: %d requests", tt.status, n)
		}
	}
}

// TestFewEndpointsAreKept: what is made of destinations is kept of those that were sent to lately.
func TestFewEndpointsAreKept(t *testing.T) {
	s := tableSink(t, table{}, &sinktest.Server{URL: "https://127.0.0.1:443/"})
	often := &delivery.Destination{ID: "often", URL: "https://often.example/"}
	first := s.made(s.Now(), often, time.Now())
	for i := range 2 * maxEndpoints {
		s.made(s.Now(), &delivery.Destination{ID: fmt.Sprint(i), URL: "https://shop.example/"}, time.Now())
		if e := s.made(s.Now(), often, time.Now()); e != first {
			t.Fatalf("made anew after %d others", i)
		}
	}
	if n := s.endpoints.Len(); n > maxEndpoints {
		t.Errorf("%d are kept", n)
	}
}

// TestSecretsOfRowsAreReadAgain: after ten seconds. One that is missing for a moment stays as it was.
func TestSecretsOfRowsAreReadAgain(t *testing.T) {
	dir := t.TempDir()
	s := tableSink(t, table{}, &sinktest.Server{URL: "https://127.0.0.1:443/"}, func(c *Config) { c.SecretsDir = dir })
	row := &delivery.Destination{ID: "x", URL: "https://x.example/", Headers: []delivery.DestinationHeader{{Name: "X-Key", Value: "file:x"}}}
	start := time.Now()
	for _, step := range []struct {
		after   time.Duration
		content string
		want    string // "" for no client
	}{
		{0, "", ""}, {9 * time.Second, "one", ""}, {10 * time.Second, "one", "one"}, {19 * time.Second, "two", "one"}, {20 * time.Second, "two", "two"},
		{30 * time.Second, "", "two"}, {40 * time.Second, "three", "three"},
	} {
		put(t, dir, "x", step.content)
		got := ""
		if e := s.made(s.Now(), row, start.Add(step.after)); e.client != nil {
			got = e.client.fixed[0].values[0]
		}
		if got != step.want {
			t.Errorf("after %s: %q, want %q", step.after, got, step.want)
		}
	}
}
