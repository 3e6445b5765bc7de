package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/retry"
)

const (
	commitInterval = 100 * time.Millisecond
	commitTimeout  = 2 * time.Second // of one request
)

// committer commits the partitions of a tenure, all that have changed in one request: every interval, and at once when kicked. One
// goroutine runs it; kicked may be sent by any.
type committer struct {
	client  *broker.Client
	member  *membership
	metrics *metrics
	health  *broker.Health
	sources func() []*source
	kicked  retry.Signal // a commit is wanted soon
	fenced  bool         // the group has gone on without this daemon: nothing can be committed any more
	lost    func()       // called when it has; may be nil
	// answered is whether the last request was answered, and not by a broker that is busy with itself.
	answered bool
	heart    heart
}

func newCommitter(c *broker.Client, m *membership, mx *metrics, h *broker.Health) *committer {
	return &committer{client: c, member: m, metrics: mx, health: h, kicked: retry.NewSignal()}
}

// run commits until ctx ends. A request that is in flight by then is waited for: the next one could overtake it.
func (c *committer) run(ctx context.Context) {
	defer c.health.Forget("commit")
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	var wait backoff
	for {
		c.heart.beat("the broker to answer a commit")
		select {
		case <-ticker.C:
		case <-c.kicked:
		case <-ctx.Done():
			return
		}
		if err := c.commit(context.WithoutCancel(ctx)); err == nil {
			wait.reset()
		} else if wait.pause(ctx) != nil {
			return
		}
	}
}

// last commits once more, until nothing is left to commit, the group has gone on without this daemon, or ctx ends. It returns the
// error of the last request if something is left.
func (c *committer) last(ctx context.Context) error {
	var wait backoff
	for {
		err := c.commit(ctx)
		if err == nil || wait.pause(ctx) != nil {
			return err
		}
	}
}

var errPartlyCommitted = errors.New("some partitions were not committed")

// commit sends one request for all that changed. It returns an error when something is left to try again.
func (c *committer) commit(ctx context.Context) error {
	if c.fenced {
		return nil
	}
	member, _ := c.member.now() // before the positions: those of a partition that moves meanwhile are refused
	commits, sent := map[partition]broker.Commit{}, map[*source]progress{}
	for _, s := range c.sources() {
		if p, dirty := s.progress(); dirty {
			commits[s.partition], sent[s] = broker.Commit{Offset: p.Offset, Metadata: p.Metadata, Epoch: p.epoch}, p
		}
	}
	if len(commits) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	outcomes, err := c.client.Commit(ctx, member, commits)
	if err == nil {
		err = acknowledge(outcomes, sent)
	}
	if c.member.outdated(member, err) {
		return err // it is repeated as one of the generation that the member has by then
	}
	return c.classify(err)
}

// acknowledge notifies each source that was committed, and returns an error of the others.
func acknowledge(outcomes map[partition]error, sent map[*source]progress) error {
	var refused, left error
	for s, p := range sent {
		switch err, answered := outcomes[s.partition]; {
		case !answered:
			left = errPartlyCommitted
		case err != nil:
			refused = fmt.Errorf("commit %s: %w", s.partition, err)
		default:
			s.committed(p)
		}
	}
	if refused != nil {
		return refused
	}
	return left
}

// classify classifies an error. A commit that is fenced is dropped: the partitions have other owners now, which continue
// from the last accepted commit.
func (c *committer) classify(err error) error {
	c.answered = errors.Is(err, errPartlyCommitted) || broker.Answered(err)
	switch {
	case err == nil:
		c.metrics.commits.WithLabelValues(resultOK).Inc()
		c.health.OK("commit")
		return nil
	case broker.Fenced(err):
		c.metrics.commits.WithLabelValues(resultFenced).Inc()
		c.fenced = true
		for _, s := range c.sources() {
			s.fence()
		}
		if c.lost != nil {
			c.lost()
		}
		return nil
	case errors.Is(err, errPartlyCommitted):
		c.metrics.commits.WithLabelValues(resultPartial).Inc()
	default:
		c.metrics.commits.WithLabelValues(resultError).Inc()
	}
	if !errors.Is(err, context.Canceled) {
		c.health.Fail("commit", err)
	}
	return err
}
