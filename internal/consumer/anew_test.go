package consumer

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// relaying is a Handler that writes the jobs of ingress to lane 0, as those of a campaign with a backlog, and settles
// the jobs of the lane.
type relaying struct {
	*fake
	r *rig

	mu    sync.Mutex
	lane  map[string]int // payloads seen in the lane
	moved int            // jobs of ingress
}

func (h *relaying) Offer(_ context.Context, jobs []*delivery.Job) ([]*delivery.Job, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range jobs {
		if j.From == delivery.FromLane {
			h.lane[string(j.Payload)]++
			j.Settle(delivery.OutcomeDelivered)
			continue
		}
		h.moved++
		h.r.produce(h.r.opt.LaneTopic, 0, encoded(new(record.Encoder).Encode(j, delivery.Reroute{Kind: delivery.ToLane}, time.Now())))
		j.Settle(delivery.OutcomeRequeued)
	}
	return nil, nil
}

// counts returns how many jobs were moved, and how many came back.
func (h *relaying) counts() (moved, back int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.lane {
		back += n
	}
	return h.moved, back
}

// encoded is a record in kafka-go's form.
func encoded(r delivery.Record) kafka.Record {
	rec := kafka.Record{Value: kafka.NewBytes(bytes.Clone(r.Value))}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, kafka.Header(h))
	}
	return rec
}

// remake deletes topics and creates them again. The broker must know the new ones: for a moment, records for the topics
// before are still accepted.
func (r *rig) remake(partitions int, topics ...string) {
	r.t.Helper()
	client := newBroker(r.t, r.brokers)
	before, err := client.Identify(r.t.Context(), topics...)
	if err != nil {
		r.t.Fatalf("identify %v: %v", topics, err)
	}
	r.eventually("the topics are deleted", func() bool { return client.DeleteTopics(r.t.Context(), topics) == nil })
	for _, topic := range topics {
		r.eventually(topic+" is made anew", func() bool {
			answer, err := r.client.CreateTopics(r.t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
				Topic: topic, NumPartitions: partitions, ReplicationFactor: 1,
			}}})
			return err == nil && answer.Errors[topic] == nil
		})
	}
	r.eventually("the new topics have leaders", func() bool {
		for _, topic := range topics {
			for p := range partitions {
				now, err := client.IdentityOf(r.t.Context(), broker.Partition{Topic: topic, ID: p})
				if err != nil || now == before[topic] {
					return false
				}
			}
		}
		return r.led(partitions, topics)
	})
}

// TestJobsOfAnIngressTopicMadeAnew: jobs of a topic made anew have the places, and without ids of their own the ids, of
// those before it. They are no repeats.
func TestJobsOfAnIngressTopicMadeAnew(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		h := &relaying{fake: newFake(), r: r, lane: map[string]int{}}
		r.start(h.fake, func(o *Options) { o.Handler = h })
		publish := func(jobs int) {
			records := make([]kafka.Record, jobs)
			for i := range records { // without an id, and the same payload every time
				records[i] = kafka.Record{Value: kafka.NewBytes(fmt.Append(nil, "job ", i)), Headers: []kafka.Header{
					{Key: delivery.HeaderCampaign, Value: []byte("a")},
				}}
			}
			r.produce(r.jobs(), 0, records...)
		}
		publish(50)
		r.eventually("the first come back from the lane", func() bool { _, back := h.counts(); return back == 50 })
		r.remake(1, r.jobs())
		publish(40)
		r.eventually("the new ones are read", func() bool { moved, _ := h.counts(); return moved >= 90 })
		r.eventually("the new ones come back too", func() bool { _, back := h.counts(); return back >= 90 })
	})
}

// TestTopicsMadeAnewWhileJobsAreOpen: a log made anew is read from its beginning. It holds the readers' next offsets, and jobs of the old
// log are still open. The outcomes of old jobs have no effect on new jobs with their offsets.
func TestTopicsMadeAnewWhileJobsAreOpen(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		timer := r.opt.Group + ".timer"
		topics := []string{r.jobs(), r.opt.LaneTopic, timer}
		r.create(1, topics...)
		f := newFake()
		f.keep = func(j *delivery.Job) bool { return j.Offset == 3 }
		c := r.start(f, func(o *Options) { o.Timers = []Timer{{Topic: timer, Delay: time.Millisecond}} })
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered("old-"+topic, 0, 10))
		}
		r.eventually("the old jobs", func() bool { return c.count() == 30 })
		r.eventually("their commits", func() bool { return r.committedAll(topics, 3) })
		r.remake(1, topics...)
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered("new-"+topic, 0, 30))
		}
		r.eventually("the new jobs", func() bool { return c.count() == 120 })
		if n := c.settle(func(j *delivery.Job) bool { return strings.HasPrefix(j.ID, "old") }); n != 3 {
			t.Fatalf("%d old jobs were open", n)
		}
		for _, topic := range topics { // a change to be committed
			r.produceIDs(topic, 0, "c", numbered("last-"+topic, 0, 1))
		}
		r.eventually("the last jobs", func() bool { return c.count() == 123 })
		r.eventually("the commits stop at the open new jobs", func() bool { return r.committedAll(topics, 3) })
		c.settle(nil)
		r.eventually("the commits of all", func() bool { return r.committedAll(topics, 31) })
	})
}

// deaf is a transport whose fetches, and questions for the ids of topics, get no answer once it is set.
type deaf struct {
	kafka.RoundTripper
	is atomic.Bool
}

func (d *deaf) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	answer, err := d.RoundTripper.RoundTrip(ctx, addr, request)
	switch kafkatest.Message(request).(type) {
	case *kmsg.MetadataRequest, *kmsg.FetchRequest:
		if d.is.Load() {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	}
	return answer, err
}

// TestTopicMadeAnewBeforeTheLastCommit: the positions of a daemon that leaves before it has noticed that topics were made anew make
// the next owner skip nothing: they name the topics before.
func TestTopicMadeAnewBeforeTheLastCommit(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		topics := []string{r.jobs(), r.opt.LaneTopic}
		r.create(1, topics...)
		network := &deaf{}
		client := newBroker(t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper {
			network.RoundTripper = inner
			return network
		})
		positions := &downPositions{}
		f := newFake()
		f.keep = func(j *delivery.Job) bool { return j.Offset == 3 }
		c := r.start(f, func(o *Options) { o.Client, o.Positions = client, positions })
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered("old-"+topic, 0, 10))
		}
		r.eventually("the old jobs", func() bool { return c.count() == 20 })
		network.is.Store(true)
		r.remake(1, topics...)
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered("new-"+topic, 0, 30))
		}
		c.settle(nil)
		r.eventually("commits in the new topics", func() bool { return r.committedAll(topics, 10) })
		c.stop()
		c = r.start(newFake(), func(o *Options) { o.Positions = positions })
		r.eventually("the new jobs", func() bool { return c.count() == 60 })
		if n := len(r.logs.lines("level=WARN", "the topic was made anew")); n != 2 {
			t.Errorf("%d lines: %s", n, r.logs)
		}
	})
}

// TestTopicMadeAnewBetweenGenerations: a topic that is missing while the group rebalances stays with its reader, and is told of
// when there is one again.
func TestTopicMadeAnewBetweenGenerations(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs(), r.opt.LaneTopic)
	r.produceIDs(r.opt.LaneTopic, 0, "c", numbered("old", 0, 10))
	c := r.start(newFake(), func(o *Options) { o.partitionsWatched = 20 * time.Millisecond })
	r.eventually("the old jobs", func() bool { return c.count() == 10 })
	if err := newBroker(t, r.brokers).DeleteTopics(t.Context(), []string{r.opt.LaneTopic}); err != nil {
		t.Fatal(err)
	}
	r.eventually("another generation", func() bool { return len(r.logs.lines("joined the group", "lanes=1")) > 1 })
	r.create(1, r.opt.LaneTopic)
	r.produceIDs(r.opt.LaneTopic, 0, "c", numbered("new", 0, 10))
	r.eventually("the new jobs", func() bool { return c.count() == 20 })
	if n := len(r.logs.lines("level=WARN", "the topic was made anew")); n != 1 {
		t.Errorf("%d lines: %s", n, r.logs)
	}
}

// unidentified is a transport whose first questions for the ids of topics fail.
type unidentified struct {
	kafka.RoundTripper
	asked atomic.Int32
}

func (u *unidentified) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	if _, ids := kafkatest.Message(request).(*kmsg.MetadataRequest); ids && u.asked.Add(1) <= 3 {
		return nil, kafka.LeaderNotAvailable
	}
	return u.RoundTripper.RoundTrip(ctx, addr, request)
}

// TestADoubtLastsUntilTheLogIsVerified: a topic that was gone for a moment is not read on before it is known which one it is: a new
// one may have grown beyond the position meanwhile.
func TestADoubtLastsUntilTheLogIsVerified(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	r.create(1, r.jobs())
	network := &unidentified{}
	client := newBroker(t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper {
		network.RoundTripper = inner
		return network
	})
	b := newBudget(1 << 20)
	m := newMetrics(newRegistry(), b)
	src, _ := newSource(partition{Topic: r.jobs()}, delivery.FromIngress, start{}, b, m, offset.NewOrigins(), func() {})
	reads := reader{
		opt: &Options{Client: client, Logger: discardLog()}, health: broker.NewHealth(discardLog()), src: src,
		hearts: &heartbeats{log: discardLog(), stalled: m.stalled, bound: time.Minute, hearts: map[*heart]bool{}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	turns := 0
	reads.run(ctx, func(context.Context) (bool, error) {
		if turns++; turns == 1 {
			return false, kafka.UnknownTopicOrPartition
		}
		if n := network.asked.Load(); n != 4 {
			t.Errorf("read on after %d questions for the id, of which 3 failed", n)
		}
		cancel()
		return false, nil
	})
	if turns != 2 {
		t.Errorf("%d turns", turns)
	}
}

// committedAll reports whether the group's offset is this in partition 0 of each topic.
func (r *rig) committedAll(topics []string, offset int64) bool {
	return !slices.ContainsFunc(topics, func(topic string) bool { return r.committed(topic, 0) != offset })
}

// sameIDs is a transport that goes on to give the ids that it gave first: topics made anew look like logs that have lost
// their end.
type sameIDs struct {
	kafka.RoundTripper
	open sync.RWMutex // locked while nothing may pass

	mu    sync.Mutex
	first map[string]kafka.Response
}

func (s *sameIDs) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	s.open.RLock()
	defer s.open.RUnlock()
	message, ids := kafkatest.Message(request).(*kmsg.MetadataRequest)
	if !ids {
		return s.RoundTripper.RoundTrip(ctx, addr, request)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := string(message.AppendTo(nil))
	if s.first[key] == nil {
		answer, err := s.RoundTripper.RoundTrip(ctx, addr, request)
		if err != nil {
			return nil, err
		}
		s.first[key] = answer
	}
	return s.first[key], nil
}

// TestLogLosesItsEnd: a log that has lost its last records, in an unclean election, is read on from its end, also while
// jobs are open whose records it has lost.
func TestLogLosesItsEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	topics := []string{r.jobs(), r.opt.LaneTopic}
	r.create(1, topics...)
	f := newFake()
	f.keep = func(j *delivery.Job) bool { return j.Offset == 5 || j.Offset == 95 }
	f.lingers = true
	ids := &sameIDs{first: map[string]kafka.Response{}}
	client := newBroker(t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper {
		ids.RoundTripper = inner
		return ids
	})
	for _, topic := range topics {
		at := partition{Topic: topic}
		if _, err := client.IdentityOf(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	c := r.start(f, func(o *Options) { o.Client = client })
	for _, topic := range topics {
		r.produceIDs(topic, 0, "c", numbered("kept-"+topic, 0, 90))
		r.produceIDs(topic, 0, "c", numbered("lost-"+topic, 0, 10))
	}
	r.eventually("all", func() bool { return c.count() == 200 })
	ids.open.Lock()
	r.remake(1, topics...)
	for _, topic := range topics {
		r.produceIDs(topic, 0, "c", numbered("kept-"+topic, 0, 90))
	}
	ids.open.Unlock()
	r.eventually("lines of both", func() bool { return len(r.logs.lines("level=ERROR", "has lost its last records", "records=10")) == 2 })
	if n := c.settle(nil); n != 4 {
		t.Errorf("%d jobs were in flight", n)
	}
	for _, topic := range topics {
		r.produceIDs(topic, 0, "c", numbered("new-"+topic, 0, 10))
	}
	r.eventually("the new jobs", func() bool { return c.count() == 220 })
	r.eventually("the commits stop at the open new jobs", func() bool { return r.committedAll(topics, 95) })
	c.settle(nil)
	r.eventually("the commits of all", func() bool { return r.committedAll(topics, 100) })
	for id, n := range c.seen {
		if n != 1 {
			t.Errorf("%s was seen %d times", id, n)
		}
	}
	if got := c.lostRecords(lostTruncated); got != 20 {
		t.Errorf("%v records count as lost", got)
	}
}

// TestCommitBeyondTheEnd: a commit of pacer's beyond the end is of a log that has lost its end, or of another one, by the topic that it
// names. One that names none decides nothing: its partition is not read, and a line says what to do.
func TestCommitBeyondTheEnd(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		topics := []string{r.jobs(), r.opt.LaneTopic}
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered(topic, 0, 90))
		}
		group, client := r.opt.Group, newBroker(t, r.brokers)
		for name, c := range map[string]struct {
			commit int64
			jobs   int
		}{"the same log": {90, 0}, "another log": {90, 180}, "another program": {100, 0}} {
			r.opt.Group = group + "-" + name
			for _, topic := range topics {
				identity, err := client.IdentityOf(t.Context(), partition{Topic: topic})
				if err != nil {
					t.Fatal(err)
				}
				if name == "another log" {
					identity = delivery.NewTopicID([16]byte{1})
				}
				metadata := offset.InTopic("", identity)
				if name == "another program" {
					metadata = ""
				}
				r.commitWith(topic, 0, 100, metadata)
			}
			d := r.start(newFake())
			r.eventually("the commits", func() bool { return r.committedAll(topics, c.commit) })
			if name == "another program" {
				r.eventually("lines", func() bool { return len(r.logs.lines("level=ERROR", "did not commit it", "remedy=")) == 2 })
			}
			if d.stop(); d.count() != c.jobs {
				t.Errorf("%s: %d jobs were read", name, d.count())
			}
		}
	})
}

// lostRecords returns how many records count as lost from ingress and lanes.
func (c *running) lostRecords(cause string) (n float64) {
	for _, place := range placeNames {
		var m dto.Metric
		if err := c.metrics.lost.WithLabelValues(place, cause).Write(&m); err != nil {
			c.rig.t.Fatal(err)
		}
		n += m.GetCounter().GetValue()
	}
	return n
}
