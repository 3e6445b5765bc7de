package consumer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
)

// commitTimeout bounds one commit request.
const commitTimeout = 2 * time.Second

// member is the identity by which the coordinator fences commits.
type member struct {
	group      string
	id         string
	generation int
}

// committer commits the partitions of one generation, all that have changed in one request: every interval, and at once
// when kicked. One goroutine runs it; kick may be called from any.
type committer struct {
	client   *kafka.Client
	member   member
	interval time.Duration
	metrics  *metrics
	health   *health
	sources  []tracked
	passed   *passage
	kicked   chan struct{} // holds one
	fenced   bool          // the group has moved on: nothing can be committed any more

	mu    sync.Mutex // guards state: written by run's goroutine, read by any
	state commitState
}

// commitState is how committing goes.
type commitState struct {
	rounds   uint64 // commits tried, also those for which nothing had changed
	answered bool   // the last request was answered, and not by a broker that is busy with itself
	err      error  // of the last request
}

// seen is how committing goes. Safe for use by any goroutine.
func (c *committer) seen() commitState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// note changes the state.
func (c *committer) note(f func(*commitState)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.state)
}

func newCommitter(c *kafka.Client, m member, interval time.Duration, mx *metrics, h *health) *committer {
	return &committer{client: c, member: m, interval: interval, metrics: mx, health: h, kicked: make(chan struct{}, 1)}
}

// kick asks for a commit soon. Never blocks.
func (c *committer) kick() {
	select {
	case c.kicked <- struct{}{}:
	default:
	}
}

// run commits until ctx ends.
func (c *committer) run(ctx context.Context) {
	defer c.health.forget("commit")
	ticker := time.NewTicker(c.interval)
	defer ticker.Stop()
	var wait backoff
	for {
		select {
		case <-ticker.C:
		case <-c.kicked:
		case <-ctx.Done():
			return
		}
		if err := c.commit(ctx); err == nil {
			wait.reset()
		} else if wait.pause(ctx) != nil {
			return
		}
	}
}

// last commits once more, until nothing is left to commit, the group has moved on, or ctx ends.
func (c *committer) last(ctx context.Context) {
	var wait backoff
	for c.commit(ctx) != nil {
		if wait.pause(ctx) != nil {
			return
		}
	}
}

var errPartlyCommitted = errors.New("some partitions were not committed")

// commit sends one request for all that changed. It returns an error when something is left to try again.
func (c *committer) commit(ctx context.Context) error {
	defer c.note(func(s *commitState) { s.rounds++ })
	if c.fenced {
		return nil
	}
	topics := map[string][]kafka.OffsetCommit{}
	pending := map[partition]func(){}
	for _, s := range c.sources {
		p, dirty := s.progress()
		if !dirty {
			continue
		}
		at := s.where()
		topics[at.topic] = append(topics[at.topic], kafka.OffsetCommit{Partition: at.id, Offset: p.offset, Metadata: p.metadata})
		pending[at] = func() {
			s.committed(p.version)
			c.passed.acknowledged(at, p.offset)
		}
	}
	if len(topics) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	answer, err := c.client.OffsetCommit(ctx, &kafka.OffsetCommitRequest{
		GroupID: c.member.group, GenerationID: c.member.generation, MemberID: c.member.id, Topics: topics,
	})
	if err == nil {
		err = c.acknowledge(answer, pending)
	}
	return c.judge(err)
}

// acknowledge tells each source that was committed so, and returns the first error of the others.
func (c *committer) acknowledge(answer *kafka.OffsetCommitResponse, pending map[partition]func()) error {
	var first error
	for topic, partitions := range answer.Topics {
		for _, p := range partitions {
			at := partition{topic, p.Partition}
			done := pending[at]
			switch {
			case p.Error != nil && first == nil:
				first = fmt.Errorf("commit %s: %w", at, p.Error)
			case p.Error == nil && done != nil:
				done()
				delete(pending, at)
			}
		}
	}
	if first == nil && len(pending) > 0 {
		first = errPartlyCommitted
	}
	return first
}

// judge decides what an error means. A commit that is fenced is dropped: the partitions are somebody else's now, who
// goes on from the last commit that was accepted.
func (c *committer) judge(err error) error {
	c.note(func(s *commitState) { s.answered, s.err = answered(err), err })
	switch {
	case err == nil:
		c.metrics.commits.WithLabelValues(resultOK).Inc()
		c.health.ok("commit")
		return nil
	case errors.Is(err, kafka.IllegalGeneration), errors.Is(err, kafka.UnknownMemberId):
		c.metrics.commits.WithLabelValues(resultFenced).Inc()
		c.fenced = true
		for _, s := range c.sources {
			s.fence()
		}
		return nil
	case errors.Is(err, errPartlyCommitted):
		c.metrics.commits.WithLabelValues(resultPartial).Inc()
	default:
		c.metrics.commits.WithLabelValues(resultError).Inc()
	}
	if !errors.Is(err, context.Canceled) {
		c.health.fail("commit", err)
	}
	return err
}

// answered tells whether a commit that ended so was answered by a broker that works: one that refuses it will go on doing
// so, one that is busy will not.
func answered(err error) bool {
	var code kafka.Error
	switch {
	case err == nil, errors.Is(err, errPartlyCommitted), errors.Is(err, kafka.IllegalGeneration), errors.Is(err, kafka.UnknownMemberId):
		return true
	case errors.As(err, &code):
		return !busy(err) && !code.Temporary()
	}
	return false
}
