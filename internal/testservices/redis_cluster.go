package testservices

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
	// clusterNodeTimeout, in milliseconds, is how long a node may be silent before it is suspected.
	clusterNodeTimeout = "1000"
)

// Cluster is a private Redis Cluster of one test: three masters, each with one replica.
type Cluster struct {
	Nodes []*Redis // the first three began as masters, each of the last three as the replica of the one three before it

	bus []string // by node: its port for the other nodes
}

// RedisCluster starts a cluster and returns once every node knows all others, serves its slots and, if it is a
// replica, has its master's data. Slots that no node serves do not stop the others.
func RedisCluster(t testing.TB) *Cluster {
	t.Helper()
	skipIfShort(t, "Redis")
	c := &Cluster{}
	ports := freePorts(t, 4*clusterMasters)
	for i := range 2 * clusterMasters {
		bus := strconv.Itoa(ports[2*i+1])
		c.bus = append(c.bus, bus)
		c.Nodes = append(c.Nodes, newRedis(t, ports[2*i],
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", clusterNodeTimeout,
			"--cluster-require-full-coverage", "no",
			"--cluster-allow-replica-migration", "no",
			"--repl-ping-replica-period", "1")) // nodes do not name a replica that has got nothing yet
	}
	startAll(t, c.Nodes...)
	c.form(t)
	return c
}

// form joins separate nodes into one cluster.
func (c *Cluster) form(t testing.TB) {
	t.Helper()
	masters, replicas := c.Nodes[:clusterMasters], c.Nodes[clusterMasters:]
	for i, n := range c.Nodes {
		// Different epochs from the start, so that the nodes have no conflict to resolve.
		n.must(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	for i, n := range masters {
		first, next := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters
		n.must(t, "CLUSTER", "ADDSLOTSRANGE", first, next-1)
	}
	for i, n := range c.Nodes {
		for j, other := range c.Nodes[:i] { // every node meets every other, because gossip would take longer
			n.must(t, "CLUSTER", "MEET", loopback, other.port, c.bus[j])
		}
	}
	for i, n := range replicas {
		id := masters[i].must(t, "CLUSTER", "MYID")
		follow := func() error { _, err := n.do("CLUSTER", "REPLICATE", id); return err }
		if err := await(follow); err != nil { // until it knows its master
			t.Fatalf("replica %s of a private Redis Cluster: %v", n.Addr, err)
		}
	}
	if err := await(c.whole); err != nil {
		t.Fatalf("form a private Redis Cluster: %v", err)
	}
}

// whole returns an error that says what is missing from the complete cluster.
func (c *Cluster) whole() error {
	for _, n := range c.Nodes {
		if err := n.serves(); err != nil {
			return err
		}
		slots, err := n.slots()
		if err != nil {
			return err
		}
		for _, s := range slots {
			if len(s.Nodes) != 2 {
				return fmt.Errorf("%s knows of %d nodes for slot %d, want a master and its replica", n.Addr, len(s.Nodes), s.Start)
			}
			if replica := byAddr(c.Nodes, s.Nodes[1].Addr); replica == nil || replica.linked() != nil {
				return fmt.Errorf("%s, the replica for slot %d, does not follow yet", s.Nodes[1].Addr, s.Start)
			}
		}
	}
	return nil
}

// MoveSlotOf moves the slot of a key, with all that is in it, to the next master: key by key, as redis-cli does it, with a
// pause after each. Until it returns, some of the keys are on one node and the others on another one.
func (c *Cluster) MoveSlotOf(t testing.TB, key string, pause time.Duration) {
	t.Helper()
	slot, masters := c.Nodes[0].must(t, "CLUSTER", "KEYSLOT", key), c.Nodes[:clusterMasters]
	slots, err := masters[0].slots()
	if err != nil {
		t.Fatalf("slots of a private Redis Cluster: %v", err)
	}
	at := slices.IndexFunc(slots, func(s redis.ClusterSlot) bool { return int64(s.Start) <= slot.(int64) && slot.(int64) <= int64(s.End) })
	from := slices.Index(masters, byAddr(masters, slots[at].Nodes[0].Addr))
	source, target := masters[from], masters[(from+1)%clusterMasters]
	here, there := source.must(t, "CLUSTER", "MYID"), target.must(t, "CLUSTER", "MYID")
	target.must(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", here)
	source.must(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", there)
	for {
		keys := source.must(t, "CLUSTER", "GETKEYSINSLOT", slot, 1).([]any)
		if len(keys) == 0 {
			break
		}
		source.must(t, "MIGRATE", loopback, target.port, keys[0], 0, queryTimeout.Milliseconds())
		time.Sleep(pause)
	}
	for _, n := range append([]*Redis{target, source}, masters...) { // the new owner first: from then on it is known
		n.must(t, "CLUSTER", "SETSLOT", slot, "NODE", there)
	}
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// serves returns an error that says why the node is not part of a complete cluster.
func (r *Redis) serves() error {
	reply, err := r.do("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	return compare(r.Addr, fields(fmt.Sprint(reply)), "cluster_state", "ok", "cluster_slots_assigned", strconv.Itoa(clusterSlots),
		"cluster_slots_ok", strconv.Itoa(clusterSlots), "cluster_known_nodes", strconv.Itoa(2*clusterMasters))
}

// slots returns which node serves which slots, according to r.
func (r *Redis) slots() (slots []redis.ClusterSlot, err error) {
	err = r.ask(queryTimeout, func(ctx context.Context, client *redis.Client) error {
		slots, err = client.ClusterSlots(ctx).Result() //nolint:staticcheck // as go-redis asks
		return err
	})
	return slots, err
}

func addrs(all []*Redis) []string {
	list := make([]string, len(all))
	for i, r := range all {
		list[i] = r.Addr
	}
	return list
}

// byAddr returns the Redis at addr; nil if there is none.
func byAddr(all []*Redis, addr string) *Redis {
	if i := slices.IndexFunc(all, func(r *Redis) bool { return r.Addr == addr }); i >= 0 {
		return all[i]
	}
	return nil
}
