package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// denied is the way to a broker that denies its user one topic, while one is set.
type denied struct {
	topic atomic.Pointer[string]
	only  kmsg.Key // in answers of this kind; -1: all
}

func (d *denied) way(ctx context.Context, request kafka.Request, send sending) (kafka.Response, error) {
	const refusal = int16(kafka.TopicAuthorizationFailed)
	topic := d.topic.Load()
	if f, ok := kafkatest.Message(request).(*kmsg.FetchRequest); ok && topic != nil && d.only < 0 && f.Topics[0].Topic == *topic {
		time.Sleep(20 * time.Millisecond)
		return nil, kafka.TopicAuthorizationFailed
	}
	answer, err := send(ctx)
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
	case *kmsg.MetadataResponse:
		for i, t := range a.Topics {
			if *t.Topic == *topic {
				a.Topics[i].ErrorCode, a.Topics[i].Partitions = refusal, nil
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

// another makes another topic of ingress.
func (r *rig) another(partitions int) string {
	topic := r.jobs() + ".other"
	r.opt.Ingress = append(r.opt.Ingress, topic)
	r.create(partitions, topic)
	return topic
}

// The broker refuses the commits of one partition. All others are committed, and read, as soon as before.
func TestARefusedCommitSlowsNoOther(t *testing.T) {
	r := inProcess(t, 1, 1)
	other := r.another(1)
	d := &denied{only: kmsg.OffsetCommit}
	c := r.start(newFake(), r.through(d.way))
	const jobs = 8000
	send := func(name string) time.Duration {
		began := time.Now()
		r.produceIDs(r.jobs(), 0, "c", numbered(name, 0, jobs))
		r.eventually("all of "+name, func() bool { return c.saw(name + "-7999") })
		return time.Since(began)
	}
	without := send("without")
	d.topic.Store(&other)
	r.produceIDs(other, 0, "d", []string{"refused"})
	r.eventually("the other job", func() bool { return c.saw("refused") })
	time.Sleep(3 * time.Second) // until the backoff has grown
	if with := send("with"); with > 5*without+time.Second {
		t.Errorf("%d jobs take %s, and %s while the commit of another partition is refused", jobs, without, with)
	}
	r.said(1, "level=WARN", "kafka does not answer as it should", "commit "+other+"/0")
	d.topic.Store(nil)
	r.eventually("the commit that was refused", func() bool { return r.committed(other, 0) == 1 })

	d.topic.Store(&other)
	r.produceIDs(other, 0, "d", []string{"again"})
	r.eventually("its job", func() bool { return c.saw("again") })
	began := time.Now()
	c.stop()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("a stop takes %s", took)
	}
	r.said(1, "level=WARN", "the last commit was not accepted")
}

// An operator takes away the right to one of several topics of ingress. A daemon that leaves then, and one that comes, cost the
// others nothing.
func TestOneTopicThatIsDeniedStopsNoOther(t *testing.T) {
	const partitions = 6
	r := inProcess(t, partitions, 2)
	other := r.another(2)
	d := &denied{only: -1}
	f := newFake()
	first, second := r.start(f, r.through(d.way)), r.start(f, r.through(d.way))
	r.eventually("both have their share", func() bool { return len(r.logs.lines("joined the group", "ingress=4")) >= 2 })
	send := func(name string) {
		for p := range partitions {
			r.produceIDs(r.jobs(), p, "c", numbered(fmt.Sprint(name, p), 0, 3000)) // more than may be uncommitted
			r.produceIDs(r.opt.LaneTopic, p%2, "c", []string{fmt.Sprint(name, p)})
		}
	}
	d.topic.Store(&other)
	first.stop()
	send("after")
	r.eventually("all jobs of the other topics", func() bool { return f.count() == partitions*3001 })
	third := r.start(f, r.through(d.way))
	r.eventually("the third has its share", func() bool { return third.Joined() && len(third.Backlog().Lanes) == 1 })
	second.stop()
	send("later")
	r.eventually("all again", func() bool { return f.count() == 2*partitions*3001 })
	r.produceIDs(other, 0, "c", []string{"denied"})
	d.topic.Store(nil)
	r.eventually("the job of the topic that is allowed again", func() bool { return f.saw("denied") })
	handedOnce(t, 2*partitions*3001+1, f)
}

// The committed offset of one partition cannot be read. Those that were gained with it are read.
func TestAnOffsetThatCannotBeReadStopsNoOther(t *testing.T) {
	r := inProcess(t, 1, 1)
	other := r.another(1)
	for _, at := range []string{r.jobs(), r.opt.LaneTopic, other} {
		r.produceIDs(at, 0, "c", []string{at})
	}
	d := &denied{only: kmsg.OffsetFetch}
	d.topic.Store(&other)
	c := r.start(newFake(), r.through(d.way))
	r.eventually("the jobs of the others", func() bool { return c.Joined() && c.count() == 2 })
	d.topic.Store(nil)
	r.eventually("the last job", func() bool { return c.saw(other) })
}
