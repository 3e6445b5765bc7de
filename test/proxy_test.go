package test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/pacer/pacer/internal/testservices"
)

// proxy stands between a client and a service and disturbs what passes, as a bad network does. One disturbance at a
// time: heal ends it. Its methods fail the test, and are for the goroutine that runs it.
type proxy struct {
	addr string // where the client connects to; never changes

	t       testing.TB
	between *toxiproxy.Proxy
}

// silenced keeps the proxies' own log out of the tests' output. The library also logs by a global logger.
var silenced = sync.OnceFunc(func() { zerolog.SetGlobalLevel(zerolog.Disabled) })

// newProxy starts a proxy on a free loopback port in front of the service at upstream, and ends it with the test. The
// service need not be there yet.
func newProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	return newProxyAt(t, testservices.FreePort(t), upstream)
}

func newProxyAt(t testing.TB, port int, upstream string) *proxy {
	t.Helper()
	silenced()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{addr: addr, t: t, between: toxiproxy.NewProxy(server, addr, addr, upstream)}
	if err := p.between.Start(); err != nil {
		t.Fatalf("proxy at %s: %v", addr, err)
	}
	t.Cleanup(p.between.Stop)
	return p
}

// proxiedKafka starts a private Kafka with one more listener, for clients that connect through the proxy: the broker
// advertises only the proxy's address to them. The brokers' own address bypasses the proxy.
func proxiedKafka(t testing.TB) (*privateKafka, *proxy) { return proxiedSessions(t, "") }

// proxiedSessions is proxiedKafka whose sessions end; "" for never. Clients log in as the user pacer then.
func proxiedSessions(t testing.TB, milliseconds string) (*privateKafka, *proxy) {
	t.Helper()
	listens, told := testservices.FreePort(t), testservices.FreePort(t)
	network := newProxyAt(t, told, net.JoinHostPort("127.0.0.1", strconv.Itoa(listens)))
	return freshKafka(t, fmt.Sprintf("PACER_KAFKA_PROXY=%d:%d:%s", listens, told, milliseconds)), network
}

// catalogNetwork is a proxy in front of the stack's database, and the variable that leads a daemon there.
func (s *stack) catalogNetwork() (*proxy, string) {
	s.t.Helper()
	dsn, err := url.Parse(s.dsn)
	noError(s.t, err)
	network := newProxy(s.t, dsn.Host)
	dsn.Host = network.addr
	return network, "PACER_POSTGRES_DSN=" + dsn.String()
}

// down closes every connection and refuses new ones, as when the service's process is gone.
func (p *proxy) down() {
	p.t.Helper()
	p.between.Stop()
}

// cut resets every connection over which something is sent, new ones as well.
func (p *proxy) cut() {
	p.t.Helper()
	p.toxic("reset_peer", "upstream", `{"timeout": 0}`)
	p.toxic("reset_peer", "downstream", `{"timeout": 0}`)
}

// silence swallows what the service answers and keeps the connections open, as a lost network does. The client's requests arrive.
func (p *proxy) silence() {
	p.t.Helper()
	p.toxic("timeout", "downstream", `{"timeout": 0}`)
}

// delay makes every answer late by latency, give or take jitter.
func (p *proxy) delay(latency, jitter time.Duration) {
	p.t.Helper()
	p.toxic("latency", "downstream", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, latency.Milliseconds(), jitter.Milliseconds()))
}

// narrow lets a number of kilobytes per second pass, in each direction of each connection.
func (p *proxy) narrow(kilobytes int) {
	p.t.Helper()
	p.toxic("bandwidth", "upstream", fmt.Sprintf(`{"rate": %d}`, kilobytes))
	p.toxic("bandwidth", "downstream", fmt.Sprintf(`{"rate": %d}`, kilobytes))
}

// heal ends whatever disturbs. Connections that were silent are closed.
func (p *proxy) heal() {
	p.t.Helper()
	p.between.Toxics.ResetToxics(context.Background())
	if !p.between.Enabled {
		if err := p.between.Start(); err != nil {
			p.t.Fatalf("proxy at %s: %v", p.addr, err)
		}
	}
}

// disturb disturbs for a while.
func (p *proxy) disturb(lasts time.Duration, how func()) {
	p.t.Helper()
	how()
	time.Sleep(lasts)
	p.heal()
}

func (p *proxy) toxic(kind, stream, attributes string) {
	p.t.Helper()
	text := fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": %s}`, kind, stream, attributes)
	if _, err := p.between.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		p.t.Fatalf("proxy at %s: %s: %v", p.addr, kind, err)
	}
}
