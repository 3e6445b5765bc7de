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
func TestCampaignsAreLookedUpWhenTheyChange(t *testing.T) {
	resolved := 0
	s := testCampaigns(t, func(*delivery.Campaign) *sinkState { resolved++; return &sinkState{} })
	if s.effective("c", instantAt(0)) != nil {
		t.Error("a campaign before there is a catalog")
	}
	c := as(delivery.StatusActive, campaign("c", 10))
	c.StartsAt = instantAt(time.Minute).wall
	s.use(catalogOf(c), time.Minute, instantAt(0))
	for second := range 120 {
		now := instantAt(time.Duration(second) * time.Second)
		if e := s.change(now.wall); (e != nil) != (second == 60) {
			t.Errorf("second %d: its schedule changes: %t", second, e != nil)
		}
		s.effective("c", now)
	}
	exactly(t, resolved, 2, "times it is looked up: at first and at its start")
	c.Revision++
	s.use(catalogOf(c), time.Minute, instantAt(time.Hour))
	s.effective("c", instantAt(time.Hour))
	exactly(t, resolved, 3, "times it is looked up when its row has changed")
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
	e := &effective{}
	for step, tc := range []struct {
		status delivery.Status
		sink   *sinkState
		says   bool
	}{
		{delivery.StatusPaused, nil, false}, {delivery.StatusActive, nil, true}, {delivery.StatusActive, nil, false},
		{delivery.StatusActive, &sinkState{}, false}, {delivery.StatusActive, nil, true},
	} {
		c := as(tc.status, campaign("c", 10))
		e.campaign, e.sink = &c, tc.sink
		exactly(t, e.lacksSink(instantAt(0).wall), tc.says, "said at step %d", step)
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
