package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/retry"
)

const (
	commitInterval = 100 * time.Millisecond
	commitTimeout  = 2 * time.Second // of one request
	// maxCommitBytes bounds a request. Kafka stores it as one batch of __consumer_offsets, whose max.message.bytes is 1 MiB.
	maxCommitBytes = 500 << 10
	commitOverhead = 64 // bytes that Kafka stores for a partition besides names and metadata
	lastAttempts   = 4  // of a last commit that is refused
)

// commitBackoff has no jitter, so that partitions whose commits failed together stay in one request.
var commitBackoff = retry.Backoff{Initial: brokerBackoff.Initial, Max: brokerBackoff.Max}

// committer commits the partitions of an assignment that have changed: every interval, and at once when kicked. One goroutine
// runs it; kicked may be sent by any. A partition whose commit fails backs off alone.
type committer struct {
	client  *broker.Client
	member  *membership
	metrics *metrics
	health  *broker.Health
	sources func() []*source
	kicked  retry.Signal // a commit is wanted soon
	fenced  bool         // the group has gone on without this daemon: nothing can be committed any more
	heart   heart
}

// run commits until ctx ends. A request that is in flight by then is waited for: the next one could overtake it.
func (c *committer) run(ctx context.Context) {
	defer c.health.Forget("commit")
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	for {
		c.heart.beat("the broker to answer a commit")
		select {
		case <-ticker.C:
		case <-c.kicked:
		case <-ctx.Done():
			return
		}
		_ = c.commit(context.WithoutCancel(ctx), false) // classify has logged it
	}
}

// last commits until nothing is left but what is refused again and again, the group has gone on without this daemon, or ctx ends. It
// returns the error of the last requests if something is left.
func (c *committer) last(ctx context.Context) error {
	var wait backoff
	for {
		err := c.commit(ctx, true)
		if err == nil || !slices.ContainsFunc(c.sources(), (*source).pending) || wait.pause(ctx) != nil {
			return err
		}
	}
}

// commit sends requests for what has changed, also in partitions that back off if all is true. It returns an error when something
// is left to try again.
func (c *committer) commit(ctx context.Context, all bool) (err error) {
	member, _ := c.member.now() // before the positions: those of a partition that moves meanwhile are refused
	began, size, sent := time.Now(), 0, map[*source]progress{}
	for _, s := range c.sources() {
		if !all && began.Before(s.commitAfter) {
			continue
		}
		p, dirty := s.progress()
		if !dirty {
			continue
		}
		more := commitOverhead + len(member.Group) + len(s.Topic) + len(p.Metadata)
		if size+more > maxCommitBytes {
			err = cmp.Or(c.send(ctx, member, sent), err)
			size, sent = 0, map[*source]progress{}
		}
		size, sent[s] = size+more, p
	}
	return cmp.Or(c.send(ctx, member, sent), err)
}

// send commits in one request, and notes the outcome of each partition.
func (c *committer) send(ctx context.Context, member broker.Member, sent map[*source]progress) (err error) {
	if c.fenced || len(sent) == 0 {
		return nil
	}
	commits := make(map[partition]broker.Commit, len(sent))
	for s, p := range sent {
		commits[s.partition] = broker.Commit{Offset: p.Offset, Metadata: p.Metadata}
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	outcomes, failure := c.client.Commit(ctx, member, commits)
	for s, p := range sent {
		outcome := failure
		if refusal := outcomes[s.partition]; refusal != nil {
			outcome = fmt.Errorf("commit %s: %w", s.partition, refusal)
		}
		if s.answered(p, outcome); outcome == nil {
			continue
		}
		if err == nil || broker.Fenced(outcome) {
			err = outcome
		}
	}
	if c.member.outdated(member, err) {
		return err // it is repeated as one of the generation that the member has by then
	}
	return c.classify(err)
}

// classify classifies an error. A commit that is fenced is dropped: the partitions have other owners now, which continue
// from the last accepted commit.
func (c *committer) classify(err error) error {
	switch {
	case err == nil:
		c.metrics.commits.WithLabelValues(resultOK).Inc()
		if !slices.ContainsFunc(c.sources(), func(s *source) bool { return s.commitFailures > 0 }) {
			c.health.OK("commit")
		}
		return nil
	case broker.Fenced(err):
		c.metrics.commits.WithLabelValues(resultFenced).Inc()
		c.fenced = true
		c.member.lease.lose()
		return nil
	}
	c.metrics.commits.WithLabelValues(resultError).Inc()
	if !errors.Is(err, context.Canceled) {
		c.health.Fail("commit", err)
	}
	return err
}
