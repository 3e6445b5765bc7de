package testservices

import (
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestFreshRedisComesBackAtItsAddress(t *testing.T) {
	t.Parallel()
	r := FreshRedis(t)
	r.Kill()
	if err := ping(r.Addr); err == nil {
		t.Fatal("a killed Redis answered")
	}
	r.Start(t)
	if err := ping(r.Addr); err != nil {
		t.Fatalf("after the restart: %v", err)
	}
	r.Freeze()
	if err := ping(r.Addr); err == nil {
		t.Error("a frozen Redis answered")
	}
	r.Thaw()
	if err := await(func() error { return ping(r.Addr) }); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}

func TestRedisForgetsItsData(t *testing.T) {
	t.Parallel()
	r := FreshRedis(t)
	for what, forget := range map[string]func(){
		"a restart": func() { r.Kill(); r.Start(t) }, "a flush": func() { r.Flush(t) },
	} {
		set(t, r, "k", "v")
		if forget(); get(t, r, "k") != "" {
			t.Errorf("after %s there is still %q", what, get(t, r, "k"))
		}
	}
}

func TestRedisThatCannotStartSaysWhy(t *testing.T) {
	t.Parallel()
	first := FreshRedis(t)
	second := &Redis{Addr: first.Addr, dir: t.TempDir(), args: []string{"--port", "none"}}
	first.Kill()
	if err := second.start(); err == nil || !strings.Contains(err.Error(), "ended by itself") ||
		!strings.Contains(err.Error(), "'none'") && !strings.Contains(err.Error(), `"none"`) {
		t.Errorf("error %v", err)
	}
	if second.running() {
		t.Error("it is taken to run")
	}
}

func TestRedisReplicaFollows(t *testing.T) {
	t.Parallel()
	master := FreshRedis(t)
	replica := newReplica(t, freePorts(t, 1)[0], master)
	replica.Start(t)
	awaitLink(t, replica)
	set(t, master, "old", "1")
	master.AwaitReplica(t)
	if got := get(t, replica, "old"); got != "1" {
		t.Errorf("the replica has %q", got)
	}
	replica.Kill()
	set(t, master, "new", "2")
	replica.Start(t)
	awaitLink(t, replica)
	if got := get(t, replica, "new"); got != "2" {
		t.Errorf("the replica began with %q", got)
	}

	// It has written its master's data to its disk, and must not find them there.
	master.Kill()
	replica.Kill()
	replica.Start(t)
	if got := get(t, replica, "old"); got != "" {
		t.Errorf("the replica was started without its master and has %q", got)
	}
}

func set(t *testing.T, r *Redis, key, value string) {
	t.Helper()
	if _, err := r.do("SET", key, value); err != nil {
		t.Fatal(err)
	}
}

// get returns "" for a key that is not there.
func get(t *testing.T, r *Redis, key string) string {
	t.Helper()
	reply, err := r.do("GET", key)
	if err != nil && !errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
	value, _ := reply.(string)
	return value
}
