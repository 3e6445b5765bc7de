package limits

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
)

// fleet is daemons that share a store and a backlog without end. They ask a quantum after their last ask or when they were told to come
// back, whichever is later, and use their slots at once or as late as is allowed. Their grants and dispatches are recorded unit by unit,
// in store time.
type fleet struct {
	t       testing.TB
	store   store
	rnd     *rand.Rand
	daemons []*daemon
	bursty  bool // they have few jobs at a time, and now and then none for a while
	returns bool // they give back what they did not use of some grants, at once or later, and let slots of others expire
	late    []returning

	asked, refunded, expired int64
	// Of units that were not given back: when they were granted and dispatched, and their slots.
	granted, sent, slots []int64
	resets               map[string]map[int64]bool
}

// daemon is one of a fleet. Its campaigns ask independently of each other.
type daemon struct {
	node string
	asks []delivery.Ask
	due  []int64            // when each of them asks next
	held [][]delivery.Grant // what each of them has not settled yet
}

// returning is a grant that is given back at a time, which may be after its slots and a reset.
type returning struct {
	grant delivery.Grant
	at    int64
}

func newFleet(t testing.TB, s store, daemons int, asks ...delivery.Ask) *fleet {
	f := &fleet{t: t, store: s, rnd: rand.New(rand.NewPCG(11, uint64(daemons))), resets: map[string]map[int64]bool{}}
	for i := range daemons {
		d := &daemon{node: fmt.Sprintf("n%d", i), asks: slices.Clone(asks), held: make([][]delivery.Grant, len(asks))}
		for range asks {
			d.due = append(d.due, epoch+f.rnd.Int64N(quantum))
		}
		f.daemons = append(f.daemons, d)
	}
	return f
}

// run lets the daemons work until the given time; they keep what they hold then.
func (f *fleet) run(until int64) {
	for {
		d := slices.MinFunc(f.daemons, func(a, b *daemon) int { return cmp.Compare(slices.Min(a.due), slices.Min(b.due)) })
		now := slices.Min(d.due)
		if now >= until {
			return
		}
		f.turn(d, now)
		if f.bursty && f.rnd.IntN(200) == 0 {
			f.pause(f.rnd.Int64N(3 * second))
		}
	}
}

// pause keeps everybody from asking for a while.
func (f *fleet) pause(d int64) {
	for _, x := range f.daemons {
		for i := range x.due {
			x.due[i] += d
		}
	}
}

// turn is one take of a daemon, for the campaigns whose turn it is.
func (f *fleet) turn(d *daemon, now int64) {
	var asks []delivery.Ask
	var from []int
	f.giveBack(now)
	for i := range d.asks {
		if d.due[i] > now {
			continue
		}
		f.settle(d, i, now)
		a := &d.asks[i]
		a.Want = delivery.MaxGrant
		if f.bursty {
			a.Want = f.rnd.Int64N(20)
			if f.returns { // so that the window is used up about when it ends
				a.Want /= 10
			}
		}
		asks, from = append(asks, *a), append(from, i)
	}
	for k, g := range f.store.Take(now, d.node, asks).Items {
		i := from[k]
		if g.Units > asks[k].Want {
			f.t.Fatalf("granted %d of %d wanted", g.Units, asks[k].Want)
		}
		f.note(g)
		if g.Units > 0 {
			f.asked += g.Units
			d.held[i] = append(d.held[i], g.Grant())
			d.asks[i].LastGranted = g.First.Advance(g.Units-1, g.Rate).Micros()
		}
		d.due[i] = max(now+quantum, g.NextAt) + f.rnd.Int64N(3_000)
	}
}

// note remembers the resets of windows that are in use.
func (f *fleet) note(g delivery.Granted) {
	for _, w := range g.Windows {
		k := w.Quota + strconv.Itoa(w.Window)
		if f.resets[k] == nil {
			f.resets[k] = map[int64]bool{}
		}
		f.resets[k][w.ResetAt] = true
	}
}

// settle says what became of a campaign's grants by now: sent, given back, or expired.
func (f *fleet) settle(d *daemon, i int, now int64) {
	for _, g := range d.held[i] {
		fate := f.rnd.IntN(6)
		past := g.First.CountUntil(now, g.Rate, g.Units)
		switch {
		case f.returns && fate == 0 && past < g.Units:
			back := g
			back.First, back.Units = g.First.Advance(past, g.Rate), g.Units-past
			f.late = append(f.late, returning{back, now})
			g.Units = past
		case f.returns && fate == 1:
			f.late = append(f.late, returning{g, now + f.rnd.Int64N(2*second)})
			g.Units = 0
		case f.returns && fate == 2:
			f.expired += g.Units
			g.Units = 0
		}
		for k := range g.Units {
			f.granted = append(f.granted, g.GrantedAt)
			slot := g.First.Advance(k, g.Rate).Micros()
			f.slots, f.sent = append(f.slots, slot), append(f.sent, slot+f.rnd.Int64N(2)*late)
		}
	}
	d.held[i], d.asks[i].LastGranted = nil, 0
	f.giveBack(now)
}

// giveBack gives back what was to be given back by now.
func (f *fleet) giveBack(now int64) {
	f.late = slices.DeleteFunc(f.late, func(r returning) bool {
		if r.at <= now {
			f.store.Refund(now, []delivery.Grant{r.grant})
			f.refunded += r.grant.Units
		}
		return r.at <= now
	})
}

// finish settles everything.
func (f *fleet) finish(now int64) {
	defer f.giveBack(now + 2*second)
	for _, d := range f.daemons {
		for i := range d.asks {
			f.settle(d, i, now)
		}
	}
	slices.Sort(f.granted)
	slices.Sort(f.sent)
	slices.Sort(f.slots)
}

// obeys checks that no window of the quota ever held more than its limit, at the grant and at the dispatch. It checks any stretch of a
// sliding or log window's span, and every period of a fixed one.
func (f *fleet) obeys(q *delivery.Quota) {
	f.t.Helper()
	for i, w := range q.Windows {
		for what, events := range map[string][]int64{"granted": f.granted, "dispatched": f.sent} {
			if w.Algorithm != delivery.AlgorithmFixed {
				if most := rolling(events, w.Span.Microseconds()); most > w.Limit {
					f.t.Errorf("%d %s in a rolling %s, limit %d", most, what, w.Span, w.Limit)
				}
				continue
			}
			for reset := range f.resets[q.ID+strconv.Itoa(i)] {
				from, _ := slices.BinarySearch(events, reset-w.Span.Microseconds())
				to, _ := slices.BinarySearch(events, reset)
				if int64(to-from) > w.Limit {
					f.t.Errorf("%d %s in a fixed %s, limit %d", to-from, what, w.Span, w.Limit)
				}
			}
		}
	}
}

// conserved checks that every granted unit was sent, given back or has expired, and that all windows, which must be
// longer than the run, have been debited by the same: what was granted and not given back.
func (f *fleet) conserved(now int64, q *delivery.Quota) {
	f.t.Helper()
	if sum := int64(len(f.sent)) + f.refunded + f.expired; f.asked != sum {
		f.t.Errorf("granted %d, but sent %d, gave back %d and let expire %d", f.asked, len(f.sent), f.refunded, f.expired)
	}
	for i, w := range f.store.Peek(now, []*delivery.Quota{q}) {
		if debit := q.Windows[i].Limit - w.Remaining; debit != f.asked-f.refunded {
			f.t.Errorf("window %d was debited %d, want %d", i, debit, f.asked-f.refunded)
		}
	}
}

// length is how long a simulation lasts: scripts do what the model does, so the long runs are the model's.
func length(s store, onModel, onRedis int64) int64 {
	if _, ok := s.(*limitstest.Shared); ok {
		return onModel * second
	}
	return onRedis * second
}

// lossy loses replies, or requests, of takes and refunds at random. The engine repeats what it got no answer to, once;
// so at most one attempt in a row is lost.
type lossy struct {
	store
	rnd                 *rand.Rand
	replies, requests   *atomic.Int64
	lostReply, lostCall int
}

func (l *lossy) arm() {
	l.replies.Store(0)
	l.requests.Store(0)
	switch l.rnd.IntN(4) {
	case 0:
		l.replies.Store(1)
		l.lostReply++
	case 1:
		l.requests.Store(1)
		l.lostCall++
	}
}

func (l *lossy) Take(now int64, node string, asks []delivery.Ask) delivery.TakeReply {
	l.arm()
	return l.store.Take(now, node, asks)
}

func (l *lossy) Refund(now int64, grants []delivery.Grant) {
	l.arm()
	l.store.Refund(now, grants)
}

// Peek is not disturbed.
func (l *lossy) Peek(now int64, quotas []*delivery.Quota) []delivery.WindowState {
	l.replies.Store(0)
	l.requests.Store(0)
	return l.store.Peek(now, quotas)
}
