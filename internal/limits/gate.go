package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// maxShut is how many destinations the store remembers whose gates were closed or opened, of all sinks.
	maxShut = 10_000
	// maxShutReply is how many a reply tells of, and maxShutMoved how many one script changes.
	maxShutReply, maxShutMoved = 1000, 250
)

// separator is between sink and destination in the store's name of a destination; neither has it.
const separator = "\x00"

// MoveGates closes each of the gates until its Until, or opens those that have none. It returns the sinks whose gates were not closed for
// this cause before. One job a second is let through when the time of a gate is over; one per shard, where campaigns of several shards
// send through it. A wait that a destination asked for is never shortened; it replaces any other closure.
func (e *Engine) MoveGates(ctx context.Context, gates []delivery.Gate) (closed []string, err error) {
	var destinations []delivery.Gate
	for i := range gates {
		g := &gates[i]
		if g.Destination != "" {
			destinations = append(destinations, *g)
			continue
		}
		var closing []any
		if !g.Until.IsZero() {
			closing = []any{min(max(0, time.Until(g.Until)), model.MaxSpan).Microseconds(), int(g.Cause)}
		}
		first, failed := e.moveGate(ctx, g.Sink, closing...)
		if err = errors.Join(err, failed); first {
			closed = append(closed, g.Sink)
		}
	}
	return closed, errors.Join(err, e.moveDestinations(ctx, destinations))
}

// moveGate closes the gate of a sink for microseconds and a cause, or opens it without these. It returns whether the gate was not closed for
// this cause before.
func (e *Engine) moveGate(ctx context.Context, sink string, closing ...any) (changed bool, err error) {
	calls, err := e.inEveryShard(ctx, closeScript, []string{sink}, closing...)
	for _, c := range calls {
		in := reader{rest: c.reply}
		// The reply to a call that was sent twice says what the second one found.
		changed = changed || len(closing) > 0 && c.err == nil && (c.again || in.next(1) == 1)
	}
	if err != nil {
		return changed, fmt.Errorf("move gate %s: %w", sink, err)
	}
	return changed, nil
}

// inEveryShard runs a script about gates of sinks in every shard.
func (e *Engine) inEveryShard(ctx context.Context, script *shards.Script, sinks []string, args ...any) ([]*call, error) {
	calls := make([]*call, len(e.shards))
	err := e.each(e.shards, func(s *shard) error {
		c := &call{keys: []string{s.keys.clock()}, args: args}
		for _, sink := range sinks {
			c.keys = append(c.keys, s.keys.gate(sink))
		}
		calls[s.index] = c
		s.run(ctx, script, []*call{c})
		return c.err
	})
	return calls, err
}

// moveDestinations closes and opens gates of destinations. All of them are in one shard.
func (e *Engine) moveDestinations(ctx context.Context, gates []delivery.Gate) error {
	for part := range slices.Chunk(gates, maxShutMoved) {
		args := []any{maxShut}
		for i := range part {
			g, life := &part[i], int64(0)
			if !g.Until.IsZero() {
				life = min(max(time.Until(g.Until), time.Microsecond), model.MaxSpan).Microseconds()
			}
			args = append(args, g.Sink+separator+g.Destination, life, int(g.Cause))
		}
		if c := e.ofDestinations(ctx, shutScript, args...); c.err != nil {
			return fmt.Errorf("move gates of destinations: %w", c.err)
		}
	}
	return nil
}

// ofDestinations runs a script about gates of destinations.
func (e *Engine) ofDestinations(ctx context.Context, script *shards.Script, args ...any) *call {
	s := e.shards[0]
	c := &call{keys: []string{s.keys.clock(), s.keys.shut(), s.keys.shutChanges()}, args: args}
	s.run(ctx, script, []*call{c})
	return c
}

// Gates returns those of the gates of sinks that are closed, in their order. Where shards differ, it is the state that lasts
// longest.
func (e *Engine) Gates(ctx context.Context, sinks []string) (closed []delivery.Gate, err error) {
	if len(sinks) == 0 {
		return nil, nil
	}
	calls, err := e.inEveryShard(ctx, gatesScript, sinks)
	if err != nil {
		return nil, fmt.Errorf("read gates: %w", err)
	}
	longest := make([]delivery.Gate, len(sinks))
	for _, c := range calls {
		in := newGateReader(c)
		for i, sink := range sinks {
			g := in.gate()
			if g.Sink = sink; g.Until.After(longest[i].Until) {
				longest[i] = g
			}
		}
		if in.err != nil {
			return nil, fmt.Errorf("read gates: %w", in.err)
		}
	}
	return slices.DeleteFunc(longest, func(g delivery.Gate) bool { return g.Sink == "" }), nil
}

// DestinationsSince returns the gates of destinations that were closed or opened after a time of the store, 0 for all, and the time to go
// on from. One reply tells of a thousand at most; more says that there are others.
func (e *Engine) DestinationsSince(ctx context.Context, after int64) (gates []delivery.Gate, next int64, more bool, err error) {
	c := e.ofDestinations(ctx, shutsScript, after, maxShutReply)
	if c.err != nil {
		return nil, after, false, fmt.Errorf("read gates of destinations: %w", c.err)
	}
	if c.now+second < after {
		return nil, 0, true, nil // the store's data, and its clock, are others
	}
	in := newGateReader(c)
	next = after
	for in.rest != "" {
		sink, destination, _ := strings.Cut(in.text(int(in.next(2))), separator)
		next = in.next(7)
		g := in.gate()
		g.Sink, g.Destination, g.At = sink, strings.Clone(destination), in.local(next)
		gates = append(gates, g)
	}
	if in.err != nil {
		return nil, after, false, fmt.Errorf("read gates of destinations: %w", in.err)
	}
	return gates, next, len(gates) == maxShutReply, nil
}

// gateReader reads gates from a reply. Their times are the store's; arrived is when the reply came, and now what the store's clock read.
type gateReader struct {
	reader
	arrived time.Time
	now     int64
}

func newGateReader(c *call) gateReader {
	return gateReader{reader: reader{rest: c.reply}, arrived: time.Now(), now: c.now}
}

// modeProbed is that of a gate whose destination asked to wait, since one job was let through; see gate.lua.
const modeProbed = 4

// gate reads until when a gate is closed, why and since when. One that is open has no Until.
func (r *gateReader) gate() delivery.Gate {
	until, mode, since := r.next(7), r.next(1), r.next(7)
	switch {
	case mode == modeProbed:
		mode = int64(delivery.GateThrottled)
	case mode > modeProbed:
		r.rest, r.err = "", errShort
	}
	return delivery.Gate{Cause: delivery.GateCause(mode), Since: r.local(since), Until: r.local(until)}
}

// local is a time of the store on this machine's clock; 0 stays none.
func (r *gateReader) local(at int64) time.Time {
	if at == 0 {
		return time.Time{}
	}
	return r.arrived.Add(time.Duration(at-r.now) * time.Microsecond)
}
