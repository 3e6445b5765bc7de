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

// numbers appends integers with a space before each but the first of the line.
func numbers(b []byte, ns ...int64) []byte {
	for _, n := range ns {
		if len(b) > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, n, 10)
	}
	return b
}

// takeBatch is what one run of the take script serves.
type takeBatch struct {
	names  keys
	asks   []*delivery.Ask
	out    []*delivery.Granted
	keys   keyList // from the third on
	items  []any
	quotas []*delivery.Quota
	quota  map[*delivery.Quota]int // its place in quotas
}

func newTakeBatch(k keys) *takeBatch {
	return &takeBatch{names: k, keys: newKeyList(k.clock(), ""), quota: map[*delivery.Quota]int{}}
}

func (b *takeBatch) add(a *delivery.Ask, out *delivery.Granted) {
	b.asks, b.out = append(b.asks, a), append(b.out, out)
	b.items = append(b.items, b.item(a))
}

// item spells an ask as take.lua reads it.
func (b *takeBatch) item(a *delivery.Ask) string {
	c := a.Campaign
	gate := int64(0)
	if a.Gate != "" {
		gate = b.keys.add(b.names.gate(a.Gate))
	}
	whole, rest := split(c.Rate)
	line := make([]byte, 0, 192)
	line = numbers(line, b.keys.add(b.names.timeline(c.ID)), gate, c.Revision, c.Rate.N, whole, rest, max(0, c.Burst),
		model.Phase(c.ID, c.Rate), min(max(0, a.Want), delivery.MaxGrant), a.HeldUntil, a.Horizon, a.Quantum, a.LateTolerance,
		model.Cost(c.PriorityWeight))
	line = append(line, ' ')
	line = append(line, c.ID...)
	line = append(line, ' ')
	line = appendWeights(line, a)
	line = append(line, '|')
	for _, q := range c.Quotas {
		if len(q.Windows) == 0 {
			continue
		}
		i, ok := b.quota[q]
		if !ok {
			b.quotas = append(b.quotas, q)
			i = len(b.quotas)
			b.quota[q] = i
		}
		line = strconv.AppendInt(line, int64(i), 10)
		line = append(line, ',')
	}
	return string(line)
}

// appendWeights lists the weights of the jobs that can be granted, none when all are 1.
func appendWeights(line []byte, a *delivery.Ask) []byte {
	var sum int64
	for i, w := range a.Weights {
		if sum >= a.Want || sum >= delivery.MaxGrant {
			break
		}
		if i > 0 {
			line = append(line, ',')
		}
		line = strconv.AppendInt(line, w, 10)
		sum += w
	}
	return line
}

// split gives the whole microseconds between two slots and the rest in Nths: Per itself may exceed 2^53.
func split(r delivery.Rate) (whole, rest int64) {
	if r.Zero() {
		return 0, 0
	}
	return r.Per / r.N, r.Per % r.N
}

func (b *takeBatch) call(e *Engine, s *scriptSlot) *call {
	args := make([]any, 0, 3+len(b.items)+len(b.quotas))
	args = append(args, fmt.Sprintf("%d %d", s.seq, e.override()), e.node, len(b.items))
	args = append(args, b.items...)
	for _, q := range b.quotas {
		line := numbers(make([]byte, 0, 96), b.keys.add(b.names.quota(q.ID)), q.Revision)
		args = append(args, string(appendWindows(line, q)))
	}
	b.keys.keys[1] = e.keys.reply(e.node, s.index)
	return &call{keys: b.keys.keys, args: args}
}

func appendWindows(line []byte, q *delivery.Quota) []byte {
	for _, w := range q.Windows {
		line = numbers(line, w.Span.Microseconds())
		line = append(line, ':')
		line = strconv.AppendInt(line, w.Limit, 10)
	}
	return line
}

func (e *Engine) encodeRefund(s *scriptSlot, refunds []delivery.Refund) *call {
	l := newKeyList(e.keys.clock(), e.keys.reply(e.node, s.index))
	args := []any{fmt.Sprintf("%d %d", s.seq, e.override()), 0}
	n := 0
	for _, r := range refunds {
		if r.Units <= 0 || validID(r.Campaign.ID) != nil {
			continue
		}
		n++
		whole, rest := split(r.Rate)
		args = append(args, string(numbers(nil, l.add(e.keys.timeline(r.Campaign.ID)), r.Revision, r.Rate.N, whole, rest,
			r.First.At, r.First.Frac, r.Units, r.GrantedAt)))
		var list []byte
		for _, q := range r.Campaign.Quotas {
			if len(list) > 0 {
				list = append(list, ',')
			}
			list = strconv.AppendInt(list, l.add(e.keys.quota(q.ID)), 10)
			for _, w := range q.Windows {
				list = numbers(list, w.Span.Microseconds())
			}
		}
		args = append(args, string(list))
	}
	args[1] = n
	return &call{keys: l.keys, args: args}
}

func (e *Engine) encodePeek(quotas []*delivery.Quota) *call {
	c := &call{keys: []string{e.keys.clock()}, args: []any{e.override()}}
	for _, q := range quotas {
		c.keys = append(c.keys, e.keys.quota(q.ID))
		c.args = append(c.args, string(appendWindows(numbers(nil, q.Revision), q)))
	}
	return c
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
	head, rest, _ := strings.Cut(reply, "\n")
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
	g := delivery.Granted{GrantedAt: now, Units: f.next()}
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
