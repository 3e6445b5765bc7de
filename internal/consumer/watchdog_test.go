package consumer

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// A stall is as long as the time since the mark last moved or could not move.
func TestStallTimerAgreesWithHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s stallTimer
		now, mark := time.Unix(0, 0), uint64(0)
		since, stands := now, false
		for range rapid.IntRange(1, 50).Draw(rt, "looks") {
			now = now.Add(rapid.SampledFrom([]time.Duration{0, time.Second, time.Minute}).Draw(rt, "passes"))
			moves, could := rapid.Bool().Draw(rt, "moves"), rapid.Bool().Draw(rt, "could")
			if moves {
				mark++
			}
			if moves || !could || !stands {
				since = now
			}
			stands = could
			want := time.Duration(0)
			if could {
				want = now.Sub(since)
			}
			if got := s.look(now, mark, could); got != want {
				rt.Fatalf("stands for %s, want %s", got, want)
			}
		}
	})
}

// blocking is Options.Blocking.
func blocking(campaigns ...string) func() iter.Seq[string] {
	return func() iter.Seq[string] { return slices.Values(campaigns) }
}

// kennel is a watchdog with three partitions and nothing else around it.
type kennel struct {
	*watchdog
	ingress, timer *windowSource
	lane           *laneSource
	logs           *logBook
	outage         bool  // the job at jobs/0/0 is refused
	waiting        int64 // bytes of jobs that are refused
	lost           context.CancelFunc
	now            time.Time
}

const age = time.Minute

func newKennel(t *testing.T) *kennel {
	t.Helper()
	k := &kennel{logs: &logBook{}, now: time.Unix(1_700_000_000, 0)}
	b := newBudget(64 << 20)
	m := newMetrics(newRegistry(), b)
	health := broker.NewHealth(discardLog())
	c := newCommitter(nil, &membership{}, m, health)
	k.ingress = newWindowSource(partition{Topic: "jobs", ID: 0}, delivery.FromIngress, offset.NewWindow(0), b, m, c.kicked.Send)
	k.timer = newWindowSource(partition{Topic: "timer", ID: 1}, delivery.FromTimer, offset.NewWindow(0), b, m, c.kicked.Send)
	k.lane = newLaneSource(partition{Topic: "lanes", ID: 2}, offset.NewLane(0), b, m, c.kicked.Send)
	c.sources = func() []*source { return []*source{&k.ingress.source, &k.timer.source, &k.lane.source} }
	o := &Options{
		Group: "g", Blocking: blocking(), Watchdog: age, OpenAge: 10 * time.Second, ShutdownTimeout: 20 * time.Second,
		Waits: func(source string, at int64) bool { return k.outage && source == "jobs/0" && at == 0 }, Waiting: func() int64 { return k.waiting },
		MaxBufferBytes: 64 << 20, MaxOpen: offset.MaxOpen, Logger: slog.New(slog.NewTextHandler(k.logs, nil)),
	}
	work, lost := context.WithCancel(t.Context())
	k.lost = lost
	k.watchdog = &watchdog{
		opt: o, metrics: m, health: health, budget: b, state: &watchState{}, commit: c, works: func() bool { return work.Err() == nil },
	}
	k.held = func() []watched { return []watched{k.ingress, k.timer, k.lane} }
	k.watch(k.held())
	return k
}

// pass lets time go by, with a look every few seconds; the goroutines that come round by themselves do.
func (k *kennel) pass(d time.Duration, alive ...func()) {
	const step = 5 * time.Second
	for range int(d / step) {
		k.now = k.now.Add(step)
		for _, f := range alive {
			f()
		}
		k.look(k.now)
	}
	k.state.looked(k.now, k.detectors)
}

func (k *kennel) commits() {
	k.commit.note(func(s *commitState) { s.rounds++; s.answered = true; s.err = nil })
}

// fetches lets the readers of ingress and lane come round.
func (k *kennel) fetches() {
	for _, s := range k.commit.sources() {
		k.fetch(s.String())
	}
}

func (k *kennel) fetch(name string) {
	for _, p := range k.watched {
		if s := p.base(); s.String() == name {
			s.begin("a fetch to end")
			s.end()
		}
	}
}

func (k *kennel) settleAll(s *windowSource, to int64) {
	for o := range to {
		s.settle(o, 0)
	}
	k.acknowledge(&s.source)
}

func (k *kennel) acknowledge(s *source) {
	if p, dirty := s.progress(); dirty {
		s.committed(p)
	}
}

// stalls counts what is shown for a place.
func stalls(m *metrics, place string) float64 {
	var out dto.Metric
	_ = m.stalled.WithLabelValues(place).Write(&out)
	return out.GetGauge().GetValue()
}

func TestWatchdog(t *testing.T) {
	laneJob := func(k *kennel, at int64) {
		k.lane.mu.Lock()
		k.lane.lane.ClassifyMain(1, at)
		k.lane.add(1, offset.Record{Offset: at, Size: 10, Weight: 1})
		k.lane.mu.Unlock()
		k.acknowledge(&k.lane.source)
	}
	for name, c := range map[string]struct {
		set     func(k *kennel)
		idle    bool            // fetches of lanes do not come round by themselves
		silent  bool            // nor do those of ingress
		frozen  bool            // nor does the committer
		steady  func(k *kennel) // what moves all the time
		stalled string
		place   string
		says    string
		heal    func(k *kennel)
	}{
		"nothing to do": {set: func(*kennel) {}},
		"an offset stays open": {
			set: func(k *kennel) {
				k.ingress.register(0, 1, 0)
				k.ingress.register(1, 1, 0)
				k.ingress.settle(1, 0)
				k.acknowledge(&k.ingress.source)
			},
			stalled: "jobs/0", place: "ingress", says: "offset 0", heal: func(k *kennel) { k.settleAll(k.ingress, 1) },
		},
		"a timer's offset stays open": {
			set: func(k *kennel) { k.timer.register(0, 1, 0) }, stalled: "timer/1", place: "timer", says: "fate of the job",
			heal: func(k *kennel) { k.settleAll(k.timer, 1) },
		},
		"a lane's offset stays open":   {set: func(k *kennel) { laneJob(k, 0) }},
		"a re-enqueued job is refused": {set: func(k *kennel) { k.outage = true; k.ingress.register(0, 1, 0) }},
		"a job stays open while another is refused": {
			set:     func(k *kennel) { k.outage = true; k.ingress.register(0, 1, 0); k.timer.register(0, 1, 0) },
			stalled: "timer/1", place: "timer", says: "fate of the job", heal: func(k *kennel) { k.settleAll(k.timer, 1) },
		},
		"commits fail": {set: func(k *kennel) {
			k.ingress.register(0, 1, 0)
			k.health.Fail("commit", errors.New("unreachable"))
		}},
		"a paused campaign is left behind in its lane": {set: func(k *kennel) {
			laneJob(k, 0)
			k.lane.refused(0)
			k.acknowledge(&k.lane.source)
		}, idle: true},
		"a campaign with room is not caught up with": {
			set: func(k *kennel) {
				laneJob(k, 0)
				k.lane.refused(0)
				k.lane.Room("", 1)
				k.lane.mu.Lock()
				k.lane.lane.GrantRoom(1, 5)
				k.lane.mu.Unlock()
				k.acknowledge(&k.lane.source)
			},
			idle: true, stalled: "lanes/2", place: "lane", says: "does not fetch", heal: func(k *kennel) { k.fetches() },
		},
		"the main reader of a lane is not heard of": {
			set: func(k *kennel) { k.lane.edge.Store(5) }, idle: true, stalled: "lanes/2", place: "lane", says: "does not fetch",
			heal: func(k *kennel) { k.lane.edge.Store(0) },
		},
		"fetches of lanes wait for memory, one after the other": {set: func(k *kennel) {
			k.lane.edge.Store(5)
			k.lane.budget.waiting.PushBack(&claim{since: k.now})
		}, idle: true, steady: func(k *kennel) { k.lane.budget.waited++ }},
		"no fetch of a lane is given memory": {
			set: func(k *kennel) { k.lane.budget.waiting.PushBack(&claim{since: k.now}) }, idle: true,
			stalled: "group", place: "group", says: "memory for jobs of lanes",
			heal: func(k *kennel) { k.lane.budget.waited++ },
		},
		"no fetch of ingress is given memory": {
			set:     func(k *kennel) { k.ingress.budget.waiting.PushBack(&claim{since: k.now}) },
			stalled: "group", place: "group", says: "memory for jobs of ingress",
			heal: func(k *kennel) { k.ingress.budget.waited++ },
		},
		"jobs that stay in ingress fill the memory": {set: func(k *kennel) {
			k.ingress.budget.waiting.PushBack(&claim{since: k.now})
			k.opt.Blocking = blocking("stays")
		}},
		"jobs that cannot be re-enqueued fill the memory": {set: func(k *kennel) {
			k.ingress.budget.waiting.PushBack(&claim{since: k.now})
			k.waiting = 30 << 20
		}},
		"the memory is full, and a few jobs cannot be re-enqueued": {
			set: func(k *kennel) {
				k.ingress.budget.waiting.PushBack(&claim{since: k.now})
				k.waiting = 1 << 20
			},
			stalled: "group", place: "group", says: "memory for jobs of ingress",
			heal: func(k *kennel) { k.ingress.budget.waited++ },
		},
		"an open job stays in ingress on purpose": {set: func(k *kennel) {
			k.ingress.register(0, 1, offset.OwnerOf("stays"))
			k.opt.Blocking = blocking("stays")
		}},
		"a job stays in ingress behind one that does not": {
			set: func(k *kennel) {
				k.ingress.register(0, 1, offset.OwnerOf("goes"))
				k.ingress.register(1, 1, offset.OwnerOf("stays"))
				k.opt.Blocking = blocking("stays")
			},
			stalled: "jobs/0", place: "ingress", says: "fate of the job", heal: func(k *kennel) { k.settleAll(k.ingress, 1) },
		},
		"ingress waits for room": {set: func(k *kennel) { k.ingress.block(true) }, idle: true, silent: true},
		"the reader of ingress is not heard of": {
			set: func(*kennel) {}, idle: true, silent: true, stalled: "jobs/0", place: "ingress", says: "does not fetch",
			heal: func(k *kennel) { k.fetches() },
		},
		"the broker of a partition is down": {set: func(k *kennel) {
			k.lane.edge.Store(5)
			k.health.Fail("lanes/2", errors.New("unreachable"))
		}, idle: true},
		"an offer does not return": {
			set: func(k *kennel) {
				k.lane.edge.Store(5)
				k.lane.begin("the handler to take the jobs it is offered")
			},
			idle:    true,
			stalled: "lanes/2", place: "lane", says: "handler to take", heal: func(k *kennel) { k.fetches(); k.lane.edge.Store(0) },
		},
		"a commit is not accepted": {
			set: func(k *kennel) {
				k.ingress.register(0, 1, 0)
				k.ingress.settle(0, 0)
				k.commits()
			},
			stalled: "jobs/0", place: "ingress", says: "broker does not accept", heal: func(k *kennel) { k.acknowledge(&k.ingress.source) },
		},
		"the committer is gone": {
			set: func(*kennel) {}, frozen: true, stalled: "group g", place: "group", says: "does not come round",
			heal: func(k *kennel) { k.commits() },
		},
		"a generation is not let go": {
			set: func(k *kennel) { k.ingress.register(0, 1, 0); k.lost() }, stalled: "group g", place: "group", says: "to let go",
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKennel(t)
			c.set(k)
			if !c.idle { // only what the case is about stands still
				k.fetches()
			}
			alive := []func(){func() {
				if !c.frozen {
					k.commits()
				}
				if c.steady != nil {
					c.steady(k)
				}
				if !c.idle {
					k.fetches()
				} else if !c.silent {
					k.fetch("jobs/0")
				}
			}}
			k.pass(age-5*time.Second, alive...)
			if why, _ := k.state.stalled(k.now, age); why != "" {
				t.Fatalf("alarmed before its time: %s", why)
			}
			k.pass(40*time.Second, alive...)
			why, over := k.state.stalled(k.now, age)
			if c.stalled == "" {
				if why != "" || len(k.logs.lines("level=ERROR")) > 0 {
					t.Fatalf("false alarm: %s", why)
				}
				return
			}
			if !strings.HasPrefix(why, c.stalled+" ") || !strings.Contains(why, c.says) || over <= 0 || over > 40*time.Second {
				t.Fatalf("%q, for %s", why, over)
			}
			if n := stalls(k.metrics, c.place); n != 1 {
				t.Errorf("%v partitions shown in %s", n, c.place)
			}
			if lines := k.logs.lines("level=ERROR", c.says[:4]); len(lines) != 1 {
				t.Errorf("%q", lines)
			}
			if c.heal == nil {
				return
			}
			c.heal(k)
			k.pass(5*time.Second, k.commits)
			if why, _ := k.state.stalled(k.now, age); why != "" || stalls(k.metrics, c.place) != 0 || len(k.logs.lines("moves on")) != 1 {
				t.Errorf("after it moved: %q\n%s", why, k.logs)
			}
		})
	}
}

// An outage does not count: after it, an open offset has all its time again.
func TestWatchdogAfterAnOutage(t *testing.T) {
	k := newKennel(t)
	k.ingress.register(0, 1, 0)
	k.outage = true
	k.pass(time.Hour, k.commits, k.fetches)
	k.outage = false
	k.pass(age, k.commits, k.fetches)
	if why, _ := k.state.stalled(k.now, age); why != "" {
		t.Errorf("alarmed right after the outage: %s", why)
	}
	k.pass(20*time.Second, k.commits, k.fetches)
	if why, _ := k.state.stalled(k.now, age); why == "" {
		t.Error("never alarmed")
	}
}

// What a fetch brought may take far longer than a fetch to be offered, since an outage makes each offer slow.
func TestWatchdogWhileOffersAreSlow(t *testing.T) {
	k := newKennel(t)
	k.pass(20*age, k.commits, func() {
		k.ingress.begin("the handler to take the jobs it is offered")
		k.ingress.end()
	})
	if why, _ := k.state.stalled(k.now, age); why != "" {
		t.Errorf("alarmed: %s", why)
	}
}

// A campaign that begins to keep its jobs in ingress also keeps those that were read before.
func TestWatchdogWhenACampaignBeginsToBlock(t *testing.T) {
	k := newKennel(t)
	k.ingress.register(0, 1, offset.OwnerOf("c"))
	k.pass(age, k.commits, k.fetches)
	k.opt.Blocking = blocking("other", "c")
	k.pass(time.Hour, k.commits, k.fetches)
	if why, _ := k.state.stalled(k.now, age); why != "" {
		t.Errorf("alarmed: %s", why)
	}
	k.opt.Blocking = blocking("other")
	k.pass(age, k.commits, k.fetches)
	if why, _ := k.state.stalled(k.now, age); why != "" {
		t.Errorf("alarmed right after it has ceased to: %s", why)
	}
	k.pass(20*time.Second, k.commits, k.fetches)
	if why, _ := k.state.stalled(k.now, age); why == "" {
		t.Error("never alarmed")
	}
}

// Time in which the process was suspended does not count.
func TestWatchdogAfterASuspension(t *testing.T) {
	k := newKennel(t)
	k.ingress.register(0, 1, 0)
	k.pass(age, k.commits, k.fetches)
	k.now = k.now.Add(time.Hour)
	k.pass(5*time.Second, k.commits, k.fetches)
	if why, _ := k.state.stalled(k.now, age); why != "" {
		t.Errorf("alarmed by a suspension: %s", why)
	}
	k.pass(20*time.Second, k.commits, k.fetches)
	if why, _ := k.state.stalled(k.now, age); why == "" {
		t.Error("never alarmed")
	}
}

// A watchdog that runs looks by itself, and forgets what it has found when it ends.
func TestWatchdogRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKennel(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		k.ingress.register(0, 1, 0)
		k.lane.begin("a fetch to end")
		running.Go(func() { k.run(ctx) })
		for range 85 {
			time.Sleep(time.Second)
			k.commits()
			k.fetch("jobs/0")
		}
		if why, _ := k.state.stalled(time.Now(), age); !strings.HasSuffix(why, "; and 1 others") || stalls(k.metrics, "lane") != 1 {
			t.Errorf("%q", why)
		}
		cancel()
		running.Wait()
		if why, _ := k.state.stalled(time.Now().Add(time.Hour), age); why != "" || stalls(k.metrics, "ingress") != 0 {
			t.Errorf("after the end: %q", why)
		}
	})
}

// A watchdog that has stopped looking, because a lock is not released, is noticed by the health check.
func TestWatchdogStandsStillItself(t *testing.T) {
	var s watchState
	now := time.Unix(0, 0)
	s.looked(now, nil)
	if why, _ := s.stalled(now.Add(age), age); why != "" {
		t.Errorf("too early: %s", why)
	}
	if why, over := s.stalled(now.Add(age+time.Second), age); !strings.Contains(why, "watchdog") || over != time.Second {
		t.Errorf("%q for %s", why, over)
	}
}

// A commit of which some partitions were refused was answered: the broker works.
func TestAPartialCommitIsAnAnswer(t *testing.T) {
	k := newKennel(t)
	if err := k.watchdog.commit.judge(errPartlyCommitted); err == nil || !k.watchdog.commit.seen().answered {
		t.Errorf("%v, answered %t", err, k.watchdog.commit.seen().answered)
	}
}

// stuck is a handler whose Offer does not return for jobs of one partition, whatever its context says, until released.
type stuck struct {
	*fake
	partition string
	released  chan struct{}
}

func (s stuck) Offer(ctx context.Context, jobs []*delivery.Job) ([]*delivery.Job, error) {
	if jobs[0].Source.Name() == s.partition {
		<-s.released
	}
	return s.fake.Offer(ctx, jobs)
}

// A stuck handler is noticed where it is stuck and nowhere else, and so is a job that is never settled; both are told
// once, and so is their end.
func TestStuckPartitionIsNoticed(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(3, r.jobs(), r.opt.LaneTopic)
		f := newFake()
		f.keep = func(j *delivery.Job) bool { return j.ID == "kept-0000" || j.Campaign == "slow" }
		s := stuck{fake: f, partition: r.jobs() + "/1", released: make(chan struct{})}
		registry := prometheus.NewRegistry()
		c := r.start(f, func(o *Options) { o.Handler, o.Watchdog, o.Registerer = s, 2*time.Second, registry })
		r.produceIDs(r.jobs(), 0, "c", numbered("kept", 0, 3))
		r.produceIDs(r.jobs(), 1, "c", []string{"stuck"})
		r.produceIDs(r.jobs(), 2, "c", []string{"fine"})
		r.produceIDs(r.opt.LaneTopic, 0, "slow", []string{"waits for its turn"})
		r.eventually("all but one", func() bool { return c.count() == 5 })
		r.eventually("both are noticed", func() bool {
			why, _ := c.Stalled() // it is told after the log
			return len(r.logs.lines("level=ERROR", "no progress")) == 2 && strings.Contains(why, r.jobs()) && strings.Contains(why, "1 others")
		})
		time.Sleep(time.Second)
		errs := r.logs.lines("level=ERROR")
		slices.Sort(errs)
		if len(errs) != 2 || len(r.logs.lines("level=ERROR", r.jobs()+"/1", "handler to take")) != 1 ||
			len(r.logs.lines("level=ERROR", r.jobs()+"/0", "offset=0", "fate")) != 1 || stalls(c.metrics, "ingress") != 2 {
			t.Errorf("%q", errs)
		}
		close(s.released)
		c.settle(func(j *delivery.Job) bool { return j.Campaign == "c" })
		r.eventually("both move on", func() bool { why, _ := c.Stalled(); return why == "" })
		if n := len(r.logs.lines("moves on")); n != 2 || stalls(c.metrics, "ingress") != 0 {
			t.Errorf("%d lines\n%s", n, r.logs)
		}
		c.stop()
	})
}
