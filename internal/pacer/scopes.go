package pacer

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A job has up to three scopes, each with a breaker: its destination, its campaign and its sink.

// breakerOf is the breaker of a scope; nil if the job has no such scope.
func (x *sent) breakerOf(in delivery.Scope) *breaker {
	switch {
	case in == delivery.ScopeSink:
		return &x.sink.breaker
	case in == delivery.ScopeCampaign:
		return &x.queue.circuit
	case in == delivery.ScopeDestination && x.destination != nil:
		return &x.destination.breaker
	}
	return nil
}

// held reports whether refusals hold the job's destination or campaign.
func (x *sent) held() bool {
	return x.queue.circuit.isHeld() || x.destination != nil && x.destination.isHeld()
}

// open opens the breaker of a scope until the next probe. Waits that a sink or a destination has asked for, and wrong credentials, hold for
// all daemons; that it does not work is only shown, and each daemon finds it out by itself.
func (v *judge) open(x *sent, in delivery.Scope, cause delivery.GateCause, asked time.Duration, now instant) {
	q, s, d, b, most := x.queue, x.sink, x.destination, x.breakerOf(in), probeEvery
	if in == delivery.ScopeDestination {
		if most = maxProbeEvery; cause != delivery.GateThrottled {
			x.reportFailing(v.opt.DestinationReports, now)
		}
	}
	since := b.since
	done, first := b.trip(cause, cmp.Or(asked, most), now.local)
	if !done {
		return
	}
	var told func(bool)
	if first {
		told = v.logOpened(x, in, asked, since, now)
	}
	switch in {
	case delivery.ScopeDestination:
		v.moveGate(d.destinationKey, b, told, now)
	case delivery.ScopeCampaign:
		v.pause(q, b.openUntil)
	default:
		v.moveGate(destinationKey{sink: s.id}, b, told, now)
		for _, other := range v.queues.list {
			if other.sink == s {
				v.pause(other, b.openUntil)
			}
		}
		v.takes.askLater(q, b.openUntil+v.quantum.length) // another campaign tries next
	}
}

// pause hands the slots of a queue back, and has it ask for none before a local time.
func (sl *slots) pause(q *queue, until int64) {
	sl.refundSlots(q, noRevision)
	sl.takes.askLater(q, max(q.ask.at, until))
}

// logOpened logs that a breaker was opened. All daemons find wrong settings of a sink at once: the one that closes the gate first logs the
// Error, see gateMove.
func (v *judge) logOpened(x *sent, in delivery.Scope, asked time.Duration, since int64, now instant) (told func(first bool)) {
	s, cause := x.sink, x.breakerOf(in).cause
	log := v.opt.Logger.With("sink", s.id, "detail", x.result.Detail)
	switch {
	case in != delivery.ScopeSink && cause == delivery.GateThrottled, in == delivery.ScopeCampaign && cause == delivery.GateRefused:
	case in == delivery.ScopeDestination:
		if now.local >= s.toldClosed { // one of many in a while
			s.toldClosed = now.in(logEvery)
			log.Warn("a destination of the sink does not take its jobs; they wait, and it is tried again and again; the next minute's are not logged",
				"destination", x.destination.name, "cause", cause.String(), "closed", v.destinations.shut(s.id, now.local))
		}
	case in == delivery.ScopeCampaign && s.breaker.succeededSince(since):
		log.Warn("the sink fails this campaign's jobs and takes others; one a second is tried", "campaign", x.queue.id)
	case in == delivery.ScopeCampaign:
		log.Warn("the sink fails this campaign's jobs, and is not known to take others; one a second is tried", "campaign", x.queue.id)
	case cause == delivery.GateMisconfigured:
		return func(first bool) {
			level := slog.LevelInfo
			if first {
				level = slog.LevelError
			}
			log.Log(context.Background(), level, "the sink refuses pacer's credentials or settings; its gate is closed and "+
				"probed once a second, and no job is given up: correct the sink's configuration, or the destination")
		}
	case cause != delivery.GateThrottled:
		log.Warn("the sink does not work; it is probed once a second")
	case x.result.RetryAfter >= logEvery && now.local >= s.quietUntil:
		s.quietUntil = now.in(max(asked, logEvery))
		log.Warn("the destination asks to wait; it is tried now and then, and after max_retry_after at the latest", "asked", x.result.RetryAfter, "wait", asked)
	}
	return nil
}

// reportFailing reports that a destination does not work, with each call that shows it.
func (x *sent) reportFailing(reports DestinationReports, now instant) {
	d := x.destination
	if x.result.Gone {
		reports.Gone(x.sink.id, d.name, x.result.Detail)
		return
	}
	since := now.local
	for _, s := range []*failureRun{&d.failureRun, &d.refusals} {
		if s.failures > 0 {
			since = min(since, s.since)
		}
	}
	reports.Fails(x.sink.id, d.name, now.timeOf(since), x.result.Detail)
}

// succeeded records that a scope has answered as it should.
func (v *judge) succeeded(x *sent, in delivery.Scope, now instant) {
	b := x.breakerOf(in)
	switch {
	case b == nil:
		return
	case b.tripped && b.trippedAt > max(b.movedAt, x.begun): // another daemon has closed it since
		b.succeededAt = now.local
		return
	}
	if tookNothing := b.takesNothing(now.local); b.succeeded(now.local) {
		v.recovered(x, in, tookNothing, now)
	}
}

// recovered acts on a breaker that has closed. The log has a line of it if it had taken nothing, and not for each short wait.
func (v *judge) recovered(x *sent, in delivery.Scope, tookNothing bool, now instant) {
	level := slog.LevelDebug
	if tookNothing {
		level = slog.LevelInfo
	}
	switch log := v.opt.Logger.With("sink", x.sink.id); in {
	case delivery.ScopeDestination:
		log.Debug("a destination works again", "destination", x.destination.name)
		v.moveGate(x.destination.destinationKey, nil, nil, now)
	case delivery.ScopeCampaign:
		log.Log(context.Background(), level, "the sink takes this campaign's jobs again", "campaign", x.queue.id)
		v.takes.askLater(x.queue, now.local)
	default:
		log.Log(context.Background(), level, "the sink works again")
		v.moveGate(destinationKey{sink: x.sink.id}, nil, nil, now)
	}
}

// countRefusal counts a job that will never be taken against its destination or campaign, and holds it after many in a row.
func (v *judge) countRefusal(x *sent, in delivery.Scope, now instant) {
	b := x.breakerOf(in)
	if b == nil {
		return
	}
	hold, status := heldRefusals, x.result.Status
	if in == delivery.ScopeDestination && (status == http.StatusNotFound || status == http.StatusGone) {
		hold = x.destination.absentHold
	}
	tookNothing := b.takesNothing(now.local)
	first, recovered := b.refused(hold, now.local)
	if recovered && !first {
		v.recovered(x, in, tookNothing, now)
	}
	if b.isHeld() {
		v.open(x, in, delivery.GateRefused, 0, now)
	}
	if !first {
		return
	}
	log := v.opt.Logger.With("sink", x.sink.id, "refused", b.refusals.failures, "detail", x.result.Detail)
	if in == delivery.ScopeCampaign {
		log.Error("the sink refused many jobs of this campaign in a row and took none; the campaign is held, one job a "+
			"second is tried, and no other is given up: look at its dead letters, repair, then pacer campaign resume", "campaign", x.queue.id)
	} else {
		log.Error("a destination refused many jobs in a row and took none; it is held, tried again and again, and no other job for "+
			"it is given up: look at its dead letters and repair", "destination", x.destination.name)
	}
}

func (sl *slots) askSoon(s *sinkState, now instant) {
	for _, q := range sl.queues.list {
		if q.sink == s {
			sl.takes.askLater(q, now.local)
		}
	}
}
