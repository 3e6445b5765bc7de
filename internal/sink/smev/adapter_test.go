package smev

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/standin"
)

// through starts a stand-in of the adapter, and a sink that leads to it.
func through(t *testing.T, o standin.AdapterOptions, w Writer, change func(*Config)) (*standin.Adapter, *Sink) {
	t.Helper()
	far := standin.StartAdapter(t, o)
	c := Default()
	c.URL, c.CAFile, c.ITSystem, c.Responses = far.URL+"/", far.CAFile, far.ItSystem, "responses"
	if change != nil {
		change(c)
	}
	return far, open(t, c, w)
}

// goOn goes on with a job as the pacer does, after a result that is pending.
func goOn(t *testing.T, s *Sink, job *delivery.Job, res delivery.Result) delivery.Result {
	t.Helper()
	if res.Class != delivery.Pending || !res.State.Valid() || !res.Repeatable || res.RetryAfter <= 0 {
		t.Fatalf("%+v %+v", res, res.State)
	}
	job.State = res.State
	return deliver(t, s, job)
}

var uuidV5 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestAdapterRequest(t *testing.T) {
	far, s := through(t, standin.AdapterOptions{}, nil, func(c *Config) { c.Wait, c.TestMessage, c.NodeID = "accepted", true, "n1" })
	job := jobOf("a")
	job.ExpiresAt = time.Now().Add(time.Hour).Truncate(time.Second)
	res := deliver(t, s, job)
	if res.Class != delivery.Delivered || !uuidV5.MatchString(res.Provider.MessageID) {
		t.Fatalf("%+v", res)
	}
	r := far.Requests()[0]
	if r.ClientID != res.Provider.MessageID || !r.Test || r.NodeID != "n1" || r.EOL != job.ExpiresAt.UTC().Format(time.RFC3339) ||
		r.Content != `<q:Request xmlns:q="urn://example/1.0"><q:secret>4509 123456</q:secret></q:Request>` {
		t.Errorf("%+v", r)
	}
	if a, b := clientID(jobOf("a")), clientID(jobOf("b")); a != r.ClientID || a == b {
		t.Errorf("%s and %s", a, b)
	}
}

// TestAdapterHasItAlready: after an attempt without an answer, and after a crash that left no trace of one, the request is
// found and not sent again.
func TestAdapterHasItAlready(t *testing.T) {
	far, s := through(t, standin.AdapterOptions{Deaf: func(_ standin.AdapterRequest, n int) bool { return n == 1 }}, nil, func(c *Config) {
		c.Wait, c.Timeout = "accepted", 300*time.Millisecond
	})
	job := jobOf("a")
	if res := deliver(t, s, job); res.Class != delivery.Temporary || res.Provider.MessageID != clientID(job) {
		t.Fatalf("%+v", res)
	}
	job.Call = delivery.Call{}
	if res := deliver(t, s, job); res.Class != delivery.Delivered || len(far.Requests()) != 1 || far.Sent()[clientID(job)] != 1 {
		t.Errorf("%+v, %v", res, far.Sent())
	}
}

// TestAdapterResponses: a job ends as its response says, which is in the topic by then.
func TestAdapterResponses(t *testing.T) {
	soon := 30 * time.Millisecond
	for name, c := range map[string]struct {
		replies []standin.SMEVReply
		want    delivery.ResultClass
		code    string
		kind    string
	}{
		"answered": {[]standin.SMEVReply{{Kind: "RequestStatus", Code: "3"}, {Kind: "MessagePrimaryContent", After: soon}}, delivery.Delivered, "", "response"},
		"rejected": {[]standin.SMEVReply{{Kind: "RequestRejected", Code: "NO_DATA", After: soon}}, delivery.Rejected, "NO_DATA", "rejected"},
		"refused":  {[]standin.SMEVReply{{Kind: "AsyncProcessingStatus", Code: "SMEV-102", After: soon}}, delivery.Permanent, "SMEV-102", "refused"},
	} {
		w := topic{fail: func(n int) (bool, error) {
			if n == 1 {
				return false, errors.New("no broker")
			}
			return false, nil
		}}
		far, s := through(t, standin.AdapterOptions{Supplier: func(standin.AdapterRequest) []standin.SMEVReply { return c.replies }}, &w, nil)
		job := jobOf(name)
		res := deliver(t, s, job)
		polls := 0
		for ; res.Class == delivery.Pending && polls < 1000; polls++ {
			res = goOn(t, s, job, res)
			time.Sleep(5 * time.Millisecond)
		}
		if res.Class != c.want || res.Provider.Code != c.code || res.Provider.MessageID != clientID(job) || res.Reason != "" {
			t.Errorf("%s: %+v %+v", name, res, res.Provider)
		}
		if w.len() != 1 || w.writes != 2 {
			t.Fatalf("%s: %d records, %d writes", name, w.len(), w.writes)
		}
		r := w.records[0]
		if r.Header(headerKind) != c.kind || r.Header(headerCode) != c.code || r.Header(delivery.HeaderJobID) != name || r.Header(headerClient) != clientID(job) ||
			r.Header(delivery.HeaderContentType) != "application/json" || !json.Valid(r.Value) || string(r.Key) != r.Header(headerOriginal) {
			t.Errorf("%s: %v %s", name, r.Headers, r.Value)
		}
		if len(far.Requests()) != 1 {
			t.Errorf("%s: %d requests", name, len(far.Requests()))
		}
	}
}

// TestPolls: ever more rarely, and not beyond the deadline.
func TestPolls(t *testing.T) {
	_, s := through(t, standin.AdapterOptions{Supplier: func(standin.AdapterRequest) []standin.SMEVReply { return nil }}, nil, func(c *Config) {
		c.Poll, c.Deadline = Poll{Every: time.Minute, Max: 10 * time.Minute, PerSecond: 1}, time.Hour
	})
	job, now := jobOf("a"), time.Now()
	a := adapter{s}
	res := a.accepted("c", now)
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 5 * time.Minute} {
		if res.RetryAfter != want || res.Class != delivery.Pending {
			t.Errorf("wait %d: %+v, want %s", i, res, want)
		}
		now = now.Add(res.RetryAfter)
		job.State = res.State
		res = a.waits(job, "c", now)
	}
	if res.Class != delivery.Permanent || res.Reason != delivery.ReasonDeadline {
		t.Errorf("at the deadline: %+v", res)
	}
}

func TestAdapterCheck(t *testing.T) {
	far, s := through(t, standin.AdapterOptions{}, nil, nil)
	if err := s.Check(t.Context()); err != nil || len(far.Sent()) != 0 {
		t.Error(err)
	}
	_, s = through(t, standin.AdapterOptions{}, nil, func(c *Config) { c.ITSystem = "another" })
	if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "it_system: ") {
		t.Error(err)
	}
	if res := deliver(t, s, jobOf("a")); res.Class != delivery.Misconfigured {
		t.Errorf("%+v", res)
	}
	_, s = through(t, standin.AdapterOptions{}, nil, func(c *Config) { c.URL = "https://127.0.0.1:1" })
	if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "url: cannot connect") {
		t.Error(err)
	}
}

// TestAnswersThatAreNotTheAdapters: a page is neither an empty list, for which the request would be sent again, nor success.
func TestAnswersThatAreNotTheAdapters(t *testing.T) {
	for _, text := range []string{"", "<html/>", "[]", `{"queryResult":[1]}`, `{"queryResult":`, `null`} {
		calls := 0
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			calls++
			_, _ = w.Write([]byte(text))
		}))
		c := Default()
		c.URL, c.ITSystem, c.Responses = srv.URL, "x", "r"
		if res := deliver(t, open(t, c, nil), jobOf("a")); res.Class != delivery.Temporary || res.By != delivery.ByNobody || calls != 1 {
			t.Errorf("%q: %+v, %d calls", text, res, calls)
		}
		srv.Close()
	}
}
