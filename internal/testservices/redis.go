package testservices

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
)

// Redis is a private Redis process of one test, which may be killed, frozen and restarted. Its address never changes;
// its data is gone after every Kill. It may be a part of a larger setup: see RedisRing, RedisSentinel and
// RedisCluster.
//
// The methods are safe for concurrent use, but those that take a test may fail it and must be called by the goroutine
// of the test; Kill, Freeze and Thaw may be called by any.
type Redis struct {
	Addr string

	port string
	dir  string
	args []string // of redis-server

	mu      sync.Mutex // guards process
	process *process   // nil when it is not running
}

// process is one run of a redis-server.
type process struct {
	*os.Process

	ended chan struct{} // closed once the process has ended and log is complete
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

// newRedis prepares a Redis that stores nothing on disk.
func newRedis(t testing.TB, port int, args ...string) *Redis {
	dir := t.TempDir()
	return newProcess(t, dir, port, append([]string{
		"--port", strconv.Itoa(port), "--bind", loopback, "--dir", dir, "--save", "", "--appendonly", "no",
		"--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0", // replicas are filled at once
	}, args...)...)
}

// newProcess prepares a redis-server that works in dir and listens on port, which args must contain.
func newProcess(t testing.TB, dir string, port int, args ...string) *Redis {
	text := strconv.Itoa(port)
	r := &Redis{Addr: net.JoinHostPort(loopback, text), port: text, dir: dir, args: args}
	t.Cleanup(r.Kill)
	return r
}

// Start restarts the process at the same address and returns once it answers. It does nothing if the process is
// running.
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
	// A replica has saved the data of its master.
	if err := os.RemoveAll(filepath.Join(r.dir, "dump.rdb")); err != nil {
		return fmt.Errorf("empty the private Redis: %w", err)
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

// Kill kills the process, like kill -9, and returns once it has ended.
func (r *Redis) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		r.process.end()
		r.process = nil
	}
}

// Freeze stops the process without ending it: connections stay open and are not served, as in a very long pause or a
// network outage.
func (r *Redis) Freeze() { r.signal(syscall.SIGSTOP) }

// Thaw resumes a frozen process.
func (r *Redis) Thaw() { r.signal(syscall.SIGCONT) }

func (r *Redis) signal(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		_ = r.process.Signal(s)
	}
}

// running reports whether the process was started and not killed; a frozen one is running.
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

// end kills the process and returns once it has ended.
func (p *process) end() {
	_ = p.Kill()
	<-p.ended
}

// freePorts returns ports, each free like that of FreePort.
func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		ports[i] = FreePort(t)
	}
	return ports
}
