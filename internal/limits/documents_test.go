package limits

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// TestTheExamplesOfQuotasAreTrue plays the examples of docs/quotas.md, and more of them in testdata. An example is a fenced block named quota.
// Its lines are what happens, one after the other; the result stands behind a colon:
//
//	day 2027-03-14 America/Havana
//	quota ID WINDOWS [spend even] [mode shadow] [rollout N]
//	campaign ID... under QUOTA... [weight N] [jobs of N]
//	TIME CAMPAIGN wants N: N [next TIME] [N would wait]
//	TIME CAMPAIGN returns N
//	TIME QUOTA has left: N...
//	TIME QUOTA adjusts SPAN to N [lower]: N N
//	TIME to TIME CAMPAIGN... want all: N...
//
// A quota that is there already is changed. The campaign returns the last of its latest units. Counts are adjusted in
// Redis only: the model leaves out what follows. Times are rounded up to a tenth of a second. Of campaigns that want all they can get, the
// numbers are what they are sent in that time, within a hundredth.
func TestTheExamplesOfQuotasAreTrue(t *testing.T) {
	var examples []string
	for _, page := range []string{"../../docs/quotas.md", "testdata/quotas.md"} {
		text, err := os.ReadFile(page)
		must(t, err)
		examples = append(examples, strings.Split(string(text), "\n```quota\n")[1:]...)
	}
	if len(examples) < 25 {
		t.Fatalf("%d examples", len(examples))
	}
	for i, example := range examples {
		example, _, _ = strings.Cut(example, "\n```")
		t.Run(fmt.Sprint(i+1), func(t *testing.T) {
			simulate(t, func(t *testing.T, s store) {
				p := &played{
					t: t, store: s, quotas: map[string]*delivery.Quota{}, campaigns: map[string]*delivery.Campaign{}, weights: map[string]int64{},
					last: map[string]delivery.Grant{},
				}
				p.day(t, "2026-12-01", "UTC")
				for line := range strings.Lines(example) {
					if _, scripts := s.(*lua); strings.Contains(line, " adjusts ") && !scripts {
						break
					}
					if got := p.line(strings.Fields(line)); got != "" {
						t.Errorf("%s: %s", strings.TrimSpace(line), got)
					}
				}
			})
		})
	}
}

// played is an example while it is played.
type played struct {
	t         *testing.T
	store     store
	date      time.Time // midnight in UTC
	zone      *time.Location
	quotas    map[string]*delivery.Quota
	campaigns map[string]*delivery.Campaign
	weights   map[string]int64          // of the campaigns' jobs
	last      map[string]delivery.Grant // to each campaign
}

func (p *played) day(t *testing.T, date, zone string) {
	t.Helper()
	var err error
	p.zone, err = time.LoadLocation(zone)
	must(t, err)
	p.date, err = time.Parse(time.DateOnly, date)
	must(t, err)
}

// line plays a line and returns what came of it, if that is not what it says.
func (p *played) line(words []string) string {
	switch {
	case len(words) == 0:
	case words[0] == "day":
		p.day(p.t, words[1], words[2])
	case words[0] == "quota":
		p.quota(words[1], words[2], words[3:])
	case words[0] == "campaign":
		p.campaign(words[1:])
	case words[1] == "to":
		return p.compete(p.at(words[0]), p.at(words[2]), words[3:])
	case words[2] == "wants":
		return p.take(p.at(words[0]), words[1], words[3:])
	case words[2] == "returns":
		g, units := p.last[words[1]], p.number(words[3])
		g.First, g.Units = g.First.Advance(g.Units-units, g.Rate), units
		p.store.Refund(p.at(words[0]), []delivery.Grant{g})
	case words[2] == "has":
		var left []string
		for _, w := range p.store.Peek(p.at(words[0]), []*delivery.Quota{p.quotas[words[1]]}) {
			left = append(left, fmt.Sprint(w.Remaining))
		}
		if !slices.Equal(left, words[4:]) {
			return strings.Join(left, " ")
		}
	case words[2] == "adjusts":
		return p.adjust(p.at(words[0]), p.quotas[words[1]], words[3:])
	default:
		p.t.Fatalf("what is %q?", words)
	}
	return ""
}

func (p *played) number(word string) int64 {
	n, err := strconv.ParseInt(strings.TrimSuffix(word, ":"), 10, 64)
	must(p.t, err)
	return n
}

// at is a time of the day, as the zone's clocks show it.
func (p *played) at(word string) int64 {
	c, err := time.Parse("15:04:05", word)
	must(p.t, err)
	y, m, d := p.date.Date()
	return time.Date(y, m, d, c.Hour(), c.Minute(), c.Second(), c.Nanosecond(), p.zone).UnixMicro()
}

// shown is a time as examples write it.
func (p *played) shown(at int64) string {
	const tenth = second / 10
	t := time.UnixMicro((at + tenth - 1) / tenth * tenth).In(p.zone)
	return strings.TrimSuffix(t.Format("15:04:05.0"), ".0")
}

func (p *played) quota(id, text string, more []string) {
	q := &delivery.Quota{ID: id, Revision: 1}
	if old := p.quotas[id]; old != nil {
		q.Revision = old.Revision + 1
	}
	var err error
	q.Windows, err = notation.ParseWindows(text)
	must(p.t, err)
	for i := 0; i < len(more); i += 2 {
		switch more[i] {
		case "spend":
			q.Spend = more[i+1]
		case "mode":
			q.Mode = more[i+1]
		case "rollout":
			q.Exempt = 100 - p.number(more[i+1])
		}
	}
	p.quotas[id] = q
	for name, c := range p.campaigns {
		next := *c
		next.Quotas = slices.Clone(c.Quotas)
		for i := range next.Quotas {
			if next.Quotas[i].ID == id {
				next.Quotas[i] = q
			}
		}
		p.campaigns[name] = &next
	}
}

func (p *played) campaign(words []string) {
	under := slices.Index(words, "under")
	for _, id := range words[:under] {
		c := &delivery.Campaign{ID: id, Revision: 1, Rate: delivery.PerSecond(1_000_000), PriorityWeight: 1}
		for i := under + 1; i < len(words); i++ {
			switch words[i] {
			case "weight":
				c.PriorityWeight = p.number(words[i+1])
				i++
			case "jobs":
				p.weights[id] = p.number(words[i+2])
				i += 2
			default:
				c.Quotas = append(c.Quotas, p.quotas[words[i]])
			}
		}
		p.campaigns[id] = c
	}
}

// ask returns an ask for these units of a campaign.
func (p *played) ask(id string, units int64) delivery.Ask {
	a := ask(p.campaigns[id], units)
	if w := p.weights[id]; w > 1 {
		a.Weights = slices.Repeat([]int64{w}, int(units/w))
	}
	return a
}

func (p *played) take(now int64, id string, words []string) string {
	g := take1(p.store, now, "a", p.ask(id, p.number(words[0])))
	if g.Units > 0 {
		p.last[id] = g.Grant()
	}
	got := []string{fmt.Sprint(g.Units)}
	if slices.Contains(words, "next") && g.NextAt > 0 {
		got = append(got, "next", p.shown(g.NextAt))
	}
	for _, s := range g.Shadowed {
		got = append(got, fmt.Sprint(s.Units), "would", "wait")
	}
	if slices.Equal(got, words[1:]) {
		return ""
	}
	return strings.Join(got, " ")
}

func (p *played) adjust(now int64, q *delivery.Quota, words []string) string {
	span, err := notation.ParseSpan(words[0])
	must(p.t, err)
	l := p.store.(*lua)
	l.now = now
	done, err := l.engine("person").Adjust(p.t.Context(), Adjustment{
		Quota: q, Used: p.number(words[2]), Lower: words[3] == "lower:",
		Window: slices.IndexFunc(q.Windows, func(w delivery.Window) bool { return w.Span == span }),
	})
	must(p.t, err)
	got := []string{fmt.Sprint(done.Before), fmt.Sprint(done.Used)}
	if slices.Equal(got, words[len(words)-2:]) {
		return ""
	}
	return strings.Join(got, " ")
}

func (p *played) compete(now, until int64, words []string) string {
	want := slices.Index(words, "want")
	ids, sent := words[:want], make([]int64, want)
	due := make([]int64, want)
	for ; now < until; now += quantum {
		for i, id := range ids {
			if due[i] > now {
				continue
			}
			g := take1(p.store, now, "a", p.ask(id, max(60, 2*p.weights[id])))
			sent[i] += g.Units
			due[i] = min(max(now+quantum, g.NextAt), now+12*second)
		}
	}
	for i, n := range sent {
		if said := p.number(words[want+2+i]); n*100 < said*99 || n*100 > said*101 {
			return fmt.Sprint(sent)
		}
	}
	return ""
}
