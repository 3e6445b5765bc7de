package harness

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// redisTimeout bounds the start of a private Redis and everything else that is waited for in one.
const redisTimeout = 20 * time.Second

// Redis is a Redis process of one test's own, which may be killed, frozen and started again at will. Its
// address never changes; its data is gone after every Kill, unless it is a PersistentRedis. It may be a part of
// something larger: see RedisReplica, RedisRing, RedisSentinel and RedisCluster.
//
// The methods are safe for use by several goroutines. Those that take a test fail it, and are for the goroutine that
// runs it; Kill, Freeze and Thaw may be called anywhere.
type Redis struct {
	Addr string

	dir        string
	args       []string // of redis-server
	persistent bool     // what is on the disk survives a start

	mu      sync.Mutex // guards process
	process *process   // nil when it is not running
}

// process is one run of a redis-server.
type process struct {
	*os.Process

	ended chan struct{} // closed once it is gone and log is complete
	log   bytes.Buffer
}

// FreshRedis starts a private, empty Redis on a free loopback port and ends it with the test.
func FreshRedis(t testing.TB) *Redis {
	t.Helper()
	skipIfShort(t, "Redis")
	r := newRedis(t, FreePort(t))
	r.Start(t)
	return r
}

// PersistentRedis is a FreshRedis that comes back with its data: every write is on the disk before it is answered.
func PersistentRedis(t testing.TB) *Redis {
	t.Helper()
	skipIfShort(t, "Redis")
	r := newRedis(t, FreePort(t), "--appendonly", "yes", "--appendfsync", "always")
	r.persistent = true
	r.Start(t)
	return r
}

// newRedis prepares a Redis that keeps nothing on the disk, unless further arguments say otherwise.
func newRedis(t testing.TB, port int, args ...string) *Redis {
	dir := t.TempDir()
	return newProcess(t, dir, port, append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", dir, "--save", "", "--appendonly", "no",
		"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", // replicas are filled at once
	}, args...)...)
}

// newProcess prepares a redis-server that works in dir and listens on port, as args have to tell it.
func newProcess(t testing.TB, dir string, port int, args ...string) *Redis {
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), dir: dir, args: args}
	t.Cleanup(r.Kill)
	return r
}

// Start starts the process again at the same address and returns once it answers. It does nothing when the process
// runs.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
}

// start is Start for goroutines that cannot fail the test.
func (r *Redis) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		return nil
	}
	if !r.persistent {
		// A replica has written down what its master sent it.
		if err := os.RemoveAll(filepath.Join(r.dir, "dump.rdb")); err != nil {
			return fmt.Errorf("empty the private Redis: %w", err)
		}
	}
	p := &process{ended: make(chan struct{})}
	cmd := exec.Command("redis-server", r.args...)
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start a private Redis: %w (is redis-server installed? scripts/services.sh up installs it)", err)
	}
	p.Process = cmd.Process
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	if err := p.awaitPong(r.Addr); err != nil {
		p.end()
		return fmt.Errorf("private Redis at %s: %w\n%s", r.Addr, err, p.log.String())
	}
	r.process = p
	return nil
}

// startAll starts several at once.
func startAll(t testing.TB, all ...*Redis) {
	t.Helper()
	failures := make([]error, len(all))
	var starting sync.WaitGroup
	for i, r := range all {
		starting.Go(func() { failures[i] = r.start() })
	}
	starting.Wait()
	if err := errors.Join(failures...); err != nil {
		t.Fatal(err)
	}
}

// Kill ends the process as kill -9 does and returns once it is gone.
func (r *Redis) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		r.process.end()
		r.process = nil
	}
}

// Freeze stops the process without ending it: connections stay open and nothing answers, as in a very long
// pause or a lost network.
func (r *Redis) Freeze() { r.signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (r *Redis) Thaw() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		_ = r.process.Signal(s)
	}
}

// running tells whether the process was started and not killed; a frozen one runs.
func (r *Redis) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.process != nil
}

// awaitPong returns once the process answers PING at addr.
func (p *process) awaitPong(addr string) error {
	return await(func() error {
		select {
		case <-p.ended:
			return hopeless{errors.New("it ended by itself")}
		default:
			return ping(addr)
		}
	})
}

// end kills the process and returns once it is gone.
func (p *process) end() {
	_ = p.Kill()
	<-p.ended
}

// freePorts returns different ports, each as FreePort does.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	taken := map[int]bool{}
	ports := make([]int, 0, n)
	for len(ports) < n {
		if port := FreePort(t); !taken[port] {
			taken[port] = true
			ports = append(ports, port)
		}
	}
	return ports
}
