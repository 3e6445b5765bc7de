package pacer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
)

// store is the reference model behind a latency, shared by the daemons of a test. Its clock is far from the local one.
type store struct {
	mu      sync.Mutex
	model   *limitstest.Shared
	began   time.Time
	latency func() time.Duration
	down    bool
	takes   int
	node    int
	jumped  int64 // by how much its clock has jumped, in all
	losses  int64 // of its data
}

func newStore(latency func() time.Duration) *store {
	return &store{model: limitstest.NewShared(), began: time.Now(), latency: latency}
}

// taken is how many takes there were.
func (s *store) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.takes
}

func (s *store) now() int64 {
	return 1_700_000_000_000_000 + time.Since(s.began).Microseconds() + s.jumped
}

// setDown has takes fail, or not any more.
func (s *store) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// lose empties the store for a second, after which its clock has jumped.
func (s *store) lose(by time.Duration) {
	s.mu.Lock()
	s.down = true
	s.mu.Unlock()
	time.Sleep(time.Second)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.model, s.down, s.jumped, s.losses = limitstest.NewShared(), false, s.jumped+by.Microseconds(), s.losses+1
}

// client is one daemon's connection to the store.
func (s *store) client() *client {
	s.node++
	return &client{store: s, node: fmt.Sprintf("node-%d", s.node)}
}

type client struct {
	*store
	node string
}

func (c *client) Take(_ context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	time.Sleep(c.latency())
	c.mu.Lock()
	if c.down {
		c.mu.Unlock()
		return delivery.TakeReply{}, fmt.Errorf("the store is down")
	}
	c.takes++
	asks = slices.Clone(asks)
	for i := range asks {
		asks[i].LastGranted += c.jumped - asks[i].Jumped
	}
	reply := c.model.Take(c.now(), c.node, asks)
	for i := range reply.Clocks {
		reply.Clocks[i].Jumped = c.jumped
	}
	for i := range reply.Items {
		reply.Items[i].From.Epoch = c.losses
	}
	c.mu.Unlock()
	time.Sleep(c.latency())
	return reply, nil
}

func (c *client) Refund(_ context.Context, grants []delivery.Grant) error {
	time.Sleep(c.latency())
	c.mu.Lock()
	defer c.mu.Unlock()
	grants = slices.DeleteFunc(slices.Clone(grants), func(g delivery.Grant) bool { return g.From.Epoch != c.losses })
	c.model.RefundOf(c.node, c.now(), grants)
	return nil
}

func (c *client) MoveGates(_ context.Context, gates []delivery.Gate) (closed []string, err error) {
	time.Sleep(c.latency())
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range gates {
		switch {
		case g.Destination != "":
		case g.Until.IsZero():
			c.model.OpenGate(g.Sink)
		case c.model.CloseGate(c.now(), g.Sink, c.now()+time.Until(g.Until).Microseconds(), g.Cause):
			closed = append(closed, g.Sink)
		}
	}
	return closed, nil
}

// uniform draws latencies between base and base + jitter.
func uniform(seed uint64, base, jitter time.Duration) func() time.Duration {
	r := rand.New(rand.NewPCG(seed, 1))
	var mu sync.Mutex
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		return base + time.Duration(r.Int64N(int64(jitter)+1))
	}
}
