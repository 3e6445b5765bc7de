package testservices

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// queryTimeout bounds one query of a private Redis that is asked again and again: a frozen one does not answer. One that is asked
// once, and must answer, has more time: on a busy machine a disk may stand still for seconds.
const queryTimeout = time.Second

// Flush removes all data, like an operator's FLUSHALL.
func (r *Redis) Flush(t testing.TB) {
	t.Helper()
	r.must(t, "FLUSHALL")
}

// AwaitReplica returns once a replica has everything that was written before the call.
func (r *Redis) AwaitReplica(t testing.TB) {
	t.Helper()
	err := r.ask(queryTimeout, func(ctx context.Context, client *redis.Client) error {
		conn := client.Conn()
		defer func() { _ = conn.Close() }()
		// WAIT covers what was written before the last command of its connection, so there has to be one.
		if err := conn.Ping(ctx).Err(); err != nil {
			return err
		}
		replicas, err := conn.Wait(ctx, 1, patience).Result()
		if err == nil && replicas == 0 {
			err = errors.New("none is up to date within " + patience.String())
		}
		return err
	})
	if err != nil {
		t.Fatalf("replica of the private Redis at %s: %v", r.Addr, err)
	}
}

// must sends one command, which must succeed.
func (r *Redis) must(t testing.TB, args ...any) (reply any) {
	t.Helper()
	reply, err := r.within(patience, args...)
	if err != nil {
		t.Fatalf("private Redis at %s: %v: %v", r.Addr, args, err)
	}
	return reply
}

// do sends one command.
func (r *Redis) do(args ...any) (any, error) { return r.within(queryTimeout, args...) }

// within sends one command, and waits that long for its reply.
func (r *Redis) within(timeout time.Duration, args ...any) (reply any, err error) {
	err = r.ask(timeout, func(ctx context.Context, client *redis.Client) error {
		reply, err = client.Do(ctx, args...).Result()
		return err
	})
	return reply, err
}

// ask calls f with a client that is closed afterwards, and gives up a query after the timeout.
func (r *Redis) ask(timeout time.Duration, f func(context.Context, *redis.Client) error) error {
	client := redis.NewClient(clientOptions(r.Addr, timeout))
	defer func() { _ = client.Close() }()
	return f(context.Background(), client)
}

func clientOptions(addr string, timeout time.Duration) *redis.Options {
	return &redis.Options{
		Addr: addr, MaxRetries: -1, DialerRetries: 1, DialTimeout: timeout, ReadTimeout: timeout, WriteTimeout: timeout,
	}
}

// fields parses the "name:value" lines of INFO and similar output.
func fields(text string) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			values[name] = value
		}
	}
	return values
}

// is returns an error unless the wanted fields, given as name, value, name, value, ..., have their values.
func (r *Redis) is(section string, want ...string) error {
	reply, err := r.do("INFO", section)
	if err != nil {
		return err
	}
	return compare(r.Addr, fields(fmt.Sprint(reply)), want...)
}

func compare(addr string, got map[string]string, want ...string) error {
	for i := 0; i < len(want); i += 2 {
		if got[want[i]] != want[i+1] {
			return fmt.Errorf("%s says %s: %q, want %q", addr, want[i], got[want[i]], want[i+1])
		}
	}
	return nil
}

// ping returns an error that says why the Redis at addr does not answer.
func ping(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, queryTimeout)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(queryTimeout))
	_, _ = conn.Write([]byte("PING\r\n")) // if it fails, so does reading
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "+PONG\r\n" {
		err = fmt.Errorf("answered %q to PING", line)
	}
	return err
}
