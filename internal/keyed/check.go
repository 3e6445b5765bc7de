package keyed

import (
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// check is one question to the script about a value of a key.
type check struct {
	group  *group
	what   string // turn, take, back, leave or hold; settling: nothing is asked, only what is unsure
	id     id
	quota  *delivery.Quota
	value  string // of its key
	units  int64
	most   int64         // see the script
	held   time.Duration // how long its row holds the value from when it was asked about: the script is not asked, nor is a turn reserved
	from   time.Time     // before which nothing is sent
	lost   time.Duration // how long nothing is sent after the data was lost, since what was counted is unknown; 0: the quota is open
	turned bool
	spec   string

	asked  time.Time // when the script was sent; it counts no sooner
	answer int64     // valid once the group is done
	err    error
}

// capped less a wait, in milliseconds, is the script's answer for a job that may not wait so long. Answers between capped and -1 are the times at
// which jobs were counted.
const capped = -1_000_000_000_000_000

// foreign is the script's answer for a value whose hash is none.
const foreign = -4_000_000_000_000_000

// farthest is how far ahead a turn that is reserved may be, in milliseconds.
const farthest = 3_600_000

func (k *check) counted() bool { return k.answer < 0 && k.answer > capped }

// turnless reports whether a job that waits has to ask again for a turn.
func (k *check) turnless() bool { return k.held > 0 || k.answer >= farthest }

// holds answers for the script while the value is held.
func (k *check) holds() {
	if answer := k.held.Milliseconds() + 1; answer > k.most {
		k.finish(capped-answer, nil)
	} else {
		k.finish(min(answer, farthest), nil)
	}
}

// reserved returns how far ahead the turn is that the check has reserved; 0: it has reserved none, as if the job has had its turn.
func (k *check) reserved() int64 {
	if k.turned || k.turnless() {
		return 0
	}
	return max(0, k.answer)
}

func (k *check) finish(answer int64, err error) {
	k.answer, k.err = answer, err
	k.group.finished()
}

// group are the checks of one job.
type group struct {
	job    *delivery.Job
	checks []*check
	left   atomic.Int32
	margin time.Duration // the least one of their windows
	ends   time.Time     // the first period of a calendar
	by     time.Time     // after which they are not asked any more; zero: never
	ended  func(*group)  // called once all are answered; nil: nothing
}

func (g *group) finished() {
	if g.left.Add(-1) == 0 && g.ended != nil {
		g.ended(g)
	}
}

// gone reports whether the answers would come too late.
func (g *group) gone() bool { return !g.by.IsZero() && time.Now().After(g.by) }

// sendBy returns until when the job may be sent: a check of it may have been counted when it was asked.
func (g *group) sendBy() time.Time {
	first := g.checks[0].asked
	for _, k := range g.checks {
		if k.asked.Before(first) {
			first = k.asked
		}
	}
	return earlier(first.Add(g.margin), g.ends)
}

// failure returns an error of a check that does not pass without its answer.
func (g *group) failure(passes func(*check) bool) error {
	for _, k := range g.checks {
		if k.err != nil && !passes(k) {
			return k.err
		}
	}
	return nil
}

// verdict returns the check that lets the job wait longest, and for how long; capped if one does not let it wait.
func (g *group) verdict() (by *check, wait time.Duration, isCapped bool) {
	for _, k := range g.checks {
		d := time.Duration(k.answer) * time.Millisecond
		switch {
		case k.err != nil || k.counted():
		case k.answer <= capped:
			return k, time.Duration(capped-k.answer) * time.Millisecond, true
		case d > wait || by == nil:
			by, wait = k, d
		}
	}
	return by, wait, false
}

// returns are what hands the units of some of the checks back, all if which is nil, and gives up their turns.
func (g *group) returns(which func(*check) bool) *group {
	back := &group{}
	for _, k := range g.checks {
		b := *k
		switch b.group = back; {
		case k.err != nil || which != nil && !which(k):
			continue
		case k.counted():
			b.what, b.most = "back", -k.answer
		case k.reserved() > 0:
			b.what, b.most = "leave", k.reserved() // it is the last one until then, since some time has passed
		default:
			continue
		}
		back.checks = append(back.checks, &b)
	}
	back.left.Store(int32(len(back.checks)))
	return back
}
