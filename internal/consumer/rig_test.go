package consumer

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
	"github.com/pacer/pacer/internal/testservices/brokertest"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// TestMain has more tests run side by side than there are cores: nearly all of them wait for brokers, group joins and
// timeouts.
func TestMain(m *testing.M) {
	flag.Parse()
	if runtime.GOMAXPROCS(0) < sideBySide {
		if err := flag.Set("test.parallel", strconv.Itoa(sideBySide)); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

const sideBySide = 6

const patience = 60 * time.Second

// onBrokers runs a test against a real broker; with -short, against one in this process. A topic of ingress or lanes without partitions is not
// made.
func onBrokers(t *testing.T, ingress, lanes int, test func(t *testing.T, r *rig)) {
	if testing.Short() {
		test(t, inProcess(t, ingress, lanes))
		return
	}
	t.Parallel()
	test(t, newRig(t, testservices.Kafka(t)).with(ingress, lanes))
}

// inProcess is a rig for a test that needs a broker of its own, in this process.
func inProcess(t *testing.T, ingress, lanes int) *rig {
	t.Parallel()
	cluster := kafkatest.Cluster(t)
	r := newRig(t, cluster.ListenAddrs()).with(ingress, lanes)
	r.cluster = cluster
	return r
}

// rig is a set of topics and the means to fill them and to run consumers on them.
type rig struct {
	t       *testing.T
	brokers []string
	cluster *kfake.Cluster // in this process
	client  *kafka.Client  // what produces
	admin   *broker.Client // what makes topics, and looks at the group
	opt     Options        // what newConsumer starts from
	logs    *logBook

	compression kafka.Compression // of what is produced
}

func newRig(t *testing.T, brokers []string) *rig {
	t.Helper()
	prefix := testservices.Unique("c")
	r := &rig{t: t, brokers: brokers, client: newClient(t, brokers), logs: &logBook{}}
	r.admin = r.broker()
	r.opt = Options{
		Group: prefix, Ingress: []string{prefix + ".jobs"}, LaneTopic: prefix + ".lanes",
		Receipt: func(r delivery.Receipt) delivery.Receipt { return r }, Positions: noCatalog{},
		KeepDelivered: true, Logger: r.logs.Logger(),
	}
	return r
}

// with makes the topics of ingress and lanes.
func (r *rig) with(ingress, lanes int) *rig {
	if ingress > 0 {
		r.create(ingress, r.jobs())
	}
	if lanes > 0 {
		r.create(lanes, r.opt.LaneTopic)
	}
	return r
}

// timer is the topic of a timer that the consumers read from now on. It has one partition.
func (r *rig) timer(delay time.Duration) string {
	topic := r.opt.Group + ".timer"
	r.opt.Timers = []Timer{{Topic: topic, Delay: delay}}
	r.create(1, topic)
	return topic
}

// noCatalog keeps nothing.
type noCatalog struct{}

func (noCatalog) SavePositions(context.Context, string, []delivery.Position) error   { return nil }
func (noCatalog) LoadPositions(context.Context, string) ([]delivery.Position, error) { return nil, nil }

func newClient(t *testing.T, brokers []string) *kafka.Client {
	transport := &kafka.Transport{MetadataTTL: 200 * time.Millisecond}
	t.Cleanup(transport.CloseIdleConnections)
	return &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport, Timeout: patience}
}

// broker is a client as consumers have one.
func (r *rig) broker() *broker.Client { return r.dial(broker.Options{}) }

// dial is broker with options.
func (r *rig) dial(o broker.Options) *broker.Client {
	o.Brokers, o.MetadataTTL = r.brokers, 200*time.Millisecond
	return brokertest.Dial(r.t, o)
}

// sourceOf makes the source of a partition that is read from its beginning, with a budget and metrics of its own.
func sourceOf(at partition, from delivery.Place) *source {
	b := newBudget(1 << 20)
	s, _ := newSource(at, from, start{}, b, newMetrics(prometheus.NewRegistry(), b), offset.NewOrigins(), &told{}, func() {})
	return s
}

// way decides what becomes of a request: send sends it to the broker.
type way func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error)

type sending func(ctx context.Context) (kafka.Response, error)

// wayOf is a transport whose requests go a way.
type wayOf struct {
	kafka.RoundTripper
	way
}

// RoundTrip implements kafka.RoundTripper.
func (w wayOf) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	return w.way(ctx, request, func(ctx context.Context) (kafka.Response, error) { return w.RoundTripper.RoundTrip(ctx, addr, request) })
}

// by is a client whose requests go a way.
func (r *rig) by(w way) *broker.Client {
	return r.dial(broker.Options{Wrap: func(inner kafka.RoundTripper) kafka.RoundTripper { return wayOf{inner, w} }})
}

// through has a consumer's requests go a way.
func (r *rig) through(w way) func(*Options) { return func(o *Options) { o.Client = r.by(w) } }

func (r *rig) jobs() string { return r.opt.Ingress[0] }

// make makes topics that are not there, and waits until they have leaders.
func (r *rig) make(partitions int, topics ...string) error {
	var made []broker.Topic
	for _, topic := range topics {
		made = append(made, broker.Topic{Name: topic, Partitions: partitions, Replicas: 1})
	}
	_, err := r.admin.CreateTopics(r.t.Context(), made, nil)
	return err
}

// create makes topics. They go with the test, since others share a real broker.
func (r *rig) create(partitions int, topics ...string) {
	r.t.Helper()
	r.eventually("the topics are created", func() bool { return r.make(partitions, topics...) == nil })
	r.t.Cleanup(func() { // a broker that is gone by now is no matter
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = r.admin.DeleteTopics(ctx, topics)
	})
}

// produce writes records to one partition, in order; headers are pairs.
func (r *rig) produce(topic string, partition int, records ...kafka.Record) {
	r.t.Helper()
	for began := time.Now(); ; {
		answer, err := r.client.Produce(context.Background(), &kafka.ProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Compression: r.compression,
			Records: kafka.NewRecordReader(records...),
		})
		if err == nil {
			err = answer.Error
		}
		unknown := broker.NoTopic(err) && time.Since(began) < patience // to this client, which has looked before it was made
		if unknown || errors.Is(err, kafka.NotLeaderForPartition) {    // a topic made a moment ago; nothing was written
			time.Sleep(10 * time.Millisecond)
			for i := range records {
				rewind(records[i].Value)
			}
			continue
		}
		if err != nil {
			r.t.Errorf("produce to %s: %v", topic, err)
		}
		return
	}
}

// rewind makes a value readable again.
func rewind(b kafka.Bytes) {
	if s, ok := b.(io.Seeker); ok {
		_, _ = s.Seek(0, io.SeekStart)
	}
}

func job(campaign, id string, pairs ...string) kafka.Record {
	rec := kafka.Record{Value: kafka.NewBytes([]byte("payload of " + id)), Headers: []kafka.Header{
		{Key: delivery.HeaderCampaign, Value: []byte(campaign)}, {Key: delivery.HeaderJobID, Value: []byte(id)},
	}}
	for i := 0; i < len(pairs); i += 2 {
		rec.Headers = append(rec.Headers, kafka.Header{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return rec
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(deadline) {
			r.t.Fatalf("not within %s: %s\n%s", patience, what, r.logs)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// running is a consumer at work.
type running struct {
	*Consumer
	*fake
	rig    *rig
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
}

// start runs a consumer; change adapts its options. It is stopped with the test at the latest.
func (r *rig) start(h faked, change ...func(*Options)) *running {
	r.t.Helper()
	o := r.opt
	o.Client, o.Handler = r.broker(), h
	for _, c := range change {
		c(&o)
	}
	c := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Consumer: c, fake: h.base(), rig: r, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(run.done)
		c.Run(ctx)
	}()
	r.t.Cleanup(run.stop)
	return run
}

// stop ends the consumer and checks that it gave everything back.
func (c *running) stop() {
	c.once.Do(func() {
		c.cancel()
		select {
		case <-c.done:
		case <-time.After(patience):
			c.rig.t.Errorf("the consumer does not stop\n%s", c.rig.logs)
			return
		}
		if held := c.budget.inUse(); held != 0 {
			c.rig.t.Errorf("%d bytes are held after the end", held)
		}
		if c.Joined() {
			c.rig.t.Errorf("joined after the end")
		}
	})
}

// fake is a Handler. By default it settles every job at once.
type fake struct {
	mu         sync.Mutex
	seen       map[string]int // by job id
	order      map[string][]string
	at         map[string]time.Time
	open       map[*delivery.Job]bool
	defects    []*delivery.Job
	relieved   int
	revokes    int
	yields     bool
	revokesFor time.Duration
	lingers    bool // jobs that are kept are in flight, and do not end
	stubborn   bool // it does nothing when it is asked to relieve a window

	first  func(jobs []*delivery.Job) (refuse bool) // what happens before all else; nil for nothing
	keep   func(*delivery.Job) bool                 // jobs to keep open; nil for none
	refuse func(*delivery.Job) bool                 // lane jobs to refuse, with all later ones of their campaign in the call
}

// faked is a fake, or a handler that is based on one.
type faked interface {
	Handler
	base() *fake
}

func (f *fake) base() *fake { return f }

func newFake() *fake {
	return &fake{seen: map[string]int{}, order: map[string][]string{}, at: map[string]time.Time{}, open: map[*delivery.Job]bool{}}
}

// keeping is a fake that keeps jobs open.
func keeping(which func(*delivery.Job) bool) *fake {
	f := newFake()
	f.keep = which
	return f
}

// all is for keeping all jobs.
func all(*delivery.Job) bool { return true }

func (f *fake) Offer(_ context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	if f.first != nil && f.first(jobs) {
		return jobs, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	full := map[string]bool{}
	for _, j := range jobs {
		if j.From == delivery.FromLane && (full[j.Campaign] || f.refuse != nil && f.refuse(j)) {
			full[j.Campaign] = true
			refused = append(refused, j)
			continue
		}
		f.seen[j.ID]++
		f.order[j.Campaign] = append(f.order[j.Campaign], j.ID)
		f.at[j.ID] = time.Now()
		if j.Flaw != nil {
			f.defects = append(f.defects, j)
		}
		if f.keep != nil && f.keep(j) {
			f.open[j] = true
		} else {
			j.Settle(delivery.OutcomeDelivered)
		}
	}
	return refused, nil
}

func (f *fake) Relieve(src delivery.Source, before int64) {
	f.mu.Lock()
	f.relieved++
	f.mu.Unlock()
	f.end(func(j *delivery.Job) bool { return !f.stubborn && j.Source == src && j.Offset < before }, func(j *delivery.Job) {
		j.Settle(delivery.OutcomeRequeued)
	})
}

// Yield gives half of the lane jobs that are kept back, if that is wanted.
func (f *fake) Yield() {
	half := 0
	f.end(func(*delivery.Job) bool { half++; return f.yields && half%2 == 1 }, giveBack)
}

func giveBack(j *delivery.Job) { j.Source.Release(j.Offset) }

func (f *fake) Revoke(context.Context) error {
	f.mu.Lock()
	lasts := f.revokesFor
	f.revokes++
	maps.DeleteFunc(f.open, func(j *delivery.Job, _ bool) bool { return !f.lingers && revokedOf(j) })
	f.mu.Unlock()
	time.Sleep(lasts)
	return nil
}

// revokedOf gives back a job whose source is revoked, and reports whether it is.
func revokedOf(j *delivery.Job) bool {
	src := j.Source.(*source)
	if leaving, _ := src.Revoked(); !leaving {
		return false
	}
	src.Release(j.Offset)
	return true
}

// revoked reports whether jobs had to be let go of.
func (f *fake) revoked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revokes > 0
}

// end takes kept jobs out and ends each in a way. It returns how many.
func (f *fake) end(which func(*delivery.Job) bool, way func(*delivery.Job)) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for j := range f.open {
		if which(j) {
			delete(f.open, j)
			way(j)
			n++
		}
	}
	return n
}

// settle settles kept jobs, and returns how many.
func (f *fake) settle(which func(*delivery.Job) bool) int {
	return f.end(which, func(j *delivery.Job) { j.Settle(delivery.OutcomeDelivered) })
}

// kept is how many jobs are kept.
func (f *fake) kept() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

func (f *fake) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.seen)
}

func (f *fake) saw(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[id] > 0
}

func (f *fake) orderOf(campaign string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.order[campaign])
}

// ids lists what was seen, sorted.
func (f *fake) ids() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.seen))
}

// numbered are the ids prefix-0000 and so on.
func numbered(prefix string, from, to int) []string {
	var ids []string
	for i := from; i < to; i++ {
		ids = append(ids, fmt.Sprintf("%s-%04d", prefix, i))
	}
	return ids
}

// handedOnce checks that n jobs were handed over, each of them once.
func handedOnce(t *testing.T, jobs int, to ...*fake) {
	t.Helper()
	seen := map[string]int{}
	for _, f := range to {
		f.mu.Lock()
		for id, n := range f.seen {
			seen[id] += n
		}
		f.mu.Unlock()
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was handed over %d times", id, n)
		}
	}
	if len(seen) != jobs {
		t.Errorf("%d jobs were handed over, not %d", len(seen), jobs)
	}
}

// produceIDs writes jobs of a campaign, whose payload is the last argument if there is one.
func (r *rig) produceIDs(topic string, partition int, campaign string, ids []string, payload ...[]byte) {
	r.t.Helper()
	most := 500 // in a batch
	for _, p := range payload {
		if r.compression == 0 {
			most = min(most, max(1, 100_000/(len(p)+100)))
		}
	}
	for piece := range slices.Chunk(ids, most) {
		records := make([]kafka.Record, len(piece))
		for i, id := range piece {
			records[i] = job(campaign, id)
			for _, p := range payload {
				records[i].Value = kafka.NewBytes(p)
			}
		}
		r.produce(topic, partition, records...)
	}
}

// committed is the group's offset of a partition; -1 for none.
func (r *rig) committed(topic string, id int) int64 {
	at := partition{Topic: topic, ID: id}
	found, err := r.admin.Committed(r.t.Context(), r.opt.Group, []partition{at})
	if c, read := found[at]; err == nil && read && !c.None {
		return c.Offset
	}
	return -1
}

// allCommitted reports whether the group's offset is this in all partitions of the topics.
func (r *rig) allCommitted(at int64, partitions int, topics ...string) func() bool {
	return func() bool {
		for _, topic := range topics {
			for p := range partitions {
				if r.committed(topic, p) != at {
					return false
				}
			}
		}
		return true
	}
}

// logBook keeps what was logged. Safe for use by several goroutines.
type logBook struct{ kafkatest.LogBook }

func (b *logBook) String() string { return strings.Join(b.Lines(""), "") }

// warnings returns the warnings of a machine that is not too busy to answer.
func (b *logBook) warnings() []string {
	return slices.DeleteFunc(b.lines("level=WARN"), func(line string) bool {
		return strings.Contains(line, "i/o timeout") || strings.Contains(line, "deadline exceeded")
	})
}

// lines are those that hold all the words.
func (b *logBook) lines(words ...string) []string {
	return slices.DeleteFunc(b.Lines(""), func(line string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
	})
}

// said checks that n lines hold all the words.
func (r *rig) said(lines int, words ...string) {
	r.t.Helper()
	if n := len(r.logs.lines(words...)); n != lines {
		r.t.Errorf("%d lines with %q, not %d:\n%s", n, words, lines, r.logs)
	}
}

// says waits until n lines hold all the words.
func (r *rig) says(lines int, words ...string) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d lines with %q", lines, words), func() bool { return len(r.logs.lines(words...)) == lines })
}

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fetches counts the fetch requests of a place.
func (c *running) fetches(place string) (n float64) {
	for _, result := range fetchResults {
		n += testutil.ToFloat64(c.metrics.fetches.WithLabelValues(place, result))
	}
	return n
}

// lostRecords returns how many records count as lost from ingress and lanes.
func (c *running) lostRecords(cause string) (n float64) {
	for _, place := range placeNames {
		n += testutil.ToFloat64(c.metrics.lost.WithLabelValues(place, cause))
	}
	return n
}
