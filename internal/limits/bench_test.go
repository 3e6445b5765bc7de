package limits

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

// The benchmarks run against a Redis of their own and print a table each; docs/benchmarks.md says how to read them.

// table is printed when the benchmark that fills it is done.
type table struct {
	title string
	rows  [][]string
}

func newTable(b *testing.B, title string, columns ...string) *table {
	t := &table{title: title, rows: [][]string{columns}}
	b.Cleanup(t.print)
	return t
}

func (t *table) add(cells ...any) {
	var row []string
	for _, c := range cells {
		switch c := c.(type) {
		case float64:
			row = append(row, strconv.FormatFloat(c, 'f', 3, 64))
		case time.Duration:
			row = append(row, strconv.FormatInt(c.Microseconds(), 10))
		default:
			row = append(row, fmt.Sprint(c))
		}
	}
	t.rows = append(t.rows, row)
}

func (t *table) print() {
	fmt.Printf("\n%s\n", t.title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	_ = w.Flush()
	fmt.Println()
}

// rig is a private Redis that is measured: from start on, what it does and how long calls take.
type rig struct {
	b      *testing.B
	client redis.UniversalClient
	began  time.Time
	cpu    float64 // seconds of the server's main thread
	calls  int64   // scripts run
	took   []time.Duration
}

func newRig(b *testing.B) *rig { return &rig{b: b, client: privateClient(b, harness.FreshRedis(b))} }

func (r *rig) engine() *Engine {
	e, err := New(Options{Shards: Single(r.client), Registerer: prometheus.NewRegistry(), Timeout: 5 * time.Second})
	must(r.b, err)
	return e
}

func (r *rig) start() {
	r.cpu, r.calls = r.usedCPU(), r.scripts()
	r.took, r.began = nil, time.Now()
}

// time notes how long a call takes.
func (r *rig) time(call func() error) {
	began := time.Now()
	must(r.b, call())
	r.took = append(r.took, time.Since(began))
}

// percentile is of the calls' durations; p from 0 to 1.
func (r *rig) percentile(p float64) time.Duration {
	slices.Sort(r.took)
	return r.took[int(p*float64(len(r.took)-1))]
}

func (r *rig) scripts() int64 {
	stats := commandStats(r.b, r.client)
	return stats["evalsha"].calls + stats["eval"].calls
}

func (r *rig) usedCPU() float64 {
	text, err := r.client.Info(context.Background(), "cpu").Result()
	must(r.b, err)
	var sum float64
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			v, err := strconv.ParseFloat(value, 64)
			must(r.b, err)
			sum += v
		}
	}
	return sum
}

// cpuPer is the server's CPU time in milliseconds for a thousand of n.
func (r *rig) cpuPer(n int64) float64 { return 1e6 * (r.usedCPU() - r.cpu) / float64(n) }

// BenchmarkTake measures whole takes, one daemon without competitors: each campaign gets 25 units, from a quota of its own
// with so many windows.
func BenchmarkTake(b *testing.B) {
	t := newTable(b, "Takes of 25 units per campaign, one caller", "campaigns", "windows", "items/s", "p50 µs", "p99 µs",
		"scripts/take", "Redis CPU ms/1,000 items")
	for _, campaigns := range []int{1, 10, 100, 1000} {
		for _, windows := range []int{0, 1, 5} {
			b.Run(fmt.Sprintf("campaigns=%d/windows=%d", campaigns, windows), func(b *testing.B) {
				r := newRig(b)
				e, asks := r.engine(), manyAsks(campaigns, windows)
				take := func() error {
					_, err := e.Take(context.Background(), asks)
					return err
				}
				must(b, take()) // connects, loads the script, makes the keys
				r.start()
				for b.Loop() {
					r.time(take)
				}
				items := int64(campaigns * len(r.took))
				speed := float64(items) / b.Elapsed().Seconds()
				scripts := float64(r.scripts()-r.calls) / float64(len(r.took))
				cpu := r.cpuPer(items)
				b.ReportMetric(speed, "items/s")
				t.add(campaigns, windows, int64(speed), r.percentile(.5), r.percentile(.99), scripts, cpu)
			})
		}
	}
}

// limiter lets so many jobs through at a moment.
type limiter struct {
	name  string
	every time.Duration // between two asks
	// ask asks once and returns how many jobs may go, and how long to wait before the next ask where that is not every.
	ask func() (jobs int64, wait time.Duration, err error)
}

// ours asks for everything that a bottomless queue could send, at every quantum.
func ours(r *rig, rate int64, quantum time.Duration) limiter {
	e, c := r.engine(), campaign(rate)
	a := delivery.Ask{Campaign: c, Want: delivery.MaxGrant, Quantum: quantum.Microseconds(), Horizon: 3 * quantum.Microseconds(), LateTolerance: late}
	return limiter{fmt.Sprintf("pacer, a take per %s", quantum), quantum, func() (int64, time.Duration, error) {
		reply, err := e.Take(context.Background(), []delivery.Ask{a})
		return reply.Items[0].Units, quantum, err
	}}
}

// oursAtOnce is ours as the scheduler asks while a backlog waits: as soon as there can be more, but for half a quantum.
func oursAtOnce(r *rig, rate int64, quantum time.Duration) limiter {
	l := ours(r, rate, quantum)
	l.name = fmt.Sprintf("pacer, a take per %s", quantum/2)
	ask := l.ask
	l.ask = func() (int64, time.Duration, error) {
		n, _, err := ask()
		return n, quantum / 2, err
	}
	return l
}

// theirsAtMost takes whole quanta from a cell rate limiter, which may save up three of them as ours looks ahead.
func theirsAtMost(r *rig, rate int, quantum time.Duration) limiter {
	per := (rate*int(quantum/time.Millisecond) + 999) / 1000
	l, limit := redis_rate.NewLimiter(r.client), redis_rate.Limit{Rate: rate, Period: time.Second, Burst: 3 * per}
	return limiter{fmt.Sprintf("redis_rate, AllowAtMost per %s", quantum), quantum, func() (int64, time.Duration, error) {
		res, err := l.AllowAtMost(context.Background(), "c", limit, per)
		if err != nil {
			return 0, 0, err
		}
		return int64(res.Allowed), quantum, nil
	}}
}

// theirs asks a cell rate limiter for every job.
func theirs(r *rig, rate int) limiter {
	l, limit := redis_rate.NewLimiter(r.client), redis_rate.Limit{Rate: rate, Period: time.Second, Burst: rate * 3 / 40}
	return limiter{"redis_rate, Allow per job", 0, func() (int64, time.Duration, error) {
		res, err := l.Allow(context.Background(), "c", limit)
		if err != nil {
			return 0, 0, err
		}
		return int64(res.Allowed), max(0, res.RetryAfter), nil
	}}
}

const pacedFor = 4 * time.Second

// pace asks for as long as that, in real time, and returns how many jobs were let through. What a limiter gives at the
// beginning, out of credit or ahead of time, does not count: two quanta and more go by first.
func (r *rig) pace(l limiter) (jobs int64) {
	ask := func() (n int64, wait time.Duration) {
		r.time(func() (err error) {
			n, wait, err = l.ask()
			return err
		})
		return n, wait
	}
	run := func(d time.Duration) (n int64) {
		begin := time.Now()
		next := begin
		for time.Since(begin) < d {
			got, wait := ask()
			n += got
			next = next.Add(wait)
			if l.every == 0 {
				next = time.Now().Add(wait)
			}
			time.Sleep(time.Until(next))
		}
		return n
	}
	run(time.Second)
	r.start()
	return run(pacedFor)
}

// BenchmarkPaced lets one campaign go at its rate in real time and counts what that costs per job, beside a common limiter
// for Redis.
func BenchmarkPaced(b *testing.B) {
	t := newTable(b, "One campaign in real time", "limiter", "rate", "delivered %", "scripts/job", "p50 µs", "p99 µs", "Redis CPU ms/1,000 jobs")
	for _, tc := range []struct {
		rate int
		make func(r *rig) limiter
	}{
		{1_000, func(r *rig) limiter { return ours(r, 1_000, 25*time.Millisecond) }},
		{1_000, func(r *rig) limiter { return oursAtOnce(r, 1_000, 25*time.Millisecond) }},
		{1_000, func(r *rig) limiter { return theirsAtMost(r, 1_000, 25*time.Millisecond) }},
		{1_000, func(r *rig) limiter { return theirs(r, 1_000) }},
		{150, func(r *rig) limiter { return ours(r, 150, 10*time.Millisecond) }},
		{150, func(r *rig) limiter { return theirsAtMost(r, 150, 10*time.Millisecond) }},
		{150, func(r *rig) limiter { return theirs(r, 150) }},
	} {
		r := newRig(b)
		l := tc.make(r)
		b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(l.name, ", ", "/"), tc.rate), func(b *testing.B) {
			var jobs int64
			for b.Loop() {
				jobs = r.pace(l)
			}
			cpu, scripts := r.cpuPer(jobs), float64(r.scripts()-r.calls)/float64(jobs)
			delivered := 100 * float64(jobs) / (float64(tc.rate) * pacedFor.Seconds())
			b.ReportMetric(scripts, "scripts/job")
			t.add(l.name, fmt.Sprintf("%d/s", tc.rate), delivered, scripts, r.percentile(.5), r.percentile(.99), cpu)
		})
	}
}

// BenchmarkAtFullSpeed asks without pause, from one caller, under limits that never bind: how many jobs a second are
// possible.
func BenchmarkAtFullSpeed(b *testing.B) {
	t := newTable(b, "One caller without pause, limits that never bind", "limiter", "jobs/s", "p50 µs", "p99 µs", "Redis CPU ms/1,000 jobs")
	measure := func(name string, r *rig, jobs int64, call func() error) {
		b.Run(strings.ReplaceAll(name, ", ", "/"), func(b *testing.B) {
			must(b, call())
			r.start()
			for b.Loop() {
				r.time(call)
			}
			n := jobs * int64(len(r.took))
			cpu := r.cpuPer(n)
			t.add(name, int64(float64(n)/b.Elapsed().Seconds()), r.percentile(.5), r.percentile(.99), cpu)
		})
	}
	const batch = 25 // jobs of a quantum at 1,000/s
	limit := redis_rate.Limit{Rate: 1_000_000, Period: time.Second, Burst: 1_000_000}
	for _, campaigns := range []int{1, 100} {
		r := newRig(b)
		e, asks := r.engine(), manyAsks(campaigns, 0)
		for i := range asks {
			asks[i].Want, asks[i].Campaign.Rate = batch, delivery.PerSecond(1_000_000)
		}
		measure(fmt.Sprintf("pacer, a take of %d for %d campaigns", batch, campaigns), r, batch*int64(campaigns), func() error {
			reply, err := e.Take(context.Background(), asks)
			if err == nil && reply.Items[0].Units != batch {
				err = fmt.Errorf("granted %d", reply.Items[0].Units)
			}
			return err
		})
	}
	r := newRig(b)
	l := redis_rate.NewLimiter(r.client)
	measure(fmt.Sprintf("redis_rate, AllowAtMost of %d", batch), r, batch, func() error {
		_, err := l.AllowAtMost(context.Background(), "c", limit, batch)
		return err
	})
	measure("redis_rate, Allow per job", r, 1, func() error {
		_, err := l.Allow(context.Background(), "c", limit)
		return err
	})
}

// BenchmarkMemory fills a quota of five windows and prints what its keys take.
func BenchmarkMemory(b *testing.B) {
	t := newTable(b, "Memory of a key", "key", "bytes")
	b.Run("fill", func(b *testing.B) {
		r := newRig(b)
		usage := func(key string) int64 {
			bytes, err := r.client.MemoryUsage(context.Background(), key).Result()
			must(b, err)
			return bytes
		}
		var line, began, full int64
		for b.Loop() {
			l, q := newLua(b, r.client), &delivery.Quota{ID: "q", Revision: 1, Windows: smev}
			for i := range 3 {
				take1(l, epoch, fmt.Sprint("node-", i), ask(campaign(1000, q), 5))
			}
			k := newKeys(l.prefix, 0)
			line, began = usage(k.timeline("c")), usage(k.quota("q"))
			fillBuckets(l, q)
			full = usage(k.quota("q"))
		}
		_, err := redis_rate.NewLimiter(r.client).Allow(context.Background(), "c", redis_rate.PerSecond(1000))
		must(b, err)
		t.add("timeline, three daemons", line)
		t.add("quota of five sliding windows, one bucket each", began)
		t.add("quota of five sliding windows, all buckets in use", full)
		t.add("redis_rate, one limit", usage("rate:c"))
	})
}
