package limits

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Shards are the parts into which an engine's keys are divided: one for a single Redis, several for a Redis Cluster or
// a ring of independent ones. A shard is what its hash tag names; where it lives is the topology's affair.
type Shards interface {
	// Count is how many shards there are, at least 1. It never changes.
	Count() int
	// Master is where the shard is written and decided on.
	Master(shard int) redis.UniversalClient
	// Replica is where the shard may be read for show, nil for nowhere. It may lag behind without bound.
	Replica(shard int) redis.UniversalClient
	// Ping checks that every master answers.
	Ping(ctx context.Context) error
	Close() error
}

// The modes of TopologyOptions.
const (
	ModeSingle   = "single"   // one Redis
	ModeSentinel = "sentinel" // one Redis with replicas, watched by sentinels
	ModeCluster  = "cluster"  // Redis Cluster
	ModeRing     = "ring"     // independent Redis servers, each with a replica or none
)

const (
	clusterShards = 16 // of a cluster by default: several per master, so that adding masters spreads them
	maxShards     = 1024
)

// TopologyOptions say where the engine's Redis is.
type TopologyOptions struct {
	Mode string // single (default), sentinel, cluster or ring
	// Addrs are host:port: the server's, the sentinels', some of the cluster's nodes', or the ring's masters in their
	// order. An entry of a ring may name a replica as well: master|replica.
	Addrs      []string
	MasterName string // of the sentinels' master
	// Shards is into how many shards the keys are divided; 0 for the default: 1, with a cluster 16, with a ring one per
	// address. Counts and timelines stay where they are when it is changed, so it is chosen once.
	Shards             int
	Username, Password string
	DB                 int         // not with a cluster
	TLS                *tls.Config // nil: none
	// SentinelUsername and SentinelPassword are for the sentinels themselves.
	SentinelUsername, SentinelPassword string
}

func (o *TopologyOptions) validate() error {
	if o.Mode == "" {
		o.Mode = ModeSingle
	}
	switch {
	case !slices.Contains([]string{ModeSingle, ModeSentinel, ModeCluster, ModeRing}, o.Mode):
		return fmt.Errorf("mode: %q is none; use single, sentinel, cluster or ring", o.Mode)
	case len(o.Addrs) == 0:
		return errors.New("addrs: at least one host:port is needed")
	case o.Mode == ModeSingle && len(o.Addrs) > 1:
		return errors.New("addrs: mode single takes one address; for several, set mode to sentinel, cluster or ring")
	case o.Mode == ModeSentinel && o.MasterName == "":
		return errors.New("master_name: needed in mode sentinel: the name under which the sentinels watch the master")
	case o.Mode == ModeCluster && o.DB != 0:
		return errors.New("db: a cluster has database 0 only; remove db")
	case o.Shards < 0 || o.Shards > maxShards:
		return fmt.Errorf("shards: must be between 1 and %d", maxShards)
	case o.Mode == ModeRing && o.Shards > 0 && o.Shards < len(o.Addrs):
		return fmt.Errorf("shards: %d do not fill a ring of %d; use at least as many shards as addresses", o.Shards, len(o.Addrs))
	}
	for _, addr := range o.Addrs {
		if err := o.validAddr(addr); err != nil {
			return err
		}
	}
	return nil
}

func (o *TopologyOptions) validAddr(entry string) error {
	if strings.Contains(entry, "@") { // and the entry is not told: it may hold a password
		return errors.New("addrs: write host:port without credentials; those go into username and password")
	}
	addrs := strings.Split(entry, "|")
	if len(addrs) > 2 || len(addrs) == 2 && o.Mode != ModeRing {
		return fmt.Errorf("addrs: %q: write host:port, or in mode ring master|replica", entry)
	}
	for _, addr := range addrs {
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
			return fmt.Errorf("addrs: %q: write host:port, or in mode ring master|replica", entry)
		}
	}
	return nil
}

// Connect makes the shards of a topology. It does no I/O: connections are made when they are first used. Errors begin
// with the name of the option in the configuration.
func Connect(o TopologyOptions) (Shards, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	switch o.Mode {
	case ModeSentinel:
		reading := o.client(o.Addrs...)
		reading.ReadOnly = true
		return newTopology(max(1, o.Shards), clients{redis.NewFailoverClient(o.client(o.Addrs...).Failover())},
			clients{redis.NewFailoverClient(reading.Failover())}), nil
	case ModeCluster:
		n := o.Shards
		if n == 0 {
			n = clusterShards
		}
		return Cluster(redis.NewClusterClient(o.client(o.Addrs...).Cluster()), n), nil
	case ModeRing:
		masters, replicas := make(clients, len(o.Addrs)), make(clients, len(o.Addrs))
		for i, entry := range o.Addrs {
			master, replica, _ := strings.Cut(entry, "|")
			masters[i] = redis.NewClient(o.client(master).Simple())
			if replica != "" {
				replicas[i] = redis.NewClient(o.client(replica).Simple())
			}
		}
		return newTopology(max(len(o.Addrs), o.Shards), masters, replicas), nil
	default:
		return newTopology(max(1, o.Shards), clients{redis.NewClient(o.client(o.Addrs...).Simple())}, nil), nil
	}
}

// client are the options of one client.
func (o *TopologyOptions) client(addrs ...string) *redis.UniversalOptions {
	c := ClientOptions(addrs...)
	c.MasterName, c.Username, c.Password, c.DB, c.TLSConfig = o.MasterName, o.Username, o.Password, o.DB, o.TLS
	c.SentinelUsername, c.SentinelPassword = o.SentinelUsername, o.SentinelPassword
	return c
}

// Single is one shard behind one client.
func Single(client redis.UniversalClient) Shards { return newTopology(1, clients{client}, nil) }

// Sentinel is one shard behind a client that follows the master and one that reads from its replicas.
func Sentinel(master, replica redis.UniversalClient) Shards {
	return newTopology(1, clients{master}, clients{replica})
}

// Cluster is a number of shards on a Redis Cluster, whose hash tags decide where they live. A second client, made from
// the options of the first, reads from any node of a shard's.
func Cluster(client *redis.ClusterClient, shards int) Shards {
	reading := *client.Options()
	reading.RouteRandomly = true
	return newTopology(shards, clients{client}, clients{redis.NewClusterClient(&reading)})
}

// Ring is one shard for each of a list of independent masters. The replicas, in the same order, may be nil.
func Ring(masters, replicas []redis.UniversalClient) Shards {
	return newTopology(len(masters), masters, replicas)
}

type clients []redis.UniversalClient

// topology spreads shards over clients, in turn.
type topology struct {
	count             int
	masters, replicas clients // replicas may be empty, and have nil entries
}

func newTopology(count int, masters, replicas clients) *topology {
	return &topology{count: count, masters: masters, replicas: replicas}
}

func (t *topology) Count() int { return t.count }

func (t *topology) Master(shard int) redis.UniversalClient { return t.masters[shard%len(t.masters)] }

func (t *topology) Replica(shard int) redis.UniversalClient {
	if len(t.replicas) == 0 {
		return nil
	}
	return t.replicas[shard%len(t.replicas)]
}

func (t *topology) Ping(ctx context.Context) error {
	errs := make([]error, len(t.masters))
	var wg sync.WaitGroup
	for i, c := range t.masters {
		wg.Go(func() { errs[i] = ping(ctx, c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ping asks a client's server, or every master of a cluster.
func ping(ctx context.Context, client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return ping(ctx, node) })
	case *redis.Client:
		if err := c.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("ping redis at %s: %w", c.Options().Addr, err)
		}
	default:
		if err := c.Ping(ctx).Err(); err != nil {
			return fmt.Errorf("ping redis: %w", err)
		}
	}
	return nil
}

func (t *topology) Close() error {
	var errs []error
	for _, c := range slices.Concat(t.masters, t.replicas) {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
