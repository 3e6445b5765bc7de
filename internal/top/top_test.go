package top

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const text = `# HELP go_goroutines not ours
# TYPE go_goroutines gauge
go_goroutines 7
# TYPE pacer_build_info gauge
pacer_build_info{version="v1"} 1
# TYPE pacer_campaign_send_rate gauge
pacer_campaign_send_rate{campaign="a"} 100
pacer_campaign_send_rate{campaign="b"} 2.5
# TYPE pacer_campaign_backlog gauge
pacer_campaign_backlog{campaign="b"} 40
# TYPE pacer_campaign_eta_seconds gauge
pacer_campaign_eta_seconds{campaign="a"} +Inf
pacer_campaign_eta_seconds{campaign="b"} 16
# TYPE pacer_jobs_settled_total counter
pacer_jobs_settled_total{campaign="(unknown)",outcome="dead"} 0
pacer_jobs_settled_total{campaign="a",outcome="delivered"} 1000
pacer_jobs_settled_total{campaign="a",outcome="dead"} 3
pacer_jobs_settled_total{campaign="b",outcome="delivered"} 50
# TYPE pacer_quota_remaining gauge
pacer_quota_remaining{quota="q",window="1m"} 25
pacer_quota_remaining{quota="q",window="1h"} 5000
pacer_quota_remaining{quota="empty",window="1m"} 0
# TYPE pacer_quota_limit gauge
pacer_quota_limit{quota="q",window="1m"} 100
pacer_quota_limit{quota="q",window="1h"} 6000
pacer_quota_limit{quota="empty",window="1m"} 10
# TYPE pacer_quota_denied_total counter
pacer_quota_denied_total{quota="q",window="1m"} 7
# TYPE pacer_jobs_in_flight gauge
pacer_jobs_in_flight{sink="r"} 4
# TYPE pacer_slots_forfeited_total counter
pacer_slots_forfeited_total 10
# TYPE pacer_slot_lateness_seconds histogram
pacer_slot_lateness_seconds_bucket{le="0.001"} 10
pacer_slot_lateness_seconds_bucket{le="0.01"} 90
pacer_slot_lateness_seconds_bucket{le="1"} 100
pacer_slot_lateness_seconds_bucket{le="+Inf"} 100
pacer_slot_lateness_seconds_sum 1
pacer_slot_lateness_seconds_count 100
`

var start = time.Unix(1_700_000_000, 0)

func sample(t *testing.T, text string, at time.Time) *Sample {
	t.Helper()
	s, err := Read(strings.NewReader(text), at)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func show(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprint(*v)
}

// Rates are those between two samples; the rest is what the later one says.
func TestShow(t *testing.T) {
	before := sample(t, text, start)
	later := strings.NewReplacer(
		`outcome="delivered"} 1000`, `outcome="delivered"} 1200`, `outcome="dead"} 3`, `outcome="dead"} 4`,
		"forfeited_total 10", "forfeited_total 11", `{quota="q",window="1m"} 7`, `{quota="q",window="1m"} 17`,
		`le="0.001"} 10`, `le="0.001"} 110`, `le="0.01"} 90`, `le="0.01"} 190`, `le="1"} 100`, `le="1"} 200`, `le="+Inf"} 100`, `le="+Inf"} 200`,
	).Replace(text)
	f := Show(before, sample(t, later, start.Add(2*time.Second)), Query{Sort: BySent, Limit: 10})
	var got []string
	for _, r := range append(f.Campaigns, f.Total) {
		got = append(got, fmt.Sprintf("%s rate %s sent %s backlog %s eta %s dead %s", r.Campaign, show(r.SendRate), show(r.Sent), show(r.Backlog), show(r.ETA), show(r.Dead)))
	}
	for _, q := range f.Quotas {
		got = append(got, fmt.Sprintf("%s %s %s of %s denied %s", q.Quota, q.Window, show(q.Remaining), show(q.Limit), show(q.Denied)))
	}
	got = append(got, fmt.Sprintf("forfeits %s lateness %s in flight %v", show(f.Daemon.Forfeited), show(f.Daemon.LatenessP99), f.Sinks))
	want := []string{
		"a rate 100 sent 100 backlog - eta - dead 0.5",
		"b rate 2.5 sent 0 backlog 40 eta 16 dead 0",
		" rate 102.5 sent 100 backlog 40 eta 16 dead 0.5",
		"empty 1m 0 of 10 denied 0", "q 1m 25 of 100 denied 5", "q 1h 5000 of 6000 denied 0",
		"forfeits 0.5 lateness 0.001 in flight [{r 4}]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Without an earlier sample, and after the daemon was started anew, there are no rates, and nothing is negative.
func TestShowWithoutAnEarlierSample(t *testing.T) {
	now := sample(t, text, start.Add(time.Second))
	restarted := sample(t, strings.ReplaceAll(text, `outcome="delivered"} 1000`, `outcome="delivered"} 99999`), start)
	for name, before := range map[string]*Sample{"none": nil, "restarted": restarted, "same instant": now} {
		f := Show(before, now, Query{Sort: BySent, Limit: 10})
		if f.Total.Sent != nil || f.Daemon.Forfeited != nil || f.Campaigns[0].Campaign != "a" || show(f.Daemon.LatenessP99) != "1" {
			t.Errorf("%s: %+v, lateness %s", name, f.Total, show(f.Daemon.LatenessP99))
		}
	}
}

func TestReadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		foreign bool
	}{
		"another program": {"# TYPE go_goroutines gauge\ngo_goroutines 7\n", true},
		"a web page":      {"<html>hello</html>", true},
		"nothing":         {"", true},
		"broken":          {"pacer_build_info{version=\"v1\" 1\n", false},
		"a long line":     {strings.Repeat("x", 2<<20), false},
	} {
		if s, err := Read(strings.NewReader(c.text), start); err == nil || errors.Is(err, ErrForeign) != c.foreign {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
	// What has another kind than expected is no reason to fail: it is not known.
	s := sample(t, "# TYPE pacer_build_info gauge\npacer_build_info{version=\"v\"} 1\npacer_campaign_send_rate{campaign=\"a\"} 1\n", start)
	if c := s.Campaigns["a"]; c == nil || c.Rate != nil {
		t.Errorf("%+v", s.Campaigns)
	}
}

// Whatever the order, the filter and the limit, what is listed is the head of all that match, and each campaign counts.
func TestRanking(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		now := &Sample{At: start.Add(time.Second), Campaigns: map[string]*Campaign{}}
		before := &Sample{At: start, Campaigns: map[string]*Campaign{}}
		for i := range rapid.IntRange(0, 40).Draw(rt, "campaigns") {
			id := fmt.Sprintf("c%02d", i)
			v := func(name string) *float64 {
				if !rapid.Bool().Draw(rt, name) {
					return nil
				}
				f := float64(rapid.IntRange(0, 5).Draw(rt, name))
				return &f
			}
			now.Campaigns[id] = &Campaign{
				Rate: v("rate"), Backlog: v("backlog"), ETA: v("eta"),
				Settled: map[string]float64{"delivered": float64(1 + rapid.IntRange(0, 5).Draw(rt, "sent"))},
			}
			before.Campaigns[id] = &Campaign{Settled: map[string]float64{"delivered": 1}}
		}
		q := Query{
			Sort: rapid.SampledFrom(Orders).Draw(rt, "sort"), Filter: rapid.SampledFrom([]string{"", "1", "c2", "x"}).Draw(rt, "filter"),
			Limit: rapid.IntRange(0, 50).Draw(rt, "limit"),
		}
		all := Show(before, now, Query{Sort: q.Sort, Filter: q.Filter, Limit: len(now.Campaigns)})
		some := Show(before, now, q)
		if len(some.Campaigns) != min(q.Limit, len(all.Campaigns)) || some.More != len(all.Campaigns)-len(some.Campaigns) {
			rt.Fatalf("%d listed and %d more of %d", len(some.Campaigns), some.More, len(all.Campaigns))
		}
		sent := 0.0
		for i, r := range all.Campaigns {
			if !strings.Contains(r.Campaign, q.Filter) || i > 0 && q.Sort.compare(all.Campaigns[i-1], r) >= 0 {
				rt.Fatalf("%s at %d", r.Campaign, i)
			}
			if i < len(some.Campaigns) && some.Campaigns[i].Campaign != r.Campaign {
				rt.Fatalf("%s instead of %s", some.Campaigns[i].Campaign, r.Campaign)
			}
			sent += *r.Sent
		}
		if len(all.Campaigns) > 0 && *some.Total.Sent != sent {
			rt.Fatalf("total %v, sum %v", *some.Total.Sent, sent)
		}
	})
}

func TestParseOrder(t *testing.T) {
	for _, o := range Orders {
		if got, err := ParseOrder(string(o)); got != o || err != nil {
			t.Errorf("%s: %s, %v", o, got, err)
		}
	}
	if _, err := ParseOrder("size"); err == nil || !strings.Contains(err.Error(), "backlog") {
		t.Error(err)
	}
}

// Ten thousand campaigns are read and ranked in a fraction of the interval.
func BenchmarkTenThousandCampaigns(b *testing.B) {
	const campaigns = 10_000
	var page strings.Builder
	page.WriteString("# TYPE pacer_build_info gauge\npacer_build_info{version=\"v\"} 1\n# TYPE pacer_campaign_send_rate gauge\n")
	for i := range campaigns {
		fmt.Fprintf(&page, "pacer_campaign_send_rate{campaign=\"campaign-%d\"} 5\n", i)
	}
	page.WriteString("# TYPE pacer_jobs_settled_total counter\n")
	for i := range campaigns {
		for _, o := range []string{"delivered", "requeued", "retried", "dead", "expired", "cancelled"} {
			fmt.Fprintf(&page, "pacer_jobs_settled_total{campaign=\"campaign-%d\",outcome=%q} %d\n", i, o, i)
		}
	}
	for b.Loop() {
		s, err := Read(strings.NewReader(page.String()), start)
		if err != nil {
			b.Fatal(err)
		}
		if f := Show(nil, s, Query{Sort: BySent, Limit: 20}); f.More != campaigns-20 {
			b.Fatal(f.More)
		}
	}
}
