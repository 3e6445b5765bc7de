package consumer

import (
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// memberOf is the only member of the rig's group.
func (r *rig) memberOf() (member string) {
	r.t.Helper()
	r.eventually("the group has a member", func() bool {
		answer, err := r.client.DescribeGroups(r.t.Context(), &kafka.DescribeGroupsRequest{GroupIDs: []string{r.opt.Group}})
		if err != nil || len(answer.Groups) != 1 || len(answer.Groups[0].Members) != 1 {
			return false
		}
		member = answer.Groups[0].Members[0].MemberID
		return true
	})
	return member
}

// committing is what commits the first partitions of ingress for a member, and their sources.
func (r *rig) committing(client *broker.Client, member broker.Member, partitions int) (c *committer, sources []*source) {
	for p := range partitions {
		sources = append(sources, sourceOf(partition{Topic: r.jobs(), ID: p}, delivery.FromIngress))
	}
	return &committer{
		client: client, member: &membership{member: member, lease: &lease{}}, metrics: sources[0].metrics, health: broker.NewHealth(discardLog()),
		kicked: retry.NewSignal(), sources: func() []*source { return sources },
	}, sources
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
