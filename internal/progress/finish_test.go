package progress

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

func (s *shelf) SpreadCampaigns(_ context.Context, rates map[string]int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return s.away
	}
	if s.spread == nil {
		s.spread = map[string]int64{}
	}
	maps.Copy(s.spread, rates)
	s.writes++
	return nil
}

// course is one campaign whose jobs go at the rate in force, as a daemon would send them.
type course struct {
	*member
	log      *bytes.Buffer
	store    *shelf
	campaign *delivery.Campaign
	left     float64
	sent     []float64 // in each second
	doneAt   time.Time
	lag      time.Duration // how old counts are
	counts   []float64
	done     float64   // jobs that are settled
	settled  []float64 // that, in each second
}

func newCourse(c *delivery.Campaign, jobs float64, windows ...delivery.WindowState) *course {
	x := &course{store: newShelf(), campaign: c, left: jobs}
	x.member = newMember("a", echo{}, x.store, nil)
	x.log, x.windows, x.opt.Snapshot = x.said, windows, func() *delivery.Snapshot { return catalogOf(x.campaign) }
	return x
}

// change puts a changed campaign in the place of that of the catalog.
func (x *course) change(how func(c *delivery.Campaign)) {
	next := *x.campaign
	how(&next)
	x.campaign = &next
}

// run lets the seconds pass: the leader counts, the catalog has the rate, and jobs go.
func (x *course) run(ctx context.Context, seconds int) {
	for range seconds {
		x.counts = append(x.counts, x.left)
		seen := x.counts[max(0, len(x.counts)-1-int(x.lag/time.Second))]
		x.lanes.Lanes = nil
		x.lane(1, 0, x.campaign.ID, int64(math.Ceil(seen)))
		x.settled = append(x.settled, x.done)
		done := x.settled[max(0, len(x.settled)-1-int(x.lag/time.Second))]
		x.tallies = []delivery.Tally{{Campaign: x.campaign.ID, Settled: delivery.Settled{delivery.OutcomeDelivered: int64(done)}}}
		x.exchange(ctx)
		if rates := x.ledger.rates; len(rates) > 0 {
			_ = x.store.SpreadCampaigns(ctx, rates)
			x.change(func(c *delivery.Campaign) { c.FinishRate, _ = delivery.NewRate(rates[c.ID], time.Hour) })
		}
		sent := 0.0
		if x.campaign.Status == delivery.StatusActive && x.campaign.Active(time.Now()) {
			rate, _, _ := x.campaign.RateAt(time.Now())
			sent = min(x.left, rate.PerSecond())
		}
		time.Sleep(time.Second)
		x.done += sent
		if x.left -= sent; x.left <= 0 && sent > 0 {
			x.doneAt = time.Now()
		}
		x.sent = append(x.sent, sent)
	}
}

// evenness returns by how much the minutes of a stretch differ from their mean at most, as a part of it.
func (x *course) evenness(from, to int) (most float64) {
	var minutes []float64
	sum := 0.0
	for at := from; at+60 <= to; at += 60 {
		n := 0.0
		for _, sent := range x.sent[at : at+60] {
			n += sent
		}
		minutes, sum = append(minutes, n), sum+n
	}
	for _, n := range minutes {
		most = max(most, math.Abs(n*float64(len(minutes))/sum-1))
	}
	return most
}

// TestDoneByATime: 36,000 jobs in half an hour are done within the last minute and at an even rate, however old the counts are; also after
// a pause of five minutes, with twice the jobs, on a ramp and in hours.
func TestDoneByATime(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *delivery.Campaign)
		while  func(x *course, at int) // at each second
		even   [2]int                  // seconds in which the rate is even to 2 %
		lag    time.Duration
	}{
		"alone":      {even: [2]int{5, 1740}},
		"old counts": {even: [2]int{5, 1740}, lag: 4 * time.Second},
		"a pause": {while: func(x *course, at int) {
			if at == 600 || at == 900 {
				status := map[int]delivery.Status{600: delivery.StatusPaused, 900: delivery.StatusActive}[at]
				x.change(func(c *delivery.Campaign) { c.Status = status })
			}
		}, even: [2]int{905, 1740}},
		"twice the jobs": {while: func(x *course, at int) {
			if at == 900 {
				x.left += 36_000
			}
		}, even: [2]int{905, 1740}},
		"fewer jobs": {while: func(x *course, at int) { // others have expired
			if at == 900 {
				x.left /= 2
			}
		}, even: [2]int{905, 1740}},
		"a ramp": {change: func(c *delivery.Campaign) {
			c.Ramp = &delivery.Ramp{Start: 5_000_000, Add: 5_000_000, Per: time.Second, Every: 2 * time.Minute, Since: time.Now()}
		}, even: [2]int{600, 1740}},
		"hours": {change: func(c *delivery.Campaign) { // the bubble begins at midnight
			c.Hours, _ = delivery.NewActiveHours([]delivery.HoursSpan{{From: 10, To: 20}, {From: 25, To: 60}}, time.UTC)
		}, even: [2]int{1505, 1740}},
	} {
		t.Run(name, func(t *testing.T) {
			testservices.Simulation(t)
			synctest.Test(t, func(t *testing.T) {
				c := campaign("c", 100, 1)
				begun := time.Now()
				c.FinishBy = begun.Add(30 * time.Minute)
				if tc.change != nil {
					tc.change(c)
				}
				x := newCourse(c, 36_000)
				x.lag = tc.lag
				for at := range 1830 {
					if tc.while != nil {
						tc.while(x, at)
					}
					x.run(t.Context(), 1)
				}
				if early := c.FinishBy.Sub(x.doneAt); early < 0 || early > time.Minute {
					t.Errorf("done %s before the time; %f are left", early, x.left)
				}
				if off := x.evenness(tc.even[0], tc.even[1]); off > 0.02 {
					t.Errorf("the rate differs by %.1f %%", 100*off)
				}
				if x.store.writes > 30 {
					t.Errorf("the rate was written %d times", x.store.writes)
				}
				if strings.Contains(x.log.String(), "late") {
					t.Errorf("it was in time, and the log says\n%s", x.log)
				}
			})
		})
	}
}

// TestATrickleIsSpread: jobs that come all the time are done by the time as well, and the rest of a second goes before it.
func TestATrickleIsSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 100, 1)
		c.FinishBy = time.Now().Add(15 * time.Second)
		x := newCourse(c, 300)
		x.run(t.Context(), 16)
		if early := c.FinishBy.Sub(x.doneAt); early < 0 || early > 3*time.Second {
			t.Errorf("done %s before the time; %f are left", early, x.left)
		}
		x.left = 500 // some come after the time: the rate is that of the row
		x.run(t.Context(), 5)
		if x.left > 0 {
			t.Errorf("%f are left after the time", x.left)
		}
	})
}

// TestLateIsSaid: once in the log and as a metric, with what is in the way; and when it is so no longer.
func TestLateIsSaid(t *testing.T) {
	provider := &delivery.Quota{ID: "provider", Windows: []delivery.Window{{Span: time.Minute, Limit: 300}}}
	other := &delivery.Quota{ID: "other", Windows: []delivery.Window{{Span: time.Minute, Limit: 600}}}
	for name, tc := range map[string]struct {
		change func(c *delivery.Campaign)
		limit  string
		late   float64 // seconds
	}{
		"send_rate": {func(c *delivery.Campaign) { c.Rate = delivery.PerSecond(5) }, "send_rate", 3600},
		"a quota":   {func(c *delivery.Campaign) { c.Quotas = []*delivery.Quota{other, provider} }, "quota provider", 3600},
		"hours": {func(c *delivery.Campaign) {
			c.Hours, _ = delivery.NewActiveHours([]delivery.HoursSpan{{From: 120, To: 180}}, time.UTC)
		}, "active_hours", 3600 + 360},
		"a ramp": {func(c *delivery.Campaign) {
			c.Ramp = &delivery.Ramp{Start: 1_000_000, Add: 99_000_000, Per: time.Second, Every: 2 * time.Hour, Since: time.Now()}
		}, "ramp", 3600 + 288},
		"never": {func(c *delivery.Campaign) { c.Rate = delivery.Rate{} }, "send_rate", math.Inf(1)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := campaign("c", 100, 1)
				c.FinishBy = time.Now().Add(time.Hour)
				tc.change(c)
				x := newCourse(c, 36_000)
				x.run(t.Context(), 20)
				if got := testutil.ToFloat64(x.metrics.overdue.WithLabelValues("c")); math.Abs(got-tc.late) > 130 && got != tc.late {
					t.Errorf("%f s late, want %f", got, tc.late)
				}
				if n := strings.Count(x.log.String(), "will be late"); n != 1 || !strings.Contains(x.log.String(), tc.limit+" is in the way") {
					t.Errorf("said %d times:\n%s", n, x.log)
				}
				x.change(func(c *delivery.Campaign) { c.Rate, c.Hours, c.Ramp, c.Quotas = delivery.PerSecond(100), nil, nil, nil })
				x.run(t.Context(), 5)
				if testutil.CollectAndCount(x.metrics.overdue) != 0 || strings.Count(x.log.String(), "late no longer") != 1 {
					t.Errorf("in time, and the log says\n%s", x.log)
				}
			})
		})
	}
}

// TestWhatWasLateIsNotSaidToBeInTime: a campaign that is done after its time was late.
func TestWhatWasLateIsNotSaidToBeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 5, 1)
		c.FinishBy = time.Now().Add(20 * time.Second)
		x := newCourse(c, 200)
		x.run(t.Context(), 60)
		if x.doneAt.IsZero() || !strings.Contains(x.log.String(), "will be late") || strings.Contains(x.log.String(), "late no longer") {
			t.Errorf("done at %s, and the log says\n%s", x.doneAt, x.log)
		}
	})
}

// TestRatesAreWritten: by a daemon that runs; an outage is said once, and over when a rate is written.
func TestRatesAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 100, 1)
		c.FinishBy = time.Now().Add(time.Hour)
		x := newCourse(c, 0)
		x.lane(1, 0, "c", 36_000)
		x.store.fails(errors.New("away"))
		stop := x.start(t)
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if n := strings.Count(x.log.String(), "cannot be written"); n != 1 {
			t.Errorf("said %d times:\n%s", n, x.log)
		}
		x.store.fails(nil)
		time.Sleep(3 * time.Second)
		stop()
		if rate, _ := delivery.NewRate(x.store.spread["c"], time.Hour); math.Abs(rate.PerSecond()/10-1) > 0.02 {
			t.Errorf("%s was written", rate)
		}
	})
}

// TestPlan: what is left, needed, left by quotas, and when it is done; also if another campaign were paused.
func TestPlan(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	provider := &delivery.Quota{ID: "provider", Windows: []delivery.Window{{Span: time.Minute, Limit: 600}}}
	c, d := campaign("c", 100, 1, provider), campaign("d", 100, 1, provider)
	todo := Todo{Jobs: 3600, Weight: 2}
	left := func(*delivery.Campaign) Todo { return todo }
	plan := func(change func(c, d *delivery.Campaign)) *Plan {
		one, other := *c, *d
		change(&one, &other)
		return NewPlan(now, "c", map[string]*delivery.Campaign{"c": &one, "d": &other}, left, nil)
	}
	is := func(what string, got *time.Time, want time.Duration) {
		t.Helper()
		if got == nil || got.Sub(now.Add(want)).Abs() > time.Minute {
			t.Errorf("%s: done at %v, want %s", what, got, want)
		}
	}
	p := plan(func(_, _ *delivery.Campaign) {})
	is("shared", p.DoneAt, 24*time.Minute)
	if p.Jobs != 3600 || p.SendRate != 100 || p.Needed != nil || p.Late != nil || len(p.Quotas) != 1 || p.Quotas[0] != (Leaves{"provider", 5}) {
		t.Errorf("%+v", p)
	}
	p = plan(func(_, d *delivery.Campaign) { d.Status = delivery.StatusPaused })
	is("alone", p.DoneAt, 12*time.Minute)
	if p.Quotas[0].PerSecond != 10 {
		t.Errorf("%+v", p.Quotas)
	}
	p = plan(func(c, _ *delivery.Campaign) { c.FinishBy = now.Add(2 * time.Hour) })
	is("in time", p.DoneAt, 2*time.Hour)
	if p.Late != nil || p.Needed == nil || math.Abs(*p.Needed-7200.0/7170) > 0.001 {
		t.Errorf("%+v", p)
	}
	p = plan(func(c, _ *delivery.Campaign) { c.FinishBy = now.Add(14 * time.Minute) })
	is("late", p.DoneAt, 24*time.Minute)
	if p.Late == nil || p.Late.Limit != "quota provider" || math.Abs(p.Late.seconds()-600) > 60 {
		t.Errorf("%+v", p.Late)
	}
	p = plan(func(c, _ *delivery.Campaign) { c.FinishBy, c.Status = now.Add(time.Hour), delivery.StatusPaused })
	if p.DoneAt != nil || p.Late != nil || p.Needed == nil || math.Abs(*p.Needed-7200.0/3570) > 0.001 {
		t.Errorf("paused: %+v", p)
	}
	todo = Todo{Jobs: 10, Weight: 1, Due: now.Add(3 * time.Hour)}
	p = plan(func(c, _ *delivery.Campaign) { c.FinishBy = now.Add(2 * time.Hour) })
	is("in a timer", p.DoneAt, 3*time.Hour)
	if p.Late == nil || p.Late.Limit != "the time of its last job" || p.Late.seconds() != 3600 {
		t.Errorf("%+v", p.Late)
	}
	for limit, change := range map[string]func(c *delivery.Campaign){
		"the time of its last job": func(*delivery.Campaign) {},
		"quota provider":           func(*delivery.Campaign) { todo.Jobs = 360_000 },
		"send_rate":                func(c *delivery.Campaign) { c.Rate, todo.Jobs = delivery.PerSecond(1), 36_000 },
	} { // what takes longest is in the way, also once the time has passed
		for _, by := range []time.Duration{-time.Minute, time.Minute, time.Hour} {
			todo.Jobs = 10
			if p = plan(func(c, _ *delivery.Campaign) { c.FinishBy = now.Add(by); change(c) }); p.Late == nil || p.Late.Limit != limit {
				t.Errorf("%+v, want %s", p.Late, limit)
			}
		}
	}
	todo = Todo{Jobs: 3600, Weight: 1, Coming: true}
	for by, limit := range map[time.Duration]string{-time.Minute: "its publisher", time.Minute: "quota provider"} {
		if p = plan(func(c, _ *delivery.Campaign) { c.FinishBy = now.Add(by) }); p.Late == nil || p.Late.Limit != limit {
			t.Errorf("%+v, want %s", p.Late, limit)
		}
	}
	todo = Todo{Jobs: 10, Weight: 1, Due: time.UnixMicro(delivery.DueUnknown)}
	p = plan(func(c, _ *delivery.Campaign) { c.FinishBy = now.Add(2 * time.Hour) })
	if p.DoneAt != nil || p.Late != nil {
		t.Errorf("it is not known when the last job may be sent: %+v", p)
	}
}

// TestARateAwaitsTheSettledJobs: a leader that has not read how many jobs of an expected total are settled leaves the rate as it is.
func TestARateAwaitsTheSettledJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 100, 1)
		c.ExpectedTotal, c.FinishBy = 36_000, time.Now().Add(30*time.Minute)
		x := newCourse(c, 100)
		x.store.settled["c"] = delivery.Settled{delivery.OutcomeDelivered: 35_000}
		x.lane(1, 0, "c", 100)
		x.exchange(t.Context())
		if rates := x.ledger.rates; len(rates) > 0 {
			t.Errorf("%v", rates)
		}
		w := x.ledger.begin(nil, nil, x.snapshot, x.watched, true, nil)
		x.ledger.perform(t.Context(), &w)
		x.ledger.note(w)
		x.exchange(t.Context())
		if got := x.ledger.rates["c"] / 1_000_000; got < 2000 || got > 2500 {
			t.Errorf("%d an hour for 1000 jobs in half an hour", got)
		}
	})
}

// TestALeaderThatHasNotReadWhatIsSettled takes no job of another campaign's expected total to be still to come: those that share a quota with it
// would be done later.
func TestALeaderThatHasNotReadWhatIsSettled(t *testing.T) {
	provider := &delivery.Quota{ID: "provider", Windows: []delivery.Window{{Span: time.Minute, Limit: 600}}}
	c, other := campaign("c", 100, 1, provider), campaign("other", 100, 1, provider)
	other.ExpectedTotal = 36_000
	store := newShelf()
	store.settled["other"] = delivery.Settled{delivery.OutcomeDelivered: 36_000}
	m := newMember("a", echo{}, store, catalogOf(c, other))
	m.lane(1, 0, "c", 1000)
	m.direct("other", 1)
	for range 2 {
		m.exchange(t.Context())
		m.shows(t, "c", 1000, 100)
		m.ledger.write(t.Context(), nil, m.snapshot, m.watched, m.Leads())
	}
}
