package page

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// ten is when the time of a curve is over.
var ten = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// curveOf is a curve of n steps that are over.
func curveOf(step time.Duration, steps int) *view.Curve {
	return &view.Curve{At: ten.Add(-time.Second), Since: ten.Add(-time.Duration(steps) * step), Until: ten, Step: step}
}

// TestTheCurveAddsUp: what is drawn is what was settled, to one per cent, of each colour, with bursts and gaps.
func TestTheCurveAddsUp(t *testing.T) {
	for last, step := range view.CurveSteps {
		c, want := curveOf(step, 60), map[string]float64{}
		for i := range 58 {
			for id, jobs := range map[string]int64{"steady": 3000, "bursts": int64(i%7/6) * 9000, "": 500} {
				if jobs == 0 || i > 20 && i < 25 {
					continue
				}
				c.Steps = append(c.Steps, catalog.HistoryStep{Campaign: id, Start: c.Since.Add(time.Duration(i) * step), Delivered: jobs, Failed: jobs / 10, Allowed: 20})
				want["cf"] += float64(jobs / 10)
				want[map[string]string{"steady": "c1", "bursts": "c2", "": "c0"}[id]] += float64(jobs)
			}
		}
		p, legends := drawCurve(c, "", &view.State{})
		tops := map[string]string{} // of what is drawn of each step
		for _, s := range p.Layers {
			for _, one := range oneBar.FindAllStringSubmatch(s.Path, -1) {
				if under := cmp.Or(tops[one[1]], "202.00"); one[2] != under {
					t.Errorf("%s: %s begins at %s, and what is below it ends at %s", last, s.Class, one[2], under)
				}
				tops[one[1]] = one[3]
			}
			if got := p.area(c, s.Path); math.Abs(got-want[s.Class]) > want[s.Class]/100 {
				t.Errorf("%s: %s is drawn as %.0f jobs, and was %.0f", last, s.Class, got, want[s.Class])
			}
		}
		if len(p.Layers) != 4 || len(legends) != 5 || legends[0].Name != "steady" || float64(legends[0].Jobs) != want["c1"] || legends[3].Class != "cf" || p.Dashes == "" {
			t.Errorf("%s: %d colours, %+v", last, len(p.Layers), legends)
		}
		if strings.Count(p.Dashes, "M") != 2 {
			t.Errorf("%s: the line of what is allowed has no gap: %s", last, p.Dashes)
		}
	}
}

var oneBar = regexp.MustCompile(`M([\d.]+) ([\d.]+)V([\d.]+)H([\d.]+)V([\d.]+)Z`)

// area returns how many jobs the bars of a path stand for.
func (p *plot) area(c *view.Curve, path string) (jobs float64) {
	for _, one := range oneBar.FindAllStringSubmatch(path, -1) {
		bottom, _ := strconv.ParseFloat(one[2], 64)
		top, _ := strconv.ParseFloat(one[3], 64)
		jobs += (bottom - top) / (plotBottom - plotTop) * p.most * c.Step.Seconds()
	}
	return jobs
}

// TestTheLastStep: one that is not over is drawn by the time that it has lasted so far.
func TestTheLastStep(t *testing.T) {
	c := curveOf(10*time.Minute, 10)
	c.At = ten.Add(-8 * time.Minute)
	c.Steps = []catalog.HistoryStep{{Campaign: "a", Start: ten.Add(-10 * time.Minute), Delivered: 240}}
	p, _ := drawCurve(c, "a", &view.State{})
	if perSecond := p.area(c, p.Layers[0].Path) / 600; math.Abs(perSecond-2) > 0.1 {
		t.Errorf("240 jobs in two minutes are drawn as %g a second", perSecond)
	}
}

// TestWhatThePointerShows: of each step the time and what each campaign sent, without those that sent nothing if others did, and with long ids cut.
func TestWhatThePointerShows(t *testing.T) {
	c := curveOf(time.Hour, 4)
	c.Steps = []catalog.HistoryStep{
		{Campaign: "hooks", Start: c.Since, Delivered: 7200, Failed: 360, Allowed: 5},
		{Campaign: strings.Repeat("я", 256), Start: c.Since.Add(time.Hour), Delivered: 1800, Allowed: 20},
	}
	p, _ := drawCurve(c, "", &view.State{})
	var got []string
	for _, one := range p.Columns {
		got = append(got, strings.ReplaceAll(one.Text, "\n", "|"))
	}
	want := []string{
		"2026-03-02T06:00Z|hooks 2/s|dead or rejected 0.1/s|allowed 5/s",
		"2026-03-02T07:00Z|" + strings.Repeat("я", 19) + "… 0.5/s|allowed 20/s",
		"2026-03-02T08:00Z|0/s", "2026-03-02T09:00Z|0/s",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	begin := p.Columns[0].X
	for _, one := range p.Columns {
		if one.X != begin {
			t.Errorf("a column begins at %g instead of %g", one.X, begin)
		}
		begin = one.X + one.Width
	}
	ahead := scheduleAhead([]view.Phase{{Start: c.Since, End: ten, Allowed: 2}, {Start: ten, End: ten.Add(time.Hour)}}, false, "Europe/Moscow").Plot
	if len(ahead.Columns) != 2 || ahead.Columns[0].Text != "Mon 2 Mar 09:00 MSK\n2/s" || ahead.Columns[1].Text != "Mon 2 Mar 13:00 MSK\n0/s" || !ahead.Zoned {
		t.Errorf("%+v", ahead.Columns)
	}
	left := int64(30)
	plots, _ := burnDown([]catalog.Usage{{Start: c.Since, End: ten, Units: 1, Remaining: []catalog.Left{{Span: "1d", Limit: 40, Units: &left}}}}, time.Hour)
	if len(plots) != 1 || len(plots[0].Columns) != 1 || plots[0].Columns[0].Text != "2026-03-02T06:00Z\n30 left" {
		t.Errorf("%+v", plots)
	}
}

// TestBarOfACampaign: its parts fill the bar without gaps, and small ones are seen.
func TestBarOfACampaign(t *testing.T) {
	c := &view.Campaign{ID: "a", ExpectedTotal: 2_000_000, Progress: &catalog.CampaignProgress{Outcomes: catalog.Outcomes{Delivered: 1_000_000, Dead: 1, Expired: 2}}}
	b := barOf(c)
	x := 0.0
	for _, p := range b.Parts {
		if math.Abs(p.X-x) > 0.2 || p.Width < leastWidth {
			t.Errorf("%s begins at %g instead of %g, and is %g wide", p.Name, p.X, x, p.Width)
		}
		x = p.X + p.Width
	}
	if math.Abs(x-barWidth) > 0.5 || len(b.Parts) != 4 || b.Parts[3].Jobs != 999_997 || b.Parts[1].Link != "dead?campaign=a&last=1h" {
		t.Errorf("it ends at %g: %+v", x, b.Parts)
	}
	if b := barOf(&view.Campaign{ID: "a"}); b != nil {
		t.Errorf("of no jobs: %+v", b)
	}
}

// TestSentences: a change is said as people say it, and its button takes it back where that is possible.
func TestSentences(t *testing.T) {
	state := &view.State{Campaigns: []*view.Campaign{{ID: "hooks", Rate: "50/1m", Status: "paused", Revision: 9}}}
	rate := func(who, before, after string) catalog.Change {
		fields := []catalog.Field{{Name: "send_rate", Old: before, New: after}}
		return catalog.Change{What: "campaigns update", Campaign: "hooks", Who: who, Fields: fields, OldRate: before, NewRate: after}
	}
	for _, tt := range []struct {
		change     catalog.Change
		want, undo string
	}{
		{rate("olga@10.0.0.7", "20/1m", "50/1m"), "olga raised hooks 20/m 50/m", "rate id=hooks revision=9 rate=20/1m reason=undo"},
		{rate("ops", "80/15m", "20/15m"), "ops lowered hooks 80/15m 20/15m", ""},
		{rate("ops", "1", "50/1m"), "ops lowered hooks 1/s 50/m", "rate id=hooks revision=9 rate=1 reason=undo"},
		{rate("ops", "20", "50"), "ops raised hooks 20/s 50/s", ""}, // it is of a minute only since
		{catalog.Change{What: "campaigns update", Campaign: "hooks", Who: "ops", Fields: []catalog.Field{{Name: "status", Old: "active", New: "paused"}}}, "ops paused hooks", "resume id=hooks reason=undo"},
		{catalog.Change{What: "campaigns update", Campaign: "hooks", Who: "ops", Fields: []catalog.Field{{Name: "status", Old: "paused", New: "active"}}}, "ops resumed hooks", ""},
		{catalog.Change{What: "campaigns update", Campaign: "hooks", Who: "ops", Fields: []catalog.Field{{Name: "sink", Old: "a", New: "b"}}}, "ops changed hooks sink a b", ""},
		{catalog.Change{What: "campaigns insert", Campaign: "hooks", Who: "ops", NewRate: "20"}, "ops created hooks", ""},
		{catalog.Change{What: "destinations update", Destination: "cora", Who: "ops", Fields: []catalog.Field{{Name: "disabled_at", New: "2026-03-02T10:00:00Z"}}}, "ops disabled cora", ""},
		{catalog.Change{What: "destinations update", Destination: "cora", Who: "ops", Fields: []catalog.Field{{Name: "disabled_at", Old: "2026-03-02T10:00:00Z"}}}, "ops enabled cora", ""},
		{catalog.Change{What: "campaign_quotas insert", Campaign: "hooks", Quota: "q", Who: "ops"}, "ops linked hooks q", ""},
	} {
		s := sentenceOf(tt.change, state, auth.Operator)
		words := []string{s.By, s.Verb, s.Campaign, s.Quota, s.Destination}
		for _, f := range s.Said {
			words = append(words, f.Name, f.Old, f.New)
		}
		if got := strings.Join(strings.Fields(strings.Join(words, " ")), " "); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
		undo := ""
		if s.Undo != nil {
			undo = s.Undo.Action
			for _, f := range s.Undo.Fields {
				undo += " " + f.Name + "=" + f.Value
			}
		}
		if undo != tt.undo {
			t.Errorf("%s: undone by %q, want %q", tt.want, undo, tt.undo)
		}
		if s := sentenceOf(tt.change, state, auth.Viewer); s.Undo != nil {
			t.Errorf("%s: a viewer may undo it", tt.want)
		}
	}
}

// TestDaysOfASchedule begin at midnight of its time zone.
func TestDaysOfASchedule(t *testing.T) {
	for zone, want := range map[string]string{"UTC": "2026-03-03T00:00:00Z", "Europe/Moscow": "2026-03-02T21:00:00Z", "America/New_York": "2026-03-03T05:00:00Z"} {
		phases := []view.Phase{{Start: ten, End: ten.Add(time.Hour), Allowed: 2}, {Start: ten.Add(time.Hour), End: ten.Add(7 * 24 * time.Hour)}}
		first := scheduleAhead(phases, false, zone).Plot.Times[0]
		if first.At != want || first.Label != "3 Mar" || !first.Day {
			t.Errorf("%s: %+v", zone, first)
		}
	}
}

// TestCampaignsThatHaveJustBegun are apart as long as there is room.
func TestCampaignsThatHaveJustBegun(t *testing.T) {
	for _, tt := range []struct {
		ids    int
		others bool
		paces  int
		want   int
		rest   bool
	}{{0, false, 3, 3, false}, {7, false, 1, 8, false}, {7, false, 2, 8, true}, {2, true, 1, 2, true}} {
		var ids []string
		for i := range tt.ids {
			ids = append(ids, "sent-"+strconv.Itoa(i))
		}
		paces := map[string]view.Pace{}
		for i := range tt.paces {
			paces["new-"+strconv.Itoa(i)] = view.Pace{Sent: 1}
		}
		if got, rest := withPaces(ids, tt.others, paces); len(got) != tt.want || rest != tt.rest {
			t.Errorf("%+v: %v, %t", tt, got, rest)
		}
	}
}
