package limits

import (
	"cmp"
	"fmt"
	"math"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/local"
	"github.com/pacer/pacer/internal/limits/model"
)

// kinds are the scripts' numbers of the algorithms. A window with another one is counted as sliding: its row may be corrected.
var kinds = map[string]int64{
	delivery.AlgorithmSliding: 1, delivery.AlgorithmLog: 2, delivery.AlgorithmFixed: 3,
}

// The flags of a quota.
const (
	flagShadow = 1
	flagEven   = 2
	flagExempt = 4 // the quota does not cover the campaign
)

// specs is a list of quotas for a script, as parseSpecs of window.lua reads it, and the script's keys, each once.
type specs struct {
	keys  []string
	index map[string]int64 // places of keys in KEYS
	names keys
	now   int64 // about the store's time, for calendars
	list  []byte
	count int64
	known map[claim]int64 // places in the list, from 1; see place
}

// claim is a quota as it is asked for: for campaigns that it covers or for exempt ones, and for one or for many at once.
type claim struct {
	quota  *delivery.Quota
	exempt bool
	joint  delivery.Joint
}

// newSpecs makes an empty list, for a script whose first keys are the clock and these.
func newSpecs(k keys, now int64, first ...string) specs {
	return specs{keys: append([]string{k.clock()}, first...), index: map[string]int64{}, names: k, now: now, known: map[claim]int64{}}
}

// key returns the place of a key in KEYS. It is added if it is new.
func (l *specs) key(key string) int64 {
	i, known := l.index[key]
	if !known {
		l.keys = append(l.keys, key)
		i = int64(len(l.keys))
		l.index[key] = i
	}
	return i
}

// place returns the place of a quota in the list. It is added if it is new.
func (l *specs) place(of claim) int64 {
	place := l.known[of]
	if place == 0 {
		l.add(of)
		place = l.count
		l.known[of] = place
	}
	return place
}

// add adds a quota.
func (l *specs) add(of claim) {
	q, flags := of.quota, int64(0)
	if q.Mode == delivery.ModeShadow {
		flags |= flagShadow
	}
	if q.Spend == delivery.SpendEven {
		flags |= flagEven
	}
	if of.exempt {
		flags |= flagExempt
	}
	b := put(l.list, 2, l.key(l.names.quota(q.ID)))
	b = put(b, 7, q.Revision)
	b = put(b, 4, of.joint.Cost, of.joint.All, of.joint.Left)
	b = put(b, 7, of.joint.Due)
	b = put(b, 1, flags, int64(len(q.Windows)))
	for _, w := range q.Windows {
		period := model.PeriodOf(w, l.now)
		b = put(b, 1, cmp.Or(kinds[w.Algorithm], kinds[delivery.AlgorithmSliding]), bit(period.Calendar()))
		b = put(b, 6, w.Span.Microseconds())
		b = put(b, 7, w.Limit)
		if period.Calendar() {
			b = put(b, 7, period[:]...)
		}
	}
	l.list, l.count = b, l.count+1
}

// takeBatch is the items of one run of the take script.
type takeBatch struct {
	specs
	asks  []*delivery.Ask
	out   []*delivery.Granted
	gates map[string]int64 // the keys of gates, by sink
	items []byte
	cost  int // see costOf
	stale []staleRevision
}

// claimOf is an ask's claim to one of its quotas.
func claimOf(a *delivery.Ask, i int) claim {
	q := a.Campaign.Quotas[i]
	of := claim{quota: q, exempt: !q.Covers(a.Campaign.ID)}
	if a.Joint != nil {
		of.joint = a.Joint[i]
	}
	return of
}

// Memory for usualItems, of itemBytes each without weights and with two quotas, is allocated at the
// start.
const (
	usualItems = 32
	itemBytes  = 85
)

// fits reports whether the script has room for one more item of a cost. There is always room for one.
func (b *takeBatch) fits(cost int) bool {
	return len(b.asks) == 0 || len(b.asks) < maxItems && b.cost+cost <= maxCost
}

// costOf is what an item adds to the script. The windows of a quota are read once, unless it depends on the item what is to be
// found there: when there is room for a heavy job, or how many units may begin within its horizon.
func (b *takeBatch) costOf(a *delivery.Ask, daemons, fleet int64) int {
	cost := lineCost(daemons) + len(a.Weights)/weightsOfOne
	for i, q := range a.Campaign.Quotas {
		if !q.Stored() {
			continue
		}
		known := b.known[claimOf(a, i)] > 0
		if cost += claimCost(fleet); !known || a.Weights != nil || q.Spend == delivery.SpendEven {
			cost += windowsCost(q)
		}
	}
	return cost
}

func newTakeBatch(k keys, now int64) *takeBatch {
	return &takeBatch{specs: newSpecs(k, now, ""), gates: map[string]int64{}, items: make([]byte, 0, usualItems*itemBytes)}
}

// ask encodes an ask for take.lua.
func (b *takeBatch) ask(a *delivery.Ask, cost int, out *delivery.Granted) {
	b.asks, b.out, b.cost = append(b.asks, a), append(b.out, out), b.cost+cost
	c := a.Campaign
	timeline, gate := b.key(b.names.timeline(c.ID)), int64(0)
	if a.Gate != "" {
		if gate = b.gates[a.Gate]; gate == 0 {
			gate = b.key(b.names.gate(a.Gate))
			b.gates[a.Gate] = gate
		}
	}
	whole, rest := split(c.Rate)
	quotas := b.quotasOf(a)
	line := put(b.items, 2, timeline, gate)
	line = put(line, 7, c.Revision, c.Rate.N, whole, rest, c.Burst)
	line = put(line, 4, model.Phase(c.ID, c.Rate), min(a.Want, delivery.MaxGrant))
	line = put(line, 7, a.LastGranted)
	line = put(line, 5, a.Horizon, a.Quantum, a.LateTolerance)
	line = put(line, 4, model.Cost(c.PriorityWeight))
	var weights []int64 // of the jobs that can be granted
	if a.Weights == nil {
		line = put(line, 2, 0)
	} else {
		n, _ := a.Jobs(min(a.Want, delivery.MaxGrant), math.MaxInt64)
		weights = a.Weights[:n]
		line = put(line, 2, int64(len(weights))+1)
	}
	line = put(line, 1, bit(a.More), int64(len(quotas)))
	line = put(line, 4, weights...)
	b.items = put(line, 2, quotas...)
}

// quotasOf are the places in the batch of the campaign's quotas.
func (b *takeBatch) quotasOf(a *delivery.Ask) (places []int64) {
	for i, q := range a.Campaign.Quotas {
		if q.Stored() {
			places = append(places, b.place(claimOf(a, i)))
		}
	}
	return places
}

// split gives the whole microseconds between two slots and the rest in Nths: Per itself may exceed 2^53.
func split(r delivery.Rate) (whole, rest int64) {
	if r.Zero() {
		return 0, 0
	}
	return r.Per / r.N, r.Per % r.N
}

// call is the batch as a run of the take script in a script slot.
func (b *takeBatch) call(node string, s *scriptSlot) *call {
	b.keys[1] = b.names.reply(node, s.index)
	return &call{
		head: header{seq: s.seq}, keys: b.keys,
		args: []any{node, b.items, b.list},
	}
}

// encodeRefund encodes grants for refund.lua.
func encodeRefund(k keys, node string, s *scriptSlot, grants []delivery.Grant, now int64) *call {
	l := newSpecs(k, now, k.reply(node, s.index))
	var list []byte
	for i := range grants {
		g := &grants[i]
		c := g.From.Campaign
		whole, rest := split(g.Rate)
		list = put(list, 2, l.key(k.timeline(c.ID)))
		list = put(list, 7, g.Revision, g.Rate.N, whole, rest, g.First.At, g.First.Frac)
		list = put(list, 4, g.Units)
		list = put(list, 7, g.GrantedAt)
		var places []int64
		for _, q := range c.Quotas {
			if q.Stored() && q.Covers(c.ID) {
				places = append(places, l.place(claim{quota: q}))
			}
		}
		list = put(list, 1, int64(len(places)))
		list = put(list, 2, places...)
	}
	return &call{head: header{seq: s.seq}, keys: l.keys, args: []any{list, l.list}}
}

// encodePeek encodes quotas for peek.lua and count.lua. The scripts must count all of them.
func encodePeek(k keys, quotas []*delivery.Quota, now int64) *call {
	l := newSpecs(k, now)
	for _, q := range quotas {
		l.add(claim{quota: q})
	}
	return &call{keys: l.keys, args: []any{l.list}}
}

// encodeCharge encodes charges, all of quotas counted by the scripts, for charge.lua.
func encodeCharge(k keys, node string, s *scriptSlot, list []local.Charge, now int64) *call {
	l := newSpecs(k, now, k.reply(node, s.index))
	var units []byte
	for _, c := range list {
		l.add(claim{quota: c.Quota})
		units = put(put(units, 7, c.Units), 5, c.Widen)
	}
	return &call{head: header{seq: s.seq}, keys: l.keys, args: []any{l.list, units}}
}

// decode spreads the script's reply over the items.
func (b *takeBatch) decode(c *call) error {
	in := reader{rest: c.reply}
	items := make([]delivery.Granted, len(b.asks))
	for i, a := range b.asks {
		g := &items[i]
		newest := decodeItem(&in, c, a, g)
		if store := (&delivery.Campaign{Revision: g.Revision}); store.RowRevision() > a.Campaign.RowRevision() {
			b.stale = append(b.stale, staleRevision{"campaign", a.Campaign.ID, a.Campaign.RowRevision(), store.RowRevision()})
		}
		for _, q := range a.Campaign.Quotas {
			if newest > 0 && q.ID == g.BoundQuota {
				b.stale = append(b.stale, staleRevision{"quota", q.ID, q.Revision, newest})
			}
		}
	}
	if in.err != nil {
		return fmt.Errorf("read the reply of a take: %w", in.err)
	}
	for i := range items {
		*b.out[i] = items[i]
	}
	return nil
}

// decodeItem returns the newest revision of the quota that refused the item for an old one, 0 if none did.
func decodeItem(in *reader, c *call, a *delivery.Ask, g *delivery.Granted) (newest int64) {
	*g = delivery.Granted{
		GrantedAt: c.now, Units: in.next(4),
		From: delivery.Provenance{Campaign: a.Campaign, Epoch: c.head.epoch},
	}
	g.First.At, g.First.Frac = in.next(7), in.next(7)
	n, whole, rest := in.next(7), in.next(7), in.next(7)
	g.Rate = delivery.Rate{N: n, Per: whole*n + rest}
	g.Revision, g.NextAt, g.Bound = in.next(7), in.next(7), delivery.Binding(in.next(1))
	bound, window, newest := in.next(1), in.next(1), in.next(7)
	g.Competitors, g.Daemons, g.Waiting = in.next(2), in.next(2), in.next(2)
	shadowed := make([]int64, in.next(1)*2)
	for i := 0; i < len(shadowed); i += 2 {
		shadowed[i], shadowed[i+1] = in.next(1), in.next(4)
	}
	seen := int64(0)
	for place, q := range a.Campaign.Quotas {
		if !q.Stored() {
			continue
		}
		if g.Bound == delivery.BindQuota && seen == bound {
			g.BoundQuota, g.BoundWindow = q.ID, int(window)
		}
		for i := 0; i < len(shadowed); i += 2 {
			if shadowed[i] == seen {
				g.Shadowed = append(g.Shadowed, delivery.Shadowed{Quota: q.ID, Units: shadowed[i+1]})
			}
		}
		seen++
		g.Windows = decodeWindows(in, g.Windows, q)
		if a.Want > 0 || a.Joint == nil || a.Joint[place].Cost == 0 {
			continue
		}
		look := delivery.Look{Share: in.next(4), MoreAt: in.next(7), OpensAt: in.next(7)}
		for i := len(g.Windows) - len(q.Windows); i < len(g.Windows); i++ {
			g.Windows[i].Look = look
		}
	}
	return newest
}

func decodeWindows(in *reader, list []delivery.WindowState, q *delivery.Quota) []delivery.WindowState {
	for i := range q.Windows {
		list = append(list, delivery.WindowState{
			Quota: q.ID, Window: i, Remaining: in.next(7), ResetAt: in.next(7), FreeAt: in.next(7),
		})
	}
	return list
}

// decodePeek reads the windows' states.
func decodePeek(c *call, quotas []*delivery.Quota) (out []delivery.WindowState, err error) {
	if c.err != nil {
		return nil, c.err
	}
	in := reader{rest: c.reply}
	for _, q := range quotas {
		out = decodeWindows(&in, out, q)
	}
	return out, in.err
}
