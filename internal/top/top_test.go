package top

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Unix(1_700_000_000, 0)

func show[N int64 | float64](v *N) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

// Rates of dead letters are those between two frames; the rest is what the later one says.
func TestArrange(t *testing.T) {
	before := &Frame{At: start, Campaigns: []Row{{Campaign: "a", DeadTotal: 3}, {Campaign: "b", DeadTotal: 9}}}
	now := &Frame{
		At: start.Add(2 * time.Second),
		Campaigns: []Row{
			{Campaign: "b", SendRate: new(2.5), Sent: new(0.0), Backlog: new(int64(40)), ETA: new(16.0), DeadTotal: 8}, // counted anew
			{Campaign: "new", DeadTotal: 5}, {Campaign: "a", SendRate: new(100.0), Sent: new(99.0), DeadTotal: 4},
		},
		Quotas: []QuotaRow{
			{Quota: "q", Window: "1h", Remaining: new(int64(5000)), Limit: 6000}, {Quota: "q", Window: "1m", Remaining: new(int64(25)), Limit: 100}, {Quota: "unknown", Window: "1m", Limit: 10},
			{Quota: "empty", Window: "1m", Remaining: new(int64(0)), Limit: 10},
		},
		Sinks: []SinkRow{{"s", 1}, {"r", 4}},
	}
	f := now.Arrange(before, Query{Sort: BySent, Limit: 10})
	var got []string
	for _, r := range append(f.Campaigns, f.Total) {
		got = append(got, fmt.Sprintf("%s rate %s sent %s backlog %s eta %s dead %s", r.Campaign, show(r.SendRate), show(r.Sent), show(r.Backlog), show(r.ETA), show(r.Dead)))
	}
	for _, q := range f.Quotas {
		got = append(got, q.Quota+" "+q.Window)
	}
	want := []string{
		"a rate 100 sent 99 backlog - eta - dead 0.5", "b rate 2.5 sent 0 backlog 40 eta 16 dead 0", "new rate - sent - backlog - eta - dead -",
		" rate 102.5 sent 99 backlog 40 eta 16 dead 0.5", "empty 1m", "q 1m", "q 1h", "unknown 1m",
	}
	if !slices.Equal(got, want) || f.Sinks[0].Sink != "r" {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, before := range map[string]*Frame{"none": nil, "same instant": now} {
		if f := now.Arrange(before, Query{Sort: BySent, Limit: 1}); f.Total.Dead != nil || f.Campaigns[0].Campaign != "a" || f.More != 2 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if now.Campaigns[0].Campaign != "b" || now.Campaigns[0].Dead != nil {
		t.Error("the frame itself has changed")
	}
}

// Whatever the order and the limit, what is listed is the head of all, and each campaign counts.
func TestRanking(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := &Frame{At: start}
		for i := range rapid.IntRange(0, 40).Draw(rt, "campaigns") {
			v := func(name string) *float64 {
				if !rapid.Bool().Draw(rt, name) {
					return nil
				}
				return new(float64(rapid.IntRange(0, 5).Draw(rt, name)))
			}
			var backlog *int64
			if rapid.Bool().Draw(rt, "backlog") {
				backlog = new(rapid.Int64Range(0, 5).Draw(rt, "jobs"))
			}
			now.Campaigns = append(now.Campaigns, Row{
				Campaign: fmt.Sprintf("c%02d", i), SendRate: v("rate"), Backlog: backlog, ETA: v("eta"), Sent: v("sent"), Total: int64(1 + rapid.IntRange(0, 5).Draw(rt, "total")),
			})
		}
		q := Query{Sort: rapid.SampledFrom(Orders).Draw(rt, "sort"), Limit: rapid.IntRange(0, 50).Draw(rt, "limit")}
		all, some := now.Arrange(nil, Query{Sort: q.Sort, Limit: len(now.Campaigns)}), now.Arrange(nil, q)
		if len(some.Campaigns) != min(q.Limit, len(all.Campaigns)) || some.More != len(all.Campaigns)-len(some.Campaigns) {
			rt.Fatalf("%d listed and %d more of %d", len(some.Campaigns), some.More, len(all.Campaigns))
		}
		total := int64(0)
		for i, r := range all.Campaigns {
			if i > 0 && q.compare(all.Campaigns[i-1], r) >= 0 {
				rt.Fatalf("%s at %d", r.Campaign, i)
			}
			if i < len(some.Campaigns) && some.Campaigns[i].Campaign != r.Campaign {
				rt.Fatalf("%s instead of %s", some.Campaigns[i].Campaign, r.Campaign)
			}
			total += r.Total
		}
		if some.Total.Total != total {
			rt.Fatalf("total %v, sum %v", some.Total.Total, total)
		}
	})
}
