package embedded

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const expireInterval = 250 * time.Millisecond

// Redis is a Redis inside this process. It runs the same Lua scripts as a real one, a few thousand a second:
// plenty for a demo, useless for a benchmark. It counts the round trips that its clients make, since that is the
// price of asking a shared store, and the report states it.
//
// The zero value is not usable; make one with NewRedis, then Start it. Methods are safe for concurrent use after
// Start has returned.
type Redis struct {
	mini     *miniredis.Miniredis
	listener net.Listener
	work     sync.WaitGroup
	stop     chan struct{}
	close    sync.Once

	used struct{ roundTrips, commands atomic.Int64 } // by all clients, ever
	// marked is what had been used at the last Mark; written by Mark, read by Usage, under mu.
	mu     sync.Mutex
	marked Usage
}

// Usage is what clients asked of a Redis since the last Mark.
type Usage struct {
	// RoundTrips counts requests that a client sent and waited for; the commands of a pipeline share one.
	RoundTrips int64
	// Commands counts single commands as clients send them; a script is one, whatever it does.
	Commands int64
}

// NewRedis describes a Redis; Start brings it up.
func NewRedis() *Redis { return &Redis{mini: miniredis.NewMiniRedis()} }

// Start listens on the loopback interface.
func (r *Redis) Start() error {
	if err := r.mini.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start the in-process Redis: %w", err)
	}
	// Clients come in through a listener of our own, which sees where one request ends and the next begins. (The
	// server's own listener stays unused.)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.mini.Close()
		return fmt.Errorf("start the in-process Redis: %w", err)
	}
	r.listener = listener
	r.stop = make(chan struct{})
	r.work.Go(r.serve)
	r.work.Go(r.expire)
	return nil
}

// expire lets the TTLs pass, which miniredis does only on demand. (Its ClockTTL does it at every command, which costs
// more than the commands.)
func (r *Redis) expire() {
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-r.stop:
			return
		case now := <-tick.C:
			r.mini.FastForward(now.Sub(last))
			last = now
		}
	}
}

func (r *Redis) serve() {
	for {
		conn, err := r.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		r.mini.Server().ServeConn(&countedConn{Conn: conn, trips: &r.used.roundTrips, commands: &r.used.commands})
	}
}

// Addr is the address to give to a Redis client.
func (r *Redis) Addr() string { return r.listener.Addr().String() }

// Mark begins a new count, so that connecting and loading scripts do not weigh on the figures of a short run.
func (r *Redis) Mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marked = r.total()
}

// Usage is what was asked since the last Mark, or since the start.
func (r *Redis) Usage() Usage {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.total()
	return Usage{RoundTrips: now.RoundTrips - r.marked.RoundTrips, Commands: now.Commands - r.marked.Commands}
}

func (r *Redis) total() Usage {
	return Usage{RoundTrips: r.used.roundTrips.Load(), Commands: r.used.commands.Load()}
}

// Close ends the server and every connection to it. Closing one that never started, or twice, does nothing.
func (r *Redis) Close() {
	if r.listener == nil {
		return
	}
	r.close.Do(func() {
		_ = r.listener.Close() // nothing is lost by it: the server forgets everything anyway
		close(r.stop)
		r.work.Wait()
		r.mini.Close()
	})
}
