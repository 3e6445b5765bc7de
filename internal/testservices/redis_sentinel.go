package testservices

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	sentinels      = 3
	sentinelQuorum = 2
	sentinelMaster = "pacer"
)

// sentinelConfig is the configuration file of a sentinel: its port and the name, host, port and quorum of the master.
const sentinelConfig = `port %[1]d
bind 127.0.0.1
sentinel monitor %[2]s %[3]s %[4]s %[5]d
sentinel down-after-milliseconds %[2]s %[6]d
sentinel failover-timeout %[2]s 2000
`

// How long a master may be silent, in milliseconds, before sentinels replace it. It must be longer than a stall of the machine: otherwise
// a node that has just started, and is empty, may replace a healthy master.
const (
	sentinelPatience = 60_000
	sentinelHurry    = 500
)

// sentinelHaste makes sentinels exchange and check more often than in production, in milliseconds.
var sentinelHaste = []any{
	"SENTINEL", "DEBUG", "publish-period", 200, "info-period", 200, "ask-period", 200, "election-timeout", 1000, "tilt-period", 1000,
}

// Sentinel is a private master with a replica, watched by three sentinels. Its methods may fail the test and must be
// called by its goroutine.
type Sentinel struct {
	Nodes      []*Redis // the first began as the master, the second as its replica
	Sentinels  []*Redis
	MasterName string

	t testing.TB
}

// RedisSentinel starts master, replica and sentinels and returns once they all know each other.
func RedisSentinel(t testing.TB) *Sentinel {
	t.Helper()
	skipIfShort(t, "Redis")
	ports := freePorts(t, 2+sentinels)
	master := newRedis(t, ports[0])
	s := &Sentinel{t: t, MasterName: sentinelMaster, Nodes: []*Redis{master, newReplica(t, ports[1], master)}}
	for _, port := range ports[2:] {
		s.Sentinels = append(s.Sentinels, newSentinel(t, port, master))
	}
	startAll(t, master)
	startAll(t, append([]*Redis{s.Nodes[1]}, s.Sentinels...)...)
	awaitLink(t, s.Nodes[1])
	for _, sentinel := range s.Sentinels {
		sentinel.must(t, sentinelHaste...)
	}
	s.AwaitWhole()
	return s
}

// AwaitWhole returns once every running sentinel sees a master with its replica and all other sentinels, as after a
// Start or a Thaw.
func (s *Sentinel) AwaitWhole() {
	s.t.Helper()
	for _, sentinel := range s.running() {
		if err := await(sentinel.watches); err != nil {
			s.t.Fatalf("private sentinel: %v", err)
		}
	}
}

// running returns the sentinels that were not killed.
func (s *Sentinel) running() []*Redis {
	return slices.DeleteFunc(slices.Clone(s.Sentinels), func(r *Redis) bool { return !r.running() })
}

func newSentinel(t testing.TB, port int, master *Redis) *Redis {
	dir := t.TempDir()
	config := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf(sentinelConfig, port, sentinelMaster, loopback, master.port, sentinelQuorum, sentinelPatience)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return newProcess(t, dir, port, config, "--sentinel", "--dir", dir)
}

// watches returns an error that says what the sentinel does not know yet of the master, its replica and the other
// sentinels.
func (r *Redis) watches() error {
	var replicas []map[string]string
	master := map[string]string{}
	err := r.askSentinel(func(ctx context.Context, client *redis.SentinelClient) (err error) {
		if master, err = client.Master(ctx, sentinelMaster).Result(); err == nil {
			replicas, err = client.Replicas(ctx, sentinelMaster).Result()
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(replicas) != 1 {
		return fmt.Errorf("%s knows of %d replicas, want 1", r.Addr, len(replicas))
	}
	return errors.Join(
		compare(r.Addr, master, "flags", "master", "num-other-sentinels", strconv.Itoa(sentinels-1)),
		compare(r.Addr, replicas[0], "flags", "slave", "master-link-status", "ok"))
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.Sentinels) }

// Master returns the master according to the first sentinel that answers.
func (s *Sentinel) Master() *Redis {
	s.t.Helper()
	var failures []error
	for _, sentinel := range s.running() {
		master, err := s.master(sentinel)
		if err == nil {
			return master
		}
		failures = append(failures, err)
	}
	s.t.Fatalf("master of the sentinels: %v", errors.Join(failures...))
	return nil
}

// KillMaster kills the master and returns once the replica has been promoted and every running sentinel knows it. That
// takes about two seconds.
func (s *Sentinel) KillMaster() (killed, promoted *Redis) {
	s.t.Helper()
	killed = s.Master()
	killed.Kill()
	s.setPatience(sentinelHurry)
	err := await(func() (err error) {
		promoted, err = s.succeeded(killed)
		return err
	})
	if err != nil {
		s.t.Fatalf("failover of %s: %v", killed.Addr, err)
	}
	s.setPatience(sentinelPatience)
	return killed, promoted
}

// setPatience says to the running sentinels after how many milliseconds of silence a master is down.
func (s *Sentinel) setPatience(milliseconds int) {
	s.t.Helper()
	for _, sentinel := range s.running() {
		sentinel.must(s.t, "SENTINEL", "SET", sentinelMaster, "down-after-milliseconds", milliseconds)
	}
}

// succeeded returns the master that replaces killed, once the running sentinels agree on it.
func (s *Sentinel) succeeded(killed *Redis) (promoted *Redis, err error) {
	for _, sentinel := range s.running() {
		master, err := s.master(sentinel)
		switch {
		case err != nil:
			return nil, err
		case master == killed:
			return nil, fmt.Errorf("%s still takes it for the master", sentinel.Addr)
		}
		promoted = master
	}
	if promoted == nil {
		return nil, hopeless{errors.New("no sentinel is running")}
	}
	return promoted, promoted.is("replication", "role", "master")
}

// master returns the master according to a sentinel.
func (s *Sentinel) master(sentinel *Redis) (*Redis, error) {
	var addr []string
	err := sentinel.askSentinel(func(ctx context.Context, client *redis.SentinelClient) (err error) {
		addr, err = client.GetMasterAddrByName(ctx, s.MasterName).Result()
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(addr) == 2 {
		if m := byAddr(s.Nodes, net.JoinHostPort(addr[0], addr[1])); m != nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s names %q as the master", sentinel.Addr, addr)
}

// askSentinel calls f with a client that is closed afterwards.
func (r *Redis) askSentinel(f func(context.Context, *redis.SentinelClient) error) error {
	client := redis.NewSentinelClient(clientOptions(r.Addr, queryTimeout))
	defer func() { _ = client.Close() }()
	return f(context.Background(), client)
}
