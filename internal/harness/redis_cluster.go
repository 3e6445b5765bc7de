package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	clusterMasters = 3
	clusterSlots   = 16384
	// clusterNodeTimeout, in milliseconds, is how long a node may be silent before it is suspected. A replica takes
	// over about as long again after it, and a second.
	clusterNodeTimeout = "1000"
)

// Cluster is a Redis Cluster of one test's own: three masters, each with one replica. Its methods fail the test, and
// are for the goroutine that runs it.
type Cluster struct {
	Nodes []*Redis // the first three began as masters, each of the last three as the replica of the one three before it

	t   testing.TB
	bus []string // by node: its port for the other nodes
}

// RedisCluster starts a cluster and returns once every node knows all others, serves its slots and, being a replica, has
// its master's data. Slots that nobody serves do not stop the others.
func RedisCluster(t testing.TB) *Cluster {
	t.Helper()
	skipIfShort(t, "Redis")
	c := &Cluster{t: t}
	ports := freePorts(t, 4*clusterMasters)
	for i := range 2 * clusterMasters {
		bus := strconv.Itoa(ports[2*i+1])
		c.bus = append(c.bus, bus)
		c.Nodes = append(c.Nodes, newRedis(t, ports[2*i],
			"--cluster-enabled", "yes", "--cluster-port", bus, "--cluster-node-timeout", clusterNodeTimeout,
			"--cluster-require-full-coverage", "no",
			"--cluster-replica-validity-factor", "0", // a replica takes over however old its data are
			"--cluster-allow-replica-migration", "no",
			"--repl-ping-replica-period", "1")) // nodes do not name a replica that has got nothing yet
	}
	startAll(t, c.Nodes...)
	if err := c.form(); err != nil {
		t.Fatalf("form a private Redis Cluster: %v", err)
	}
	return c
}

// form makes one cluster of nodes that are alone.
func (c *Cluster) form() error {
	masters, replicas := c.Nodes[:clusterMasters], c.Nodes[clusterMasters:]
	for i, n := range c.Nodes {
		// Different epochs from the start, so that the nodes need not settle who gives way.
		if _, err := n.do("CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
	}
	for i, n := range masters {
		first, next := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters
		if _, err := n.do("CLUSTER", "ADDSLOTSRANGE", first, next-1); err != nil {
			return err
		}
	}
	if err := c.meet(); err != nil {
		return err
	}
	for i, n := range replicas {
		id, err := masters[i].do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		follow := func() error { _, err := n.do("CLUSTER", "REPLICATE", id); return err }
		if err := await(follow); err != nil { // until it has heard of its master
			return err
		}
	}
	return await(c.whole)
}

// meet introduces every node to every other: gossip would take its time.
func (c *Cluster) meet() error {
	for i, n := range c.Nodes {
		for j, other := range c.Nodes[:i] {
			host, port, err := net.SplitHostPort(other.Addr)
			if err != nil {
				return err
			}
			if _, err := n.do("CLUSTER", "MEET", host, port, c.bus[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// AwaitWhole returns once every node serves again and every master has its replica, as after a Start or a Thaw.
func (c *Cluster) AwaitWhole() {
	c.t.Helper()
	if err := await(c.whole); err != nil {
		c.t.Fatalf("private Redis Cluster: %v", err)
	}
}

// whole says what is missing from the cluster as it was asked for.
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

// Addrs are the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.Nodes) }

// MasterOf returns the master that serves the key, as the first node that answers has it.
func (c *Cluster) MasterOf(key string) *Redis {
	c.t.Helper()
	slot := c.slotOf(key)
	var failures []error
	for _, n := range c.running() {
		master, err := c.master(n, slot)
		if err == nil {
			return master
		}
		failures = append(failures, err)
	}
	c.t.Fatalf("master of slot %d: %v", slot, errors.Join(failures...))
	return nil
}

// Failover kills the master that serves the key and returns once its replica serves the key instead and every running
// node knows. That takes two to three seconds.
func (c *Cluster) Failover(key string) (killed, promoted *Redis) {
	c.t.Helper()
	slot, killed := c.slotOf(key), c.MasterOf(key)
	killed.Kill()
	err := await(func() (err error) {
		promoted, err = c.succeeded(killed, slot)
		return err
	})
	if err != nil {
		c.t.Fatalf("failover of %s: %v", killed.Addr, err)
	}
	return killed, promoted
}

// succeeded returns the node that serves slot in place of killed, once the running nodes agree on it.
func (c *Cluster) succeeded(killed *Redis, slot int) (promoted *Redis, err error) {
	for _, n := range c.running() {
		if err := n.serves(); err != nil {
			return nil, err
		}
		master, err := c.master(n, slot)
		switch {
		case err != nil:
			return nil, err
		case master == killed:
			return nil, fmt.Errorf("%s still takes it for the master of slot %d", n.Addr, slot)
		}
		promoted = master
	}
	return promoted, promoted.is("replication", "role", "master")
}

// master returns the node that serves slot, as n has it.
func (c *Cluster) master(n *Redis, slot int) (*Redis, error) {
	slots, err := n.slots()
	if err != nil {
		return nil, err
	}
	for _, s := range slots {
		if slot < s.Start || slot > s.End || len(s.Nodes) == 0 {
			continue
		}
		if m := byAddr(c.Nodes, s.Nodes[0].Addr); m != nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("%s knows of nobody who serves slot %d", n.Addr, slot)
}

// slotOf is the slot of a key.
func (c *Cluster) slotOf(key string) int {
	c.t.Helper()
	var failures []error
	for _, n := range c.running() {
		reply, err := n.do("CLUSTER", "KEYSLOT", key)
		if slot, ok := reply.(int64); ok && err == nil {
			return int(slot)
		}
		failures = append(failures, err)
	}
	c.t.Fatalf("slot of %s: %v", key, errors.Join(failures...))
	return 0
}

// running are the nodes that were not killed.
func (c *Cluster) running() []*Redis {
	return slices.DeleteFunc(slices.Clone(c.Nodes), func(n *Redis) bool { return !n.running() })
}

// serves says why the node takes no part in a complete cluster.
func (r *Redis) serves() error {
	reply, err := r.do("CLUSTER", "INFO")
	if err != nil {
		return err
	}
	return compare(r.Addr, fields(fmt.Sprint(reply)), "cluster_state", "ok", "cluster_slots_assigned", strconv.Itoa(clusterSlots),
		"cluster_slots_ok", strconv.Itoa(clusterSlots), "cluster_known_nodes", strconv.Itoa(2*clusterMasters))
}

// slots is who serves which slots, as r has it.
func (r *Redis) slots() (slots []redis.ClusterSlot, err error) {
	err = r.ask(func(ctx context.Context, client *redis.Client) error {
		slots, err = client.ClusterSlots(ctx).Result() //nolint:staticcheck // what go-redis asks, so what it will see
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
