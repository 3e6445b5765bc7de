package harness

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy stands between a client and a service and disturbs what passes, as a bad network does. One disturbance at a
// time: Heal ends it. Its methods fail the test, and are for the goroutine that runs it.
type Proxy struct {
	Addr string // where the client connects to; never changes

	t     testing.TB
	proxy *toxiproxy.Proxy
}

// silenced keeps the proxies' own log out of the tests' output. The library logs by a global logger, too.
var silenced = sync.OnceFunc(func() { zerolog.SetGlobalLevel(zerolog.Disabled) })

// NewProxy starts a proxy on a free loopback port in front of the service at upstream, and ends it with the test. The
// service need not be there yet.
func NewProxy(t testing.TB, upstream string) *Proxy {
	t.Helper()
	return newProxy(t, FreePort(t), upstream)
}

func newProxy(t testing.TB, port int, upstream string) *Proxy {
	t.Helper()
	silenced()
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{Addr: addr, t: t, proxy: toxiproxy.NewProxy(server, addr, addr, upstream)}
	if err := p.proxy.Start(); err != nil {
		t.Fatalf("proxy at %s: %v", addr, err)
	}
	t.Cleanup(p.proxy.Stop)
	return p
}

// Down closes every connection and refuses new ones, as when the service's process is gone.
func (p *Proxy) Down() {
	p.t.Helper()
	p.proxy.Stop()
}

// Cut resets every connection over which something is sent, new ones as well.
func (p *Proxy) Cut() {
	p.t.Helper()
	p.toxic("reset_peer", "upstream", `{"timeout": 0}`)
	p.toxic("reset_peer", "downstream", `{"timeout": 0}`)
}

// Silence swallows what the service answers and keeps the connections open, as a lost network does. What the client
// sends arrives.
func (p *Proxy) Silence() {
	p.t.Helper()
	p.toxic("timeout", "downstream", `{"timeout": 0}`)
}

// Delay makes every answer late by latency, give or take jitter.
func (p *Proxy) Delay(latency, jitter time.Duration) {
	p.t.Helper()
	p.toxic("latency", "downstream", fmt.Sprintf(`{"latency": %d, "jitter": %d}`, latency.Milliseconds(), jitter.Milliseconds()))
}

// Narrow lets so many kilobytes pass in a second, in each direction of each connection.
func (p *Proxy) Narrow(kilobytes int) {
	p.t.Helper()
	p.toxic("bandwidth", "upstream", fmt.Sprintf(`{"rate": %d}`, kilobytes))
	p.toxic("bandwidth", "downstream", fmt.Sprintf(`{"rate": %d}`, kilobytes))
}

// Heal ends whatever disturbs. Connections that were silent are closed.
func (p *Proxy) Heal() {
	p.t.Helper()
	p.proxy.Toxics.ResetToxics(context.Background())
	if !p.proxy.Enabled {
		if err := p.proxy.Start(); err != nil {
			p.t.Fatalf("proxy at %s: %v", p.Addr, err)
		}
	}
}

func (p *Proxy) toxic(kind, stream, attributes string) {
	p.t.Helper()
	text := fmt.Sprintf(`{"type": %q, "stream": %q, "attributes": %s}`, kind, stream, attributes)
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(text)); err != nil {
		p.t.Fatalf("proxy at %s: %s: %v", p.Addr, kind, err)
	}
}
