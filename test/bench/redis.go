package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// scanBatch is the number of keys that are scanned and removed at once.
const scanBatch = 1000

func (st *environment) openRedis() (err error) {
	if st.redis, err = st.services.Shards(); err != nil {
		return err
	}
	st.undo = append(st.undo, func(context.Context) error { return st.redis.Close() }, st.removeKeys)
	return nil
}

// eachMaster calls f once for every Redis that holds keys.
func (st *environment) eachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	for _, master := range st.redis.Masters() {
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

// scripts returns the number of script calls on all masters, from all clients.
func (st *environment) scripts(ctx context.Context) (int64, error) {
	var sum atomic.Int64
	err := st.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		info, err := master.Info(ctx, "commandstats").Result()
		sum.Add(scriptCalls(info))
		return err
	})
	return sum.Load(), err
}

// scriptCalls adds up the script calls in the output of INFO commandstats.
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

// removeKeys removes the environment's keys, including those of a killed daemon.
func (st *environment) removeKeys(ctx context.Context) error {
	return st.eachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		for cursor := uint64(0); ; {
			keys, next, err := master.Scan(ctx, cursor, "*"+st.services.Config.Redis.KeyPrefix+"*", scanBatch).Result()
			if err != nil {
				return err
			}
			_, err = master.Pipelined(ctx, func(pipe redis.Pipeliner) error {
				for _, key := range keys { // one by one, since those of a cluster may be in different slots
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
