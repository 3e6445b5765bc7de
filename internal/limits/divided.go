package limits

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// A campaign with quotas in several shards is first asked for in all but its home, for all that is wanted, and then at
// home for the least that was granted; what the others granted beyond the home is handed back. In each shard that is an
// ordinary ask: the shard keeps a timeline of the campaign beside the quotas, so that daemons and campaigns share there
// as they do at home. The slots that count are the home's.

// away is how long the units of other shards may wait for the home's answer. Their windows are widened by so much.
const away = 50 * time.Millisecond

// stay is what a shard other than the campaign's home is asked, and its answer.
type stay struct {
	shard int
	ask   delivery.Ask
	got   delivery.Granted
}

func (s *stay) request() request { return request{shard: s.shard, ask: &s.ask, out: &s.got} }

// grant is all that the shard granted from the n-th unit on.
func (s *stay) grant(n int64) delivery.Grant {
	g := s.got.Grant()
	g.First, g.Units = g.First.Advance(n, g.Rate), g.Units-n
	return g
}

func stays(a *delivery.Ask, want int64, parts []part) []stay {
	list := make([]stay, len(parts))
	for i, p := range parts {
		list[i] = stay{shard: p.shard, ask: *a}
		ask := &list[i].ask
		ask.Campaign, ask.Want, ask.HeldUntil, ask.Gate = p.campaign, want, 0, ""
		ask.LateTolerance += away.Microseconds()
	}
	return list
}

// gather asks the homes of divided campaigns, puts the shards' answers together and hands back what is too much. The
// first round was sent at the given time.
func (t *taking) gather(ctx context.Context, sent time.Time) error {
	var second []request
	for _, x := range t.divided {
		if !x.answeredAway() {
			continue
		}
		own := *x.own
		for i := range x.away {
			own.Want = min(own.Want, x.away[i].got.Units)
		}
		x.own = &own
		second = append(second, x.request())
	}
	err := t.round(ctx, second)
	late := time.Since(sent) > away
	var back []delivery.Grant
	for _, x := range t.divided {
		back = append(back, x.settle(late)...)
	}
	if late {
		t.tooSlow()
	}
	return errors.Join(err, t.refund(ctx, back))
}

func (x *errand) answeredAway() bool {
	for i := range x.away {
		if x.away[i].got.GrantedAt == 0 {
			return false
		}
	}
	return true
}

// settle makes one answer of the shards' and returns what is to be handed back. An item of which a shard did not answer
// is not granted. So is one that came late: the windows elsewhere may let go of the units before the slots are over.
func (x *errand) settle(late bool) []delivery.Grant {
	var back []delivery.Grant
	if late && x.out.GrantedAt > 0 {
		if x.out.Units > 0 {
			back = append(back, x.out.Grant())
		}
		for i := range x.out.Windows {
			x.out.Windows[i].Remaining += x.out.Units
		}
		x.out.Units, x.out.Shadowed = 0, nil
		x.out.Bound, x.out.NextAt = delivery.BindRate, x.out.GrantedAt+x.ask.Quantum
	}
	for i := range x.away {
		if s := &x.away[i]; s.got.Units > x.out.Units {
			back = append(back, s.grant(x.out.Units))
		}
	}
	if x.out.GrantedAt > 0 {
		x.merge(late)
	}
	return back
}

// merge adds to the home's answer what the others have to say. Their times are told on the home's clock.
func (x *errand) merge(late bool) {
	out := x.out
	short := out.Units >= x.own.Want && out.Units < x.ask.Want && !late // for want of units elsewhere
	for i := range x.away {
		s := &x.away[i]
		got, shift := &s.got, out.GrantedAt-s.got.GrantedAt
		out.From.Elsewhere = append(out.From.Elsewhere, delivery.Debit{
			Shard: s.shard, Incarnation: got.From.Incarnation, GrantedAt: got.GrantedAt,
		})
		out.Competitors, out.Daemons = max(out.Competitors, got.Competitors), max(out.Daemons, got.Daemons)
		if short && got.Units <= out.Units && got.Bound != delivery.BindNone {
			x.bind(got, shift)
		}
		for _, q := range got.Shadowed {
			if q.Units = min(q.Units, out.Units); q.Units > 0 {
				out.Shadowed = append(out.Shadowed, q)
			}
		}
		for _, w := range got.Windows {
			w.ResetAt += shift
			w.Remaining += got.Units - out.Units
			out.Windows = append(out.Windows, w)
		}
	}
	order := map[string]int{}
	for i, q := range x.ask.Campaign.Quotas {
		order[q.ID] = i
	}
	slices.SortStableFunc(out.Windows, func(a, b delivery.WindowState) int { return order[a.Quota] - order[b.Quota] })
}

// bind takes over what kept another shard's grant short. Of several the last to bring more counts.
func (x *errand) bind(got *delivery.Granted, shift int64) {
	out, next := x.out, got.NextAt
	if next > 0 {
		next += shift
	}
	if out.Bound != delivery.BindNone && (out.NextAt == 0 || next > 0 && next <= out.NextAt) {
		return
	}
	out.Bound, out.BoundQuota, out.BoundWindow, out.NextAt = got.Bound, got.BoundQuota, got.BoundWindow, next
}

// tooSlow says, at most once a minute, that divided campaigns are not granted anything.
func (e *Engine) tooSlow() {
	now := e.local()
	e.mu.Lock()
	complain := e.slow == 0 || now-e.slow > time.Minute.Microseconds()
	if complain {
		e.slow = now
	}
	e.mu.Unlock()
	if complain {
		e.log.Warn("redis answers too slowly for campaigns with quotas in several shards; they wait",
			"within", away, "remedy", "create the quotas of one campaign in one shard")
	}
}
