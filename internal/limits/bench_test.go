package limits

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// BenchmarkMemory fills a quota of five windows and prints what its keys take.
func BenchmarkMemory(b *testing.B) {
	b.Run("fill", func(b *testing.B) {
		client := clientOf(b, testservices.FreshRedis(b).Addr)
		usage := func(key string) int64 {
			bytes, err := client.MemoryUsage(context.Background(), key).Result()
			must(b, err)
			return bytes
		}
		var line, began, full int64
		for b.Loop() {
			l, q := newLua(b, client), &delivery.Quota{ID: "q", Revision: 1, Windows: smev}
			for i := range 3 {
				take1(l, epoch, fmt.Sprint("node-", i), ask(campaign(1000, q), 5))
			}
			k := newKeys(l.prefix, 0)
			line, began = usage(k.timeline("c")), usage(k.quota("q"))
			fillBuckets(l, q)
			full = usage(k.quota("q"))
		}
		fmt.Printf("%-60s %6d bytes\n", "timeline, three daemons", line)
		fmt.Printf("%-60s %6d bytes\n", "quota of five sliding windows, one bucket each", began)
		fmt.Printf("%-60s %6d bytes\n", "quota of five sliding windows, all buckets in use", full)
	})
}

// contending is a campaign that wants more of a quota than there is.
func contending(node string, i int, q *delivery.Quota) *waiter {
	c := campaign(10, q)
	c.ID = fmt.Sprint("c-", node, "-", i)
	return &waiter{node: node, ask: ask(c, 100)}
}

// contend lets campaigns ask, and returns how often they did and what for.
func contend(s store, all []*waiter, now, until int64) (asks int, units int64) {
	for _, w := range all {
		w.asks = 0
	}
	for _, grant := range wait(s, now, until, all...) {
		units += grant.units
	}
	for _, w := range all {
		asks += w.asks
	}
	return asks, units
}

// BenchmarkContenders lets campaigns of some daemons contend for one used-up quota of five windows, for two minutes of store time. Each
// asks again at its time, or after 12 s. It prints what their asks cost Redis.
func BenchmarkContenders(b *testing.B) {
	type crowd struct{ daemons, campaigns int }
	all := []crowd{{1, 16}, {1, 360}, {4, 90}, {24, 15}, {1, 10_000}}
	seconds := int64(120)
	for _, tc := range all {
		b.Run(fmt.Sprintf("daemons=%d/campaigns=%d", tc.daemons, tc.campaigns), func(b *testing.B) {
			for b.Loop() {
				client := clientOf(b, testservices.FreshRedis(b).Addr)
				l, q := newLua(b, client), &delivery.Quota{ID: "q", Revision: 1, Windows: smev}
				fillBuckets(l, q)
				var all []*waiter
				begin := epoch + 31*24*3600*second + second
				for d := range tc.daemons {
					for i := range tc.campaigns {
						all = append(all, contending(fmt.Sprint("d", d), i, q))
					}
				}
				wait(l, begin, begin+10*second, all...) // until all have asked
				must(b, client.ConfigSet(context.Background(), "slowlog-log-slower-than", "1000").Err())
				must(b, client.Do(context.Background(), "SLOWLOG", "RESET").Err())
				cpu := usedCPU(b, client)
				asks, units := contend(l, all, begin+10*second, begin+(10+seconds)*second)
				cpu = usedCPU(b, client) - cpu
				fmt.Printf("%2d x %5d campaigns: %7d asks, %5d units, %6.2f µs of Redis an ask, %7.2f ms a round, %6.2f ms a second, longest script %s\n",
					tc.daemons, tc.campaigns, asks, units, cpu/float64(asks)*1e6,
					cpu/float64(asks)*float64(len(all))*1e3, cpu/float64(seconds)*1e3, longest(b, client))
			}
		})
	}
}

// BenchmarkLongest prints the longest run of each script on quotas whose windows are all full.
func BenchmarkLongest(b *testing.B) {
	b.Run("full", func(b *testing.B) {
		for b.Loop() {
			client := clientOf(b, testservices.FreshRedis(b).Addr)
			must(b, client.ConfigSet(context.Background(), "slowlog-log-slower-than", "1000").Err())
			must(b, client.ConfigSet(context.Background(), "slowlog-max-len", "100000").Err())
			log := []delivery.Window{{Span: time.Hour, Limit: 1000, Algorithm: delivery.AlgorithmLog}}
			for name, w := range map[string][]delivery.Window{"five windows": smev, "a log of 1,000": log} {
				row := func(what string) {
					fmt.Printf("%-16s %-40s %s\n", name, what, longest(b, client))
					must(b, client.Do(context.Background(), "SLOWLOG", "RESET").Err())
				}
				longScripts(newLua(b, client), w, row)
			}
		}
	})
}

// longScripts runs scripts of the most items on quotas of the windows, which it fills, and calls done after each kind.
func longScripts(l *lua, w []delivery.Window, done func(what string)) {
	many, times := 100, int64(1000)
	var asks []delivery.Ask
	var quotas []*delivery.Quota
	var grants []delivery.Grant
	now := epoch
	for i := range many {
		q := &delivery.Quota{ID: fmt.Sprint("q", i), Revision: 1, Windows: w}
		c := campaign(1_000_000, q)
		c.ID = q.ID
		asks, quotas = append(asks, ask(c, 1)), append(quotas, q)
	}
	for range times { // each at another time
		now += 3600 * second / times
		for _, g := range l.Take(now, "a", asks).Items {
			grants = append(grants, g.Grant())
		}
	}
	done(fmt.Sprintf("takes of %d campaigns", many))
	l.Refund(now, grants[:256])
	done("refunds of 256 grants, the oldest")
	l.Refund(now, slices.DeleteFunc(grants[256:], func(g delivery.Grant) bool { return g.Units == 0 || g.From.Campaign.ID != "q3" }))
	done("refunds of 1,000 grants of a quota")
	l.Peek(now, quotas)
	done(fmt.Sprintf("peeks of %d quotas", many))
}

// longest is how long the longest script took since the slow log was reset.
func longest(b *testing.B, client redis.UniversalClient) string {
	var most time.Duration
	entries, err := client.SlowLogGet(context.Background(), 100_000).Result()
	must(b, err)
	for _, e := range entries {
		if strings.HasPrefix(strings.ToLower(e.Args[0]), "eval") {
			most = max(most, e.Duration)
		}
	}
	if most == 0 {
		return "below 1 ms"
	}
	return fmt.Sprintf("%.1f ms", most.Seconds()*1e3)
}

// usedCPU is the CPU time of Redis' main thread, in seconds.
func usedCPU(b *testing.B, client redis.UniversalClient) (sum float64) {
	text, err := client.Info(context.Background(), "cpu").Result()
	must(b, err)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			v, err := strconv.ParseFloat(value, 64)
			must(b, err)
			sum += v
		}
	}
	return sum
}
