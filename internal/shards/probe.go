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
func (s *Set) Probe(ctx context.Context, prefix string) (Condition, error) {
	found := &findings{refused: map[string]bool{}}
	for shard := range s.Count() {
		run := Run{Keys: []string{Tag(prefix, shard) + "check"}}
		if err := found.note(probe.Run(ctx, s.Master(shard), run)); err != nil {
			return Condition{}, err
		}
	}
	if err := found.checkAll(ctx, s.Masters()); err != nil {
		return Condition{}, err
	}
	c := found.condition
	c.Refused = slices.Sorted(maps.Keys(found.refused))
	return c, nil
}

// Evicting names the servers that may evict keys once their memory is full, with their policy.
func (s *Set) Evicting(ctx context.Context) ([]string, error) {
	found := &findings{refused: map[string]bool{}}
	err := found.checkAll(ctx, s.Masters())
	return found.condition.Evicts, err
}

// findings collects what is found on servers that are asked at once.
type findings struct {
	mu        sync.Mutex // guards all
	refused   map[string]bool
	condition Condition
}

// note collects what the reply of a script says.
func (f *findings) note(reply *redis.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	lines, err := reply.StringSlice()
	if refusal(err) {
		f.refused[err.Error()], err = true, nil
	}
	for _, line := range lines {
		f.refused[line] = true
	}
	return err
}

// refusal reports whether a server has refused a command.
func refusal(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command") || redis.HasErrorPrefix(err, "READONLY")
}

// eachServer calls look for the server of a client, or for every master of a cluster.
func eachServer(ctx context.Context, client redis.UniversalClient, look func(context.Context, *redis.Client) error) error {
	switch c := client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, look)
	case *redis.Client:
		return look(ctx, c)
	}
	return nil
}

// checkAll looks at all servers.
func (f *findings) checkAll(ctx context.Context, masters []redis.UniversalClient) error {
	for _, master := range masters {
		if err := eachServer(ctx, master, f.check); err != nil {
			return err
		}
	}
	slices.Sort(f.condition.Evicts)
	slices.Sort(f.condition.Unbounded)
	return nil
}

// clock compares the clock of a server.
func (f *findings) clock(ctx context.Context, server *redis.Client) error {
	before := time.Now()
	there, err := server.Time(ctx).Result()
	after := time.Now()
	if err != nil && !refusal(err) {
		return fmt.Errorf("ask redis for its time: %w", err)
	}
	if err == nil {
		f.mu.Lock()
		f.condition.Ahead = furthest(f.condition.Ahead, ahead(there, before, after))
		f.mu.Unlock()
	}
	return nil
}

var replicaLine = regexp.MustCompile(`(?m)^slave\d+:ip=([^,]+),port=(\d+)`)

// replicas compares the clocks of the servers that may take the place of this one, as far as they can be reached.
func (f *findings) replicas(ctx context.Context, server *redis.Client) {
	text, _ := server.Info(ctx, "replication").Result()
	for _, found := range replicaLine.FindAllStringSubmatch(text, -1) {
		o := *server.Options()
		o.Addr, o.Dialer = net.JoinHostPort(found[1], found[2]), nil
		replica := redis.NewClient(&o)
		_ = f.clock(ctx, replica) // it is the server that matters now
		_ = replica.Close()
	}
}

// check looks at the clocks and the memory of a server.
func (f *findings) check(ctx context.Context, server *redis.Client) error {
	if err := f.clock(ctx, server); err != nil {
		return err
	}
	f.replicas(ctx, server)
	text, err := server.Info(ctx, "memory").Result()
	f.mu.Lock()
	defer f.mu.Unlock()
	if refusal(err) {
		f.refused[err.Error()] = true
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask redis for its memory: %w", err)
	}
	policy, limit := memory(text)
	if policy == "" || policy == "noeviction" {
		return nil
	}
	line := server.Options().Addr + ": " + policy
	if limit == "0" {
		f.condition.Unbounded = append(f.condition.Unbounded, line)
	} else {
		f.condition.Evicts = append(f.condition.Evicts, line)
	}
	return nil
}

// memory returns the policy and the limit that INFO shows.
func memory(info string) (policy, limit string) {
	for line := range strings.Lines(info) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "maxmemory_policy":
			policy = value
		case "maxmemory":
			limit = value
		}
	}
	return policy, limit
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
