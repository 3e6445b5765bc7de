package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// heartbeat is how soon a member learns that the group rebalances. The group waits for the last one.
	heartbeat      = 250 * time.Millisecond
	beatTimeout    = 2 * time.Second
	leaveTimeout   = 2 * time.Second
	sessionTimeout = 10 * time.Second
	// rebalanceTimeout is how long the group waits for a member that does not join. It is longer than the session timeout: otherwise the
	// group could give up on a member whose last heartbeat was answered later than that.
	rebalanceTimeout = sessionTimeout + 5*time.Second
)

// membership is the place of this daemon in the group, as one member or, after the group has given up on that, the next. One goroutine
// joins and enters generations; another one sends heartbeats, also while the first waits for a join. Both report the state of the group
// to the lease.
type membership struct {
	opt    *Options
	health *broker.Health
	lease  *lease

	again retry.Signal // join: the group rebalances, or has to deal anew

	mu      sync.Mutex
	member  broker.Member // without an ID: the group does not know this daemon; in generation 0: it has not joined
	joining bool
}

// generation is what one generation of the group deals to this member.
type generation struct {
	broker.Member
	assigned []partition
	dealt    map[string]int // by the leader, which this member is: how many partitions of each topic; nil at the others
}

// now returns the member in its present generation, and whether it is about to have a later one.
func (m *membership) now() (member broker.Member, joining bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.member, m.joining
}

// enter makes heartbeats and commits those of a generation that was joined.
func (m *membership) enter(g generation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.member, m.joining = g.Member, false
}

// join joins the group while this daemon holds partitions, or none. It tries until that works, until ctx ends, or until the
// group has gone on without a member that holds some. A member that is stopping joins to keep what it holds, and asks for nothing.
func (m *membership) join(ctx context.Context, holds func() claims, stopping func() bool) (g generation, err error) {
	m.mu.Lock()
	m.joining = true
	since := m.member.Generation
	m.mu.Unlock()
	select {
	case <-m.again: // this join is for it; what is let go of from now on is dealt in the next
	default:
	}
	mine := holds()
	mine.Generation = since
	defer func() {
		if err != nil {
			m.mu.Lock()
			m.joining = false
			m.mu.Unlock()
		}
	}()
	var wait backoff
	for {
		topics := m.opt.topics()
		if stopping() {
			topics = nil
		}
		g, err = m.attempt(ctx, mine, topics)
		switch {
		case err == nil:
			m.health.OK("group")
			return g, nil
		case ctx.Err() != nil:
			return g, ctx.Err()
		case broker.NamesMember(err), broker.Rebalances(err):
			continue // a session timeout would pass before the group forgets a member that does not
		case broker.Outdated(err): // the group was faster
		case broker.Fenced(err):
			m.mu.Lock()
			m.forget(err)
			m.mu.Unlock()
			if len(mine.Kept)+len(mine.Leaving) > 0 {
				m.lease.lose()
				return g, err
			}
		default:
			m.health.Fail("group", fmt.Errorf("join group %s: %w", m.opt.Group, err))
		}
		if err = wait.pause(ctx); err != nil {
			return g, err
		}
	}
}

// attempt joins once, as a member that reads topics.
func (m *membership) attempt(ctx context.Context, mine claims, topics []string) (g generation, err error) {
	member, _ := m.now()
	joined, err := m.opt.Client.Join(ctx, broker.Joining{
		Member: member, Protocol: groupProtocol, Topics: topics, Data: mine.encode(),
		Session: sessionTimeout, Rebalance: rebalanceTimeout,
	})
	m.mu.Lock()
	m.member.ID = joined.ID
	m.mu.Unlock()
	if err != nil {
		return g, err
	}
	g = generation{Member: joined.Member}
	var dealt shares
	if len(joined.Members) > 0 {
		if _, g.dealt, err = m.opt.Client.Identify(ctx, m.opt.topics()...); err != nil {
			return g, err
		}
		if dealt, err = assignPartitions(joined.Members, g.dealt); err != nil {
			return g, err
		}
	}
	sent := time.Now()
	hand, err := m.opt.Client.Sync(ctx, g.Member, dealt)
	if err != nil {
		return g, err
	}
	m.lease.renew(sent)
	for topic, list := range hand {
		for _, p := range list {
			g.assigned = append(g.assigned, partition{Topic: topic, ID: p})
		}
	}
	slices.SortFunc(g.assigned, inOrder)
	return g, nil
}

// beat sends heartbeats until ctx ends.
func (m *membership) beat(ctx context.Context) {
	retry.Every(ctx, heartbeat, func(time.Time) {
		member, _ := m.now()
		if member.ID == "" || member.Generation == 0 {
			return
		}
		call, cancel := context.WithTimeout(ctx, beatTimeout)
		defer cancel()
		sent := time.Now()
		if err := m.opt.Client.Beat(call, member); ctx.Err() == nil {
			m.heard(member, sent, err)
		}
	})
}

// heard notes the answer to a heartbeat.
func (m *membership) heard(of broker.Member, sent time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.member != of: // of a generation before
	case err == nil:
		m.lease.renew(sent)
		m.health.OK("group")
	case broker.Rebalances(err):
		m.lease.renew(sent) // the group has not gone on
		if !m.joining {
			m.again.Send()
		}
	case m.joining && broker.Outdated(err): // it has, with this member, whose answer is under way, and who keeps what it holds
		m.lease.renew(sent)
	case broker.Fenced(err):
		m.forget(err)
		m.lease.lose()
	default:
		m.health.Fail("group", fmt.Errorf("heartbeat of group %s: %w", m.opt.Group, err))
	}
}

// outdated reports whether a commit of this member was refused because it has a later generation by now, or is about to.
func (m *membership) outdated(of broker.Member, err error) bool {
	now, joining := m.now()
	return broker.Outdated(err) && now.ID == of.ID && (joining || now != of)
}

// forget begins anew, as another member if the group does not know this one. Needs the lock.
func (m *membership) forget(err error) {
	m.member.Generation = 0
	if !broker.Outdated(err) {
		m.member.ID = ""
	}
}

// leave leaves the group. Where that fails, the session timeout does the same.
func (m *membership) leave(ctx context.Context) {
	member, _ := m.now()
	if member.ID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := m.opt.Client.Leave(ctx, member); err != nil {
		m.opt.Logger.Debug("leaving the group has failed; it notices by itself", "group", m.opt.Group, "error", err)
	}
}
