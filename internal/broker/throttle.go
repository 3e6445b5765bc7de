package broker

import (
	"context"
	"log/slog"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/retry"
)

// A kind of requests has connections of its own. A broker whose quota is exceeded reads nothing from the connection for a while, and a
// heartbeat must not wait behind a fetch.
const (
	others = iota
	fetches
	produces
	kinds
)

// Kinds are the names of the kinds of requests.
var Kinds = [kinds]string{others: "other", fetches: "fetch", produces: "produce"}

func kindOf(request kafka.Request) int {
	switch request.ApiKey() {
	case protocol.Fetch:
		return fetches
	case protocol.Produce:
		return produces
	}
	return others
}

// pools are the connections of each kind.
type pools [kinds]*kafka.Transport

// RoundTrip implements kafka.RoundTripper.
func (p *pools) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	return p[kindOf(request)].RoundTrip(ctx, addr, request)
}

// network explains the errors of the connections, and notes the throttle times of answers to other requests than fetches and produces, for
// which their callers do it: they wait for one broker.
type network struct {
	kafka.RoundTripper
	*throttle
}

// RoundTrip implements kafka.RoundTripper.
func (n network) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	answer, err := n.RoundTripper.RoundTrip(ctx, addr, request)
	if err == nil && kindOf(request) == others {
		n.note(gate{others, noLeader}, throttleOf(answer))
	}
	return answer, Explained(err)
}

// throttleOf returns the throttle time of an answer in milliseconds; 0 for an answer without one.
func throttleOf(answer kafka.Response) (millis int32) {
	if a, ok := answer.(*wireAnswer); ok {
		if said, ok := a.Response.(kmsg.ThrottleResponse); ok {
			millis, _ = said.Throttle()
		}
	} else if said := reflect.ValueOf(answer).Elem().FieldByName("ThrottleTimeMs"); said.IsValid() {
		millis = int32(said.Int())
	}
	return millis
}

const (
	yieldPause    = 10 * time.Millisecond
	maxYield      = 5 * time.Second  // how long a request lets others pass
	throttled     = 5 * time.Second  // how long after a throttle time there may be another one
	throttleQuiet = 10 * time.Minute // without a throttle time, until the next one is logged again
)

// gate is where requests of a kind go.
type gate struct{ kind, broker int }

// throttle makes requests wait as brokers tell a client whose quota is exceeded.
type throttle struct {
	log *slog.Logger

	mu     sync.Mutex
	until  map[gate]time.Time
	urgent map[gate]int // fetches that wait or are under way, and that do not yield
	total  [kinds]time.Duration
	noted  time.Time
}

// note notes the throttle time of an answer.
func (t *throttle) note(at gate, millis int32) {
	if millis <= 0 {
		return
	}
	now := time.Now()
	begin, end := now, now.Add(time.Duration(millis)*time.Millisecond)
	t.mu.Lock()
	if is := t.until[at]; is.After(begin) {
		begin = is
	}
	if end.After(begin) {
		t.total[at.kind] += end.Sub(begin)
		t.until[at] = end
	}
	first := now.Sub(t.noted) > throttleQuiet
	t.noted = now
	t.mu.Unlock()
	if first {
		t.log.Warn("kafka throttles this daemon by a client quota, and it waits as told", "requests", Kinds[at.kind], "for", end.Sub(now),
			"remedy", "raise consumer_byte_rate, producer_byte_rate or request_percentage of the user of kafka.sasl, or of the client id "+clientID)
	}
}

// wait waits until a broker accepts requests of a kind again. While it throttles, one that yields lets those pass that do not, and should
// ask for little: others wait for what it exceeds the quota by.
func (t *throttle) wait(ctx context.Context, at gate, yields bool) (little bool, err error) {
	for yielded := time.Duration(0); ; {
		t.mu.Lock()
		wait := time.Until(t.until[at])
		little = yields && wait > -throttled
		if little && wait <= 0 && t.urgent[at] > 0 && yielded < maxYield {
			wait, yielded = yieldPause, yielded+yieldPause
		}
		t.mu.Unlock()
		if wait <= 0 {
			return little, nil
		}
		if err = retry.Sleep(ctx, wait); err != nil {
			return little, err
		}
	}
}

// hurry counts a request that does not yield, until done.
func (t *throttle) hurry(at gate) (done func()) {
	add := func(n int) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.urgent[at] += n
	}
	add(1)
	return func() { add(-1) }
}

// Throttled returns for how long brokers have told the client to send no more requests of a kind, an index of Kinds, since the start.
func (c *Client) Throttled(kind int) time.Duration {
	c.throttle.mu.Lock()
	defer c.throttle.mu.Unlock()
	return c.throttle.total[kind]
}
