package limits

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// keyList collects the keys of a script, each once.
type keyList struct {
	keys  []string
	index map[string]int64
}

func newKeyList(first ...string) keyList {
	return keyList{keys: first, index: map[string]int64{}}
}

// add returns the key's position in KEYS.
func (l *keyList) add(key string) int64 {
	if i, ok := l.index[key]; ok {
		return i
	}
	l.keys = append(l.keys, key)
	i := int64(len(l.keys))
	l.index[key] = i
	return i
}

// numbers appends integers separated by commas, as in a JSON array.
func numbers(b []byte, ns ...int64) []byte {
	for i, n := range ns {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return b
}

// close ends a JSON array, dropping the comma after its last element.
func closeArray(b []byte) []byte {
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, ']')
}

// takeBatch is what one run of the take script serves.
type takeBatch struct {
	names  keys
	asks   []*delivery.Ask
	out    []*delivery.Granted
	keys   keyList
	items  []byte // JSON, not closed yet
	quotas []*delivery.Quota
	quota  map[*delivery.Quota]int64 // its place in quotas, from 1
	cost   int                       // in halves of what an item without quotas takes
}

// full tells whether the script has enough to do.
func (b *takeBatch) full() bool { return len(b.asks) >= maxItems || b.cost >= maxCost }

func newTakeBatch(k keys) *takeBatch {
	return &takeBatch{names: k, keys: newKeyList(k.clock(), ""), items: []byte("["), quota: map[*delivery.Quota]int64{}}
}

// add spells an ask as take.lua reads it.
func (b *takeBatch) add(a *delivery.Ask, out *delivery.Granted) {
	b.asks, b.out = append(b.asks, a), append(b.out, out)
	c := a.Campaign
	gate := int64(0)
	if a.Gate != "" {
		gate = b.keys.add(b.names.gate(a.Gate))
	}
	whole, rest := split(c.Rate)
	line := append(b.items, '[')
	line = numbers(line, b.keys.add(b.names.timeline(c.ID)), gate, c.Revision, c.Rate.N, whole, rest, max(0, c.Burst),
		model.Phase(c.ID, c.Rate), min(max(0, a.Want), delivery.MaxGrant), a.HeldUntil, a.Horizon, a.Quantum, a.LateTolerance,
		model.Cost(c.PriorityWeight))
	line = append(line, ',')
	line = strconv.AppendQuote(line, c.ID) // of printable ASCII this is JSON
	line = append(line, ',')
	line = appendWeights(line, a)
	line = append(line, ',')
	line = b.appendQuotas(line, c)
	b.items = append(line, "],"...)
	b.cost += 2
}

// appendWeights lists the weights of the jobs that can be granted, 0 when all are 1.
func appendWeights(line []byte, a *delivery.Ask) []byte {
	if a.Weights == nil {
		return append(line, '0')
	}
	line = append(line, '[')
	var sum int64
	for _, w := range a.Weights {
		if sum >= a.Want || sum >= delivery.MaxGrant {
			break
		}
		line = strconv.AppendInt(line, w, 10)
		line = append(line, ',')
		sum += w
	}
	return closeArray(line)
}

// appendQuotas lists the campaign's quotas that have windows by their place in the batch, 0 when there are none.
func (b *takeBatch) appendQuotas(line []byte, c *delivery.Campaign) []byte {
	start := len(line)
	for _, q := range c.Quotas {
		if len(q.Windows) == 0 {
			continue
		}
		i, ok := b.quota[q]
		if !ok {
			b.quotas = append(b.quotas, q)
			i = int64(len(b.quotas))
			b.quota[q] = i
			b.cost++
		}
		b.cost += len(q.Windows)
		if len(line) == start {
			line = append(line, '[')
		}
		line = strconv.AppendInt(line, i, 10)
		line = append(line, ',')
	}
	if len(line) == start {
		return append(line, '0')
	}
	return closeArray(line)
}

// split gives the whole microseconds between two slots and the rest in Nths: Per itself may exceed 2^53.
func split(r delivery.Rate) (whole, rest int64) {
	if r.Zero() {
		return 0, 0
	}
	return r.Per / r.N, r.Per % r.N
}

func (b *takeBatch) call(e *Engine, s *scriptSlot) *call {
	specs := []byte("[")
	for _, q := range b.quotas {
		specs = numbers(append(specs, '['), b.keys.add(b.names.quota(q.ID)), q.Revision)
		specs = append(appendWindows(specs, q), "],"...)
	}
	b.keys.keys[1] = e.keys.reply(e.node, s.index)
	return &call{keys: b.keys.keys, args: []any{s.seq, e.override(), e.node, closeArray(b.items), closeArray(specs)}}
}

func appendWindows(line []byte, q *delivery.Quota) []byte {
	for _, w := range q.Windows {
		line = append(line, ',')
		line = numbers(line, w.Span.Microseconds(), w.Limit)
	}
	return line
}

func (e *Engine) encodeRefund(s *scriptSlot, grants []delivery.Grant) *call {
	l := newKeyList(e.keys.clock(), e.keys.reply(e.node, s.index))
	list := []byte("[")
	for _, r := range grants {
		if r.Units <= 0 || validID(r.From.Campaign.ID) != nil {
			continue
		}
		whole, rest := split(r.Rate)
		list = numbers(append(list, '['), l.add(e.keys.timeline(r.From.Campaign.ID)), r.Revision, r.Rate.N, whole, rest,
			r.First.At, r.First.Frac, r.Units, r.GrantedAt)
		list = append(list, ",["...)
		for _, q := range r.From.Campaign.Quotas {
			list = numbers(append(list, '['), l.add(e.keys.quota(q.ID)))
			for _, w := range q.Windows {
				list = numbers(append(list, ','), w.Span.Microseconds())
			}
			list = append(list, "],"...)
		}
		list = append(closeArray(list), "],"...)
	}
	return &call{keys: l.keys, args: []any{s.seq, e.override(), closeArray(list)}}
}

func (e *Engine) encodePeek(quotas []*delivery.Quota) *call {
	l := []string{e.keys.clock()}
	list := []byte("[")
	for _, q := range quotas {
		l = append(l, e.keys.quota(q.ID))
		list = append(appendWindows(numbers(append(list, '['), q.Revision), q), "],"...)
	}
	return &call{keys: l, args: []any{e.override(), closeArray(list)}}
}

// fields reads the numbers of a reply one after the other.
type fields struct {
	rest string
	err  error
}

func (f *fields) next() int64 {
	if f.err != nil {
		return 0
	}
	word, rest, _ := strings.Cut(f.rest, " ")
	n, err := strconv.ParseInt(word, 10, 64)
	f.rest, f.err = rest, err
	return n
}

// decode spreads the script's reply over the items; it returns the store's time.
func (b *takeBatch) decode(reply string) (int64, error) {
	_, rest, _ := strings.Cut(reply, "\n") // seq
	head, rest, _ := strings.Cut(rest, "\n")
	now, err := strconv.ParseInt(head, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read the reply of a take: %w", err)
	}
	items := make([]delivery.Granted, len(b.asks))
	for i, a := range b.asks {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		if items[i], err = decodeItem(line, now, a.Campaign); err != nil {
			return 0, fmt.Errorf("read the reply of a take, campaign %s: %w", a.Campaign.ID, err)
		}
	}
	for i := range items {
		*b.out[i] = items[i]
	}
	return now, nil
}

func decodeItem(line string, now int64, c *delivery.Campaign) (delivery.Granted, error) {
	f := fields{rest: line}
	g := delivery.Granted{GrantedAt: now, Units: f.next(), From: delivery.Provenance{Campaign: c}}
	g.First.At, g.First.Frac = f.next(), f.next()
	n, whole, rest := f.next(), f.next(), f.next()
	g.Rate = delivery.Rate{N: n, Per: whole*n + rest}
	g.Revision, g.NextAt, g.Bound = f.next(), f.next(), delivery.Binding(f.next())
	bound, window := f.next(), f.next()
	g.Competitors = f.next()
	seen := int64(0)
	for _, q := range c.Quotas {
		if len(q.Windows) == 0 {
			continue
		}
		if g.Bound == delivery.BindQuota && seen == bound {
			g.BoundQuota, g.BoundWindow = q.ID, int(window)
		}
		seen++
		for i := range q.Windows {
			g.Windows = append(g.Windows, delivery.WindowState{Quota: q.ID, Window: i, Remaining: f.next(), ResetAt: f.next()})
		}
	}
	return g, f.err
}

func decodePeek(reply string, quotas []*delivery.Quota) ([]delivery.WindowState, int64, error) {
	f := fields{rest: reply}
	now := f.next()
	var out []delivery.WindowState
	for _, q := range quotas {
		for i := range q.Windows {
			out = append(out, delivery.WindowState{Quota: q.ID, Window: i, Remaining: f.next(), ResetAt: f.next()})
		}
	}
	if f.err != nil {
		return nil, 0, fmt.Errorf("read the reply of a peek: %w", f.err)
	}
	return out, now, nil
}
