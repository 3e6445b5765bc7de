package smev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// topic is a Writer that keeps records.
type topic struct {
	mu      sync.Mutex
	records []delivery.Record
	fail    func(n int) (tooLarge bool, err error) // the n-th write, from 1; nil: none fails
	writes  int
	least   time.Duration // that a write had until its deadline; 0: none had one
}

func (w *topic) Write(ctx context.Context, name string, r delivery.Record) (tooLarge bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if end, ok := ctx.Deadline(); ok && (w.least == 0 || time.Until(end) < w.least) {
		w.least = time.Until(end)
	}
	if w.writes++; w.fail != nil {
		if tooLarge, err = w.fail(w.writes); err != nil {
			return tooLarge, err
		}
	}
	if name != "responses" {
		return false, errors.New("another topic")
	}
	w.records = append(w.records, r)
	return false, nil
}

// of returns the records of a response.
func (w *topic) of(id string) (list []delivery.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.records {
		if r.Header(headerMessage) == id {
			list = append(list, r)
		}
	}
	return list
}

func (w *topic) len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.records)
}

// collecting starts a stand-in and n sinks that collect from it, and checks at each Ack that the response is in the topic.
func collecting(t *testing.T, o sinktest.SMEVOptions, w *topic, n int) (*sinktest.SMEV, []*Sink) {
	t.Helper()
	o.Acked = func(id string) {
		if len(w.of(id)) == 0 {
			t.Errorf("%s was acknowledged before it was stored", id)
		}
	}
	far := sinktest.StartSMEV(t, o)
	var sinks []*Sink
	for range n {
		c := Default()
		c.Mode, c.URL, c.CAFile, c.Responses, c.Collect.Interval = "direct", far.URL, far.CAFile, "responses", 10*time.Millisecond
		sinks = append(sinks, sinktest.Serve(t, open(t, c, w), nil))
	}
	return far, sinks
}

// TestEveryResponseIsStoredAndThenAcknowledged: this holds for every kind of response, in any order and form, and with two daemons.
func TestEveryResponseIsStoredAndThenAcknowledged(t *testing.T) {
	replies := map[string][]sinktest.SMEVReply{
		"answered": {{Kind: "RequestStatus", Code: "3"}, {Kind: "MessagePrimaryContent", After: 20 * time.Millisecond}},
		"rejected": {{Kind: "RequestRejected", Code: "NO_DATA"}},
		"refused":  {{Kind: "AsyncProcessingStatus", Code: "SMEV-102"}},
	}
	var w topic
	far, sinks := collecting(t, sinktest.SMEVOptions{Multipart: true, Reverse: true, Supplier: func(r sinktest.SMEVRequest) []sinktest.SMEVReply {
		for name, list := range replies {
			if strings.Contains(r.Content, name) {
				return list
			}
		}
		return nil
	}}, &w, 2)
	ids := map[string]string{}
	for i := range 10 {
		for name := range replies {
			job := jobOf(fmt.Sprint(name, i))
			job.Payload = []byte(`<q xmlns="urn:x">` + name + `</q>`)
			res := deliver(t, sinks[i%2], job)
			if res.Class != delivery.Delivered {
				t.Fatalf("%+v", res)
			}
			ids[res.Provider.MessageID] = name
		}
	}
	sinktest.Eventually(t, "all responses", func() bool { return far.Waiting() == 0 && w.len() >= 40 })
	got := map[string][]string{}
	for _, r := range w.records {
		if string(r.Key) != r.Header(headerOriginal) || !strings.HasPrefix(string(r.Value), "<?xml") || r.Header("content-type") != "text/xml; charset=utf-8" {
			t.Errorf("%s: %v %.100s", r.Key, r.Headers, r.Value)
		}
		got[string(r.Key)] = append(got[string(r.Key)], r.Header(headerKind)+" "+r.Header(headerCode))
	}
	want := map[string][]string{"answered": {"response ", "status 3"}, "rejected": {"rejected NO_DATA"}, "refused": {"refused SMEV-102"}}
	for id, name := range ids {
		if slices.Sort(got[id]); !slices.Equal(got[id], want[name]) {
			t.Errorf("%s: %q, want %q", name, got[id], want[name])
		}
	}
	for id, n := range far.Acks() {
		if n != 1 {
			t.Errorf("%s was acknowledged %d times", id, n)
		}
	}
	sinktest.Eventually(t, "all to be counted", func() bool {
		return counted(t, sinks[0], "pacer_smev_responses_total")+counted(t, sinks[1], "pacer_smev_responses_total") == 40
	})
}

// counted returns the sum of a metric.
func counted(t *testing.T, s *Sink, name string) (sum float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	s.Instrument(reg)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.Metric {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// TestResponsesThatCannotBeStored: none is acknowledged; once the topic takes records again, each is in it once. A response that the
// topic never takes does not block others.
func TestResponsesThatCannotBeStored(t *testing.T) {
	w := topic{fail: func(n int) (bool, error) {
		switch {
		case n == 2:
			return true, errors.New("too large")
		case n%3 == 1:
			return false, errors.New("no broker")
		}
		return false, nil
	}}
	far, sinks := collecting(t, sinktest.SMEVOptions{Redeliver: 50 * time.Millisecond}, &w, 1)
	for i := range 6 {
		deliver(t, sinks[0], jobOf(fmt.Sprint(i)))
	}
	sinktest.Eventually(t, "all responses", func() bool { return far.Waiting() == 0 })
	for id, n := range far.Acks() {
		if stored := len(w.of(id)); n != 1 || stored != 1 {
			t.Errorf("%s: acknowledged %d times, stored %d times", id, n, stored)
		}
	}
	if counted(t, sinks[0], "pacer_smev_collect_failures_total") == 0 {
		t.Error("no failure is counted")
	}
}

// TestAcknowledgementsThatAreLost: a response that SMEV gives again is acknowledged again, and is in the topic once.
func TestAcknowledgementsThatAreLost(t *testing.T) {
	var w topic
	far, sinks := collecting(t, sinktest.SMEVOptions{}, &w, 1)
	for i := range 3 {
		deliver(t, sinks[0], jobOf(fmt.Sprint(i)))
	}
	count := func(name string, want float64) {
		t.Helper()
		sinktest.Eventually(t, name, func() bool { return far.Waiting() == 0 && counted(t, sinks[0], name) == want })
	}
	count("pacer_smev_responses_total", 3)
	far.LoseAcks()
	count("pacer_smev_responses_again_total", 3)
	if n := counted(t, sinks[0], "pacer_smev_responses_total"); n != 3 || w.len() != 3 {
		t.Errorf("%v are counted, and %d written", n, w.len())
	}
}

// TestATypeThatIsRefused: responses of the other types are collected.
func TestATypeThatIsRefused(t *testing.T) {
	signer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		envelope, _ := io.ReadAll(r.Body)
		if strings.Contains(string(envelope), "urn:refused") {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write(envelope)
	}))
	t.Cleanup(signer.Close)
	far := sinktest.StartSMEV(t, sinktest.SMEVOptions{})
	c := Default()
	c.Mode, c.URL, c.CAFile, c.Responses, c.Signer.URL = "direct", far.URL, far.CAFile, "responses", signer.URL
	c.Collect.Interval, c.Collect.Types = 10*time.Millisecond, []string{"{urn:refused}A", "{urn:taken}B"}
	var w topic
	s := sinktest.Serve(t, open(t, c, &w), nil)
	deliver(t, s, jobOf("a"))
	sinktest.Eventually(t, "the response", func() bool { return far.Waiting() == 0 && w.len() == 1 })
}

// TestFates: what became of a response is remembered, of the latest ones that came or came again.
func TestFates(t *testing.T) {
	c := newCollector(direct{&Sink{config: Default()}})
	c.fates.Resize(3)
	c.fateOf("a").stored = true
	for _, id := range []string{"b", "c", "a", "d"} {
		c.fateOf(id).acked = true
	}
	if f := c.fateOf("a"); !f.stored || !f.acked || c.fates.Contains("b") || c.fates.Len() != 3 {
		t.Errorf("%t %t, kept: %q", f.stored, f.acked, c.fates.Keys())
	}
}
