package consumer

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// remake deletes topics and creates them again. The broker must know the new ones: for a moment, records for the topics
// before are still accepted.
func (r *rig) remake(partitions int, topics ...string) {
	r.t.Helper()
	before, _, err := r.admin.Identify(r.t.Context(), topics...)
	if err != nil {
		r.t.Fatalf("identify %v: %v", topics, err)
	}
	r.eventually("the topics are deleted", func() bool { return r.admin.DeleteTopics(r.t.Context(), topics) == nil })
	r.eventually("the topics are made anew", func() bool {
		err := r.make(partitions, topics...)
		for _, topic := range topics {
			for p := range partitions {
				now, unknown := r.admin.IdentityOf(r.t.Context(), partition{Topic: topic, ID: p})
				if err = cmp.Or(err, unknown); err != nil || now == before[topic] {
					return false
				}
			}
		}
		return true
	})
}

// TestTopicsMadeAnewWhileJobsAreOpen: a log made anew is read from its beginning. It holds the readers' next offsets, and jobs of the old
// log are still open. The outcomes of old jobs have no effect on new jobs with their offsets. A new job is no repeat of an old one with its place:
// each names its topic's id.
func TestTopicsMadeAnewWhileJobsAreOpen(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		timer := r.timer(time.Millisecond)
		topics := []string{r.jobs(), r.opt.LaneTopic, timer}
		ids := map[string]delivery.TopicID{} // by the names of jobs and their partitions
		c := r.start(keeping(func(j *delivery.Job) bool {
			ids[j.ID[:3]+j.Source.Name()] = j.Origin.TopicID
			return j.Offset == 3
		}))
		publish := func(name string, jobs int) {
			for _, topic := range topics {
				r.produceIDs(topic, 0, "c", numbered(name+topic, 0, jobs))
			}
		}
		publish("old-", 10)
		r.eventually("the old jobs", func() bool { return c.count() == 30 })
		r.eventually("their commits", r.allCommitted(3, 1, topics...))
		r.remake(1, topics...)
		publish("new-", 30)
		r.eventually("the new jobs", func() bool { return c.count() == 120 })
		if n := c.settle(func(j *delivery.Job) bool { return strings.HasPrefix(j.ID, "old") }); n != 3 {
			t.Fatalf("%d old jobs were open", n)
		}
		for _, topic := range topics {
			if before, now := ids["old"+topic+"/0"], ids["new"+topic+"/0"]; !another(before, now) {
				t.Errorf("jobs of %s name %s, and then %s", topic, before, now)
			}
		}
		publish("last-", 1) // a change to be committed
		r.eventually("the last jobs", func() bool { return c.count() == 123 })
		r.eventually("the commits stop at the open new jobs", r.allCommitted(3, 1, topics...))
		c.settle(all)
		r.eventually("the commits of all", r.allCommitted(31, 1, topics...))
	})
}

// TestTopicMadeAnewBeforeTheLastCommit: the positions of a daemon that leaves before it has noticed that topics were made anew make
// the next owner skip nothing: they name the topics before.
func TestTopicMadeAnewBeforeTheLastCommit(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		topics := []string{r.jobs(), r.opt.LaneTopic}
		var deaf atomic.Bool // fetches, and questions for the ids of topics, get no answer
		kept := &keptPositions{}
		keep := func(o *Options) { o.Positions = kept }
		c := r.start(keeping(func(j *delivery.Job) bool { return j.Offset == 3 }), keep,
			r.through(func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
				answer, err := send(ctx)
				switch kafkatest.Message(request).(type) {
				case *kmsg.MetadataRequest, *kmsg.FetchRequest:
					if deaf.Load() {
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}
				return answer, err
			}))
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered("old-"+topic, 0, 10))
		}
		r.eventually("the old jobs", func() bool { return c.count() == 20 })
		deaf.Store(true)
		r.remake(1, topics...)
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered("new-"+topic, 0, 30))
		}
		c.settle(all)
		r.eventually("commits in the new topics", r.allCommitted(10, 1, topics...))
		c.stop()
		c = r.start(newFake(), keep)
		r.eventually("the new jobs", func() bool { return c.count() == 60 })
		r.said(2, "level=WARN", "the topic was made anew")
	})
}

// TestADoubtLastsUntilTheLogIsVerified: a topic that was gone for a moment is not read on before it is known which one it is: a new
// one may have grown beyond the position meanwhile.
func TestADoubtLastsUntilTheLogIsVerified(t *testing.T) {
	r := inProcess(t, 1, 0)
	var asked atomic.Int32 // for the ids of topics, which fails at first
	client := r.by(func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
		if _, ids := kafkatest.Message(request).(*kmsg.MetadataRequest); ids && asked.Add(1) <= 3 {
			return nil, kafka.LeaderNotAvailable
		}
		return send(ctx)
	})
	src := sourceOf(partition{Topic: r.jobs()}, delivery.FromIngress)
	reads := reader{
		opt: &Options{Client: client, Logger: discardLog()}, health: broker.NewHealth(discardLog()), src: src,
		hearts: &heartbeats{log: discardLog(), stalled: src.metrics.stalled, bound: time.Minute, hearts: map[*heart]bool{}},
	}
	ctx, cancel := context.WithCancel(t.Context())
	turns := 0
	reads.run(ctx, func(context.Context) (bool, error) {
		if turns++; turns == 1 {
			return false, kafka.UnknownTopicOrPartition
		}
		if n := asked.Load(); n != 4 {
			t.Errorf("read on after %d questions for the id, of which 3 failed", n)
		}
		cancel()
		return false, nil
	})
	if turns != 2 {
		t.Errorf("%d turns", turns)
	}
}

// TestLogLosesItsEnd: a log that has lost its last records, in an unclean election, is read on from its end, also while
// jobs are open whose records it has lost.
func TestLogLosesItsEnd(t *testing.T) {
	r := inProcess(t, 1, 1)
	topics := []string{r.jobs(), r.opt.LaneTopic}
	f := keeping(func(j *delivery.Job) bool { return j.Offset == 5 || j.Offset == 95 })
	f.lingers = true
	// The ids that were given first are given again: topics made anew look like logs that have lost their end.
	var ids sync.Map
	var open sync.RWMutex // locked while nothing may pass
	client := r.by(func(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
		open.RLock()
		defer open.RUnlock()
		message, asks := kafkatest.Message(request).(*kmsg.MetadataRequest)
		if !asks {
			return send(ctx)
		}
		key := string(message.AppendTo(nil))
		if answer, known := ids.Load(key); known {
			return answer.(kafka.Response), nil
		}
		first, err := send(ctx)
		if err == nil {
			ids.Store(key, first)
		}
		return first, err
	})
	for _, topic := range topics {
		if _, err := client.IdentityOf(t.Context(), partition{Topic: topic}); err != nil {
			t.Fatal(err)
		}
	}
	c := r.start(f, func(o *Options) { o.Client = client })
	publish := func(name string, jobs int) {
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered(name+topic, 0, jobs))
		}
	}
	publish("kept-", 90)
	publish("lost-", 10)
	r.eventually("all", func() bool { return c.count() == 200 })
	open.Lock()
	r.remake(1, topics...)
	publish("kept-", 90)
	open.Unlock()
	r.says(2, "level=ERROR", "has lost its last records", "records=10")
	if n := c.settle(all); n != 4 {
		t.Errorf("%d jobs were in flight", n)
	}
	publish("new-", 10)
	r.eventually("the new jobs", func() bool { return c.count() == 220 })
	r.eventually("the commits stop at the open new jobs", r.allCommitted(95, 1, topics...))
	c.settle(all)
	r.eventually("the commits of all", r.allCommitted(100, 1, topics...))
	handedOnce(t, 220, c.fake)
	if got := c.lostRecords(lostTruncated); got != 20 {
		t.Errorf("%v records count as lost", got)
	}
}

// TestCommitBeyondTheEnd: a commit of pacer's beyond the end is of a log that has lost its end, or of another one, by the topic that it
// names. One that names none decides nothing: its partition is not read, and a line says what to do.
func TestCommitBeyondTheEnd(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		topics := []string{r.jobs(), r.opt.LaneTopic}
		for _, topic := range topics {
			r.produceIDs(topic, 0, "c", numbered(topic, 0, 90))
		}
		group := r.opt.Group
		for name, c := range map[string]struct {
			commit int64
			jobs   int
		}{"the same log": {90, 0}, "another log": {90, 180}, "another program": {100, 0}} {
			r.opt.Group = group + "-" + name
			for _, topic := range topics {
				identity, err := r.admin.IdentityOf(t.Context(), partition{Topic: topic})
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
			r.eventually("the commits", r.allCommitted(c.commit, 1, topics...))
			if name == "another program" {
				r.says(2, "level=ERROR", "did not commit it", "remedy=")
			}
			if d.stop(); d.count() != c.jobs {
				t.Errorf("%s: %d jobs were read", name, d.count())
			}
		}
	})
}
