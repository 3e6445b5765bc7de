package limits

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/testservices"
)

// TestScriptsFillHolesAsTheModelDoes is about one campaign whose daemons hand back much, while its rate changes.
func TestScriptsFillHolesAsTheModelDoes(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	client := oneRedis(t)
	rapid.Check(t, func(rt *rapid.T) {
		l, m := newLua(t, client), limitstest.NewShared()
		c := campaign(1000)
		h := &history{now: epoch, campaigns: []*delivery.Campaign{c}}
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			h.now += rapid.SampledFrom([]int64{0, 1, 1_000, 7_001, 25_000}).Draw(rt, "pass")
			switch rapid.IntRange(0, 5).Draw(rt, "action") {
			case 0:
				next := *h.campaigns[0]
				next.Revision++
				next.Rate = delivery.PerSecond(rapid.SampledFrom([]int64{0, 30, 150, 333, 1000, 7000}).Draw(rt, "rate"))
				h.campaigns[0] = &next
			case 1, 2:
				h.refund(rt, l, m)
			default:
				a := ask(h.campaigns[0], rapid.SampledFrom([]int64{1, 7, 100, 1_000_000}).Draw(rt, "want"))
				if rapid.IntRange(0, 9).Draw(rt, "weighted") == 0 {
					a.Weights = []int64{3, 1, 2}
				}
				h.take(rt, l, m, rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(rt, "node"), []delivery.Ask{a})
			}
		}
	})
}

// TestScriptsDoWhatTheModelSays puts random histories to the scripts and to the model; every answer must be the same.
func TestScriptsDoWhatTheModelSays(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	client := oneRedis(t)
	rapid.Check(t, func(rt *rapid.T) {
		h := newHistory(rt)
		l, m := newLua(t, client), limitstest.NewShared()
		for range rapid.IntRange(5, 60).Draw(rt, "steps") {
			h.step(rt, l, m)
		}
	})
}

// history is a random world: a few campaigns, quotas, gates and daemons, some of them with an old catalog.
type history struct {
	now, high int64 // the clock jumps back at times; high is the furthest it was
	campaigns []*delivery.Campaign
	quotas    []*delivery.Quota
	grants    []delivery.Grant
}

var spans = []time.Duration{
	time.Millisecond, 100 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 31 * 24 * time.Hour,
}

func newHistory(rt *rapid.T) *history {
	h := &history{now: epoch}
	for i := range rapid.IntRange(0, 3).Draw(rt, "quotas") {
		q := &delivery.Quota{ID: fmt.Sprintf("q%d", i), Revision: 1}
		for _, s := range rapid.SliceOfNDistinct(rapid.SampledFrom(spans), 0, 4, rapid.ID[time.Duration]).Draw(rt, "spans") {
			q.Windows = append(q.Windows, drawWindow(rt, s))
		}
		drawModes(rt, q)
		h.quotas = append(h.quotas, q)
	}
	for i := range rapid.IntRange(1, 4).Draw(rt, "campaigns") {
		c := &delivery.Campaign{
			ID: fmt.Sprintf("c%d", i), Revision: 1, Rate: limitstest.DrawRate(rt), Burst: rapid.SampledFrom([]int64{0, 0, 1, 10, 100_000}).Draw(rt, "burst"),
			PriorityWeight: rapid.Int64Range(0, 10).Draw(rt, "priority"),
		}
		for _, q := range h.quotas {
			if rapid.Bool().Draw(rt, "linked") {
				c.Quotas = append(c.Quotas, q)
			}
		}
		h.campaigns = append(h.campaigns, c)
	}
	return h
}

// drawWindow draws a window of any algorithm; one that follows the calendar where the span is a period's.
func drawWindow(rt *rapid.T, span time.Duration) delivery.Window {
	w := delivery.Window{Span: span, Limit: rapid.Int64Range(0, 200).Draw(rt, "limit")}
	w.Algorithm = rapid.SampledFrom([]string{"", "sliding", "log", "fixed"}).Draw(rt, "algorithm")
	if unit := units[span]; w.Algorithm == "fixed" && unit != "" && rapid.Bool().Draw(rt, "calendar") {
		w.Anchor = unit + rapid.SampledFrom([]string{"", "@Europe/Moscow", "@Australia/Lord_Howe"}).Draw(rt, "zone")
	}
	return w
}

var units = map[time.Duration]string{time.Minute: "minute", time.Hour: "hour", 24 * time.Hour: "day", 31 * 24 * time.Hour: "month"}

func drawModes(rt *rapid.T, q *delivery.Quota) {
	q.Mode = rapid.SampledFrom([]string{"", "", "strict", "shadow"}).Draw(rt, "mode")
	q.Spend = rapid.SampledFrom([]string{"", "", "even"}).Draw(rt, "spend")
	q.Exempt = rapid.SampledFrom([]int64{0, 0, 0, 1, 50, 67, 100}).Draw(rt, "exempt")
}

func (h *history) step(rt *rapid.T, l, m store) {
	h.now += rapid.SampledFrom([]int64{0, 1, 1_000, 7_001, 25_000, 25_000, 100_003, second, 20 * second, -5 * second, 7200 * second}).Draw(rt, "pass")
	h.high = max(h.high, h.now)
	node := rapid.SampledFrom([]string{"n1", "n2", "n3"}).Draw(rt, "node")
	switch rapid.IntRange(0, 11).Draw(rt, "action") {
	case 0:
		h.reconfigure(rt)
	case 1:
		until := h.high + rapid.Int64Range(0, 3*second).Draw(rt, "closed")
		cause := rapid.SampledFrom(delivery.GateCauses).Draw(rt, "cause")
		same(rt, "close", l.CloseGate(h.high, "g", until, cause), m.CloseGate(h.high, "g", until, cause))
	case 2:
		l.OpenGate("g")
		m.OpenGate("g")
	case 3:
		h.refund(rt, l, m)
	case 4:
		same(rt, "peek", l.Peek(h.now, h.quotas), m.Peek(h.now, h.quotas))
	default:
		asks := h.asks(rt)
		if len(asks) == 0 {
			return // nothing is sent, so the store's clock does not see it
		}
		h.take(rt, l, m, node, asks)
	}
}

func (h *history) take(rt *rapid.T, l, m store, node string, asks []delivery.Ask) {
	got, want := l.Take(h.now, node, asks), m.Take(h.now, node, asks)
	same(rt, "take", got, want)
	for _, g := range got.Items {
		if g.Units > 0 {
			h.grants = append(h.grants, g.Grant())
		}
	}
}

func (h *history) asks(rt *rapid.T) []delivery.Ask {
	var asks []delivery.Ask
	for _, c := range h.campaigns {
		if !rapid.Bool().Draw(rt, "asks") {
			continue
		}
		a := ask(c, rapid.SampledFrom([]int64{-1, 0, 1, 2, 7, 100, 1_000_000}).Draw(rt, "want"))
		a.More = a.Want > 0 && rapid.Bool().Draw(rt, "more")
		a.Horizon = rapid.SampledFrom([]int64{quantum, quantum, horizon, horizon, 3 * second}).Draw(rt, "horizon")
		if rapid.IntRange(0, 3).Draw(rt, "weighted") == 0 {
			a.Weights = rapid.SliceOfN(rapid.Int64Range(1, 30), 1, 10).Draw(rt, "weights")
		}
		if rapid.IntRange(0, 9).Draw(rt, "held") == 0 {
			a.LastGranted = h.now + rapid.Int64Range(-second, second).Draw(rt, "heldUntil")
		}
		if rapid.IntRange(0, 3).Draw(rt, "gated") == 0 {
			a.Gate = "g"
		}
		if len(c.Quotas) > 0 && rapid.IntRange(0, 2).Draw(rt, "joint") == 0 {
			for range c.Quotas {
				a.Joint = append(a.Joint, delivery.Joint{
					Cost: rapid.SampledFrom([]int64{0, 1, 333, 1_000_000, 1 << 31}).Draw(rt, "cost"),
					All:  rapid.SampledFrom([]int64{0, 1, 50, 1<<32 - 1}).Draw(rt, "all"),
					Left: rapid.SampledFrom([]int64{0, 0, 1, 50}).Draw(rt, "left"),
					Due:  h.now + rapid.Int64Range(0, 2*second).Draw(rt, "due"),
				})
			}
		}
		asks = append(asks, a)
	}
	return asks
}

// reconfigure replaces a campaign or a quota by a newer one; or an older one, as a daemon with an old catalog would.
func (h *history) reconfigure(rt *rapid.T) {
	i := rapid.IntRange(0, len(h.campaigns)-1).Draw(rt, "which")
	c := *h.campaigns[i]
	c.Revision += rapid.Int64Range(-1, 2).Draw(rt, "revision")
	c.Rate = limitstest.DrawRate(rt)
	if len(c.Quotas) > 0 && len(c.Quotas[0].Windows) > 0 {
		q := *c.Quotas[0]
		q.Revision += rapid.Int64Range(-1, 2).Draw(rt, "quota revision")
		q.Revision = max(0, q.Revision)
		q.Windows = append([]delivery.Window(nil), q.Windows...)
		switch last := len(q.Windows) - 1; rapid.IntRange(0, 5).Draw(rt, "change") {
		case 0: // a window more
			span := rapid.SampledFrom(spans).Draw(rt, "span")
			if !slices.ContainsFunc(q.Windows, func(w delivery.Window) bool { return w.Span == span }) {
				q.Windows = append(q.Windows, drawWindow(rt, span))
			}
		case 1: // another span
			span := q.Windows[last].Span + rapid.SampledFrom([]time.Duration{-time.Microsecond, time.Microsecond, time.Second}).Draw(rt, "longer")
			if span >= time.Millisecond && !slices.ContainsFunc(q.Windows, func(w delivery.Window) bool { return w.Span == span }) {
				q.Windows[last] = drawWindow(rt, span)
			}
		case 2: // one less
			q.Windows = q.Windows[:max(1, last)]
		default:
			q.Windows[0] = drawWindow(rt, q.Windows[0].Span)
		}
		drawModes(rt, &q)
		c.Quotas = append([]*delivery.Quota{&q}, c.Quotas[1:]...)
	}
	c.Revision = max(0, c.Revision)
	h.campaigns[i] = &c
}

func (h *history) refund(rt *rapid.T, l, m store) {
	if len(h.grants) == 0 {
		return
	}
	i := rapid.IntRange(0, len(h.grants)-1).Draw(rt, "grant")
	r := h.grants[i]
	back := rapid.Int64Range(1, r.Units).Draw(rt, "back")
	r.First, r.Units = r.First.Advance(r.Units-back, r.Rate), back
	l.Refund(h.now, []delivery.Grant{r})
	m.Refund(h.now, []delivery.Grant{r})
	h.grants = append(h.grants[:i], h.grants[i+1:]...)
}

func same(rt *rapid.T, what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		rt.Fatalf("%s:\nscript %+v\nmodel  %+v", what, got, want)
	}
}
