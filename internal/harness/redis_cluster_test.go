package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisClusterServesEverySlotAndFailsOver(t *testing.T) {
	began := time.Now()
	c := RedisCluster(t)
	t.Logf("formed in %s", time.Since(began))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer func() { _ = client.Close() }()
	masters := map[*Redis]bool{}
	for i := range 30 {
		key := fmt.Sprint("k", i)
		if err := client.Set(context.Background(), key, "v", 0).Err(); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
		masters[c.MasterOf(key)] = true
	}
	if len(masters) != 3 {
		t.Fatalf("%d masters have keys, want 3", len(masters))
	}
	set(t, c.MasterOf("k0"), "k0", "w")
	c.MasterOf("k0").AwaitReplica(t)

	began = time.Now()
	killed, promoted := c.Failover("k0")
	t.Logf("failed over in %s", time.Since(began))
	if masters[promoted] || c.MasterOf("k0") != promoted {
		t.Errorf("%s was promoted, the master is %s", promoted.Addr, c.MasterOf("k0").Addr)
	}
	if got := get(t, promoted, "k0"); got != "w" {
		t.Errorf("the promoted replica has %q", got)
	}

	killed.Start(t)
	c.AwaitWhole()
	promoted.AwaitReplica(t)
	if _, again := c.Failover("k0"); again != killed {
		t.Errorf("%s was promoted, want the old master", again.Addr)
	}
	if got := get(t, killed, "k0"); got != "w" {
		t.Errorf("the old master has %q", got)
	}
}

func TestRedisClusterFailoverWithLagLosesWhatWasNotReplicated(t *testing.T) {
	c := RedisCluster(t)
	master := c.MasterOf("k")
	set(t, master, "k", "old")
	master.AwaitReplica(t)
	master.StopReplicating(t)
	set(t, master, "k", "new")
	_, promoted := c.Failover("k")
	if got := get(t, promoted, "k"); got != "old" {
		t.Errorf("the promoted replica has %q", got)
	}
}

// Nodes remember the cluster and not their data.
func TestRedisClusterComesBackEmpty(t *testing.T) {
	c := RedisCluster(t)
	set(t, c.MasterOf("k"), "k", "v")
	for _, n := range c.Nodes {
		n.Kill()
	}
	startAll(t, c.Nodes...)
	c.AwaitWhole()
	if got := get(t, c.MasterOf("k"), "k"); got != "" {
		t.Errorf("the cluster came back with %q", got)
	}
}

// A master that is frozen for long enough is replaced like one that died, and follows when it wakes up.
func TestRedisClusterReplacesAFrozenMaster(t *testing.T) {
	c := RedisCluster(t)
	master := c.MasterOf("k")
	master.Freeze()
	err := await(func() error {
		if now := c.MasterOf("k"); now == master {
			return fmt.Errorf("%s is still the master", now.Addr)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	master.Thaw()
	c.AwaitWhole()
	if c.MasterOf("k") == master {
		t.Error("the old master woke up as the master")
	}
}
