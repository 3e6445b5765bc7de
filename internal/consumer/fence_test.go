package consumer

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
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

// committing is what commits the first partitions of ingress for a member, and their sources.
func (r *rig) committing(client *broker.Client, member broker.Member, partitions int) (c *committer, sources []*source) {
	b := newBudget(1 << 20)
	m := newMetrics(prometheus.NewRegistry(), b)
	c = newCommitter(client, &membership{member: member, lease: &lease{}}, m, broker.NewHealth(discardLog()))
	for p := range partitions {
		at := partition{Topic: r.jobs(), ID: p}
		src, _ := newSource(at, delivery.FromIngress, start{committed: true}, b, m, offset.NewOrigins(), &told{}, c.kicked.Send)
		sources = append(sources, src)
	}
	c.sources = func() []*source { return sources }
	return c, sources
}

// The broker refuses a commit of a lost generation, or of a member that is gone, and it is dropped here. No caller waits for it any more,
// and nothing is sent again.
func TestCommitOfALostGenerationIsDropped(t *testing.T) {
	onBrokers(t, 1, 1, func(t *testing.T, r *rig) {
		live := r.start(keeping(all))
		r.produceIDs(r.jobs(), 0, "c", numbered("j", 0, 10))
		r.eventually("all are open", func() bool { return live.count() == 10 })
		now := int(metric.Value(live.metrics.generation))
		for name, lost := range map[string]broker.Member{
			"an earlier generation": {Group: r.opt.Group, ID: r.memberOf(), Generation: now - 1},
			"a member that is gone": {Group: r.opt.Group, ID: "nobody", Generation: now},
		} {
			c, sources := r.committing(r.broker(), lost, 1)
			src := sources[0]
			for o := range int64(5) {
				src.register(&delivery.Job{Reading: delivery.Reading{Offset: o, Size: 1}})
				src.settle(o, "", "")
			}
			commits := func(result string) float64 { return testutil.ToFloat64(c.metrics.commits.WithLabelValues(result)) }
			r.eventually(name+": an answer to the commit", func() bool { // a broker that is slow gives none
				return c.commit(t.Context(), true) == nil && commits(resultFenced)+commits(resultOK) > 0
			})
			if err := c.commit(t.Context(), true); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if commits(resultFenced) != 1 || commits(resultOK) != 0 {
				t.Errorf("%s: %v commits were fenced", name, commits(resultFenced))
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
		live.settle(all)
		r.eventually("the owner's commit", r.allCommitted(10, 1, r.jobs()))
	})
}

// A partition that moves waits for what is in flight for ShutdownTimeout and no longer, and nothing else does; what was settled in
// time is committed, and the next owner has what was not.
func TestRevokeIsBounded(t *testing.T) {
	onBrokers(t, 2, 1, func(t *testing.T, r *rig) {
		const bound = 1500 * time.Millisecond
		f := keeping(func(j *delivery.Job) bool { return j.Offset >= 5 })
		f.lingers = true
		first := r.start(f, func(o *Options) { o.ShutdownTimeout = bound })
		for p, name := range []string{"a", "b"} {
			r.produceIDs(r.jobs(), p, "c", numbered(name, 0, 10))
		}
		r.eventually("all are in flight or settled", func() bool { return first.count() == 20 })
		joins := time.Now()
		second := r.start(newFake())
		r.eventually("the second's share", func() bool { return second.count() == 5 })
		if took := time.Since(joins); took < bound-50*time.Millisecond {
			t.Errorf("the partition moved after %s", took)
		}
		r.said(1, "level=WARN", "may be sent twice", "jobs=5")
	})
}
