package demo

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/embedded"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func TestAllowances(t *testing.T) {
	rate := func(n int64) []count.RateChange { return []count.RateChange{{At: 0, Rate: delivery.PerSecond(n)}} }
	quota := &delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: 2 * sec, Limit: 60}, {Span: 10 * sec, Limit: 200}}}
	for _, c := range []struct {
		name    string
		demands map[string]demand
		want    map[string]float64
	}{
		{"rate alone", map[string]demand{"a": {Rates: rate(10)}}, map[string]float64{"a": 100}},
		{"raised half-way", map[string]demand{"a": {Rates: []count.RateChange{
			{At: 0, Rate: delivery.PerSecond(150)}, {At: 5 * sec, Rate: delivery.PerSecond(300)}}}}, map[string]float64{"a": 2250}},
		{"paused, and its gate closed, in part at the same time", map[string]demand{"a": {Rates: rate(10),
			Paused: []count.Interval{{From: 2 * sec, To: 4 * sec}}, Closed: []count.Interval{{From: 3 * sec, To: 5 * sec}}}},
			map[string]float64{"a": 70}},
		{"the tightest window of a quota", map[string]demand{"a": {Rates: rate(100), Quotas: []string{"q"}}},
			map[string]float64{"a": 200}},
		{"a quota shared", map[string]demand{
			"a": {Rates: rate(100), Quotas: []string{"q"}},
			"b": {Rates: rate(100), Quotas: []string{"q"}},
		}, map[string]float64{"a": 100, "b": 100}},
		{"a paused one leaves everything", map[string]demand{
			"a": {Rates: rate(100), Quotas: []string{"q"}, Paused: []count.Interval{{From: 0, To: 5 * sec}}},
			"b": {Rates: rate(100), Quotas: []string{"q"}},
		}, map[string]float64{"a": 50, "b": 150}},
	} {
		got := allowances(c.demands, map[string]*delivery.Quota{"q": quota}, count.Interval{From: 0, To: 10 * sec})
		for id, want := range c.want {
			if math.Abs(got[id].Units-want) > 1e-6 {
				t.Errorf("%s: %s may send %g, want %g", c.name, id, got[id].Units, want)
			}
		}
	}
}

// goodRun is one campaign of 10/s for ten seconds that sent everything it could.
func goodRun() *observations {
	c := campaignObservations{ID: "spring", demand: demand{
		Rates: []count.RateChange{{At: 0, Rate: delivery.PerSecond(10)}},
	}}
	c.Records.Waiting = make(map[string]bool)
	for i := range 105 {
		id := fmt.Sprintf("spring-%d", i)
		c.Published = append(c.Published, id)
		if i >= 100 {
			c.Records.Waiting[id] = true
			continue
		}
		c.Journal.Jobs = append(c.Journal.Jobs, id)
		c.Journal.Arrivals = append(c.Journal.Arrivals, count.Arrival{
			At: time.Duration(i) * 100 * ms, Job: int32(i), Status: 200,
		})
	}
	return &observations{
		Span: count.Interval{From: 0, To: 10 * sec}, Campaigns: []campaignObservations{c},
		Redis: embedded.Usage{RoundTrips: 40, Commands: 50},
	}
}

func TestReportOfAGoodRun(t *testing.T) {
	r := buildReport(goodRun())
	want := CampaignReport{
		ID: "spring", SendRate: 10, Published: 105, Delivered: 100, Queued: 5, AchievedRate: 10, RateRatio: 1,
		MaxRolling1s: 10,
	}
	if !r.OK || len(r.Problems) != 0 || len(r.Warnings) != 0 || r.DurationS != 10 || r.Campaigns[0] != want {
		t.Fatalf("%+v", r)
	}
	if r.Redis.RoundTrips != 40 || r.Redis.CommandsPerJob != 0.5 {
		t.Fatalf("redis %+v", r.Redis)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Campaigns []map[string]any `json:"campaigns"`
	}
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"id", "send_rate", "published", "delivered", "queued", "requeued", "max_hops", "retried", "dead", "expired",
		"cancelled", "duplicates", "lost", "achieved_rate", "rate_ratio", "max_rolling_1s", "slot_lateness_p99_ms",
	} {
		if _, ok := decoded.Campaigns[0][key]; !ok {
			t.Errorf("the report lacks %q", key)
		}
	}
}

// unsend leaves the campaign's first n jobs sent.
func unsend(c *campaignObservations, n int) {
	for _, id := range c.Journal.Jobs[n:] {
		c.Records.Waiting[id] = true
	}
	c.Journal.Jobs, c.Journal.Arrivals = c.Journal.Jobs[:n], c.Journal.Arrivals[:n]
}

func TestReportFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*observations, *campaignObservations)
		problem string // "" = none
	}{
		{"a job nowhere", func(_ *observations, c *campaignObservations) { delete(c.Records.Waiting, "spring-102") }, "1 jobs are lost"},
		{"a burst", func(_ *observations, c *campaignObservations) {
			for i := 50; i < 60; i++ {
				c.Journal.Arrivals[i].At = 5 * sec
			}
		}, "more than send_rate allows"},
		{"never published", func(_ *observations, c *campaignObservations) { c.Published = c.Published[1:] }, "never published"},
		{"sent while paused", func(_ *observations, c *campaignObservations) {
			c.Paused = []count.Interval{{From: 4 * sec, To: 6 * sec}}
		}, "after it was paused"},
		{"a quota", func(e *observations, c *campaignObservations) {
			c.Quotas = []string{"q"}
			e.Quotas = map[string]*delivery.Quota{"q": {ID: "q", Windows: []delivery.Window{{Span: 2 * sec, Limit: 19}}}}
		}, "above its limit of 19"},
		{"a quota that is kept", func(e *observations, c *campaignObservations) {
			c.Quotas = []string{"q"}
			e.Quotas = map[string]*delivery.Quota{"q": {ID: "q", Windows: []delivery.Window{{Span: 2 * sec, Limit: 20}}}}
		}, ""},
		{"dead letters and expired jobs", func(_ *observations, c *campaignObservations) {
			c.Records.Dead = map[string]bool{"spring-103": true}
			c.Records.Expired = map[string]bool{"spring-104": true}
			delete(c.Records.Waiting, "spring-103")
			delete(c.Records.Waiting, "spring-104")
		}, ""},
	} {
		e := goodRun()
		c.change(e, &e.Campaigns[0])
		r := buildReport(e)
		if got := strings.Join(r.Problems, "; "); r.OK != (c.problem == "") || !strings.Contains(got, c.problem) {
			t.Errorf("%s: ok %v, problems %q, want %q", c.name, r.OK, got, c.problem)
		}
		g := r.Campaigns[0]
		if sum := g.Delivered + g.Queued + g.Dead + g.Expired + g.Cancelled + g.Lost; sum != g.Published {
			t.Errorf("%s: the parts make %d of %d", c.name, sum, g.Published)
		}
	}
}

func TestReportCountsRetriesAndDuplicates(t *testing.T) {
	e := goodRun()
	j := &e.Campaigns[0].Journal
	j.Arrivals[10].Status = 500
	j.Arrivals[20].Job = 10 // sent again, so job 20 still waits
	j.Arrivals[30].Job = 29 // accepted twice, and job 30 still waits
	waiting := e.Campaigns[0].Records.Waiting
	waiting["spring-20"], waiting["spring-30"], waiting["spring-40"] = true, true, true
	r := buildReport(e)
	c := r.Campaigns[0]
	if c.Retried != 1 || c.Duplicates != 1 || c.Delivered != 98 || c.Queued != 7 || c.Lost != 0 || c.RateRatio != 0.98 {
		t.Fatalf("%+v", c)
	}
	if len(r.Warnings) != 2 || !r.OK { // one accepted twice; job 40 delivered and still open
		t.Fatalf("warnings %q, problems %q", r.Warnings, r.Problems)
	}
}

func TestASlowCampaignIsAWarning(t *testing.T) {
	e := goodRun()
	unsend(&e.Campaigns[0], 95)
	if r := buildReport(e); !r.OK || len(r.Warnings) != 1 || !strings.Contains(r.Warnings[0], "used 95.0 %") {
		t.Fatalf("warnings %q, problems %q", r.Warnings, r.Problems)
	}
}

// More than is allowed on average is explained, where it is shown.
func TestMoreThanTheAverageIsExplained(t *testing.T) {
	for ratio, want := range map[float64]bool{1.0684: true, 1.0005: true, 1.0004: false, 0.991: false} {
		text := (&Report{OK: true, Campaigns: []CampaignReport{{ID: "a", RateRatio: ratio}}}).Text()
		if got := strings.Contains(text, "above 100 % of allowed: "); got != want {
			t.Errorf("%v: explained %v\n%s", ratio, got, text)
		}
	}
}
