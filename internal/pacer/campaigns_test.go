package pacer

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// catalogOf is a snapshot of these campaigns.
func catalogOf(list ...delivery.Campaign) *delivery.Snapshot {
	s := &delivery.Snapshot{Campaigns: map[string]*delivery.Campaign{}}
	for _, c := range list {
		s.Campaigns[c.ID] = &c
	}
	return s
}

// instantAt is the instant so long after the local clock began.
func instantAt(d time.Duration) instant {
	return instant{local: d.Microseconds(), wall: time.Unix(1_800_000_000, 0).Add(d)}
}

func testCampaigns(t testing.TB, resolve func(*delivery.Campaign) *sinkState) campaigns {
	t.Helper()
	c := newCounts(prometheus.NewRegistry(), anyOf, nil)
	return newCampaigns(resolve, c)
}

// A campaign is looked up when its row or its schedule changes, and at no other time.
func TestEffectiveCampaigns(t *testing.T) {
	resolved, sink := 0, &sinkState{id: "x"}
	s := testCampaigns(t, func(*delivery.Campaign) *sinkState { resolved++; return sink })
	if s.effective("c", instantAt(0)) != nil {
		t.Error("a campaign before there is a catalog")
	}
	c := campaign("c", 10)
	c.Status, c.StartsAt = delivery.StatusActive, instantAt(time.Minute).wall
	s.use(catalogOf(c), time.Minute, instantAt(0))
	first := s.effective("c", instantAt(time.Second))
	if first == nil || first.sink != sink || s.effective("c", instantAt(2*time.Second)) != first || resolved != 1 {
		t.Fatalf("%+v, resolved %d times", first, resolved)
	}
	before := first.campaign
	if at, ok := s.nextChange(instantAt(50 * time.Second)); !ok || at != (10*time.Second+50*time.Second).Microseconds()+1 {
		t.Errorf("next change at %d, %t", at, ok)
	}
	if e := s.change(instantAt(time.Minute - 1).wall); e != nil {
		t.Error("the schedule acts before its time")
	}
	if e := s.change(instantAt(time.Minute).wall); e != first || e.campaign.ID != "c" || resolved != 2 {
		t.Errorf("%+v, resolved %d times", e, resolved)
	}
	if standingOf(before, sink, instantAt(0).wall) != held || standingOf(first.campaign, sink, instantAt(time.Minute).wall) != sending {
		t.Error("it does not send from its start on")
	}
	if e := s.change(instantAt(time.Hour).wall); e != nil {
		t.Error("a schedule that has acted acts again")
	}
	if _, ok := s.nextChange(instantAt(time.Hour)); ok {
		t.Error("a change is still to come")
	}
}

// The counts of a deleted campaign are kept for a while, and for good if it comes again in time.
func TestCountsOutliveACampaign(t *testing.T) {
	s := testCampaigns(t, func(*delivery.Campaign) *sinkState { return nil })
	rows := catalogOf(campaign("goes", 1), campaign("returns", 1))
	s.use(rows, time.Minute, instantAt(0))
	for _, id := range []string{"goes", "returns"} {
		s.effective(id, instantAt(0))
	}
	s.use(catalogOf(), time.Minute, instantAt(time.Second))
	if len(s.byID) != 0 || len(s.gone) != 2 || s.effective("goes", instantAt(time.Second)) != nil {
		t.Errorf("%d known, %d gone", len(s.byID), len(s.gone))
	}
	s.dropCounts(time.Minute, instantAt(countsKeptFor))
	exactly(t, len(s.counts.byID), 2, "tallies while both are kept")
	s.use(catalogOf(campaign("returns", 1)), time.Minute, instantAt(countsKeptFor))
	s.dropCounts(time.Minute, instantAt(time.Second+countsKeptFor+time.Millisecond))
	if list := s.counts.byID; len(list) != 1 || list["returns"] == nil || len(s.gone) != 0 {
		t.Errorf("%+v, %d gone", list, len(s.gone))
	}
}

func TestStanding(t *testing.T) {
	now, sink := instantAt(0).wall, &sinkState{}
	for name, tc := range map[string]struct {
		change func(c *delivery.Campaign)
		sink   *sinkState
		want   standing
	}{
		"active":                  {func(*delivery.Campaign) {}, sink, sending},
		"without a sink":          {func(*delivery.Campaign) {}, nil, held},
		"paused":                  {func(c *delivery.Campaign) { c.Status = delivery.StatusPaused }, sink, held},
		"rate 0":                  {func(c *delivery.Campaign) { c.Rate = delivery.Rate{} }, sink, held},
		"unusable":                {func(c *delivery.Campaign) { c.Invalid = "why" }, sink, held},
		"before its start":        {func(c *delivery.Campaign) { c.StartsAt = now.Add(1) }, sink, held},
		"cancelled":               {func(c *delivery.Campaign) { c.Status = delivery.StatusCancelled }, nil, cancelled},
		"completed":               {func(c *delivery.Campaign) { c.Status = delivery.StatusCompleted }, nil, completed},
		"at its end":              {func(c *delivery.Campaign) { c.EndsAt = now }, sink, completed},
		"paused beyond its end":   {func(c *delivery.Campaign) { c.Status, c.EndsAt = delivery.StatusPaused, now }, sink, completed},
		"cancelled before an end": {func(c *delivery.Campaign) { c.Status, c.EndsAt = delivery.StatusCancelled, now }, sink, cancelled},
	} {
		c := as(delivery.StatusActive, campaign("c", 10))
		tc.change(&c)
		exactly(t, standingOf(&c, tc.sink, now), tc.want, "%s", name)
	}
}

// That a campaign's sink is missing is said once, when it would send otherwise, and again only after it had one.
func TestAMissingSinkIsSaidOnce(t *testing.T) {
	c := as(delivery.StatusActive, campaign("c", 10))
	paused := c
	paused.Status = delivery.StatusPaused
	e := &effective{campaign: &paused}
	now := instantAt(0).wall
	if e.lacksSink(now) {
		t.Error("said of a campaign that is paused")
	}
	e.campaign = &c
	if !e.lacksSink(now) || e.lacksSink(now) {
		t.Error("not said once")
	}
	e.sink = &sinkState{}
	if e.lacksSink(now) {
		t.Error("said of a campaign that has one")
	}
	e.sink = nil
	if !e.lacksSink(now) {
		t.Error("not said of a sink that is missing again")
	}
}

// TestASecondLossHasAGraceOfItsOwn: a catalog loses all campaigns, has them again a minute later, and loses them once more before the first
// grace would have ended. They stay in force for a whole grace from then on.
func TestASecondLossHasAGraceOfItsOwn(t *testing.T) {
	const grace = 10 * time.Minute
	full, none := catalogOf(campaign("a", 1), campaign("b", 1), campaign("c", 1), campaign("d", 1)), catalogOf()
	s := testCampaigns(t, func(*delivery.Campaign) *sinkState { return &sinkState{} })
	at := func(after time.Duration, rows *delivery.Snapshot) {
		loaded := *rows
		loaded.LoadedAt = instantAt(after).wall
		s.use(&loaded, grace, instantAt(after))
	}
	at(0, full)
	at(time.Minute, none)
	at(2*time.Minute, full)
	at(10*time.Minute, none) // eight minutes later, with nothing loaded in between that was not read since
	at(12*time.Minute, none)
	if s.row("a") == nil {
		t.Errorf("the campaigns are forgotten two minutes after the second loss")
	}
}
