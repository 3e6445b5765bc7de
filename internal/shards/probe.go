package shards

import (
	"context"
	"embed"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/probe.lua
var probeFiles embed.FS

var probe = NewScript(probeFiles, "lua/probe.lua")

// Condition is what Probe has found.
type Condition struct {
	// Refused says of commands why they cannot be run.
	Refused []string
	// Evicts names the servers that may evict keys once their memory is full, with their policy; Unbounded those whose
	// memory has no limit at present.
	Evicts, Unbounded []string
	// Ahead is by how much the clock of a server differs from that of this machine: the largest of all, replicas included, as far as
	// it is certain.
	Ahead time.Duration
}

// Probe runs every command that daemons need, on a key that nothing else uses, and looks at what is configured.
func (s *Set) Probe(ctx context.Context, prefix string) (c Condition, err error) {
	refused := map[string]bool{}
	for shard := range s.Count() {
		run := Run{Keys: []string{Tag(prefix, shard) + "check"}}
		lines, err := probe.Run(ctx, s.Master(shard), run).StringSlice()
		switch {
		case refusal(err):
			refused[err.Error()] = true
		case err != nil:
			return Condition{}, err
		}
		for _, line := range lines {
			refused[line] = true
		}
	}
	servers, err := s.servers(ctx)
	if err != nil {
		return Condition{}, err
	}
	for _, server := range servers {
		found, err := s.clocks(ctx, server)
		if err != nil {
			return Condition{}, err
		}
		c.Ahead = furthest(c.Ahead, found)
		switch err := c.lookAtMemory(ctx, server); {
		case refusal(err):
			refused[err.Error()] = true
		case err != nil:
			return Condition{}, fmt.Errorf("ask redis for its memory: %w", err)
		}
	}
	slices.Sort(c.Evicts)
	slices.Sort(c.Unbounded)
	c.Refused = slices.Sorted(maps.Keys(refused))
	return c, nil
}

// Evicting names the servers that may evict keys once their memory is full, with their policy.
func (s *Set) Evicting(ctx context.Context) ([]string, error) {
	servers, err := s.servers(ctx)
	if err != nil {
		return nil, err
	}
	var c Condition
	for _, server := range servers {
		if err := c.lookAtMemory(ctx, server); err != nil && !refusal(err) {
			return nil, err
		}
	}
	slices.Sort(c.Evicts)
	return c.Evicts, nil
}

// servers returns a client of each master, which may be one of several in a cluster.
func (s *Set) servers(ctx context.Context) (list []*redis.Client, err error) {
	var mu sync.Mutex // guards list
	for _, master := range s.Masters() {
		switch c := master.(type) {
		case *redis.ClusterClient:
			err = c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
				mu.Lock()
				defer mu.Unlock()
				list = append(list, node)
				return nil
			})
			if err != nil {
				return nil, err
			}
		case *redis.Client:
			list = append(list, c)
		}
	}
	return list, nil
}

// refusal reports whether a server has refused a command.
func refusal(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command") || redis.HasErrorPrefix(err, "READONLY")
}

var replicaLine = regexp.MustCompile(`(?m)^slave\d+:ip=([^,]+),port=(\d+)`)

// clocks returns by how much the clock of the server is ahead, or that of a server that may take its place, as far as those can be reached: the
// largest of all.
func (s *Set) clocks(ctx context.Context, server *redis.Client) (time.Duration, error) {
	largest, err := clock(ctx, server)
	if err != nil {
		return 0, err
	}
	text, _ := server.Info(ctx, "replication").Result()
	for _, found := range replicaLine.FindAllStringSubmatch(text, -1) {
		o := *server.Options()
		o.Addr, o.Dialer = net.JoinHostPort(found[1], found[2]), s.dialer // that of sentinels connects to the master, whatever the address
		replica := redis.NewClient(&o)
		d, _ := clock(ctx, replica) // it is the server that matters now
		largest = furthest(largest, d)
		_ = replica.Close()
	}
	return largest, nil
}

// clock returns by how much the clock of a server is ahead; 0 if the server may not be asked.
func clock(ctx context.Context, server *redis.Client) (time.Duration, error) {
	before := time.Now()
	there, err := server.Time(ctx).Result()
	after := time.Now()
	switch {
	case refusal(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("ask redis for its time: %w", err)
	}
	return ahead(there, before, after), nil
}

// lookAtMemory notes whether the server may evict keys.
func (c *Condition) lookAtMemory(ctx context.Context, server *redis.Client) error {
	text, err := server.Info(ctx, "memory").Result()
	if err != nil {
		return err
	}
	policy, limit := "", ""
	for _, found := range memoryLine.FindAllStringSubmatch(text, -1) {
		if found[1] == "_policy" {
			policy = found[2]
		} else {
			limit = found[2]
		}
	}
	line := addressOf(server) + ": " + policy
	switch {
	case policy == "", policy == "noeviction":
	case limit == "0":
		c.Unbounded = append(c.Unbounded, line)
	default:
		c.Evicts = append(c.Evicts, line)
	}
	return nil
}

// memoryLine is the limit or the policy in what INFO shows.
var memoryLine = regexp.MustCompile(`(?m)^maxmemory(_policy)?:(\S*)`)

// addressOf names a server. The client of a master that sentinels name has no address.
func addressOf(server *redis.Client) string {
	if addr := server.Options().Addr; strings.Contains(addr, ":") {
		return addr
	}
	return "the master of the sentinels"
}

// ahead returns by how much a clock that was read between two instants is ahead, as far as that is certain.
func ahead(there, before, after time.Time) time.Duration {
	switch {
	case there.After(after):
		return there.Sub(after)
	case there.Before(before):
		return there.Sub(before)
	}
	return 0
}

// furthest returns the one that is further from 0.
func furthest(a, b time.Duration) time.Duration {
	if b.Abs() > a.Abs() {
		return b
	}
	return a
}
