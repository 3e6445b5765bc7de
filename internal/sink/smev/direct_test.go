package smev

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start starts a stand-in, and a sink in direct mode that leads to it.
func start(t *testing.T, o sinktest.SMEVOptions, change func(*Config)) (*sinktest.SMEV, *Sink) {
	t.Helper()
	far := sinktest.StartSMEV(t, o)
	c := Default()
	c.Mode, c.URL, c.CAFile, c.Responses = "direct", far.URL, far.CAFile, "responses"
	if o.Version != "" {
		c.Version = o.Version
	}
	if change != nil {
		change(c)
	}
	return far, open(t, c, nil)
}

func open(t *testing.T, c *Config, w base.Writer) *Sink {
	t.Helper()
	s, err := New(c, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler), Writer: w})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// jobOf returns a job that was published just now.
func jobOf(id string) *delivery.Job {
	return &delivery.Job{
		ID: id, Campaign: "spring", Reading: delivery.Reading{Published: delivery.ShortStampOf(time.Now())},
		Payload: []byte(`<?xml version="1.0"?><q:Request xmlns:q="urn://example/1.0"><q:secret>4509 123456</q:secret></q:Request>`),
	}
}

// deliver delivers the job as the pacer does: what the answer said stays with it.
func deliver(t *testing.T, s *Sink, job *delivery.Job) delivery.Result {
	t.Helper()
	res := s.Deliver(t.Context(), job, nil)
	job.Call = delivery.Call{Provider: res.Provider}
	return res
}

func TestDirectRequest(t *testing.T) {
	for _, version := range []string{"1.1", "1.2", "1.3"} {
		far, s := start(t, sinktest.SMEVOptions{Version: version}, func(c *Config) { c.TestMessage, c.NodeID = true, "n1" })
		if err := s.Check(t.Context()); err != nil || len(far.Sent()) != 0 || len(far.Seen()) != 1 {
			t.Errorf("check: %v, %d calls", err, len(far.Seen()))
		}
		job := jobOf("a")
		job.ExpiresAt = time.Now().Add(time.Hour)
		res := deliver(t, s, job)
		if res.Class != delivery.Delivered || res.Provider == nil || !uuidV1.MatchString(res.Provider.MessageID) {
			t.Fatalf("%+v", res)
		}
		r := far.Requests()[0]
		if r.MessageID != res.Provider.MessageID || !r.Test || r.EOL != job.ExpiresAt.UTC().Format(time.RFC3339) ||
			r.Content != `<q:Request xmlns:q="urn://example/1.0"><q:secret>4509 123456</q:secret></q:Request>` {
			t.Errorf("%+v", r)
		}
	}
}

// TestRequestInDoubtIsNotRegisteredTwice: after a request without an answer, the next attempt has the same MessageID, and SMEV's answer
// to it counts as success. This also holds after a crash that left no trace of the first attempt, and on the next day, when the job would
// have another id.
func TestRequestInDoubtIsNotRegisteredTwice(t *testing.T) {
	t.Parallel()
	far, s := start(t, sinktest.SMEVOptions{Deaf: func(_ sinktest.SMEVRequest, n int) bool { return n == 1 }}, func(c *Config) { c.Timeout = 2 * time.Second })
	for name, prepare := range map[string]func(job *delivery.Job, tried bool){
		"known":   func(*delivery.Job, bool) {},
		"crashed": func(job *delivery.Job, _ bool) { job.Call = delivery.Call{} },
		"a day later": func(job *delivery.Job, tried bool) {
			if !tried {
				job.Published -= 86_400
				job.Call.Provider = &delivery.Provider{MessageID: identityOf(job).messageID(0)}
			}
		},
	} {
		job := jobOf(name)
		prepare(job, false)
		first := deliver(t, s, job)
		if first.Class != delivery.Temporary || first.By != delivery.ByNobody || first.Provider == nil || first.Provider.MessageID == "" {
			t.Fatalf("%s: without an answer: %+v", name, first)
		}
		prepare(job, true)
		if res := deliver(t, s, job); res.Class != delivery.Delivered || *res.Provider != *first.Provider {
			t.Errorf("%s: again: %+v %+v", name, res, res.Provider)
		}
		if n := far.Sent()[first.Provider.MessageID]; n != 2 {
			t.Errorf("%s: sent %d times under one id", name, n)
		}
	}
	if n := len(far.Requests()); n != 3 {
		t.Errorf("%d requests are registered, want 3", n)
	}
}

// TestRequestInDoubtForTooLong: SMEV no longer reports whether it has the request, so it is not sent once more.
func TestRequestInDoubtForTooLong(t *testing.T) {
	far, s := start(t, sinktest.SMEVOptions{}, nil)
	job := jobOf("a")
	job.Published -= 2 * 86_400
	id := identityOf(job).messageID(0)
	job.Call.Provider = &delivery.Provider{MessageID: id}
	if res := deliver(t, s, job); res.Class != delivery.Permanent || res.Provider.MessageID != id || len(far.Sent()) != 0 {
		t.Errorf("%+v, %v", res, far.Sent())
	}
	waited := jobOf("b") // in a lane for a month: its id is made now
	waited.Published -= 30 * 86_400
	if res := deliver(t, s, waited); res.Class != delivery.Delivered {
		t.Errorf("%+v", res)
	}
}

// TestFaults: what faults mean, of each kind one. The next attempt keeps the id if SMEV may have the request.
func TestFaults(t *testing.T) {
	var far *sinktest.SMEV
	var now atomic.Value
	far, s := start(t, sinktest.SMEVOptions{Treat: func(c *sinktest.Call, _ sinktest.SMEVRequest, _ int) bool {
		far.Fault(c, now.Load().(string))
		return true
	}}, nil)
	for _, tt := range []struct {
		name  string
		class delivery.ResultClass
		scope delivery.Scope
		wait  time.Duration
		kept  bool
	}{
		{name: "MessageIsAlreadySent", class: delivery.Delivered, kept: true},
		{name: "SMEVFailure", class: delivery.Temporary, kept: true},
		{name: "NewInVersion9", class: delivery.Temporary, kept: true},
		{name: "InvalidContent", class: delivery.Permanent, kept: true},
		{name: "DestinationOverflow", class: delivery.Throttled, scope: delivery.ScopeCampaign, wait: 30 * time.Second},
		{name: "QuoteLimitExceeded", class: delivery.Throttled, scope: delivery.ScopeCampaign, wait: 5 * time.Minute},
		{name: "AccessDenied", class: delivery.Misconfigured, scope: delivery.ScopeCampaign},
		{name: "StaleMessageId", class: delivery.Misconfigured},
	} {
		now.Store(tt.name)
		res := deliver(t, s, jobOf(tt.name))
		if res.Class != tt.class || res.Scope != tt.scope || res.RetryAfter != tt.wait || strings.Contains(res.Detail, "4509 123456") {
			t.Errorf("%+v, want %+v", res, tt)
		}
		if res.Class != delivery.Delivered && (res.Provider == nil || res.Provider.Code != tt.name || !strings.Contains(res.Detail, tt.name)) {
			t.Errorf("%s: %+v, %q", tt.name, res.Provider, res.Detail)
		}
		if kept := res.Provider != nil && res.Provider.MessageID != ""; kept != tt.kept {
			t.Errorf("%s: %+v", tt.name, res.Provider)
		}
	}
}

func answers(status int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
}

// TestLongEnvelopesAreSigned: a signer's answer is as long as its job, and does not count among the few long answers.
func TestLongEnvelopesAreSigned(t *testing.T) {
	far, s := start(t, sinktest.SMEVOptions{Signed: true}, func(c *Config) {
		c.Signer, c.Timeout = Signer{URL: sinktest.StartSigner(t, "t0ken"), Bearer: "t0ken"}, time.Minute
	})
	const jobs = 6 // more than there may be long answers
	for i := range jobs {
		job := jobOf(fmt.Sprint(i))
		job.Payload = bytes.Replace(job.Payload, []byte("4509"), bytes.Repeat([]byte("4509"), 300_000), 1)
		if res := s.Deliver(t.Context(), job, nil); res.Class != delivery.Delivered {
			t.Fatalf("job %d: %+v", i, res)
		}
	}
	if n := len(far.Requests()); n != jobs {
		t.Errorf("%d requests", n)
	}
}

func TestSigner(t *testing.T) {
	const token = "t0ken-of-the-signer"
	by := func(url string) func(*Config) { return func(c *Config) { c.Signer = Signer{URL: url, Bearer: token} } }
	far, s := start(t, sinktest.SMEVOptions{Signed: true}, by(sinktest.StartSigner(t, token)))
	if res := deliver(t, s, jobOf("a")); res.Class != delivery.Delivered || len(far.Requests()) != 1 {
		t.Errorf("%+v", res)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	var handle atomic.Value
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handle.Load().(http.HandlerFunc)(w, r) }))
	defer srv.Close()
	far, s = start(t, sinktest.SMEVOptions{}, by(srv.URL+"/sign"))
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		want   delivery.ResultClass
	}{
		"broken":   {answers(http.StatusInternalServerError), delivery.Unreachable},
		"busy":     {answers(http.StatusTooManyRequests), delivery.Unreachable},
		"refuses":  {answers(http.StatusUnauthorized), delivery.Misconfigured},
		"nonsense": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<a/>") }, delivery.Misconfigured},
		"another": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `<s:Envelope xmlns:s="http://schemas.xmlsoap.org/soap/envelope/"><s:Body><AckRequest/></s:Body></s:Envelope>`)
		}, delivery.Misconfigured},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, delivery.Unreachable},
	} {
		handle.Store(c.handle)
		res := deliver(t, s, jobOf(name))
		if res.Class != c.want || !strings.HasPrefix(res.Detail, "not signed: ") || res.Provider != nil || strings.Contains(res.Detail, "t0ken") {
			t.Errorf("%s: %+v %+v", name, res, res.Provider)
		}
		if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "signer.url: ") {
			t.Errorf("%s: check: %v", name, err)
		}
	}
	if n := len(far.Seen()); n != 0 {
		t.Errorf("%d calls without a signature", n)
	}
	_, unsigned := start(t, sinktest.SMEVOptions{Signed: true}, nil)
	if res := deliver(t, unsigned, jobOf("a")); res.Class != delivery.Misconfigured || !strings.Contains(res.Detail, "NoSignatureFound") {
		t.Errorf("without a signer: %+v", res)
	}
	if err := unsigned.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "NoSignatureFound") {
		t.Errorf("check: %v", err)
	}
}
