package eventual

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// softCluster is daemons and roots in virtual time.
type softCluster struct {
	t       testing.TB
	rnd     *rand.Rand
	at      time.Time
	servers []*miniredis.Miniredis
	clients []redis.UniversalClient
	daemons []*softDaemon
	used    []int64       // per step, all daemons
	off     time.Duration // by which the roots' clocks are off
}

type softDaemon struct {
	e    *Quotas
	next []time.Time // syncs with the roots
}

const softStep = 20 * time.Millisecond

func newSoftCluster(t testing.TB, roots, daemons int) *softCluster {
	t.Helper()
	testservices.Simulation(t)
	c := &softCluster{t: t, rnd: rand.New(rand.NewPCG(uint64(roots), uint64(daemons))), at: time.UnixMicro(epoch)}
	for range roots {
		m := miniredis.RunT(t)
		o := shards.ClientOptions(m.Addr())
		// Virtual time stands still while a request is under way.
		o.DialerRetries, o.DialTimeout, o.ReadTimeout = 1, 10*time.Second, 10*time.Second
		client := redis.NewUniversalClient(o)
		t.Cleanup(func() { _ = client.Close() })
		c.servers, c.clients = append(c.servers, m), append(c.clients, client)
	}
	for range daemons {
		c.add()
	}
	return c
}

// reconnect waits until the clients have found their servers again, which takes them a second of real time.
func (c *softCluster) reconnect() {
	c.t.Helper()
	for _, client := range c.clients {
		for deadline := time.Now().Add(10 * time.Second); client.Ping(context.Background()).Err() != nil; {
			if time.Now().After(deadline) {
				c.t.Fatal("the client does not find the server again")
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// add starts a daemon.
func (c *softCluster) add() *softDaemon {
	c.t.Helper()
	e := New(Options{
		Roots: c.clients, KeyPrefix: "soft.", Node: testservices.Unique("node"), Registerer: prometheus.NewRegistry(),
		now: func() time.Time { return c.at }, timeout: 10 * time.Second,
	})
	d := &softDaemon{e: e}
	for range c.clients {
		d.next = append(d.next, c.at.Add(time.Duration(c.rnd.Int64N(int64(time.Second)))))
	}
	c.daemons = append(c.daemons, d)
	return d
}

// run lets every daemon ask for the wanted units at each step.
func (c *softCluster) run(d time.Duration, q *delivery.Quota, want func(daemon int, at time.Time) int64) (used int64) {
	for end := c.at.Add(d); c.at.Before(end); c.at = c.at.Add(softStep) {
		for _, m := range c.servers {
			m.SetTime(c.at.Add(c.off))
		}
		step := int64(0)
		for i, d := range c.daemons {
			if n := want(i, c.at); n > 0 {
				step += d.e.Allow(q, n)
			}
			d.syncDue(c)
		}
		c.used, used = append(c.used, step), used+step
	}
	return used
}

func (d *softDaemon) syncDue(c *softCluster) {
	for i, r := range d.e.roots {
		select {
		case <-r.kick:
			d.next[i] = c.at
		default:
		}
		if !d.next[i].After(c.at) {
			d.e.sync(context.Background(), r)
			d.next[i] = c.at.Add(d.e.pause(c.rnd.Int64N) - softStep)
		}
	}
}

// ahead returns the most that use was ahead of rate * time, over all stretches.
func (c *softCluster) ahead(w delivery.Window) float64 {
	rate := float64(w.Limit) / w.Span.Seconds()
	var level, most float64
	for _, n := range c.used {
		level += float64(n)
		most = max(most, level)
		level = max(0, level-rate*softStep.Seconds())
	}
	return most
}

func softQuota(policy string, spec ...any) *delivery.Quota {
	return &delivery.Quota{
		ID: "q", Revision: 1, Mode: delivery.ModeEventual, OnStoreFailure: policy, Windows: windows(spec...),
	}
}

func always(n int64) func(int, time.Time) int64 {
	return func(int, time.Time) int64 { return n }
}

func TestEventualOvershootStaysWithinItsBound(t *testing.T) {
	t.Parallel()
	const length = 25 * time.Second // the minute of two windows binds after twelve
	for _, daemons := range []int{1, 2, 5} {
		for name, q := range map[string]*delivery.Quota{
			"100 a second":    softQuota("", 100, time.Second),
			"a million bytes": softQuota("", 1_000_000, time.Second),
			"20 a minute":     softQuota("", 20, time.Minute),
			"two windows":     softQuota("", 1_000, time.Second, 12_000, time.Minute),
		} {
			for pattern, want := range map[string]func(int, time.Time) int64{
				"saturated": always(1 << 20),
				"modest":    always(max(1, q.Windows[0].Limit/50)),
				"bursts": func(_ int, at time.Time) int64 {
					if at.Unix()%9 < 2 {
						return 1 << 20
					}
					return 0
				},
			} {
				t.Run(fmt.Sprintf("%d/%s/%s", daemons, name, pattern), func(t *testing.T) {
					t.Parallel()
					c := newSoftCluster(t, 2, daemons)
					used := c.run(length, q, want)
					least := 1e18
					for _, w := range q.Windows {
						rate := float64(w.Limit) / w.Span.Seconds()
						least = min(least, length.Seconds()*rate)
						bound := float64(daemons-1)*max(1, rate*DefaultSync.Seconds()) + max(1, rate*DefaultHighBurst.Seconds()) + 1
						if got := c.ahead(w); got > bound {
							t.Errorf("window %s: %.0f units ahead, want at most %.0f", w.Span, got, bound)
						}
					}
					if pattern == "saturated" && float64(used) < 0.95*least-1 {
						t.Errorf("used %d, want about %.0f", used, least)
					}
				})
			}
		}
	}
}

// example is one of docs/quotas.md, whose first line tells of a quota's limit.
func example(t *testing.T, name, format string) (limit int, lines []string) {
	t.Helper()
	text, err := os.ReadFile("../../../docs/quotas.md")
	must(t, err)
	_, example, _ := strings.Cut(string(text), "\n```"+name+"\n")
	example, _, _ = strings.Cut(example, "\n```")
	lines = strings.Split(example, "\n")
	_, err = fmt.Sscanf(lines[0], format, &limit)
	must(t, err)
	return limit, lines[1:]
}

// TestTheExampleOfEventualQuotasIsTrue plays the example of docs/quotas.md: what is sent in the first minute.
func TestTheExampleOfEventualQuotasIsTrue(t *testing.T) {
	t.Parallel()
	limit, lines := example(t, "eventual", "quota %d/1m")
	for _, line := range lines {
		var daemons int
		var least, most int64
		_, err := fmt.Sscanf(line, "%d daemons: %d to %d", &daemons, &least, &most)
		must(t, err)
		c := newSoftCluster(t, 2, daemons)
		if n := c.run(time.Minute, softQuota("", limit, time.Minute), always(1)); n < least || n > most {
			t.Errorf("%d daemons: %d", daemons, n)
		}
	}
	if len(lines) != 3 {
		t.Errorf("%d lines", len(lines))
	}
}

// TestTheExampleOfBytesIsTrue plays the example of docs/quotas.md: how many of the jobs that wait go.
func TestTheExampleOfBytesIsTrue(t *testing.T) {
	t.Parallel()
	limit, lines := example(t, "bytes", "quota %d/1s")
	q := softQuota("", limit, time.Second)
	q.Unit = delivery.UnitBytes
	c := newSoftCluster(t, 1, 1)
	c.run(2*time.Second, q, always(1))
	begin := c.at
	for _, line := range lines {
		words := strings.Fields(line)
		after, err := time.ParseDuration(words[0])
		must(t, err)
		c.run(begin.Add(after).Sub(c.at), q, always(0))
		var sizes []int64
		for _, w := range words[3 : len(words)-1] {
			n, err := strconv.ParseInt(strings.TrimSuffix(w, ":"), 10, 64)
			must(t, err)
			sizes = append(sizes, n)
		}
		if n := c.daemons[0].e.Fits(q, sizes); strconv.Itoa(n) != words[len(words)-1] {
			t.Errorf("%s: %d", line, n)
		}
	}
	if len(lines) != 4 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestEventualBoundIsPublished(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 3, 4)
	q := softQuota("", 600, time.Minute)
	c.run(10*time.Second, q, always(1))
	for _, d := range c.daemons {
		if got := testutil.ToFloat64(d.e.bound.WithLabelValues("q")); got != 30 { // 3 * 10/s * 1 s
			t.Errorf("bound %g, want 30", got)
		}
	}
}

func TestEventualBelowTheLimitDeniesNothing(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 2, 3)
	q := softQuota("", 600, time.Second) // 3 daemons, 50 steps a second
	asked := int64(3 * 4 * 50 * 20)
	if used := c.run(20*time.Second, q, always(4)); used != asked {
		t.Errorf("used %d of %d, at exactly the limit", used, asked)
	}
}

func TestEventualRootsAreLostOneByOne(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string][2]float64{ // units a second without roots
		delivery.PolicyClosed:     {0, 0},
		delivery.PolicyLocalShare: {90, 101},
		delivery.PolicyOpen:       {1_999, 2_000},
	} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newSoftCluster(t, 3, 4)
			q := softQuota(policy, 100, time.Second)
			for i := range c.servers {
				used := float64(c.run(10*time.Second, q, always(10)))
				if i > 0 && (used < 850 || used > 1_150) { // it wanders between the bursts, which are 100 apart
					t.Errorf("with %d roots lost: %g in 10 s, limit 1000", i, used)
				}
				c.servers[i].Close()
			}
			c.run(4*time.Second, q, always(10))
			used := float64(c.run(10*time.Second, q, always(10))) / 10
			if used < want[0] || used > want[1] {
				t.Errorf("without roots: %g a second, want %v", used, want)
			}
			for _, m := range c.servers {
				must(t, m.Restart())
			}
			c.reconnect()
			c.run(10*time.Second, q, always(10))
			if used := c.run(10*time.Second, q, always(10)); used < 850 || used > 1_150 {
				t.Errorf("with the roots back: %d in 10 s, limit 1000", used)
			}
		})
	}
}

// TestAnIdleQuotaBindsFromItsFirstJob: no outage has to be assumed where nothing was asked for a while.
func TestAnIdleQuotaBindsFromItsFirstJob(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{delivery.PolicyOpen, delivery.PolicyLocalShare, delivery.PolicyClosed} {
		c := newSoftCluster(t, 2, 3)
		q := softQuota(policy, 100, time.Second)
		c.run(5*time.Second, q, always(1))
		for _, idle := range []time.Duration{11 * time.Minute, 90 * time.Minute, 3 * time.Hour} {
			c.at = c.at.Add(idle)
			used := c.run(200*time.Millisecond, q, always(1000))
			if used < 10 || used > 400 {
				t.Errorf("%s: %d units in the first moment after %s, the limit is 100 a second", policy, used, idle)
			}
			c.run(20*time.Second, q, always(0))
		}
	}
}

// TestLocalShareOfAnUnknownQuota: daemons that never had counts of each other do not know their share.
func TestLocalShareOfAnUnknownQuota(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 1, 4)
	c.servers[0].SetError("away")
	q := softQuota(delivery.PolicyLocalShare, 100, time.Second)
	c.run(5*time.Second, q, always(10))
	if used := c.run(10*time.Second, q, always(10)); used > 1000 {
		t.Errorf("4 daemons sent %d units in 10 s, the limit is 100 a second", used)
	}
}

func TestEventualRootWithoutItsDataChangesNothing(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 2, 3)
	q := softQuota("", 100, time.Second)
	c.run(20*time.Second, q, always(10))
	var used int64
	for i := range 8 {
		c.servers[i%2].FlushAll()
		used += c.run(5*time.Second, q, always(10))
	}
	if used < 3_800 || used > 4_300 { // use may be anywhere between the bursts when it begins and ends
		t.Errorf("%d in 40 s, limit 4000", used)
	}
	// The daemons use 10 units at a time, and hear of each other a step of the simulation, or 2 units, later than they might.
	// A root that has lost its data may miss what two of them had used since their last report, half a sync each.
	if got := c.ahead(q.Windows[0]); got > 400+3*2*10+2+2*50 {
		t.Errorf("%.0f units ahead, want at most 400, six uses and what was not reported", got)
	}
}

func TestEventualReportsMayBeRepeated(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 1, 1)
	q := softQuota("", 100, time.Second)
	c.servers[0].SetTime(c.at)
	d := c.daemons[0]
	d.e.Allow(q, 1)
	for range 3 {
		list := d.e.reports()
		var all []rootAnswer
		for range 3 {
			answers, err := d.e.put(context.Background(), d.e.roots[0], list)
			must(t, err)
			all = append(all, answers...)
		}
		if !slices.EqualFunc(all[1:], all[:2], func(a, b rootAnswer) bool {
			return a.cluster == b.cluster && a.nodes == b.nodes && slices.Equal(a.debts, b.debts)
		}) {
			t.Errorf("answers differ: %+v", all)
		}
		d.e.settle(context.Background(), d.e.roots[0], list, all[:1], d.e.now(), nil)
		d.e.Allow(q, 5)
	}
}

func TestEventualRestartLowersNoTotal(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 2, 2)
	q := softQuota("", 100, time.Second)
	used := c.run(10*time.Second, q, always(10))
	for _, r := range c.daemons[0].e.roots { // as run does when it ends
		c.daemons[0].e.sync(context.Background(), r)
	}
	c.daemons = c.daemons[1:]
	fresh := c.add()
	used += c.run(10*time.Second, q, always(10))
	c.run(2*time.Second, q, always(0))
	var most int64
	for root := range c.servers {
		total, err := strconv.ParseInt(c.servers[root].HGet("{soft.eventual}q", "total"), 10, 64)
		must(t, err)
		// A root that begins with what one daemon had heard misses what another has told elsewhere since.
		if total < used*95/100 || total > used {
			t.Errorf("root %d counted %d of %d", root, total, used)
		}
		most = max(most, total)
	}
	if most != used {
		t.Errorf("the roots counted %d of %d", most, used)
	}
	if s := fresh.e.quotas["q"]; s.nodes < 2 || s.cluster != used {
		t.Errorf("the new daemon heard of %d daemons and %d units", s.nodes, s.cluster)
	}
}

func TestEventualUnitsGoBack(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 1, 1)
	q := softQuota("", 100, time.Second)
	c.run(2*time.Second, q, always(1))
	e := c.daemons[0].e
	n := e.Allow(q, 1_000)
	if n == 0 || e.Allow(q, 1_000) > n/4 {
		t.Fatalf("allowed %d at first and much again", n)
	}
	e.GiveBack(q, 1_000)
	if again := e.Allow(q, 1_000); again < n {
		t.Errorf("allowed %d after everything went back, %d before", again, n)
	}
	for e.Allow(q, 1_000) > 0 {
		continue
	}
	if got, _ := e.Wait(q); got <= 0 || got > DefaultHighBurst {
		t.Errorf("wait %s", got)
	}
	none := softQuota("", 0, time.Second)
	none.Revision = 2
	if got := e.Allow(none, 5); got != 0 {
		t.Errorf("%d units of a limit of 0", got)
	}
	if got := e.Allow(q, 5); got != 0 {
		t.Errorf("an older definition allowed %d", got)
	}
}

func TestEventualForgets(t *testing.T) {
	t.Parallel()
	c := newSoftCluster(t, 1, 1)
	c.run(time.Second, softQuota("", 100, time.Second), always(1))
	e := c.daemons[0].e
	c.at = c.at.Add(softIdle + time.Second)
	if got := e.reports(); len(got) != 0 || len(e.quotas) != 1 {
		t.Errorf("%d idle quotas are reported, %d known", len(got), len(e.quotas))
	}
	c.at = c.at.Add(softForget)
	if e.reports(); len(e.quotas) != 0 {
		t.Error("it is still known")
	}
	c.servers[0].FastForward(softKeep + time.Second)
	if keys := c.servers[0].Keys(); len(keys) != 0 {
		t.Errorf("the root keeps %v", keys)
	}
}

func TestEventualRunsOverRedis(t *testing.T) {
	t.Parallel()
	client := redis.NewUniversalClient(shards.ClientOptions(testservices.RedisAddr(t)))
	defer func() { _ = client.Close() }()
	prefix := testservices.Unique("soft") + "."
	ctx, cancel := context.WithCancel(context.Background())
	q := softQuota("", 1_000_000, time.Second)
	var running sync.WaitGroup
	var list []*Quotas
	for range 2 {
		e := New(Options{
			Roots: []redis.UniversalClient{client}, KeyPrefix: prefix, Node: testservices.Unique("node"),
			Sync: 20 * time.Millisecond, Registerer: prometheus.NewRegistry(),
		})
		e.Allow(q, 100)
		running.Go(func() { e.Run(ctx) })
		list = append(list, e)
	}
	must(t, client.ScriptFlush(ctx).Err())
	heard := func(e *Quotas) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.quotas["q"].cluster == 200 && e.quotas["q"].nodes == 2
	}
	for deadline := time.Now().Add(5 * time.Second); !heard(list[0]) || !heard(list[1]); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the daemons have not heard of each other")
		}
	}
	last := list[0].Allow(q, 50)
	cancel()
	running.Wait()
	total, err := client.HGet(context.Background(), list[0].softKey("q"), "total").Int64()
	if err != nil || total != 200+last || last == 0 {
		t.Errorf("a total of %d, %v; %d were used just before the end", total, err, last)
	}
}

// TestOneEventualQuotaStopsNoOther: one job is worth 400 years of its quota.
func TestOneEventualQuotaStopsNoOther(t *testing.T) {
	c := newSoftCluster(t, 1, 1)
	other := softQuota("", 1000, time.Second)
	tiny := &delivery.Quota{ID: "tiny", Revision: 1, Mode: delivery.ModeEventual, Unit: delivery.UnitBytes, Windows: windows(1, 30*24*time.Hour)}
	c.run(5*time.Second, other, always(100))
	if n := c.daemons[0].e.Fits(tiny, []int64{5000}); n != 1 {
		t.Fatal("the first job does not fit")
	}
	c.run(5*time.Second, other, always(100))
	if n := c.run(20*time.Second, other, always(100)); n < 19_000 {
		t.Errorf("%d units in 20 s at 1000/s", n)
	}
	if n := c.daemons[0].e.Fits(tiny, []int64{5000}); n != 0 {
		t.Error("the quota of that job has room")
	}
}

// TestAnEventualRootsClockComesBack: it was ahead for a moment.
func TestAnEventualRootsClockComesBack(t *testing.T) {
	for _, roots := range []int{1, 3} {
		c := newSoftCluster(t, roots, 2)
		q := softQuota("", 1000, time.Second)
		c.run(5*time.Second, q, always(100))
		c.off = 10 * time.Minute
		c.run(2*time.Second, q, always(100))
		c.off = 0
		if n := c.run(20*time.Second, q, always(100)); n < 19_000 || n > 22_000 {
			t.Errorf("%d roots: %d units in 20 s at 1000/s", roots, n)
		}
	}
}
