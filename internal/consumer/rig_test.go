package consumer

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
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

// onBrokers runs a test against a real broker; with -short, against one in this process.
func onBrokers(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	if testing.Short() {
		test(t, newRig(t, inProcess(t).ListenAddrs()))
		return
	}
	test(t, newRig(t, testservices.Kafka(t)))
}

func inProcess(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// rig is a set of topics and the means to fill them and to run consumers on them.
type rig struct {
	t       *testing.T
	brokers []string
	client  *kafka.Client
	opt     Options // what newConsumer starts from
	logs    *logBook
}

func newRig(t *testing.T, brokers []string) *rig {
	t.Helper()
	prefix := testservices.Unique("c")
	r := &rig{t: t, brokers: brokers, client: newClient(t, brokers), logs: &logBook{}}
	r.opt = Options{
		Group: prefix, Ingress: []string{prefix + ".jobs"}, LaneTopic: prefix + ".lanes",
		Receipt: func(r delivery.Receipt) delivery.Receipt { return r }, Positions: noCatalog{},
		KeepDelivered: true, Logger: slog.New(slog.NewTextHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelInfo})),
	}
	return r
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

// newBroker is what consumers use.
func newBroker(t *testing.T, brokers []string, wrap ...func(kafka.RoundTripper) kafka.RoundTripper) *broker.Client {
	t.Helper()
	o := broker.Options{Brokers: brokers, MetadataTTL: 200 * time.Millisecond}
	for _, w := range wrap {
		o.Wrap = w
	}
	client, err := broker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (r *rig) jobs() string { return r.opt.Ingress[0] }

// create makes topics and waits until they have leaders.
func (r *rig) create(partitions int, topics ...string) {
	r.t.Helper()
	var configs []kafka.TopicConfig
	for _, topic := range topics {
		configs = append(configs, kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1})
	}
	r.eventually("the topics are created", func() bool {
		answer, err := r.client.CreateTopics(r.t.Context(), &kafka.CreateTopicsRequest{Topics: configs})
		if err != nil {
			return false
		}
		for _, e := range answer.Errors {
			if e != nil && !errors.Is(e, kafka.TopicAlreadyExists) {
				return false
			}
		}
		return true
	})
	client := r.client   // closed after this cleanup; a later one is closed before
	r.t.Cleanup(func() { // others share a real broker; one that is gone by now is no matter
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: topics})
	})
	r.eventually("leaders", func() bool { return r.led(partitions, topics) })
}

// led reports whether every partition of topics has a leader that acts as one. In metadata a broker is the leader a moment
// before.
func (r *rig) led(partitions int, topics []string) bool {
	asks := map[string][]kafka.OffsetRequest{}
	for _, topic := range topics {
		for p := range partitions {
			asks[topic] = append(asks[topic], kafka.LastOffsetOf(p))
		}
	}
	answer, err := r.client.ListOffsets(r.t.Context(), &kafka.ListOffsetsRequest{Topics: asks})
	if err != nil {
		return false
	}
	for _, topic := range topics {
		if len(answer.Topics[topic]) != partitions {
			return false
		}
		for _, p := range answer.Topics[topic] {
			if p.Error != nil {
				return false
			}
		}
	}
	return true
}

// produce writes records to one partition, in order; headers are pairs.
func (r *rig) produce(topic string, partition int, records ...kafka.Record) {
	r.t.Helper()
	for began := time.Now(); ; {
		answer, err := r.client.Produce(context.Background(), &kafka.ProduceRequest{
			Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(records...),
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
	done   chan error
	once   sync.Once
}

// start runs a consumer; change adapts its options. It is stopped with the test at the latest.
func (r *rig) start(f *fake, change ...func(*Options)) *running {
	r.t.Helper()
	o := r.opt
	o.Client, o.Handler = newBroker(r.t, r.brokers), f
	for _, c := range change {
		c(&o)
	}
	c := New(o)
	ctx, cancel := context.WithCancel(context.Background())
	run := &running{Consumer: c, fake: f, rig: r, cancel: cancel, done: make(chan error, 1)}
	go func() { run.done <- c.Run(ctx) }()
	r.t.Cleanup(run.stop)
	return run
}

// stop ends the consumer and checks that it gave everything back.
func (c *running) stop() {
	c.once.Do(func() {
		c.cancel()
		select {
		case err := <-c.done:
			if err != nil {
				c.rig.t.Errorf("run: %v", err)
			}
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
	mu        sync.Mutex
	seen      map[string]int // by job id
	order     map[string][]string
	at        map[string]time.Time
	open      map[string]*delivery.Job
	defects   []*delivery.Job
	relieved  int
	drains    int
	yields    bool
	drainsFor time.Duration
	lingers   bool // jobs that are kept are in flight, and do not end

	keep     func(*delivery.Job) bool // jobs to keep open; nil for none
	refuse   func(*delivery.Job) bool // lane jobs to refuse, with all later ones of their campaign in the call
	inFlight sync.WaitGroup
	slow     func() time.Duration // how long a job is in flight; nil for not at all
}

func newFake() *fake {
	return &fake{seen: map[string]int{}, order: map[string][]string{}, at: map[string]time.Time{}, open: map[string]*delivery.Job{}}
}

func (f *fake) Offer(_ context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
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
		switch {
		case f.keep != nil && f.keep(j):
			f.open[j.ID] = j
		case f.slow != nil:
			d := f.slow()
			f.inFlight.Go(func() {
				time.Sleep(d)
				j.Settle(delivery.OutcomeDelivered)
			})
		default:
			j.Settle(delivery.OutcomeDelivered)
		}
	}
	return refused, nil
}

func (f *fake) Relieve(src delivery.Source, before int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.relieved++
	for id, j := range f.open {
		if j.Source == src && j.Offset < before {
			delete(f.open, id)
			j.Settle(delivery.OutcomeRequeued)
		}
	}
}

// Yield gives half of the lane jobs that are kept back, if that is wanted.
func (f *fake) Yield() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.yields {
		return
	}
	half := 0
	for id, j := range f.open {
		if half++; half%2 == 0 {
			continue
		}
		delete(f.open, id)
		j.Source.Release(j.Campaign, j.Offset)
	}
}

func (f *fake) Revoke(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.open, func(_ string, j *delivery.Job) bool { return !f.lingers && revokedOf(j) })
	return nil
}

// revokedOf drops a job whose source is revoked, and reports whether it is.
func revokedOf(j *delivery.Job) bool {
	src := j.Source.(*source)
	if leaving, _ := src.Revoked(); !leaving {
		return false
	}
	src.Drop(j.Offset)
	return true
}

func (f *fake) Drain(context.Context) (int, error) {
	f.mu.Lock()
	f.drains++
	clear(f.open)
	f.mu.Unlock()
	time.Sleep(f.drainsFor)
	f.inFlight.Wait()
	return 0, nil
}

// draining reports whether a drain has begun.
func (f *fake) draining() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.drains > 0
}

// settle settles kept jobs, and returns how many.
func (f *fake) settle(which func(*delivery.Job) bool) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for id, j := range f.open {
		if which == nil || which(j) {
			delete(f.open, id)
			j.Settle(delivery.OutcomeDelivered)
			n++
		}
	}
	return n
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

func (r *rig) produceIDs(topic string, partition int, campaign string, ids []string) {
	r.t.Helper()
	records := make([]kafka.Record, len(ids))
	for i, id := range ids {
		records[i] = job(campaign, id)
	}
	r.produce(topic, partition, records...)
}

// committed is the group's offset of a partition; -1 for none.
func (r *rig) committed(topic string, partition int) int64 {
	r.t.Helper()
	answer, err := r.client.OffsetFetch(r.t.Context(), &kafka.OffsetFetchRequest{
		GroupID: r.opt.Group, Topics: map[string][]int{topic: {partition}},
	})
	if err != nil || len(answer.Topics[topic]) != 1 {
		return -1
	}
	return answer.Topics[topic][0].CommittedOffset
}

// logBook keeps what was logged. Safe for use by several goroutines.
type logBook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBook) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// warnings returns the warnings of a machine that is not too busy to answer.
func (b *logBook) warnings() []string {
	return slices.DeleteFunc(b.lines("level=WARN"), func(line string) bool {
		return strings.Contains(line, "i/o timeout") || strings.Contains(line, "deadline exceeded")
	})
}

// lines are those that hold all the words.
func (b *logBook) lines(words ...string) (found []string) {
	for line := range strings.Lines(b.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			found = append(found, line)
		}
	}
	return found
}

func freePort(t *testing.T) int { return testservices.FreePort(t) }

func newRegistry() *prometheus.Registry { return prometheus.NewRegistry() }

func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fetches counts the fetch requests of a place.
func (c *running) fetches(place string) (n float64) {
	for _, result := range fetchResults {
		var m dto.Metric
		if err := c.metrics.fetches.WithLabelValues(place, result).Write(&m); err != nil {
			c.rig.t.Fatal(err)
		}
		n += m.GetCounter().GetValue()
	}
	return n
}
