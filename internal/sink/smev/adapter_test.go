package smev

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/sinktest"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// through starts a stand-in of the adapter, and a sink that leads to it.
func through(t *testing.T, o sinktest.AdapterOptions, w base.Writer, change func(*Config)) (*sinktest.Adapter, *Sink) {
	t.Helper()
	far := sinktest.StartAdapter(t, o)
	c := Default()
	c.URL, c.CAFile, c.ITSystem, c.Responses = far.URL+"/", far.CAFile, far.ItSystem, "responses"
	if change != nil {
		change(c)
	}
	return far, open(t, c, w)
}

// bothFaces runs the test for each way to call the adapter.
func bothFaces(t *testing.T, test func(t *testing.T, protocol string)) {
	for _, protocol := range []string{protocolREST, protocolSOAP} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			test(t, protocol)
		})
	}
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

func TestAdapterRequest(t *testing.T) { bothFaces(t, testAdapterRequest) }

func testAdapterRequest(t *testing.T, protocol string) {
	far, s := through(t, sinktest.AdapterOptions{}, nil, func(c *Config) {
		c.Protocol, c.Wait, c.TestMessage, c.NodeID = protocol, "accepted", true, "n1"
	})
	if err := s.Check(t.Context()); err != nil || len(far.Sent()) != 0 {
		t.Errorf("check: %v, %d sent", err, len(far.Sent()))
	}
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
func TestAdapterHasItAlready(t *testing.T) { bothFaces(t, testAdapterHasItAlready) }

func testAdapterHasItAlready(t *testing.T, protocol string) {
	far, s := through(t, sinktest.AdapterOptions{Deaf: func(_ sinktest.AdapterRequest, n int) bool { return n == 1 }}, nil, func(c *Config) {
		c.Protocol, c.Wait, c.Timeout = protocol, "accepted", 2*time.Second
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

// TestTryAdapter: a trial shows the question for the request, and then the request.
func TestTryAdapter(t *testing.T) { bothFaces(t, testTryAdapter) }

func testTryAdapter(t *testing.T, protocol string) {
	_, s := through(t, sinktest.AdapterOptions{}, nil, func(c *Config) { c.Protocol, c.Wait = protocol, "accepted" })
	var shown base.Exchange
	res := s.Deliver(t.Context(), jobOf("a"), &shown)
	if res.Class != delivery.Delivered || strings.Count(shown.Request, "POST ") != 2 || strings.Count(shown.Answer, "HTTP ") != 2 || !strings.Contains(shown.Request, requestByRequest) {
		t.Errorf("%+v\n%s\n%s", res, shown.Request, shown.Answer)
	}
}

// TestAdapterResponses: a job ends as its response says, which is in the topic by then.
func TestAdapterResponses(t *testing.T) { bothFaces(t, testAdapterResponses) }

func testAdapterResponses(t *testing.T, protocol string) {
	soon := 30 * time.Millisecond
	for name, c := range map[string]struct {
		replies []sinktest.SMEVReply
		want    delivery.ResultClass
		code    string
		kind    string
	}{
		"answered": {[]sinktest.SMEVReply{{Kind: "RequestStatus", Code: "3"}, {Kind: "MessagePrimaryContent", After: soon}}, delivery.Delivered, "", "response"},
		"rejected": {[]sinktest.SMEVReply{{Kind: "RequestRejected", Code: "NO_DATA", After: soon}}, delivery.Rejected, "NO_DATA", "rejected"},
		"refused":  {[]sinktest.SMEVReply{{Kind: "AsyncProcessingStatus", Code: "SMEV-102", After: soon}}, delivery.Permanent, "SMEV-102", "refused"},
	} {
		w := topic{fail: func(n int) (bool, error) {
			if n == 1 {
				return false, errors.New("no broker")
			}
			return false, nil
		}}
		far, s := through(t, sinktest.AdapterOptions{Supplier: func(sinktest.AdapterRequest) []sinktest.SMEVReply { return c.replies }}, &w, func(c *Config) {
			c.Protocol, c.Timeout = protocol, time.Second
		})
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
		if w.least < 2*time.Second {
			t.Errorf("%s: %s for a write to Kafka: the destination is asked again when Kafka is slow", name, w.least)
		}
		r := w.records[0]
		if r.Header(headerKind) != c.kind || r.Header(headerCode) != c.code || r.Header(delivery.HeaderJobID) != name || r.Header(headerClient) != clientID(job) ||
			string(r.Key) != r.Header(headerOriginal) || r.Header(headerOriginal) != "m-of-"+clientID(job) || !strings.HasPrefix(r.Header(headerMessage), "r") {
			t.Errorf("%s: %v %s", name, r.Headers, r.Value)
		}
		var whole struct{ XMLName xml.Name }
		kind, valid := "application/json", json.Valid(r.Value)
		if protocol == protocolSOAP {
			kind, valid = "text/xml; charset=utf-8", xml.Unmarshal(r.Value, &whole) == nil && whole.XMLName.Local == "QueryResult"
		}
		if r.Header(delivery.HeaderContentType) != kind || !valid {
			t.Errorf("%s: %v %s", name, r.Headers, r.Value)
		}
		if len(far.Requests()) != 1 {
			t.Errorf("%s: %d requests", name, len(far.Requests()))
		}
	}
}

// TestPolls: ever more rarely, and not beyond the deadline.
func TestPolls(t *testing.T) {
	_, s := through(t, sinktest.AdapterOptions{Supplier: func(sinktest.AdapterRequest) []sinktest.SMEVReply { return nil }}, nil, func(c *Config) {
		c.Poll, c.Deadline = Poll{Every: time.Minute, Max: 10 * time.Minute, PerSecond: 1}, time.Hour
	})
	now, a := time.Now(), newAdapter(s)
	res := a.accepted(now)
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 5 * time.Minute} {
		if res.RetryAfter != want || res.Class != delivery.Pending {
			t.Errorf("wait %d: %+v, want %s", i, res, want)
		}
		now = now.Add(res.RetryAfter)
		res = a.waits(res.State, now)
	}
	if res.Class != delivery.Permanent || res.Reason != delivery.ReasonDeadline {
		t.Errorf("at the deadline: %+v", res)
	}
}

// TestAnotherSystem: nothing in a question for a request is the job's.
func TestAnotherSystem(t *testing.T) {
	bothFaces(t, func(t *testing.T, protocol string) {
		_, s := through(t, sinktest.AdapterOptions{}, nil, func(c *Config) { c.Protocol, c.ITSystem = protocol, "another" })
		if res := deliver(t, s, jobOf("a")); res.Class != delivery.Misconfigured {
			t.Errorf("%+v", res)
		}
	})
}

// TestAnswersThatAreOfOthers: a page is not success, and not an empty list either, since the request would then be sent again. A status alone
// says what it says. A request to SMEV itself that may have arrived keeps its id.
func TestAnswersThatAreOfOthers(t *testing.T) {
	const envelope = `<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body>`
	for protocol, texts := range map[string][]string{
		protocolREST: {"", "<html/>", "[]", `{"queryResult":[1]}`, `{"queryResult":`, `null`},
		protocolSOAP: {
			"", " ", "<html></html>", `{"queryResult":[]}`, envelope + `</s:Body></s:Envelope>`, envelope + `<QueryResultList>`,
			envelope + `<MessageResult/></s:Body></s:Envelope>`,
		},
	} {
		for _, text := range texts {
			s, calls := answering(t, 200, text, func(c *Config) { c.Protocol = protocol })
			if res := deliver(t, s, jobOf("a")); res.Class != delivery.Temporary || res.By != delivery.ByNobody || calls.Load() != 1 {
				t.Errorf("%s: %q: %+v, %d calls", protocol, text, res, calls.Load())
			}
		}
	}
	for _, text := range []string{`{"queryResult":[]}`, "\n" + `{"queryResult":[]}`, "\ufeff" + `{"queryResult":[]}`} { // are all empty lists
		s, calls := answering(t, 200, text, func(c *Config) { c.Protocol = protocolREST })
		if deliver(t, s, jobOf("a")); calls.Load() != 2 {
			t.Errorf("%q: %d calls", text, calls.Load())
		}
	}
	for _, tt := range []struct {
		status  int
		text    string
		want    delivery.ResultClass
		inDoubt bool
	}{
		{200, "<html/>", delivery.Temporary, true}, {200, "", delivery.Temporary, true},
		{502, "x", delivery.Temporary, true}, {503, "x", delivery.Temporary, true},
		{404, "x", delivery.Misconfigured, false}, {403, "x", delivery.Misconfigured, false}, {302, "x", delivery.Misconfigured, false},
		{429, "x", delivery.Throttled, false},
	} {
		s, _ := answering(t, tt.status, tt.text, func(c *Config) { c.Mode = "direct" })
		res := deliver(t, s, jobOf("a"))
		if kept := res.Provider != nil && res.Provider.MessageID != ""; res.Class != tt.want || kept != tt.inDoubt || res.Detail == "" {
			t.Errorf("%d %s: %+v %+v", tt.status, tt.text, res, res.Provider)
		}
	}
}

// TestAFaultMayQuoteThePayload: a fault is known by its name, also where its text is long.
func TestAFaultMayQuoteThePayload(t *testing.T) {
	const text = `<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><s:Fault><detail>` +
		`<f:ValidationFault xmlns:f="urn://x-artefacts-smev-gov-ru/services/service-adapter/types/faults"><f:description>%s</f:description>` +
		`</f:ValidationFault></detail></s:Fault></s:Body></s:Envelope>`
	s, _ := answering(t, 500, fmt.Sprintf(text, strings.Repeat("x", 300_000)), func(c *Config) { c.Protocol = protocolSOAP })
	problem := newAdapter(s).send(t.Context(), soap.Request{}, nil)
	if problem == nil || problem.Class != delivery.Permanent || problem.Provider.Code != soap.ValidationFault {
		t.Errorf("%+v", problem)
	}
}

// answering is a sink whose destination answers every call so.
func answering(t *testing.T, status int, text string, change func(*Config)) (s *Sink, calls *atomic.Int32) {
	t.Helper()
	calls = &atomic.Int32{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(srv.Close)
	c := Default()
	c.URL, c.ITSystem, c.Responses = srv.URL, "x", "r"
	change(c)
	return open(t, c, nil), calls
}

// TestResponseWithParts: what belongs to a response stays with it.
func TestResponseWithParts(t *testing.T) {
	for parts, kind := range map[int]string{1: "text/xml", 2: "multipart/related"} {
		var w topic
		_, s := through(t, sinktest.AdapterOptions{Parts: parts}, &w, func(c *Config) { c.Protocol = protocolSOAP })
		job := jobOf("a")
		if res := goOn(t, s, job, deliver(t, s, job)); res.Class != delivery.Delivered || w.len() != 1 {
			t.Fatalf("%d parts: %+v", parts, res)
		}
		r := w.records[0]
		if !strings.HasPrefix(r.Header(delivery.HeaderContentType), kind) || strings.Contains(string(r.Value), "signature") != (parts > 1) {
			t.Errorf("%d parts: %v %s", parts, r.Headers, r.Value)
		}
	}
}

// TestJudge: the meaning of a fault depends on its name, not on the status; one without a known name is tried again.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		status int
		fault  soap.Fault
		want   delivery.ResultClass
		by     delivery.Answerer
		code   string
	}{
		{500, soap.Fault{Name: soap.ValidationFault, Code: "A-1"}, delivery.Permanent, delivery.ByUnknown, "ValidationFault"},
		{200, soap.Fault{Name: soap.ValidationFault}, delivery.Permanent, delivery.ByUnknown, "ValidationFault"},
		{500, soap.Fault{Name: soap.SystemFault}, delivery.Temporary, delivery.ByNobody, "SystemFault"},
		{200, soap.Fault{Name: soap.SystemFault}, delivery.Temporary, delivery.ByNobody, "SystemFault"},
		{429, soap.Fault{Name: soap.SystemFault}, delivery.Throttled, delivery.ByUnknown, "SystemFault"},
		{500, soap.Fault{Code: "SOAP fault"}, delivery.Temporary, delivery.ByDestination, "SOAP fault"},
		{200, soap.Fault{Code: "SOAP fault"}, delivery.Temporary, delivery.ByDestination, "SOAP fault"},
		{403, soap.Fault{Code: "SOAP fault"}, delivery.Misconfigured, delivery.ByUnknown, ""},
		{404, soap.Fault{}, delivery.Misconfigured, delivery.ByUnknown, ""},
		{503, soap.Fault{}, delivery.Temporary, delivery.ByNobody, ""},
		{200, soap.Fault{}, delivery.Delivered, delivery.ByUnknown, ""},
		{500, soap.Fault{Name: "MessageIsAlreadySent"}, delivery.Delivered, delivery.ByUnknown, ""},
	} {
		res, code := judge(httpcall.Answer{Status: c.status}, c.fault, "far"), ""
		if res.Provider != nil {
			code = res.Provider.Code
		}
		if res.Class != c.want || res.By != c.by || code != c.code || (res.Detail == "") != (c.want == delivery.Delivered) || res.Status != c.status {
			t.Errorf("%+v: %+v", c, res)
		}
	}
	for _, status := range []int{400, 413, 422} { // without a fault, of the adapter
		s, _ := answering(t, status, "{}", func(*Config) {})
		if problem := newAdapter(s).send(t.Context(), soap.Request{}, nil); problem.Class != delivery.Permanent || problem.Provider.Code != soap.ValidationFault {
			t.Errorf("%d: %+v", status, problem)
		}
	}
}
