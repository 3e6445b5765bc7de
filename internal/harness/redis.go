package harness

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// redisTimeout bounds the start of a private Redis.
const redisTimeout = 10 * time.Second

// Redis is a Redis process of one test's own, which may be killed, frozen and started again at will. Its
// address never changes; its data is gone after every Kill. The methods are safe for use by several goroutines
// and fail the test from the goroutine that runs it only: call Start there, Kill, Freeze and Thaw anywhere.
type Redis struct {
	Addr string

	port int
	dir  string

	mu      sync.Mutex // guards process
	process *exec.Cmd  // nil when it is not running
	log     bytes.Buffer
}

// FreshRedis starts a private, empty Redis on a free loopback port and ends it with the test.
func FreshRedis(t testing.TB) *Redis {
	t.Helper()
	skipIfShort(t, "Redis")
	port := FreePort(t)
	r := &Redis{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), port: port, dir: t.TempDir()}
	t.Cleanup(r.Kill)
	r.Start(t)
	return r
}

// Start starts the process again, empty, at the same address, and returns once it answers. It does nothing
// when the process runs.
func (r *Redis) Start(t testing.TB) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		return
	}
	r.log.Reset()
	cmd := exec.Command("redis-server", "--port", strconv.Itoa(r.port), "--bind", "127.0.0.1",
		"--save", "", "--appendonly", "no", "--dir", r.dir)
	cmd.Stdout, cmd.Stderr = &r.log, &r.log
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a private Redis: %v (is redis-server installed? scripts/services.sh up installs it)", err)
	}
	if err := awaitPong(r.Addr); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Fatalf("private Redis at %s: %v\n%s", r.Addr, err, r.log.String())
	}
	r.process = cmd
}

// Kill ends the process as kill -9 does and returns once it is gone.
func (r *Redis) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process == nil {
		return
	}
	_ = r.process.Process.Kill()
	_ = r.process.Wait()
	r.process = nil
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
		_ = r.process.Process.Signal(s)
	}
}

// awaitPong returns once a Redis answers PING at addr.
func awaitPong(addr string) error {
	deadline := time.Now().Add(redisTimeout)
	for {
		err := ping(addr)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("no answer within %s: %w", redisTimeout, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return err
	}
	if line != "+PONG\r\n" {
		return fmt.Errorf("answered %q to PING", line)
	}
	return nil
}
