package testservices

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisSentinelPromotesTheReplica(t *testing.T) {
	t.Parallel()
	began := time.Now()
	s := RedisSentinel(t)
	t.Logf("formed in %s", time.Since(began))
	client := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
	defer func() { _ = client.Close() }()
	if err := client.Set(context.Background(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	master := s.Master()
	master.AwaitReplica(t)

	began = time.Now()
	killed, promoted := s.KillMaster()
	t.Logf("failed over in %s", time.Since(began))
	if killed != master || promoted == master || s.Master() != promoted || !slices.Contains(s.Nodes, promoted) {
		t.Errorf("%s was killed and %s promoted; the master was %s and is %s", killed.Addr, promoted.Addr, master.Addr, s.Master().Addr)
	}
	if got := get(t, promoted, "k"); got != "v" {
		t.Errorf("the promoted replica has %q", got)
	}

	killed.Start(t)
	s.AwaitWhole()
	if got := s.Master(); got != promoted {
		t.Errorf("the master is %s again, nobody has killed %s", got.Addr, promoted.Addr)
	}
	// The old master follows now.
	if err := await(func() error {
		if got := get(t, killed, "k"); got != "v" {
			return fmt.Errorf("the old master has %q", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestRedisSentinelsNeedNotAllRun(t *testing.T) {
	t.Parallel()
	s := RedisSentinel(t)
	s.Sentinels[0].Kill()
	master := s.Master()
	if _, promoted := s.KillMaster(); promoted == master {
		t.Error("the killed master is still the master")
	}
}
