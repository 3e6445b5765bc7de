package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
	"github.com/segmentio/kafka-go"

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
func proxiedKafka(t testing.TB) (*privateKafka, *proxy) {
	t.Helper()
	listens, told := testservices.FreePort(t), testservices.FreePort(t)
	network := newProxyAt(t, told, net.JoinHostPort("127.0.0.1", strconv.Itoa(listens)))
	return freshKafka(t, fmt.Sprintf("PACER_KAFKA_PROXY=%d:%d", listens, told)), network
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

// echo answers every line with itself and returns its address.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// ask sends a line over conn and returns how long the answer took.
func ask(conn net.Conn, patience time.Duration) (time.Duration, error) {
	began := time.Now()
	_ = conn.SetDeadline(began.Add(patience))
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return 0, err
	}
	_, err := bufio.NewReader(conn).ReadString('\n')
	return time.Since(began), err
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	noError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestProxyDisturbsAndHeals(t *testing.T) {
	t.Parallel()
	p := newProxy(t, echo(t))
	conn := dial(t, p.addr)
	if _, err := ask(conn, 5*time.Second); err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	p.delay(200*time.Millisecond, 0)
	if took, err := ask(conn, 5*time.Second); err != nil || took < 200*time.Millisecond {
		t.Errorf("delayed by 200 ms: %s, %v", took, err)
	}
	p.heal()
	p.narrow(1)
	if _, err := ask(conn, 5*time.Second); err != nil {
		t.Errorf("narrow: %v", err)
	}
	p.heal()
	p.silence()
	if _, err := ask(conn, 200*time.Millisecond); err == nil {
		t.Error("an answer came through a silent proxy")
	}
	p.heal()
	p.cut()
	if _, err := ask(dial(t, p.addr), 5*time.Second); err == nil {
		t.Error("an answer came over a connection that was cut")
	}
	p.heal()
	p.down()
	if _, err := net.Dial("tcp", p.addr); err == nil {
		t.Error("a connection was accepted while the service was down")
	}
	p.heal()
	if _, err := ask(dial(t, p.addr), 5*time.Second); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// answersThrough checks that a broker of proxiedKafka can be reached through its proxy only, by those who connect there.
func (b *privateKafka) answersThrough(t *testing.T, network *proxy) {
	t.Helper()
	topic := testservices.Topic(t, b.brokers, "harness.proxied", 1)
	end := func() error {
		client := kafkaClient(t, network.addr)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{
			Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0)}},
		})
		return err
	}
	noError(t, end())
	client := kafkaClient(t, network.addr)
	meta, err := client.Metadata(t.Context(), &kafka.MetadataRequest{})
	noError(t, err)
	for _, found := range meta.Brokers {
		if at := net.JoinHostPort(found.Host, strconv.Itoa(found.Port)); at != network.addr {
			t.Errorf("behind the proxy the broker is at %s, want %s", at, network.addr)
		}
	}
	network.down()
	if err := end(); err == nil {
		t.Error("the broker answered past its proxy")
	}
	network.heal()
	if err := end(); err != nil {
		t.Errorf("healed: %v", err)
	}
}

// kafkaClient is a client with a transport of its own.
func kafkaClient(t *testing.T, addr string) *kafka.Client {
	transport := &kafka.Transport{DialTimeout: 5 * time.Second, MetadataTTL: time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(addr), Timeout: 20 * time.Second, Transport: transport}
}
