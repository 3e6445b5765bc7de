package testservices

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestRedisClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	began := time.Now()
	c := RedisCluster(t)
	t.Logf("formed in %s", time.Since(began))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer func() { _ = client.Close() }()
	for i := range 30 {
		key := fmt.Sprint("k", i)
		if err := client.Set(context.Background(), key, "v", 0).Err(); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
	}
	for i, master := range c.Nodes[:clusterMasters] {
		master.AwaitReplica(t)
		for _, n := range []*Redis{master, c.Nodes[clusterMasters+i]} {
			if keys, err := n.do("DBSIZE"); err != nil || keys == int64(0) {
				t.Errorf("%s has %v of the keys: %v", n.Addr, keys, err)
			}
		}
	}
}
