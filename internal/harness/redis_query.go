package harness

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// queryTimeout bounds one question to a private Redis: a frozen one does not answer.
const queryTimeout = time.Second

// Flush removes all data, as somebody's FLUSHALL would.
func (r *Redis) Flush(t testing.TB) {
	t.Helper()
	if _, err := r.do("FLUSHALL"); err != nil {
		t.Fatalf("flush the private Redis at %s: %v", r.Addr, err)
	}
}

// StopReplicating cuts its replica off until it is started again: the replica gets nothing any more and cannot connect
// again, while everybody else is served. What is written from here on is what a failover will lose. (A frozen
// replica would still find in its socket what was sent meanwhile.)
func (r *Redis) StopReplicating(t testing.TB) {
	t.Helper()
	_, denied := r.do("ACL", "SETUSER", "default", "-psync", "-sync")
	_, killed := r.do("CLIENT", "KILL", "TYPE", "replica")
	if err := errors.Join(denied, killed); err != nil {
		t.Fatalf("cut off the replica of the private Redis at %s: %v", r.Addr, err)
	}
}

// Commands is how many commands the process has executed since it was started.
func (r *Redis) Commands(t testing.TB) int {
	t.Helper()
	stats, err := r.info("stats")
	if err != nil {
		t.Fatalf("commands of the private Redis: %v", err)
	}
	n, err := strconv.Atoi(stats["total_commands_processed"])
	if err != nil {
		t.Fatalf("commands of the private Redis: %v", err)
	}
	return n
}

// AwaitReplica returns once a replica has everything that was written before the call.
func (r *Redis) AwaitReplica(t testing.TB) {
	t.Helper()
	err := r.ask(func(ctx context.Context, client *redis.Client) error {
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		// WAIT is about what the connection itself has seen; that is all there is, from its first command on.
		if err := conn.Ping(ctx).Err(); err != nil {
			return err
		}
		replicas, err := conn.Wait(ctx, 1, redisTimeout).Result()
		if err == nil && replicas == 0 {
			err = errors.New("none is up to date within " + redisTimeout.String())
		}
		return err
	})
	if err != nil {
		t.Fatalf("replica of the private Redis at %s: %v", r.Addr, err)
	}
}

// do sends one command.
func (r *Redis) do(args ...any) (reply any, err error) {
	err = r.ask(func(ctx context.Context, client *redis.Client) error {
		reply, err = client.Do(ctx, args...).Result()
		return err
	})
	return reply, err
}

// ask calls f with a client that is closed afterwards.
func (r *Redis) ask(f func(context.Context, *redis.Client) error) error {
	client := redis.NewClient(clientOptions(r.Addr))
	defer func() { _ = client.Close() }()
	return f(context.Background(), client)
}

func clientOptions(addr string) *redis.Options {
	return &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: queryTimeout, ReadTimeout: queryTimeout, WriteTimeout: queryTimeout,
	}
}

// info is a section of INFO, by field.
func (r *Redis) info(section string) (map[string]string, error) {
	reply, err := r.do("INFO", section)
	if err != nil {
		return nil, err
	}
	return fields(fmt.Sprint(reply)), nil
}

// fields reads the "name:value" lines of INFO and its like.
func fields(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values
}

// is says in its error which of the wanted fields, given as name, value, name, value, ..., another has.
func (r *Redis) is(section string, want ...string) error {
	got, err := r.info(section)
	if err != nil {
		return err
	}
	return compare(r.Addr, got, want...)
}

func compare(addr string, got map[string]string, want ...string) error {
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			return fmt.Errorf("%s says %s: %q, want %q", addr, want[i], got[want[i]], want[i+1])
		}
	}
	return nil
}

// hopeless is an error that more waiting does not heal.
type hopeless struct{ error }

// await calls check again and again until it returns nil. After redisTimeout it returns check's error.
func await(check func() error) error {
	deadline := time.Now().Add(redisTimeout)
	for {
		err := check()
		if err == nil || errors.As(err, new(hopeless)) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %w", redisTimeout, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, queryTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(queryTimeout)); err != nil {
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
