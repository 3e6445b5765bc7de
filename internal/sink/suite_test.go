package sink_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	nethttp "net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// The suite that every kind of sink with a destination has to pass: its stand-in is told for each recipient how to treat him. Answers that a
// protocol does not have are left out. (What HTTP itself can do wrong is in conformance_test.go.)

// act is how a destination treats a recipient.
type act string

const (
	takes          act = "takes it"
	rejects        act = "rejects the recipient"
	refuses        act = "refuses it for good"
	refusesLate    act = "refuses it for good, and says so 300 ms after the status"
	fails          act = "fails"
	failsFor7s     act = "fails, and names seven seconds"
	throttles      act = "throttles everybody, for 90 seconds"
	throttlesIt    act = "throttles the recipient, for 90 seconds"
	throttlesThere act = "throttles the destination, for 90 seconds"
	distrustsThere act = "does not accept the credentials at this destination"
	distrusts      act = "does not accept the credentials"
	hangs          act = "reads the request, and does not answer"
	resets         act = "reads the request, and closes the connection"
	babbles        act = "takes it, with an answer of a megabyte"
	trickles       act = "takes it, with an answer that does not end"
	echoes         act = "refuses it, and repeats the request"
	mumbles        act = "answers with success, and with nothing of its own protocol"
)

// expected is what the result has to be.
type expected struct {
	classes []delivery.ResultClass // any of these
	scope   delivery.Scope
	wait    time.Duration
}

func classes(c ...delivery.ResultClass) []delivery.ResultClass { return c }

var situations = map[act]expected{
	takes:          {classes: classes(delivery.Delivered)},
	rejects:        {classes: classes(delivery.Rejected)},
	refuses:        {classes: classes(delivery.Permanent)},
	refusesLate:    {classes: classes(delivery.Permanent)},
	fails:          {classes: classes(delivery.Temporary)},
	failsFor7s:     {classes: classes(delivery.Temporary, delivery.Throttled), wait: 7 * time.Second},
	throttles:      {classes: classes(delivery.Throttled), wait: 90 * time.Second},
	throttlesIt:    {classes: classes(delivery.Throttled), scope: delivery.ScopeRecipient, wait: 90 * time.Second},
	throttlesThere: {classes: classes(delivery.Throttled), scope: delivery.ScopeDestination, wait: 90 * time.Second},
	distrustsThere: {classes: classes(delivery.Misconfigured), scope: delivery.ScopeDestination},
	distrusts:      {classes: classes(delivery.Misconfigured)},
	hangs:          {classes: classes(delivery.Temporary)},
	resets:         {classes: classes(delivery.Temporary)},
	babbles:        {classes: classes(delivery.Delivered)},
	trickles:       {classes: classes(delivery.Delivered)},
	echoes:         {classes: classes(delivery.Permanent, delivery.Misconfigured, delivery.Rejected, delivery.Temporary)},
	mumbles:        {classes: classes(delivery.Temporary)},
}

// stage is a sink's configuration and the stand-in that it leads to.
type stage struct {
	config sink.Config
	// job returns a job for the recipient of that name, and whose id it is.
	job func(recipient string) *delivery.Job
	// received returns how many requests for the recipient were read to their end.
	received func(recipient string) int
	secrets  []string // those of the configuration, and those in addresses that jobs have
	shown    []string // what a trial shows of a request and its answer, among the rest
}

// play is a kind of sink under test.
type play struct {
	// start starts a stand-in. It asks how to treat the n-th request for a recipient, n from 1.
	start func(t *testing.T, treat func(recipient string, n int) act) stage
	acts  []act // what the protocol can say
	// many is how many jobs are sent at once; 0: 120. Each takes a connection of its own where one serves one request at a time.
	many    int
	waits   map[act]time.Duration // where the protocol cannot say how long: what the sink waits instead
	setting string                // begins the error of a check when no server listens, if not with url
	longest time.Duration         // that the timeout may be, if not any
	// wrong returns settings that are wrong, by what begins the error of a check.
	wrong func(t *testing.T) map[string]func(sink.Config)
	// divert sets the address of a configuration that is not in its URL.
	divert func(c sink.Config, addr string)
}

func setting(c sink.Config, name string) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByName(name)
}

// shorten sets the timeout of the configuration.
func (p play) shorten(c sink.Config, timeout time.Duration) {
	setting(c, "Timeout").SetInt(int64(min(timeout, cmp.Or(p.longest, timeout))))
}

// set starts a stand-in, for a sink with the timeout.
func (p play) set(t *testing.T, timeout time.Duration, treat func(recipient string, n int) act) stage {
	s := p.start(t, treat)
	p.shorten(s.config, timeout)
	return s
}

func always(a act) func(string, int) act { return func(string, int) act { return a } }

// nobody has the configuration lead to an address without a server.
func (p play) nobody(c sink.Config) {
	if p.divert != nil {
		p.divert(c, "127.0.0.1:1")
		return
	}
	setting(c, "URL").SetString("https://127.0.0.1:1")
}

// open opens the sink and runs it until the test ends.
func (s stage) open(t *testing.T) *sink.Router {
	t.Helper()
	e, err := sink.Open(s.config, host)
	if err != nil {
		t.Fatal(err)
	}
	r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": e}})
	return sinktest.Serve(t, r, nil)
}

// each runs the test for each kind.
func each(t *testing.T, test func(t *testing.T, p play)) {
	for name, p := range plays {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, p)
		})
	}
}

// TestSuite: what each treatment means, that it is sent once, that no secret is in a result, and that what was wrong is not
// remembered.
func TestSuite(t *testing.T) {
	each(t, func(t *testing.T, p play) {
		for _, a := range p.acts {
			t.Run(string(a), func(t *testing.T) {
				t.Parallel()
				p.check(t, a)
			})
		}
	})
}

func (p play) check(t *testing.T, a act) {
	timeout, brief := 20*time.Second, a == hangs || a == trickles // the answer is waited for until the timeout
	if brief {
		timeout = 700 * time.Millisecond
	}
	s := p.set(t, timeout, func(name string, n int) act {
		if name != "anna" || n > 1 {
			return takes
		}
		return a
	})
	r := s.open(t)
	for i := 0; brief && r.Deliver(t.Context(), "a", s.job("zoe")).Class != delivery.Delivered && i < 20; i++ {
		continue // until there is a connection, so that the time is the request's alone
	}
	res := r.Deliver(t.Context(), "a", s.job("anna"))
	want := situations[a]
	if !slices.Contains(want.classes, res.Class) || res.Scope != want.scope {
		t.Errorf("%+v, want %v", res, want)
	}
	if wait := cmp.Or(p.waits[a], want.wait); wait > 0 && res.RetryAfter != wait {
		t.Errorf("a wait of %s, want %s", res.RetryAfter, wait)
	}
	if (res.Detail == "") != (res.Class == delivery.Delivered) {
		t.Errorf("detail %q", res.Detail)
	}
	if n := s.received("anna"); n != 1 {
		t.Errorf("received %d times", n)
	}
	if payload := string(s.job("anna").Payload); strings.Contains(res.Detail, payload) {
		t.Errorf("%q is in detail %q", payload, res.Detail)
	}
	for _, secret := range s.secrets {
		if all := fmt.Sprintf("%+v %+v", res, res.Provider); strings.Contains(all, secret) {
			t.Errorf("%q is in %s", secret, all)
		}
	}
	again := r.Deliver(t.Context(), "a", s.job("anna"))
	for i := 0; a == hangs && again.Class != delivery.Delivered && i < 20; i++ { // until the sink has given the connection up
		again = r.Deliver(t.Context(), "a", s.job("anna"))
	}
	if again.Class != delivery.Delivered {
		t.Errorf("afterwards: %+v", again)
	}
}

// TestSuiteCheck: a check reaches the destination and delivers nothing. It names the setting that is wrong, also if no server listens; a
// delivery then writes nothing.
func TestSuiteCheck(t *testing.T) {
	each(t, func(t *testing.T, p play) {
		unreachable := cmp.Or(p.setting, "url: cannot connect: ")
		changes := map[string]func(sink.Config){"": func(sink.Config) {}, unreachable: p.nobody}
		if p.wrong != nil {
			maps.Copy(changes, p.wrong(t))
		}
		for want, change := range changes {
			s := p.set(t, 5*time.Second, func(recipient string, _ int) act { t.Errorf("%q was sent something", recipient); return takes })
			if want != unreachable {
				p.shorten(s.config, 20*time.Second)
			}
			change(s.config)
			e, err := sink.Open(s.config, host)
			if err != nil {
				t.Fatal(err)
			}
			err = e.Sink.Check(t.Context())
			_ = e.Sink.Close()
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
			for _, secret := range append(s.secrets, "opensesame") {
				if err != nil && strings.Contains(err.Error(), secret) {
					t.Errorf("%q is in %q", secret, err)
				}
			}
			if want != unreachable {
				continue
			}
			if res := s.open(t).Deliver(t.Context(), "a", s.job("anna")); res.Class != delivery.Unreachable || res.Detail == "" {
				t.Errorf("%+v", res)
			}
		}
	})
}

// TestSuiteTry: who tries a sink by hand sees what was sent and what was answered, and no secret.
func TestSuiteTry(t *testing.T) {
	each(t, func(t *testing.T, p play) {
		s := p.set(t, 20*time.Second, always(takes))
		e, err := sink.Open(s.config, host)
		var shown sink.Exchange
		res := sinktest.Serve(t, e.Sink, err).Deliver(t.Context(), s.job("anna"), &shown)
		request, answer := shown.Request, shown.Answer
		if res.Class != delivery.Delivered || request == "" || answer == "" {
			t.Errorf("%+v\n%s\n%s", res, request, answer)
		}
		for _, text := range s.shown {
			if !strings.Contains(request+"\n"+answer, text) {
				t.Errorf("%q is not in %s\n%s", text, request, answer)
			}
		}
		for _, secret := range s.secrets {
			if !strings.HasPrefix(secret, "/") && strings.Contains(request+answer, secret) { // an address may be seen here
				t.Errorf("%q is shown", secret)
			}
		}
	})
}

// TestSuiteGateway: a service may be reached below a path of another address. A check and a delivery use it.
func TestSuiteGateway(t *testing.T) {
	each(t, func(t *testing.T, p play) {
		s := p.set(t, 20*time.Second, always(takes))
		address, caFile := setting(s.config, "URL"), setting(s.config, "CAFile")
		if !address.IsValid() || caFile.String() == "" {
			return // it has no url, or one without TLS
		}
		far, err := url.Parse(address.String())
		if err != nil {
			t.Fatal(err)
		}
		trusted, err := os.ReadFile(caFile.String())
		if err != nil {
			t.Fatal(err)
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(trusted)
		var passed atomic.Int32
		gateway := httptest.NewUnstartedServer(nethttp.StripPrefix("/gateway", &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { passed.Add(1); r.Out.URL.Scheme, r.Out.URL.Host = far.Scheme, far.Host },
			Transport: &nethttp.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}},
		}))
		gateway.EnableHTTP2 = true
		gateway.StartTLS()
		t.Cleanup(gateway.Close)
		file := filepath.Join(t.TempDir(), "ca.pem")
		trusted = append(trusted, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: gateway.Certificate().Raw})...)
		if err := os.WriteFile(file, trusted, 0o600); err != nil {
			t.Fatal(err)
		}
		address.SetString(gateway.URL + "/gateway" + far.Path)
		caFile.SetString(file)
		e, err := sink.Open(s.config, host)
		if err != nil {
			t.Fatal(err)
		}
		err = e.Sink.Check(t.Context())
		_ = e.Sink.Close()
		res := s.open(t).Deliver(t.Context(), "a", s.job("anna"))
		if err != nil || res.Class != delivery.Delivered || s.received("anna") != 1 || passed.Load() < 1 {
			t.Errorf("%v, %+v, %d requests", err, res, passed.Load())
		}
	})
}

// TestSuiteCancelled: a call that pacer gives up says nothing about the destination, and returns at once.
func TestSuiteCancelled(t *testing.T) {
	each(t, func(t *testing.T, p play) {
		ctx, cancel := context.WithCancel(t.Context())
		var once sync.Once
		s := p.set(t, 10*time.Second, func(string, int) act { once.Do(cancel); return hangs })
		begun := time.Now()
		if res := s.open(t).Deliver(ctx, "a", s.job("anna")); res.Class != delivery.Interrupted {
			t.Errorf("%+v", res)
		}
		if took := time.Since(begun); took > 9*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestSuiteMany: many at once are all delivered, each once.
func TestSuiteMany(t *testing.T) {
	each(t, func(t *testing.T, p play) {
		s := p.set(t, time.Minute, always(takes))
		r := s.open(t)
		if res := r.Deliver(t.Context(), "a", s.job("first")); res.Class != delivery.Delivered { // or each call would open a connection
			t.Errorf("%+v", res)
		}
		var calls sync.WaitGroup
		for i := range cmp.Or(p.many, 120) { // more than a stand-in has streams
			calls.Go(func() {
				name := fmt.Sprint("u", i)
				if res := r.Deliver(t.Context(), "a", s.job(name)); res.Class != delivery.Delivered {
					t.Errorf("%s: %+v", name, res)
				}
				if n := s.received(name); n != 1 {
					t.Errorf("%s was received %d times", name, n)
				}
			})
		}
		calls.Wait()
	})
}

// table is what a stand-in does to a request, by the act.
type table map[act]func(*sinktest.Call)

// treat treats a request as the table says, or else misbehaves; false for what is left to the stand-in.
func (x table) treat(c *sinktest.Call, how act, took ...string) bool {
	if how == refusesLate {
		c.Late, how = 300*time.Millisecond, refuses
	}
	if do := x[how]; do != nil {
		do(c)
		return true
	}
	return misbehave(c, how, took...)
}

// misbehave treats a request over HTTP so; false for what has nothing to do with the protocol above it. Bodies that are too long
// begin with what says that the request was taken.
func misbehave(c *sinktest.Call, how act, took ...string) bool {
	switch how {
	case hangs:
		c.Hang()
	case resets:
		c.Reset()
	case babbles:
		begin(c, took)
		for i := 0; i < 64 && c.Body(make([]byte, 16<<10)) == nil; i++ {
			continue
		}
		c.End()
	case trickles:
		begin(c, took)
		for c.Body([]byte(" ")) == nil {
			time.Sleep(50 * time.Millisecond)
		}
	case echoes:
		c.Echo(400)
	case mumbles:
		c.Begin(200, "Content-Type", "text/html")
		_ = c.Body([]byte("<html>Welcome</html>"))
		c.End()
	default:
		answer := strings.SplitN(string(how), "|", 3) // see says
		status, err := strconv.Atoi(answer[0])
		if err != nil {
			return false
		}
		var header []string
		if after := answer[1]; after != "" {
			header = []string{"Retry-After", after}
		}
		c.JSON(status, answer[2], header...)
	}
	return true
}

// begin begins an answer with what says that the request was taken. An empty part would end it.
func begin(c *sinktest.Call, took []string) {
	c.Begin(200)
	for _, text := range took {
		_ = c.Body([]byte(text))
	}
}

// tally counts by name. Safe for concurrent use.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func newTally() *tally { return &tally{n: map[string]int{}} }

// add counts one, and returns how many there are.
func (t *tally) add(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n[name]++
	return t.n[name]
}

// of returns how many there are.
func (t *tally) of(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n[name]
}
