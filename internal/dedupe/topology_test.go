package dedupe

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// Every topology keeps the ledger: what one daemon delivered, another does not send.
func TestTopologies(t *testing.T) {
	for _, tc := range []struct {
		name  string
		start func(t *testing.T) servers
	}{
		{"cluster", func(t *testing.T) servers {
			c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: testservices.RedisCluster(t).Addrs(), MaxRedirects: 3})
			t.Cleanup(func() { _ = c.Close() })
			return servers{c, c, c, c, c, c, c, c}
		}},
		{"sentinel", func(t *testing.T) servers {
			s := testservices.RedisSentinel(t)
			c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: s.MasterName, SentinelAddrs: s.Addrs()})
			t.Cleanup(func() { _ = c.Close() })
			return servers{c}
		}},
		{"ring", func(t *testing.T) servers {
			var list servers
			for _, r := range testservices.RedisRing(t, 2) {
				list = append(list, connect(t, r.Addr))
			}
			return append(list, list...)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shards := tc.start(t)
			to := &destination{}
			o := rigOptions{prefix: prefix()}
			one, two := newRig(t, to, shards, o), newRig(t, to, shards, o)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			const jobs = 300
			for _, round := range []struct {
				r    *rig
				want delivery.ResultClass
			}{{one, delivery.Delivered}, {two, delivery.Duplicate}, {one, delivery.Duplicate}} {
				var calls sync.WaitGroup
				for i := range jobs {
					calls.Go(func() {
						if res := round.r.insist(ctx, fmt.Sprint("job-", i)); res.Class != round.want {
							t.Errorf("job %d: %+v, want %s", i, res, round.want)
						}
					})
				}
				calls.Wait()
			}
			if to.count() != jobs {
				t.Errorf("%d sent", to.count())
			}
			known := make([]*delivery.Job, jobs)
			for i := range known {
				known[i] = &delivery.Job{ID: fmt.Sprint("job-", i), Campaign: "c"}
			}
			two.Filter(ctx, known)
			for i, j := range known {
				if !j.Duplicate {
					t.Errorf("job %d is not known to be delivered", i)
				}
			}
			used := map[redis.UniversalClient]bool{}
			for i := range jobs {
				k := idOf("c", fmt.Sprint("job-", i), "").shard(len(shards))
				used[shards[k]] = true
			}
			for _, c := range shards {
				if !used[c] {
					t.Error("a server has none of the jobs")
				}
			}
		})
	}
}

// Calls that come together share round trips, and each gets its own answer.
func TestCallsShareRoundTrips(t *testing.T) {
	shared := connect(t, testservices.RedisAddr(t))
	to := &destination{}
	r := newRig(t, to, servers{shared}, rigOptions{prefix: prefix()})
	const jobs = 3 * shards.MaxBatch
	classes := make([]delivery.ResultClass, 2*jobs)
	var calls sync.WaitGroup
	for i := range classes { // each id twice
		calls.Go(func() { classes[i] = r.insist(context.Background(), fmt.Sprint("job-", i/2)).Class })
	}
	calls.Wait()
	for i := 0; i < len(classes); i += 2 {
		a, b := classes[i], classes[i+1]
		if a == b || a+b != delivery.Delivered+delivery.Duplicate {
			t.Errorf("job %d: %s and %s", i/2, a, b)
		}
	}
	if to.count() != jobs {
		t.Errorf("%d sent", to.count())
	}
	trips, entries := histogram(t, r, "pacer_dedupe_batch_entries")
	t.Logf("%v entries in %v round trips", entries, trips)
	if entries < 3*jobs || trips > entries/4 {
		t.Errorf("%v entries in %v round trips", entries, trips)
	}
}

func histogram(t *testing.T, r *rig, name string) (count, sum float64) {
	t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			h := f.GetMetric()[0].GetHistogram()
			return float64(h.GetSampleCount()), h.GetSampleSum()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0, 0
}
