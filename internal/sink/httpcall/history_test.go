package httpcall

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// treatment is what the destination does with a request that it has read.
type treatment string

const (
	answers   treatment = "answers"
	fails     treatment = "answers 500"
	hangsUp   treatment = "answers, and closes the connection"
	halves    treatment = "answers a part, and closes the connection"
	closes    treatment = "closes the connection"
	resets    treatment = "resets the connection"
	givenUp   treatment = "does not answer before the call is given up"
	refuses   treatment = "refuses the stream"
	leaves    treatment = "goes away, without the stream"
	leavesOff treatment = "goes away, and answers"
	narrows   treatment = "allows one stream from now on, and answers"
)

var (
	ofBoth  = []treatment{answers, answers, fails, hangsUp, halves, closes, resets, givenUp}
	ofHTTP2 = append(slices.Clone(ofBoth), refuses, refuses, leaves, leavesOff, narrows)
)

// processes reports whether the destination does what the request asks for.
func (x treatment) processes() bool { return x != refuses && x != leaves }

// history is one request, and what became of it.
type history struct {
	treats  []treatment // the n-th time that it is read; the last one counts for more
	payload []byte
	alone   bool // no other was under way
	end     context.CancelFunc

	mu        sync.Mutex
	read      int // times
	processed int
	garbled   int // times that another payload was read

	result *delivery.Result // nil: it was answered
	status int
}

// next returns what is done with the request that is read now, unless only leaving it counts and it is not left.
func (h *history) next(c *sinktest.Call, leaving bool) treatment {
	h.mu.Lock()
	defer h.mu.Unlock()
	how := h.treats[min(h.read, len(h.treats)-1)]
	if leaving && how != leaves {
		return how
	}
	h.read++
	if how.processes() {
		h.processed++
	}
	if !bytes.Equal(c.Payload, h.payload) {
		h.garbled++
	}
	return how
}

func (h *history) treat(c *sinktest.Call) {
	switch h.next(c, false) {
	case answers:
		c.Answer(200)
	case fails:
		c.Answer(500)
	case hangsUp:
		c.Answer(200)
		c.Close()
	case halves:
		c.Begin(200, "Content-Length", "100")
		_ = c.Body([]byte("x"))
		c.Close()
	case closes:
		c.Close()
	case resets:
		c.Reset()
	case givenUp:
		h.end()
		c.Hang()
	case refuses, leaves: // the latter if the connection cannot be left: a later request was read before
		c.Refuse(7)
	case leavesOff:
		c.GoAway(true)
		c.Answer(200)
	case narrows:
		c.Limit(1)
		c.Answer(200)
	}
}

// problem returns what is wrong with the result, by what the destination has seen.
func (h *history) problem() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.treats[len(h.treats)-1]
	switch {
	case h.garbled > 0:
		return "another payload was read"
	case h.processed > 1:
		return "it was processed twice"
	case h.read > 2:
		return "it was written a third time"
	case h.result == nil && h.processed != 1:
		return "it was answered, and not processed"
	case h.result == nil && (h.status == 500) != (h.treats[max(0, h.read-1)] == fails):
		return "it got the answer of another"
	case h.result == nil:
		return ""
	case h.result.Class == delivery.Unreachable && h.processed > 0:
		return "it is said not to have arrived, and was processed"
	case h.result.Class == delivery.Interrupted && !slices.Contains(h.treats, givenUp):
		return "it is said to have been given up"
	case h.result.Class == delivery.Temporary && h.result.By != delivery.ByNobody:
		return "the destination is said to have failed, and has not answered"
	case !slices.Contains([]delivery.ResultClass{delivery.Unreachable, delivery.Interrupted, delivery.Temporary}, h.result.Class):
		return "a class that only an answer has"
	case h.alone && !last.processes() && h.result.Class != delivery.Unreachable:
		return "it was refused as often as it was sent, and is said to be in doubt"
	}
	return ""
}

// newHistory draws a request.
func newHistory(rt *rapid.T, protocol sinktest.Protocol) *history {
	list := ofBoth
	if protocol == sinktest.HTTP2 {
		list = ofHTTP2
	}
	h := &history{end: func() {}, treats: []treatment{rapid.SampledFrom(list).Draw(rt, "first")}}
	least := 0
	if !h.treats[0].processes() {
		h.treats = append(h.treats, rapid.SampledFrom(list).Draw(rt, "second"))
		least = 1 // of a request without a payload, net/http waits for a second before it writes it a third time
	}
	h.payload = bytes.Repeat([]byte("x"), rapid.SampledFrom([]int{0, 1, 100, 70_000}[least:]).Draw(rt, "payload"))
	return h
}

// send makes the call.
func (h *history) send(ctx context.Context, c *Client, id string) {
	ctx, h.end = context.WithCancel(ctx)
	defer h.end()
	answer, result := c.Post(ctx, Request{Body: h.payload, Header: http.Header{"Webhook-Id": {id}}})
	h.result, h.status = result, answer.Status
}

// TestWhatIsSaidOfARequestIsTrue: connections break in any way. No request is processed twice. A request that was processed is never called
// unreachable. The next one is sent.
func TestWhatIsSaidOfARequestIsTrue(t *testing.T) {
	var all sync.Map // *history by id
	of := func(c *sinktest.Call) *history {
		h, _ := all.Load(c.ID)
		return h.(*history)
	}
	servers := map[sinktest.Protocol]*sinktest.Server{}
	for _, p := range sinktest.Protocols {
		servers[p] = sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) { of(c).treat(c) })
		servers[p].Leave = func(c *sinktest.Call) bool { return of(c).next(c, true) == leaves }
	}
	var ids atomic.Int64
	rapid.Check(t, func(rt *rapid.T) {
		protocol := rapid.SampledFrom(sinktest.Protocols).Draw(rt, "protocol")
		srv := servers[protocol]
		o := Options{URL: srv.URL, MaxInFlight: 8, Timeout: 20 * time.Second, Resent: new(atomic.Uint64)}
		if o.MaxConnAge = time.Minute; rapid.Bool().Draw(rt, "short-lived") {
			o.MaxConnAge = time.Millisecond
		}
		if protocol == sinktest.HTTP2 && rapid.Bool().Draw(rt, "pooled") {
			o.Connections = 2
		}
		if srv.CAFile != "" {
			trusted, _ := os.ReadFile(srv.CAFile)
			o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
			o.TLS.RootCAs.AppendCertsFromPEM(trusted)
		}
		client, err := New(o)
		if err != nil {
			rt.Fatal(err)
		}
		defer client.Close()
		var log []*history
		send := func(list ...*history) {
			var calls sync.WaitGroup
			for _, h := range list {
				id := fmt.Sprint(ids.Add(1))
				h.alone = len(list) == 1
				all.Store(id, h)
				log = append(log, h)
				calls.Go(func() { h.send(t.Context(), client, id) })
			}
			calls.Wait()
		}
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			var list []*history
			for range rapid.IntRange(1, 5).Draw(rt, "calls") {
				list = append(list, newHistory(rt, protocol))
			}
			send(list...)
			if rapid.IntRange(0, 3).Draw(rt, "close") == 0 {
				client.Close()
			}
		}
		for try := 0; ; try++ { // the destination may have closed connections that are still in use
			last := &history{treats: []treatment{answers}, payload: []byte("x")}
			if send(last); last.result == nil {
				break
			}
			if try == 20 {
				rt.Fatalf("nothing is sent any more: %+v", last.result)
			}
		}
		for i, h := range log {
			if why := h.problem(); why != "" {
				rt.Fatalf("call %d, %q: %s: %+v, read %d times, processed %d", i, h.treats, why, h.result, h.read, h.processed)
			}
		}
	})
}
