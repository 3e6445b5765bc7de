package test

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
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// The benchmarks run against a Redis of their own and print a table each; docs/measured.md has some of their rows.

// figureTable is printed when the benchmark that fills it is done.
type figureTable struct {
	title string
	rows  [][]string
}

func newFigureTable(b *testing.B, title string, columns ...string) *figureTable {
	t := &figureTable{title: title, rows: [][]string{columns}}
	b.Cleanup(t.print)
	return t
}

func (t *figureTable) add(cells ...any) {
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

func (t *figureTable) print() {
	fmt.Printf("\n%s\n", t.title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range t.rows {
		fmt.Fprintln(w, strings.Join(row, "\t")+"\t")
	}
	_ = w.Flush()
	fmt.Println()
}

// limiterRig is a private Redis whose work and latency are measured from start on.
type limiterRig struct {
	b      *testing.B
	client redis.UniversalClient
	began  time.Time
	cpu    float64 // seconds of the server's main thread
	calls  int64   // scripts run
	took   []time.Duration
}

func newLimiterRig(b *testing.B) *limiterRig {
	c := redis.NewUniversalClient(shards.ClientOptions(testservices.FreshRedis(b).Addr))
	b.Cleanup(func() { _ = c.Close() })
	return &limiterRig{b: b, client: c}
}

func (r *limiterRig) engine() *limits.Engine {
	return limits.New(limits.Options{Shards: shards.New(r.client), Registerer: prometheus.NewRegistry(), Timeout: 5 * time.Second})
}

func (r *limiterRig) start() {
	r.cpu, r.calls = r.usedCPU(), r.scripts()
	r.took, r.began = nil, time.Now()
}

// time notes how long a call takes.
func (r *limiterRig) time(call func() error) {
	began := time.Now()
	noError(r.b, call())
	r.took = append(r.took, time.Since(began))
}

// percentile is of the calls' durations; p from 0 to 1.
func (r *limiterRig) percentile(p float64) time.Duration {
	slices.Sort(r.took)
	return r.took[int(p*float64(len(r.took)-1))]
}

func (r *limiterRig) scripts() int64 {
	return int64(r.info("commandstats", "cmdstat_evalsha:calls", "cmdstat_eval:calls"))
}

func (r *limiterRig) usedCPU() float64 {
	return r.info("cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")
}

// info adds up figures of INFO, which are spelled as name:value or name:part=value,...
func (r *limiterRig) info(section string, names ...string) (sum float64) {
	text, err := r.client.Info(context.Background(), section).Result()
	noError(r.b, err)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), ",")
		at := max(strings.LastIndexByte(line, ':'), strings.LastIndexByte(line, '='))
		if at < 0 || !slices.Contains(names, line[:at]) {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		noError(r.b, err)
		sum += v
	}
	return sum
}

// benchAsks is an ask for each of a number of campaigns at 1,000/s, each with its own quota of n windows, which never
// bind.
func benchAsks(campaigns, n int) []delivery.Ask {
	var asks []delivery.Ask
	for i := range campaigns {
		c := &delivery.Campaign{ID: fmt.Sprintf("campaign-%d", i), Revision: 1, Rate: delivery.PerSecond(1000), PriorityWeight: 1}
		if n > 0 {
			q := &delivery.Quota{ID: c.ID, Revision: 1}
			for _, span := range []time.Duration{1, 60, 24 * 60, 7 * 24 * 60, 30 * 24 * 60}[:n] {
				q.Windows = append(q.Windows, delivery.Window{Span: span * time.Minute, Limit: 1 << 40, Algorithm: delivery.AlgorithmSliding})
			}
			c.Quotas = []*delivery.Quota{q}
		}
		asks = append(asks, delivery.Ask{Campaign: c, Want: 25, Horizon: 75_000, Quantum: 25_000, LateTolerance: 20_000})
	}
	return asks
}

// cpuPer is the server's CPU time in milliseconds for a thousand of n.
func (r *limiterRig) cpuPer(n int64) float64 { return 1e6 * (r.usedCPU() - r.cpu) / float64(n) }

// BenchmarkTake measures whole takes of one daemon. Each campaign gets 25 units from its own quota, which has that many windows.
func BenchmarkTake(b *testing.B) {
	t := newFigureTable(b, "Takes of 25 units per campaign, one caller", "campaigns", "windows", "items/s", "p50 µs", "p99 µs",
		"scripts/take", "Redis CPU ms/1,000 items")
	for _, campaigns := range []int{1, 10, 100, 1000} {
		for _, windows := range []int{0, 1, 5} {
			b.Run(fmt.Sprintf("campaigns=%d/windows=%d", campaigns, windows), func(b *testing.B) {
				r := newLimiterRig(b)
				e, asks := r.engine(), benchAsks(campaigns, windows)
				take := func() error {
					_, err := e.Take(context.Background(), asks)
					return err
				}
				noError(b, take()) // connects, loads the script, makes the keys
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

// limiter returns how many jobs it lets through at a moment.
type limiter struct {
	name  string
	every time.Duration // between two asks
	// ask asks once and returns how many jobs may go, and how long to wait before the next ask where that is not every.
	ask func() (jobs int64, wait time.Duration, err error)
}

// ours asks for everything that a bottomless queue could send, at every quantum.
func ours(r *limiterRig, rate int64, quantum time.Duration) limiter {
	e, a := r.engine(), benchAsks(1, 0)[0]
	a.Campaign.Rate = delivery.PerSecond(rate)
	a.Want, a.Quantum, a.Horizon = delivery.MaxGrant, quantum.Microseconds(), 3*quantum.Microseconds()
	return limiter{fmt.Sprintf("pacer, a take per %s", quantum), quantum, func() (int64, time.Duration, error) {
		reply, err := e.Take(context.Background(), []delivery.Ask{a})
		return reply.Items[0].Units, quantum, err
	}}
}

// oursAtOnce is ours as the scheduler asks while a backlog waits: as soon as there can be more, but for half a quantum.
func oursAtOnce(r *limiterRig, rate int64, quantum time.Duration) limiter {
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
func theirsAtMost(r *limiterRig, rate int, quantum time.Duration) limiter {
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
func theirs(r *limiterRig, rate int) limiter {
	l, limit := redis_rate.NewLimiter(r.client), redis_rate.Limit{Rate: rate, Period: time.Second, Burst: rate * 3 / 40}
	return limiter{"redis_rate, Allow per job", 0, func() (int64, time.Duration, error) {
		res, err := l.Allow(context.Background(), "c", limit)
		if err != nil {
			return 0, 0, err
		}
		return int64(res.Allowed), max(0, res.RetryAfter), nil
	}}
}

// pacedFor is how long a limiter is asked in real time.
func pacedFor() time.Duration { return 4 * time.Second }

// pace asks for that long and returns how many jobs were let through. The first two quanta do not count: a limiter may begin with credit.
func (r *limiterRig) pace(l limiter) (jobs int64) {
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
	run(pacedFor() / 4)
	r.start()
	return run(pacedFor())
}

// BenchmarkPaced lets one campaign go at its rate in real time and counts what that costs per job, beside a common limiter
// for Redis.
func BenchmarkPaced(b *testing.B) {
	t := newFigureTable(b, "One campaign in real time", "limiter", "rate", "delivered %", "scripts/job", "p50 µs", "p99 µs", "Redis CPU ms/1,000 jobs")
	for _, tc := range []struct {
		rate int
		make func(r *limiterRig) limiter
	}{
		{1_000, func(r *limiterRig) limiter { return ours(r, 1_000, 25*time.Millisecond) }},
		{1_000, func(r *limiterRig) limiter { return oursAtOnce(r, 1_000, 25*time.Millisecond) }},
		{1_000, func(r *limiterRig) limiter { return theirsAtMost(r, 1_000, 25*time.Millisecond) }},
		{1_000, func(r *limiterRig) limiter { return theirs(r, 1_000) }},
		{150, func(r *limiterRig) limiter { return ours(r, 150, 10*time.Millisecond) }},
		{150, func(r *limiterRig) limiter { return theirsAtMost(r, 150, 10*time.Millisecond) }},
		{150, func(r *limiterRig) limiter { return theirs(r, 150) }},
	} {
		r := newLimiterRig(b)
		l := tc.make(r)
		b.Run(fmt.Sprintf("%s/%d", strings.ReplaceAll(l.name, ", ", "/"), tc.rate), func(b *testing.B) {
			var jobs int64
			for b.Loop() {
				jobs = r.pace(l)
			}
			cpu, scripts := r.cpuPer(jobs), float64(r.scripts()-r.calls)/float64(jobs)
			delivered := 100 * float64(jobs) / (float64(tc.rate) * pacedFor().Seconds())
			b.ReportMetric(scripts, "scripts/job")
			t.add(l.name, fmt.Sprintf("%d/s", tc.rate), delivered, scripts, r.percentile(.5), r.percentile(.99), cpu)
		})
	}
}
