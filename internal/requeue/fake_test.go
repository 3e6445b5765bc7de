package requeue

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/brokertest"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeSource records what is settled.
type fakeSource struct {
	name    string
	onEvent func(event string)

	mu      sync.Mutex
	settled map[int64]delivery.Outcome
	twice   int
	revoked bool
	left    bool
	dropped int
}

func (s *fakeSource) Revoked() (leaving, left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked, s.left
}

func (*fakeSource) Place() delivery.Place { return delivery.FromIngress }

func (*fakeSource) GrantCapacity(string, int64) {}

func (s *fakeSource) Release(int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped++
}

func newSource(name string) *fakeSource {
	return &fakeSource{name: name, settled: make(map[int64]delivery.Outcome)}
}

func (s *fakeSource) Name() string { return s.name }

func (s *fakeSource) Settle(job *delivery.Job, outcome delivery.Outcome) {
	s.mu.Lock()
	if _, ok := s.settled[job.Offset]; ok {
		s.twice++
	}
	s.settled[job.Offset] = outcome
	s.mu.Unlock()
	if s.onEvent != nil {
		s.onEvent("settle")
	}
}

func (s *fakeSource) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.settled)
}

func (s *fakeSource) outcome(offset int64) (delivery.Outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.settled[offset]
	return o, ok
}

// job makes a plain job of the source.
func (s *fakeSource) job(offset int64, campaign string) *delivery.Job {
	return &delivery.Job{
		ID: fmt.Sprintf("%s-%d", campaign, offset), Campaign: campaign, Weight: 1, Payload: []byte("payload"),
		History: delivery.History{Origin: delivery.Origin{Topic: "pacer.jobs", Partition: 0, Offset: offset}},
		Reading: delivery.Reading{Source: s, Offset: offset}, Receipt: s,
	}
}

// Destinations of tests.
var (
	lane  = delivery.Reroute{Kind: delivery.ToLane, Reason: delivery.ReasonOverflow}
	timer = delivery.Reroute{Kind: delivery.ToTimer, Reason: delivery.ReasonRetry}
	dead  = delivery.Reroute{Kind: delivery.ToDead, Reason: delivery.ReasonRefused, Detail: "status 410"}
)

// rig is a relay on a broker in memory.
type rig struct {
	*Relay
	t   testing.TB
	m   *kafkatest.Memory
	log *kafkatest.LogBook
	reg *prometheus.Registry
}

// newRig makes a relay; change adapts its options.
func newRig(t testing.TB, change ...func(*Options)) *rig {
	t.Helper()
	topics := map[string]int{"t.lanes": 8, "t.dead": 2}
	for _, d := range DefaultTimers() {
		topics[TimerTopic("t.", d)] = 2
	}
	r := &rig{t: t, m: kafkatest.NewMemory(topics), log: &kafkatest.LogBook{}, reg: prometheus.NewRegistry()}
	opts := Options{
		Client: brokertest.Dial(t, broker.Options{Brokers: []string{"memory:1"}, Wrap: r.m.Wrap}), Topics: TopicSpec{Prefix: "t.", Lanes: 8},
		Logger: r.log.Logger(), Registerer: r.reg,
	}
	for _, c := range change {
		c(&opts)
	}
	if opts.Topics.Results {
		r.m.Topics["t.results"] = 6
	}
	r.Relay = New(opts)
	return r
}

// onMemory runs a test with a relay that runs, and a time of its own.
func onMemory(t *testing.T, test func(t *testing.T, r *rig), change ...func(*Options)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change...)
		run(t, r.Relay)
		test(t, r)
	})
}

// start runs a relay until the test ends.
func start(t testing.TB, opts Options) *Relay {
	t.Helper()
	r := New(opts)
	run(t, r)
	return r
}

func run(t testing.TB, r *Relay) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// settled checks that the jobs of the sources are settled once, and as many records are written.
func (r *rig) settled(jobs int, sources ...*fakeSource) {
	r.t.Helper()
	settled, twice := 0, 0
	for _, s := range sources {
		settled, twice = settled+s.count(), twice+s.twice
	}
	if written := r.m.Total(""); settled != jobs || twice != 0 || written != jobs {
		r.t.Errorf("of %d jobs %d are settled, %d twice, and %d records are written", jobs, settled, twice, written)
	}
}

// logged checks how many warnings and notes there are.
func (r *rig) logged(warnings, notes int) {
	r.t.Helper()
	if w, n := r.log.Count("WARN"), r.log.Count("INFO"); w != warnings || n != notes {
		r.t.Errorf("%d warnings, %d notes, not %d and %d: %q", w, n, warnings, notes, r.log.Lines(""))
	}
}

// shows checks values of metrics: those of a gauge or a counter, or how often a histogram observed.
func (r *rig) shows(want map[string]float64) {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += "/" + l.GetValue()
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, v := range want {
		if got, there := values[name]; !there || got != v {
			r.t.Errorf("%s = %v (there: %t), want %v", name, got, there, v)
		}
	}
}

// outage reports whether a relay knows of something that refuses.
func (r *rig) outage() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.box.stalled().partitions > 0
}

// waiting returns how many jobs wait to be written.
func (r *rig) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.box.jobs()
}

// smallSpec keeps the number of partitions low.
func smallSpec(prefix string, ingress ...string) TopicSpec {
	return TopicSpec{Prefix: prefix, Ingress: ingress, Lanes: 8}
}
