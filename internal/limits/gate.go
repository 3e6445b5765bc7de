package limits

import (
	"context"
	"errors"
	"fmt"
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

// OpenGate opens a gate: a job was delivered.
func (e *Engine) OpenGate(ctx context.Context, gate string) error {
	_, err := e.moveGate(ctx, "open", openScript, gate, 0)
	return err
}

// maxOpener bounds who opened a gate, in bytes.
const maxOpener = 200

// ClearGate opens a gate whatever closed it, and notes for a minute by whom.
func (e *Engine) ClearGate(ctx context.Context, gate, by string) error {
	_, err := e.moveGate(ctx, "open", openScript, gate, 1, by[:min(len(by), maxOpener)])
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
func (e *Engine) Gates(ctx context.Context, gates []string) ([]delivery.Gate, error) {
	closed, _, err := e.GatesAndOpenings(ctx, gates)
	return closed, err
}

// GatesAndOpenings is Gates, and returns which gates were opened by hand within the last minute.
func (e *Engine) GatesAndOpenings(ctx context.Context, gates []string) (closed []delivery.Gate, opened []delivery.Opening, err error) {
	if len(gates) == 0 {
		return nil, nil, nil
	}
	replies, err := e.readGates(ctx, gates)
	if err != nil {
		return nil, nil, fmt.Errorf("read gates: %w", err)
	}
	longest, openings, now := make([]delivery.Gate, len(gates)), make([]delivery.Opening, len(gates)), time.Now()
	for _, c := range replies {
		in := reader{rest: c.reply}
		for i, gate := range gates {
			until, mode, since := in.next(7), in.next(1), in.next(7)
			by := in.text(int(in.next(1)))
			local := func(at int64) time.Time { return now.Add(time.Duration(at-c.now) * time.Microsecond) }
			cause, ok := causeOf(mode)
			if in.err != nil || !ok {
				return nil, nil, fmt.Errorf("read gates: %w", errShort)
			}
			switch {
			case until == 0 && by != "":
				openings[i] = delivery.Opening{Sink: gate, By: by, At: local(since)}
			case until == 0 || longest[i].Until.After(local(until)):
			default:
				longest[i] = delivery.Gate{Sink: gate, Cause: cause, Since: local(since), Until: local(until)}
			}
		}
	}
	for i := range gates {
		switch {
		case longest[i].Sink != "":
			closed = append(closed, longest[i])
		case openings[i].Sink != "":
			opened = append(opened, openings[i])
		}
	}
	return closed, opened, nil
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
