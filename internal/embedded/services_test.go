package embedded

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"))
}

func TestRedisCountsRoundTripsAndLetsKeysExpire(t *testing.T) {
	r, err := StartRedis()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pool := redis.NewClient(&redis.Options{Addr: r.Addr()})
	defer func() { _ = pool.Close() }()
	pool.AddHook(r)
	client := pool.Conn() // one connection, so that no other hand-shake is counted
	defer func() { _ = client.Close() }()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	r.Mark()
	pipe := client.Pipeline()
	for range 5 {
		pipe.Incr(t.Context(), "n")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := client.Get(t.Context(), "n").Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := r.Usage(), (Usage{RoundTrips: 2, Commands: 6}); got != want {
		t.Fatalf("usage %+v, want %+v", got, want)
	}
	if err := client.Set(t.Context(), "k", "v", time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := client.Get(t.Context(), "k").Err(); errors.Is(err, redis.Nil) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the key did not expire")
		}
	}
}
