package pacer

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A lane is read by one daemon. If it holds more of a campaign's backlog than the campaign's other lanes do, and the daemon's
// calls are all taken, then jobs from the end of the queue are moved on to the other lanes, each once: the campaign is widened.
// A campaign that has fewer lanes than it needs gets them first.

// pressure reports whether calls have been taken for a stretch of time. It is told of them at each round of maintenance; the
// zero value says no.
type pressure struct {
	level int
	high  bool
}

const (
	// highPressure is how many rounds nearly all calls have to be taken, and lowPressure the level below which that is over: a
	// round in which some are free lowers the level by two.
	highPressure = int(2 * time.Second / maintainEvery)
	lowPressure  = highPressure / 2
)

// update takes note of how many of the calls are taken: seven eighths are nearly all, since those that end are free for a moment.
func (p *pressure) update(taken, calls int) {
	if 8*taken >= 7*calls {
		p.level = min(p.level+1, highPressure)
	} else {
		p.level = max(p.level-2, 0)
	}
	p.high = p.level == highPressure || p.high && p.level >= lowPressure
}

// laneMove is what is known of a campaign whose lanes here hold too much of its backlog.
type laneMove struct {
	surplus map[int]int64 // jobs that may still be moved, by lane
	few     bool          // the campaign has fewer lanes than it needs
	calls   pressure      // on the calls that the campaign may have itself
	until   int64         // local time until which this counts
}

// laneMoves are the queues with a narrow.
type laneMoves struct {
	queues []*queue
	asking bool // for more lanes
}

// lane is a source that is one of several lanes of its campaigns.
type lane interface {
	Lane() int
	// HasCapacity reports whether jobs of the campaign may be moved to other lanes without stopping those that are sent.
	HasCapacity(campaign string) bool
}

const (
	// narrowFor is how long a list of narrow lanes counts; there is a new one every few seconds.
	narrowFor = 5 * time.Second
	// maxWiden bounds the campaigns for which lanes are asked for at once.
	maxWiden = 100
)

// BalanceLanes tells the pacer which lanes of this daemon hold too much of the backlog of a campaign.
func (p *Pacer) BalanceLanes(list []delivery.UnevenLane) {
	p.inbox.do(func(now instant) { p.applyUnevenLanes(list, now) })
}

func (p *Pacer) applyUnevenLanes(list []delivery.UnevenLane, now instant) {
	was := p.queues.narrows.queues
	p.queues.narrows.queues = nil
	for _, q := range was {
		q.narrow.surplus, q.narrow.few = nil, false
	}
	for _, n := range list {
		q := p.queues.byID[n.Campaign]
		if q == nil {
			continue
		}
		if q.narrow == nil {
			q.narrow = &laneMove{}
		}
		if q.narrow.surplus == nil {
			q.narrow.surplus = map[int]int64{}
			p.queues.narrows.queues = append(p.queues.narrows.queues, q)
		}
		q.narrow.surplus[n.Lane], q.narrow.until = n.Surplus, now.in(narrowFor)
		q.narrow.few = q.narrow.few || n.Few
	}
	for _, q := range was {
		if q.narrow.surplus == nil {
			q.narrow = nil
		}
	}
	p.askForLanes()
}

// askForLanes gets more lanes for the campaigns that need them now.
func (p *Pacer) askForLanes() {
	var campaigns []string
	for _, q := range p.queues.narrows.queues {
		if q.narrow.few && p.pressed(q) && len(campaigns) < maxWiden {
			campaigns = append(campaigns, q.id)
		}
	}
	if len(campaigns) == 0 || p.queues.narrows.asking || p.opt.Widener == nil {
		return
	}
	p.queues.narrows.asking = true
	p.background(func(ctx context.Context) {
		p.opt.Widener.Widen(ctx, campaigns)
		p.inbox.do(func(instant) { p.queues.narrows.asking = false })
	})
}

// pressed reports whether all calls that the campaign may have here have been taken for a while.
func (p *Pacer) pressed(q *queue) bool {
	return q.campaign != nil && q.sink != nil && (q.sink.pressure.high || q.narrow.calls.high)
}

// readOn moves jobs of a campaign from narrow lanes here to its other lanes, as long as that is of use and keeps nothing from
// being sent: calls are taken, sending is not behind, and memory is not short. What is sent here within the next second stays.
func (p *Pacer) readOn(q *queue, now instant) {
	n := q.narrow
	if n == nil {
		return
	}
	if most := q.campaign.MaxInFlight; most > 0 {
		n.calls.update(q.calls.inFlight, most)
	}
	if !p.pressed(q) || now.local > n.until || q.opens() > now.local || q.circuit.tripped || q.window > 0 || p.sends.behind(now) || p.drain.stopped {
		return
	}
	roomy := map[lane]bool{}
	movable := func(j *delivery.Job) bool {
		l, ok := j.Source.(lane)
		if !ok || j.Moves&delivery.Widened != 0 || j.From != delivery.FromLane || !j.Call.At.IsZero() || n.surplus[l.Lane()] <= 0 {
			return false
		}
		room, known := roomy[l]
		if !known {
			room = l.HasCapacity(q.id)
			roomy[l] = room
		}
		if room {
			n.surplus[l.Lane()]--
		}
		return room
	}
	keep := max(p.soonSent(q), q.granted)
	var moved []*delivery.Job
	q.filter(func(ahead int64, j *delivery.Job) bool {
		if ahead < keep || !movable(j) {
			return true
		}
		moved = append(moved, j)
		return false
	})
	for _, j := range moved {
		p.carryOut(j, toLane(delivery.ReasonWidened), now)
	}
}

// soonSent is about how many units of the campaign are sent here in a second if they have all calls; at most half of those
// that may wait here, so that more are read in time.
func (p *Pacer) soonSent(q *queue) int64 {
	calls := q.sink.max
	if most := q.campaign.MaxInFlight; most > 0 {
		calls = min(calls, most)
	}
	perSecond := int64(calls) * time.Second.Microseconds() / max(q.sink.calls.lasts, time.Millisecond.Microseconds())
	return min(max(perSecond, 16), p.laneCapacity(q)/2)
}
