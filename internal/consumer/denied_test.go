package consumer

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// denied is a transport that answers as a broker does that denies its user one topic.
type denied struct {
	kafka.RoundTripper
	topic *atomic.Pointer[string]
	only  kmsg.Key // of a kind of answer; -1: all
}

func (d *denied) RoundTrip(ctx context.Context, addr net.Addr, request kafka.Request) (kafka.Response, error) {
	const refusal = int16(kafka.TopicAuthorizationFailed)
	topic := d.topic.Load()
	if f, ok := kafkatest.Message(request).(*kmsg.FetchRequest); ok && topic != nil && d.only < 0 && f.Topics[0].Topic == *topic {
		time.Sleep(20 * time.Millisecond)
		return nil, kafka.TopicAuthorizationFailed
	}
	answer, err := d.RoundTripper.RoundTrip(ctx, addr, request)
	if topic == nil || err != nil || d.only >= 0 && d.only.Int16() != int16(answer.ApiKey()) {
		return answer, err
	}
	switch a := kafkatest.Answer(answer).(type) {
	case *kmsg.OffsetCommitResponse:
		for _, t := range a.Topics {
			for i := range t.Partitions {
				if t.Topic == *topic {
					t.Partitions[i].ErrorCode = refusal
				}
			}
		}
	case *kmsg.OffsetFetchResponse:
		for _, t := range a.Topics {
			for i := range t.Partitions {
				if t.Topic == *topic {
					t.Partitions[i].ErrorCode = refusal
				}
			}
		}
	}
	if a, ok := answer.(*metadata.Response); ok {
		is := *a // it is that of the transport's cache
		is.Topics = slices.Clone(a.Topics)
		for i := range is.Topics {
			if is.Topics[i].Name == *topic {
				is.Topics[i].ErrorCode, is.Topics[i].Partitions = refusal, nil
			}
		}
		return &is, nil
	}
	return answer, err
}

// deny has a consumer denied the topic of the pointer, if there is one.
func (r *rig) deny(topic *atomic.Pointer[string], only kmsg.Key) func(*Options) {
	return func(o *Options) {
		o.Client = newBroker(r.t, r.brokers, func(inner kafka.RoundTripper) kafka.RoundTripper {
			return &denied{RoundTripper: inner, topic: topic, only: only}
		})
	}
}

// The broker refuses the commits of one partition. All others are committed, and read, as soon as before.
func TestARefusedCommitSlowsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	other := r.jobs() + ".other"
	r.opt.Ingress = append(r.opt.Ingress, other)
	r.create(1, r.jobs(), other, r.opt.LaneTopic)
	var topic atomic.Pointer[string]
	c := r.start(newFake(), r.deny(&topic, kmsg.OffsetCommit))
	const jobs = 8000
	send := func(name string) time.Duration {
		began := time.Now()
		for i := 0; i < jobs; i += 1000 {
			r.produceIDs(r.jobs(), 0, "c", numbered(name, i, i+1000))
		}
		r.eventually("all of "+name, func() bool { return c.saw(name + "-7999") })
		return time.Since(began)
	}
	without := send("without")
	topic.Store(&other)
	r.produceIDs(other, 0, "d", []string{"refused"})
	r.eventually("the other job", func() bool { return c.saw("refused") })
	time.Sleep(3 * time.Second) // until the backoff has grown
	if with := send("with"); with > 5*without+time.Second {
		t.Errorf("%d jobs take %s, and %s while the commit of another partition is refused", jobs, without, with)
	}
	if lines := r.logs.lines("level=WARN", "kafka does not answer as it should", "commit "+other+"/0"); len(lines) != 1 {
		t.Errorf("%d lines: %s", len(lines), r.logs)
	}
	topic.Store(nil)
	r.eventually("the commit that was refused", func() bool { return r.committed(other, 0) == 1 })

	topic.Store(&other)
	r.produceIDs(other, 0, "d", []string{"again"})
	r.eventually("its job", func() bool { return c.saw("again") })
	began := time.Now()
	c.stop()
	if took := time.Since(began); took > 5*time.Second || len(r.logs.lines("level=WARN", "the last commit was not accepted")) != 1 {
		t.Errorf("a stop takes %s\n%s", took, r.logs)
	}
}

// An operator takes away the right to one of several topics of ingress. A daemon that leaves then, and one that comes, cost the
// others nothing.
func TestOneTopicThatIsDeniedStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	other := r.jobs() + ".other"
	r.opt.Ingress = append(r.opt.Ingress, other)
	const partitions = 6
	r.create(partitions, r.jobs())
	r.create(2, other, r.opt.LaneTopic)
	var topic atomic.Pointer[string]
	f := newFake()
	first, second := r.start(f, r.deny(&topic, -1)), r.start(f, r.deny(&topic, -1))
	r.eventually("both have their share", func() bool { return len(r.logs.lines("joined the group", "ingress=4")) >= 2 })
	send := func(name string) {
		for p := range partitions {
			r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint(name, p), 0, 3000)) // more than may be uncommitted
			r.produceIDs(r.opt.LaneTopic, p%2, "c", []string{fmt.Sprint(name, p)})
		}
	}
	topic.Store(&other)
	first.stop()
	send("after")
	r.eventually("all jobs of the other topics", func() bool { return f.count() == partitions*3001 })
	third := r.start(f, r.deny(&topic, -1))
	r.eventually("the third has its share", func() bool { return third.Joined() && len(third.Backlog().Lanes) == 1 })
	second.stop()
	send("later")
	r.eventually("all again", func() bool { return f.count() == 2*partitions*3001 })
	r.produceIDs(other, 0, "c", []string{"denied"})
	topic.Store(nil)
	r.eventually("the job of the topic that is allowed again", func() bool { return f.saw("denied") })
	for id, n := range f.seen {
		if n != 1 {
			t.Errorf("%s was handed over %d times", id, n)
		}
	}
}

// The committed offset of one partition cannot be read. Those that were gained with it are read.
func TestAnOffsetThatCannotBeReadStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	other := r.jobs() + ".other"
	r.opt.Ingress = append(r.opt.Ingress, other)
	r.create(1, r.jobs(), other, r.opt.LaneTopic)
	for _, at := range []string{r.jobs(), r.opt.LaneTopic, other} {
		r.produceIDs(at, 0, "c", []string{at})
	}
	var topic atomic.Pointer[string]
	topic.Store(&other)
	c := r.start(newFake(), r.deny(&topic, kmsg.OffsetFetch))
	r.eventually("the jobs of the others", func() bool { return c.Joined() && c.count() == 2 })
	topic.Store(nil)
	r.eventually("the last job", func() bool { return c.saw(other) })
}
