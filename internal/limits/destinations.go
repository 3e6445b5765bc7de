package limits

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	// maxShut is how many destinations the store remembers whose gates were closed or opened, of all sinks.
	maxShut = 10_000
	// maxShutReply is how many a reply tells of, and maxShutMoved how many one script changes.
	maxShutReply, maxShutMoved = 1000, 250
)

// separator is between sink and destination in the store's name of a destination; neither has it.
const separator = "\x00"

// ClearDestination opens the gate of a destination.
func (e *Engine) ClearDestination(ctx context.Context, sink, destination string) error {
	return e.MoveDestinations(ctx, []delivery.Gate{{Sink: sink, Destination: destination}})
}

// MoveDestinations closes each of the gates for as long as it says, and opens those without an Until. All of them are in one shard.
func (e *Engine) MoveDestinations(ctx context.Context, gates []delivery.Gate) error {
	s := e.shards[0]
	for len(gates) > 0 {
		part := gates[:min(len(gates), maxShutMoved)]
		gates = gates[len(part):]
		c := &call{keys: []string{s.keys.clock(), s.keys.shut(), s.keys.shutChanges()}, args: []any{maxShut}}
		for i := range part {
			g, life := &part[i], int64(0)
			if !g.Until.IsZero() {
				life = min(max(time.Until(g.Until), time.Microsecond), model.MaxSpan).Microseconds()
			}
			c.args = append(c.args, g.Sink+separator+g.Destination, life, int(g.Cause))
		}
		s.run(ctx, shutScript, []*call{c})
		if c.err != nil {
			return fmt.Errorf("move gates of destinations: %w", c.err)
		}
	}
	return nil
}

// MoveGates closes each of the gates until its Until, or opens those that have none; one of a sink only if it is half-open. It returns the
// sinks whose gates were not closed for this cause before.
func (e *Engine) MoveGates(ctx context.Context, gates []delivery.Gate) (closed []string, err error) {
	var destinations []delivery.Gate
	for i := range gates {
		switch g := &gates[i]; {
		case g.Destination != "":
			destinations = append(destinations, *g)
		case g.Until.IsZero():
			err = errors.Join(err, e.OpenGate(ctx, g.Sink))
		default:
			first, closeErr := e.CloseGate(ctx, g.Sink, delivery.Closure{Cause: g.Cause, For: time.Until(g.Until)})
			if err = errors.Join(err, closeErr); first {
				closed = append(closed, g.Sink)
			}
		}
	}
	return closed, errors.Join(err, e.MoveDestinations(ctx, destinations))
}

// DestinationsSince returns the gates of destinations that were closed or opened after a time of the store, 0 for all, and the time to go
// on from. One reply tells of a thousand at most; more says that there are others.
func (e *Engine) DestinationsSince(ctx context.Context, after int64) (gates []delivery.Gate, next int64, more bool, err error) {
	s := e.shards[0]
	c := &call{keys: []string{s.keys.clock(), s.keys.shut(), s.keys.shutChanges()}, args: []any{after, maxShutReply}}
	s.run(ctx, shutsScript, []*call{c})
	if c.err != nil {
		return nil, after, false, fmt.Errorf("read gates of destinations: %w", c.err)
	}
	if c.now+time.Second.Microseconds() < after {
		return nil, 0, true, nil // the store's data, and its clock, are others
	}
	in, now := reader{rest: c.reply}, time.Now()
	local := func(at int64) time.Time {
		if at == 0 {
			return time.Time{}
		}
		return now.Add(time.Duration(at-c.now) * time.Microsecond)
	}
	next = after
	for in.rest != "" {
		name := in.text(int(in.next(2)))
		at, until, mode, since := in.next(7), in.next(7), in.next(1), in.next(7)
		sink, destination, ok := strings.Cut(name, separator)
		cause, known := causeOf(mode)
		if in.err != nil || !known || !ok {
			return nil, after, false, fmt.Errorf("read gates of destinations: %w", errShort)
		}
		next = at
		gates = append(gates, delivery.Gate{
			Sink: sink, Destination: strings.Clone(destination), Cause: cause, Since: local(since), Until: local(until), At: local(at),
		})
	}
	return gates, next, len(gates) == maxShutReply, nil
}
