package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// memberOf is the only member of the rig's group.
func (r *rig) memberOf() string {
	r.t.Helper()
	answer, err := r.client.DescribeGroups(r.t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{r.opt.Group}})
	if err != nil || len(answer.Groups) != 1 || len(answer.Groups[0].Members) != 1 {
		r.t.Fatalf("describe the group: %+v, %v", answer, err)
	}
	return answer.Groups[0].Members[0].MemberID
}

// commitsOf counts the commits with a result.
func commitsOf(t *testing.T, m *metrics, result string) float64 {
	t.Helper()
	var out dto.Metric
	if err := m.commits.WithLabelValues(result).Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.GetCounter().GetValue()
}

// The broker refuses a commit of a lost generation, or of a member that is gone, and it is dropped here. No caller waits for it any more,
// and nothing is sent again.
func TestCommitOfALostGenerationIsDropped(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		r.create(1, r.jobs(), r.opt.LaneTopic)
		f := newFake()
		f.keep = func(*delivery.Job) bool { return true }
		live := r.start(f)
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 10))
		r.eventually("all are open", func() bool { return live.count() == 10 })
		var generation dto.Metric
		if err := live.metrics.generation.Write(&generation); err != nil {
			t.Fatal(err)
		}
		now := int(generation.GetGauge().GetValue())
		for name, lost := range map[string]broker.Member{
			"an earlier generation": {Group: r.opt.Group, ID: r.memberOf(), Generation: now - 1},
			"a member that is gone": {Group: r.opt.Group, ID: "nobody", Generation: now},
		} {
			b := newBudget(1 << 20)
			m := newMetrics(newRegistry(), b)
			c := newCommitter(newBroker(t, r.brokers), &membership{member: lost}, m, broker.NewHealth(discardLog()))
			src, _ := newSource(partition{Topic: r.jobs()}, delivery.FromIngress, start{committed: true}, b, m, offset.NewOrigins(), c.kicked.Send)
			c.sources = func() []*source { return []*source{src} }
			for o := range int64(5) {
				src.register(&delivery.Job{Reading: delivery.Reading{Offset: o, Size: 1}})
				src.settle(o, "", "")
			}
			r.eventually(name+": an answer to the commit", func() bool { // a broker that is slow gives none
				err := c.commit(t.Context(), true)
				return err == nil && commitsOf(t, m, resultFenced)+commitsOf(t, m, resultOK) > 0
			})
			if err := c.commit(t.Context(), true); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if commitsOf(t, m, resultFenced) != 1 || commitsOf(t, m, resultOK) != 0 {
				t.Errorf("%s: %v commits were fenced", name, commitsOf(t, m, resultFenced))
			}
			flush, cancel := context.WithTimeout(t.Context(), patience)
			if err := src.flush(flush); err != nil {
				t.Errorf("%s: flush: %v", name, err)
			}
			cancel()
		}
		if at := r.committed(r.jobs(), 0); at > 0 {
			t.Errorf("%d was committed by nobody", at)
		}
		live.settle(nil)
		r.eventually("the owner's commit", func() bool { return r.committed(r.jobs(), 0) == 10 })
	})
}

// A partition that moves waits for what is in flight for ShutdownTimeout and no longer, and nothing else does; what was settled in
// time is committed, and the next owner has what was not.
func TestRevokeIsBounded(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		const bound = 1500 * time.Millisecond
		r.create(2, r.jobs(), r.opt.LaneTopic)
		f := newFake()
		f.keep = func(j *delivery.Job) bool { return j.Offset >= 5 }
		f.lingers = true
		first := r.start(f, func(o *Options) { o.ShutdownTimeout = bound })
		for p := range 2 {
			r.produceIDs(r.jobs(), p, "c", numbered([]string{"a", "b"}[p], 0, 10))
		}
		r.eventually("all are in flight or settled", func() bool { return first.count() == 20 })
		joins := time.Now()
		second := r.start(newFake())
		r.eventually("the second's share", func() bool { return second.count() == 5 })
		if took := time.Since(joins); took < bound-50*time.Millisecond {
			t.Errorf("the partition moved after %s", took)
		}
		if lines := r.logs.lines("level=WARN", "may be sent twice", "jobs=5"); len(lines) != 1 {
			t.Errorf("%s", r.logs)
		}
	})
}

// Thousands of holes fit into the metadata of a commit that a broker takes: the partition goes on, and a restart repeats
// only what was open.
func TestThousandsOfHoles(t *testing.T) {
	onBrokers(t, func(t *testing.T, r *rig) {
		const jobs = 12_000
		r.create(1, r.jobs(), r.opt.LaneTopic)
		for i := 0; i < jobs; i += 1000 {
			r.produceIDs(r.jobs(), 0, "c", numbered("j", i, i+1000))
		}
		f := newFake()
		f.keep = func(j *delivery.Job) bool { return j.Offset%2 == 0 }
		first := r.start(f)
		r.eventually("all seen", func() bool { return first.count() == jobs })
		first.stop()
		if warns := r.logs.lines("level=WARN"); len(warns) > 0 {
			t.Errorf("%s", warns)
		}
		r.produceIDs(r.jobs(), 0, "c", []string{"last"})
		second := r.start(newFake())
		r.eventually("what was open", func() bool { return second.saw("last") })
		second.stop()
		if n := second.count(); n != jobs/2+1 {
			t.Errorf("%d jobs came again, want %d", n, jobs/2+1)
		}
	})
}

// However many partitions there are, jobs and fetches in flight stay within one budget: fetches wait for it, and while
// one is copied its bytes count twice.
func TestOneBudgetForManyPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t, inProcess(t).ListenAddrs())
	const limit, ingress, lanes = 3 << 20, 30, 90
	r.create(ingress, r.jobs())
	r.create(lanes, r.opt.LaneTopic)
	value := make([]byte, 8<<10)
	fill := func(topic string, partitions int) {
		for p := range partitions {
			records := make([]kafka.Record, 10)
			for i := range records {
				records[i] = job("c", fmt.Sprintf("%s-%d-%d", topic, p, i))
				records[i].Value = kafka.NewBytes(value)
			}
			r.produce(topic, p, records...)
		}
	}
	fill(r.jobs(), ingress)
	fill(r.opt.LaneTopic, lanes)
	f := newFake()
	f.keep = func(*delivery.Job) bool { return true }
	c := r.start(f, func(o *Options) { o.MaxBufferBytes = limit })
	most, settled := int64(0), 0
	look := func() int64 {
		held := c.budget.inUse()
		most = max(most, held)
		return held
	}
	r.eventually("the budget is full", func() bool { return look() > limit*3/4 })
	for range 200 { // nothing is settled: reading stops where it is
		look()
		time.Sleep(time.Millisecond)
	}
	if n := c.count(); n*len(value) > 2*limit {
		t.Errorf("%d jobs were read into a budget of %d bytes", n, limit)
	}
	r.eventually("everything is read by and by", func() bool {
		look()
		settled += c.settle(nil)
		return settled == (ingress+lanes)*10
	})
	if most > 2*limit || most < limit/2 {
		t.Errorf("held %d bytes at most, with a budget of %d", most, limit)
	}
}
