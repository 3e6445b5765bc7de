package app

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// benchScan is how many keys are looked at and removed at once.
const benchScan = 1000

func (st *benchStage) openRedis() (err error) {
	if st.redis, err = st.services.shards(); err != nil {
		return err
	}
	st.undo = append(st.undo, func(context.Context) error { return st.redis.Close() }, st.removeKeys)
	return nil
}

// eachMaster calls f for every Redis that holds keys, once.
func (st *benchStage) eachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	seen := make(map[redis.UniversalClient]bool)
	for shard := range st.redis.Count() {
		master := st.redis.Master(shard)
		if seen[master] {
			continue
		}
		seen[master] = true
		var err error
		switch client := master.(type) {
		case *redis.ClusterClient:
			err = client.ForEachMaster(ctx, f)
		case *redis.Client:
			err = f(ctx, client)
		default:
			err = fmt.Errorf("a client of type %T", master)
		}
		if err != nil {
			return fmt.Errorf("redis.addrs: %w", err)
		}
	}
	return nil
}

// scripts is how many calls of scripts all masters have seen, from whomever they came.
func (st *benchStage) scripts(ctx context.Context) (int64, error) {
	var sum atomic.Int64
	err := st.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		info, err := master.Info(ctx, "commandstats").Result()
		sum.Add(scriptCalls(info))
		return err
	})
	return sum.Load(), err
}

// scriptCalls adds up the calls of scripts in what INFO commandstats says.
func scriptCalls(info string) (sum int64) {
	for line := range strings.Lines(info) {
		command, stats, _ := strings.Cut(line, ":calls=")
		switch command {
		case "cmdstat_eval", "cmdstat_evalsha", "cmdstat_eval_ro", "cmdstat_evalsha_ro":
			calls, _, _ := strings.Cut(stats, ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			if err == nil {
				sum += n
			}
		}
	}
	return sum
}

// removeKeys removes the stage's keys, which a daemon that was killed leaves as well.
func (st *benchStage) removeKeys(ctx context.Context) error {
	return st.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := master.Scan(ctx, cursor, "*"+st.services.config.Redis.KeyPrefix+"*", benchScan).Result()
			if err != nil {
				return err
			}
			_, err = master.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, key := range keys { // one by one, since those of a cluster may lie in different slots
					pipe.Unlink(ctx, key)
				}
				return nil
			})
			if err != nil {
				return err
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	})
}
