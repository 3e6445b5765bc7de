package progress

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

func campaign(id string, rate, weight int64, quotas ...*delivery.Quota) *delivery.Campaign {
	return &delivery.Campaign{
		ID: id, Status: delivery.StatusActive, Rate: delivery.PerSecond(rate), PriorityWeight: weight, Quotas: quotas,
	}
}

func waiting(jobs float64, campaigns ...*delivery.Campaign) map[*delivery.Campaign]Todo {
	list := map[*delivery.Campaign]Todo{}
	for _, c := range campaigns {
		list[c] = Todo{Jobs: jobs, Weight: 1}
	}
	return list
}

// TestForecast: by the rate, by what remains of a quota and then by its spans, and by the use of others.
func TestForecast(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	minute := &delivery.Quota{ID: "minute", Windows: []delivery.Window{{Span: time.Minute, Limit: 600}, {Span: time.Hour, Limit: 1e6}}}
	even := &delivery.Quota{ID: "even", Spend: delivery.SpendEven, Windows: minute.Windows}
	shadow := &delivery.Quota{ID: "shadow", Mode: delivery.ModeShadow, Windows: minute.Windows}
	exempt := &delivery.Quota{ID: "exempt", Exempt: 100, Windows: minute.Windows}
	none := &delivery.Quota{ID: "none", Windows: []delivery.Window{{Span: time.Minute, Limit: 0}}}
	left := []delivery.WindowState{{Quota: "minute", Window: 0, Remaining: 300, ResetAt: now.Add(time.Minute).UnixMicro()}, {Quota: "minute", Window: 1, Remaining: 1e6}}
	paused := campaign("paused", 100, 9, minute)
	paused.Status = delivery.StatusPaused
	for name, tc := range map[string]struct {
		campaign *delivery.Campaign
		others   []*delivery.Campaign
		windows  []delivery.WindowState
		want     float64 // seconds for 6000 units, -1 for never
	}{
		"no quota":            {campaign("c", 100, 1), nil, nil, 60},
		"nothing is left":     {campaign("c", 100, 1, minute), nil, nil, 600},
		"300 are left":        {campaign("c", 100, 1, minute), nil, left, 600}, // 300 at once, and 300 in each of the spans as they return
		"even":                {campaign("c", 100, 1, even), nil, nil, 600},
		"shadow":              {campaign("c", 100, 1, shadow), nil, nil, 60},
		"exempt":              {campaign("c", 100, 1, exempt), nil, nil, 60},
		"a limit of 0":        {campaign("c", 100, 1, none), nil, nil, -1},
		"does not bind":       {campaign("c", 5, 1, minute), nil, left, 1200},
		"shared":              {campaign("c", 100, 1, minute), []*delivery.Campaign{campaign("d", 100, 1, minute)}, nil, 1200},
		"by weight":           {campaign("c", 100, 3, minute), []*delivery.Campaign{campaign("d", 100, 1, minute)}, nil, 800},
		"with a modest one":   {campaign("c", 100, 1, minute), []*delivery.Campaign{campaign("d", 2, 1, minute)}, nil, 750},
		"with one that waits": {campaign("c", 100, 1, minute), []*delivery.Campaign{paused}, nil, 600},
		"paused itself":       {paused, nil, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForecast(now, waiting(6000, append(tc.others, tc.campaign)...), tc.windows)
			got := -1.0
			if at, ok := f.done(tc.campaign, Todo{Jobs: 6000, Weight: 1}); ok {
				got = at.Sub(now).Seconds()
			}
			if math.Abs(got-tc.want) > 1 {
				t.Errorf("in %f s, want %f", got, tc.want)
			}
		})
	}
	if f := newForecast(now, waiting(1, paused), left); f.rates[paused] != 0 {
		t.Error("a paused campaign has a rate")
	}
	c := campaign("c", 400, 1, minute)
	if !newForecast(now, waiting(1, c), left).waits(c) || !newForecast(now, waiting(1, c), nil).waits(c) {
		t.Error("a quota with less than a second's worth, or one that was not seen, does not hold the campaign")
	}
	c = campaign("c", 300, 1, minute)
	if newForecast(now, waiting(1, c), left).waits(c) {
		t.Error("a quota with a second's worth holds the campaign")
	}
}

// TestForecastsComeTrue: in random situations, the forecast is close to the time of a simulation job by job. They differ by at most a
// fifth of the time, the longest span that the campaign waits for, or five seconds. docs/quotas.md lists exceptions.
func TestForecastsComeTrue(t *testing.T) {
	testservices.Simulation(t)
	const situations = 1000
	wrong := 0
	for seed := range situations {
		s := rapid.Custom(drawSituation).Example(seed)
		in, took, span := s.play()
		if off := math.Abs(in - took); off > max(took/5, span.Seconds(), 5) && (in < longest || took < longest) {
			wrong++
			t.Logf("seed %d: %d jobs in %.1f s, forecast %.1f s; waited for %s", seed, s.jobs, took, in, span)
		}
	}
	if wrong > situations/100 {
		t.Errorf("%d of %d forecasts are wrong", wrong, situations)
	}
}

// situation is campaigns that are about to send jobs of one weight through windows.
type situation struct {
	begin, weight float64
	senders       []*referenceSender
	jobs          int64 // of the first campaign
}

// play returns the forecast for the first campaign, how long it takes, and the longest span that it waits for.
func (s *situation) play() (in, took float64, span time.Duration) {
	waiting := map[*delivery.Campaign]Todo{}
	for _, one := range s.senders {
		waiting[one.campaign] = Todo{Jobs: float64(one.jobs), Weight: s.weight}
	}
	first := s.senders[0]
	var seen []delivery.WindowState
	for _, w := range first.windows {
		seen = append(seen, w.state(s.begin))
	}
	in = longest
	if at, ok := newForecast(unix(s.begin), waiting, seen).done(first.campaign, waiting[first.campaign]); ok {
		in = at.Sub(unix(s.begin)).Seconds()
	}
	took = reference(s.senders, s.weight, math.Inf(1)) - s.begin
	return in, took, first.longest
}

func drawSituation(rt *rapid.T) *situation {
	s := &situation{weight: float64(rapid.SampledFrom([]int{1, 1, 1, 2, 5}).Draw(rt, "weight"))}
	s.begin = float64(1_790_000_000 + rapid.Int64Range(0, 7*86_400).Draw(rt, "begin"))
	others := rapid.IntRange(0, 2).Draw(rt, "others")
	c, windows := drawCampaign(rt, int64(5+95*min(1, others))) // of a share of few jobs it matters how they are rounded
	first := &referenceSender{campaign: c, windows: windows, slot: s.begin}
	for range rapid.IntRange(0, 2).Draw(rt, "used before") {
		first.jobs = rapid.Int64Range(1, 1000).Draw(rt, "used")
		s.begin = reference([]*referenceSender{first}, s.weight, s.begin+rapid.Float64Range(1, 3600).Draw(rt, "during"))
		s.begin += rapid.SampledFrom([]float64{0.1, 20, 1000}).Draw(rt, "idle")
	}
	s.drawHours(rt, c, windows, others)
	s.jobs = rapid.Int64Range(1, 5000).Draw(rt, "jobs")
	first.jobs, first.longest, first.slot = s.jobs, 0, s.begin
	s.senders = []*referenceSender{first}
	for range others {
		other, copied := *first, *c
		copied.Rate, copied.PriorityWeight = delivery.PerSecond(rapid.Int64Range(1, 100).Draw(rt, "rate")), rapid.Int64Range(1, 4).Draw(rt, "priority weight")
		other.campaign, other.jobs = &copied, rapid.Int64Range(1, 5000).Draw(rt, "jobs of another")
		s.senders = append(s.senders, &other)
	}
	return s
}

// drawHours gives some campaigns active hours. Those that share a quota are active when they begin.
func (s *situation) drawHours(rt *rapid.T, c *delivery.Campaign, windows []*referenceWindow, others int) {
	if rapid.IntRange(0, 3).Draw(rt, "hours") > 0 || slices.ContainsFunc(windows, func(w *referenceWindow) bool {
		return w.even && s.weight/sustained(w.Window) > 3600
	}) {
		return
	}
	from := rapid.IntRange(0, 1300).Draw(rt, "from")
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: from, To: rapid.IntRange(from+120, 1439).Draw(rt, "to")}}, time.UTC)
	if err != nil {
		rt.Fatal(err)
	}
	if c.Hours = hours; others > 0 && !hours.Active(unix(s.begin)) {
		s.begin = float64(hours.NextChange(unix(s.begin)).Unix())
	}
}

// drawCampaign draws a campaign with up to four windows of up to two quotas.
func drawCampaign(rt *rapid.T, least int64) (c *delivery.Campaign, windows []*referenceWindow) {
	c = campaign("c", rapid.Int64Range(1, 100).Draw(rt, "rate"), 1)
	anchors := map[int]string{60: "minute", 3600: "hour", 86_400: "day"}
	for i := range rapid.IntRange(1, 2).Draw(rt, "quotas") {
		q := &delivery.Quota{ID: fmt.Sprint("q", i), Revision: 1, Spend: rapid.SampledFrom([]string{delivery.SpendGreedy, delivery.SpendGreedy, delivery.SpendEven}).Draw(rt, "spend")}
		c.Quotas = append(c.Quotas, q)
		for _, span := range rapid.SliceOfNDistinct(rapid.SampledFrom([]int{1, 5, 10, 30, 60, 600, 3600, 86_400}), 1, 2, rapid.ID).Draw(rt, "spans") {
			w := delivery.Window{Span: time.Duration(span) * time.Second, Limit: rapid.Int64Range(least, 2000).Draw(rt, "limit")}
			w.Algorithm = rapid.SampledFrom([]string{delivery.AlgorithmSliding, delivery.AlgorithmSliding, delivery.AlgorithmFixed, delivery.AlgorithmLog}).Draw(rt, "algorithm")
			if anchor := anchors[span]; anchor != "" && w.Algorithm == delivery.AlgorithmFixed && rapid.Bool().Draw(rt, "calendar") {
				w.Anchor = anchor + "@Asia/Kathmandu" // an offset that is no whole hour
			}
			windows = append(windows, &referenceWindow{Window: w, share: float64(w.Limit), quota: q.ID, index: len(q.Windows), even: q.Spend == delivery.SpendEven})
			q.Windows = append(q.Windows, w)
		}
	}
	return c, windows
}
