package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/shards"
)

// causeOf is why a gate of a mode is closed, see state.lua; false if there is no such mode.
func causeOf(mode int64) (cause delivery.GateCause, ok bool) {
	if mode == modeProbed {
		return delivery.GateThrottled, true
	}
	return delivery.GateCause(mode), mode < modeProbed
}

// modeProbed is that of a gate whose destination asked to wait, since one job was let through.
const modeProbed = 4

// CloseGate closes a gate on every daemon, and returns whether it was not closed for this cause before. One job a second is let through when
// its time is over; one per shard, where campaigns of several shards send through the gate. A wait that a destination asked for is never shortened; it replaces any other closure.
func (e *Engine) CloseGate(ctx context.Context, gate string, c delivery.Closure) (changed bool, err error) {
	length := min(max(0, c.For), model.MaxSpan).Microseconds()
	calls, err := e.moveGate(ctx, "close", closeScript, gate, length, int(c.Cause))
	for _, c := range calls {
		in := reader{rest: c.reply}
		in.next(7)
		// The reply to a call that was sent twice says what the second one found.
		changed = changed || c.err == nil && (c.again || in.next(1) == 1)
	}
	return changed, err
}

// OpenGate opens a gate, after a delivered job or by hand.
func (e *Engine) OpenGate(ctx context.Context, gate string) error {
	_, err := e.moveGate(ctx, "open", openScript, gate)
	return err
}

func (e *Engine) moveGate(ctx context.Context, verb string, script *shards.Script, gate string, args ...any) ([]*call, error) {
	if gate == "" {
		return nil, errors.New("limits: a gate needs a name")
	}
	calls := make([]*call, len(e.shards))
	err := e.each(e.shards, func(s *shard) error {
		c := &call{keys: []string{s.keys.clock(), s.keys.gate(gate)}, args: args}
		calls[s.index] = c
		s.run(ctx, script, []*call{c})
		if c.err != nil {
			return fmt.Errorf("%s gate %s: %w", verb, gate, c.err)
		}
		return nil
	})
	return calls, err
}

// Gates returns those of the gates that are closed, in their order. Where shards differ, it is the state that lasts
// longest.
func (e *Engine) Gates(ctx context.Context, gates []string) (closed []delivery.Gate, err error) {
	if len(gates) == 0 {
		return nil, nil
	}
	replies, err := e.readGates(ctx, gates)
	if err != nil {
		return nil, fmt.Errorf("read gates: %w", err)
	}
	longest, now := make([]delivery.Gate, len(gates)), time.Now()
	for _, c := range replies {
		in := reader{rest: c.reply}
		for i, gate := range gates {
			until, mode, since := in.next(7), in.next(1), in.next(7)
			local := func(at int64) time.Time { return now.Add(time.Duration(at-c.now) * time.Microsecond) }
			cause, ok := causeOf(mode)
			if in.err != nil || !ok {
				return nil, fmt.Errorf("read gates: %w", errShort)
			}
			if until != 0 && !longest[i].Until.After(local(until)) {
				longest[i] = delivery.Gate{Sink: gate, Cause: cause, Since: local(since), Until: local(until)}
			}
		}
	}
	return slices.DeleteFunc(longest, func(g delivery.Gate) bool { return g.Sink == "" }), nil
}

// readGates asks every shard.
func (e *Engine) readGates(ctx context.Context, gates []string) ([]*call, error) {
	calls := make([]*call, len(e.shards))
	err := e.each(e.shards, func(s *shard) error {
		c := &call{keys: []string{s.keys.clock()}}
		for _, gate := range gates {
			c.keys = append(c.keys, s.keys.gate(gate))
		}
		calls[s.index] = c
		s.run(ctx, gatesScript, []*call{c})
		return c.err
	})
	return calls, err
}
