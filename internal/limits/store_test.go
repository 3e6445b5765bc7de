package limits

import (
	"context"
	"flag"
	"hash/fnv"
	"net"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

const (
	epoch   = limitstest.Epoch
	horizon = limitstest.Horizon
	quantum = limitstest.Quantum
	late    = limitstest.Late
)

var (
	ask      = limitstest.Ask
	campaign = limitstest.Campaign
	windows  = limitstest.Windows
	rolling  = limitstest.Rolling
)

// store is what the model and the engine have in common, with the time as an argument.
type store interface {
	Take(now int64, node string, asks []delivery.Ask) delivery.TakeReply
	Refund(now int64, refunds []delivery.Grant)
	Peek(now int64, quotas []*delivery.Quota) []delivery.WindowState
	CloseGate(now int64, gate string, until int64, cause delivery.GateCause) (changed bool)
	OpenGate(gate string)
}

// lua drives engines, one per node, that share a Redis and a clock.
type lua struct {
	t       testing.TB
	shards  *shards.Set
	prefix  string
	now     int64
	engines map[string]*Engine
}

// newLua drives engines on one Redis.
func newLua(t testing.TB, client redis.UniversalClient) *lua {
	return newLuaOn(t, shards.New(client))
}

func newLuaOn(t testing.TB, set *shards.Set) *lua {
	return &lua{t: t, shards: set, prefix: testservices.Unique("limits") + ".", engines: map[string]*Engine{}}
}

func (l *lua) engine(node string) *Engine {
	if e := l.engines[node]; e != nil {
		return e
	}
	e := newEngine(l.t, Options{Shards: l.shards, KeyPrefix: l.prefix, Timeout: time.Minute, now: func() int64 { return l.now }})
	e.node = node
	l.engines[node] = e
	return e
}

func (l *lua) Take(now int64, node string, asks []delivery.Ask) delivery.TakeReply {
	l.now = now
	r, err := l.engine(node).Take(context.Background(), asks)
	if err != nil {
		panic(err)
	}
	return r
}

func (l *lua) Refund(now int64, refunds []delivery.Grant) {
	l.now = now
	if err := l.engine("refunder").Refund(context.Background(), refunds); err != nil {
		panic(err)
	}
}

func (l *lua) Peek(now int64, quotas []*delivery.Quota) []delivery.WindowState {
	l.now = now
	w, err := l.engine("peeker").Peek(context.Background(), quotas)
	if err != nil {
		panic(err)
	}
	return w
}

func (l *lua) CloseGate(now int64, gate string, until int64, cause delivery.GateCause) bool {
	l.now = now
	changed, err := l.engine("closer").moveGate(context.Background(), gate, until-now, int(cause))
	if err != nil {
		panic(err)
	}
	return changed
}

func (l *lua) OpenGate(gate string) {
	if _, err := l.engine("closer").moveGate(context.Background(), gate); err != nil {
		panic(err)
	}
}

func miniClient(t testing.TB) (*miniredis.Miniredis, redis.UniversalClient) {
	t.Helper()
	m := miniredis.RunT(t)
	o := shards.ClientOptions(m.Addr())
	o.ReadTimeout = time.Minute // scripts of thousands of keys take seconds there, with the race detector on a busy machine
	c := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return m, c
}

func realClient(t testing.TB) redis.UniversalClient {
	t.Helper()
	return clientOf(t, testservices.RedisAddr(t))
}

// clientOf is a client of the Redis at an address, whose connections may be wrapped.
func clientOf(t testing.TB, addr string, wrap ...func(net.Conn) net.Conn) redis.UniversalClient {
	o := shards.ClientOptions(addr)
	for _, w := range wrap {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return w(c), nil
		}
	}
	c := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newEngine is an engine with metrics of its own.
func newEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	o.Registerer = prometheus.NewRegistry()
	return New(o)
}

// eachStore runs a test against the model and every topology of real Redis; under the race detector, which would see the same code for
// the others, on one.
func eachStore(t *testing.T, test func(t *testing.T, s store)) {
	t.Helper()
	if testservices.Raced {
		onStores(t, topologies[:1], test)
	} else {
		onStores(t, topologies[1:], test)
	}
}

// everywhere makes simulations run on all topologies.
var everywhere = flag.Bool("everywhere", false, "simulations run on every topology, instead of one each")

// simulate is eachStore for simulations of hundreds of takes, one after the other. Each simulation runs on one of the topologies, which
// depends on its name, or with -everywhere on all of them: that scripts do the same on all is shown by the tests of eachStore.
func simulate(t *testing.T, test func(t *testing.T, s store)) {
	t.Helper()
	testservices.Simulation(t)
	chosen := topologies
	if !*everywhere {
		name := fnv.New32a()
		_, _ = name.Write([]byte(t.Name())) // never fails, as documented
		n := int(name.Sum32() % uint32(len(topologies)))
		chosen = topologies[n : n+1]
	}
	onStores(t, chosen, test)
}

// onStores runs a test against the model and Redis. With -short, miniredis, which is ten times as slow, stands in for Redis.
func onStores(t *testing.T, topologies []topology, test func(t *testing.T, s store)) {
	t.Helper()
	t.Run("model", func(t *testing.T) { test(t, limitstest.NewShared()) })
	if testing.Short() {
		t.Run("miniredis", func(t *testing.T) {
			_, c := miniClient(t)
			test(t, newLua(t, c))
		})
		return
	}
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) { test(t, newLuaOn(t, top.start())) })
	}
}

// oneRedis is a real Redis; with -short, miniredis.
func oneRedis(t testing.TB) redis.UniversalClient {
	t.Helper()
	if testing.Short() {
		_, c := miniClient(t)
		return c
	}
	return realClient(t)
}

// take1 takes for one campaign.
func take1(s store, now int64, node string, a delivery.Ask) delivery.Granted {
	return s.Take(now, node, []delivery.Ask{a}).Items[0]
}

// settle makes the campaign's timeline and lets the phase of its first slot pass.
func settle(s store, now int64, c *delivery.Campaign) int64 {
	take1(s, now, "settler", ask(c, 0))
	return now + second
}
