package progress

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/testservices"
)

// alone is a daemon that exchanges with itself only; its log is kept.
func alone(snapshot *delivery.Snapshot) (*member, *bytes.Buffer) {
	m := newMember("a", echo{}, newShelf(), snapshot)
	return m, m.said
}

// since returns since when the campaign is shown as held for the cause; zero if it is not.
func (m *member) since(t *testing.T, campaign string, cause hold.Cause) time.Time {
	t.Helper()
	since := m.holds.since[cause]
	if _, shown := since.shown[campaign]; !shown {
		return time.Time{}
	}
	return time.UnixMilli(int64(testutil.ToFloat64(since.WithLabelValues(campaign)) * 1000))
}

// holdings is how many campaigns are shown as held.
func (m *member) holdings() int { return testutil.CollectAndCount(m.holds.since[hold.Paused]) }

// TestWhatIsHeldIsNeverSilent: each has a metric at once, no ETA, and a line in the log within ten seconds, and another
// when it is over.
func TestWhatIsHeldIsNeverSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused, unset, typo, gated, used := campaign("paused", 10, 1), campaign("unset", 0, 1), campaign("typo", 10, 1), campaign("gated", 10, 1), campaign("used", 10, 1)
		paused.Status, typo.Sink = delivery.StatusPaused, "typo"
		quota := &delivery.Quota{ID: "provider", Windows: []delivery.Window{{Span: time.Hour, Limit: 100}}}
		used.Quotas = []*delivery.Quota{quota}
		m, log := alone(catalogOf(paused, unset, typo, gated, used))
		begun := time.Now()
		m.gates = []delivery.Gate{{Sink: "receiver", Cause: delivery.GateFailing, Until: begun.Add(time.Hour)}}
		m.windows = []delivery.WindowState{{Quota: "provider", FreeAt: begun.Add(30 * time.Minute).UnixMicro()}}
		for i, c := range []*delivery.Campaign{paused, unset, gated} {
			m.lane(1, i, c.ID, 50)
		}
		causes := map[string]hold.Cause{"paused": hold.Paused, "unset": hold.Rate, "gated": hold.Gate, "typo": hold.Sink}
		for range 12 {
			m.exchange(t.Context())
			for id, cause := range causes {
				if got := m.since(t, id, cause); got.Sub(begun).Abs() > time.Millisecond {
					t.Errorf("%s: %s since %s", id, cause, got)
				}
			}
			if len(log.String()) > 0 && time.Since(begun) < sayAfter {
				t.Errorf("after %s the log says\n%s", time.Since(begun), log)
			}
			time.Sleep(time.Second)
		}
		for id, cause := range causes {
			line := fmt.Sprintf("msg=\"the campaign is held\" campaign=%s cause=%s", id, cause)
			if strings.Count(log.String(), line) != 1 {
				t.Errorf("%s: the log says\n%s", id, log)
			}
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 2 {
			t.Errorf("%d warnings, want one for a sink and one for a gate\n%s", n, log)
		}
		if n := testutil.CollectAndCount(m.metrics.eta); n != 2 { // typo and used, of which nothing waits
			t.Errorf("%d times to go", n)
		}
		if strings.Contains(log.String(), "campaign=used") {
			t.Errorf("nothing waits of used, but\n%s", log)
		}
		// The sink works again, and the quota is now what holds.
		m.lanes.Lanes, m.gates = nil, nil
		m.lane(1, 0, "used", 50)
		m.exchange(t.Context())
		if m.since(t, "gated", hold.Gate) != (time.Time{}) || m.since(t, "used", hold.Quota).IsZero() {
			t.Error("it is shown as before")
		}
		if !strings.Contains(log.String(), "msg=\"the campaign is held no longer\" campaign=gated cause=gate") {
			t.Errorf("the log says\n%s", log)
		}
		if eta := testutil.ToFloat64(m.metrics.eta.WithLabelValues("used")); eta < 29*60 {
			t.Errorf("%f s to go, though nothing is sent for half an hour", eta)
		}
	})
}

// TestNothingIsSent: for no known reason. Whether jobs are in memory tells what to look at.
func TestNothingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 10, 1)
		m, log := alone(catalogOf(c))
		m.lane(1, 4, "c", 50)
		m.tallies = []delivery.Tally{{Campaign: "c", Sent: 1}}
		for i := range 100 {
			switch {
			case i < 25:
				m.tallies[0].Sent++
			case i < 50:
				m.tallies[0].Unsent++ // its jobs are too late, or too many: they move all the same
			}
			m.seconds(t, 1)
		}
		if got := m.since(t, "c", hold.Lane); got.IsZero() || time.Since(got) < 45*time.Second || time.Since(got) > 55*time.Second {
			t.Errorf("held since %s\n%s", got, log)
		}
		m.held = []delivery.MemoryJobs{{Campaign: "c", Jobs: 3, Units: 3}}
		m.exchange(t.Context())
		if m.since(t, "c", hold.Stalled).IsZero() {
			t.Errorf("the log says\n%s", log)
		}
		m.tallies[0].Sent++
		m.exchange(t.Context())
		if n := m.holdings(); n != 0 {
			t.Errorf("%d are held", n)
		}
	})
}

// TestAStallOutlivesItsLeader: the next one shows at once, and since when, that nothing is sent for no known reason.
func TestAStallOutlivesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desk, snapshot := &table{parts: map[string]Left{}}, catalogOf(campaign("c", 10, 1))
		a, b := newMember("a", desk, newShelf(), snapshot), newMember("b", desk, newShelf(), snapshot)
		a.lane(1, 0, "c", 50)
		b.lane(2, 0, "c", 50)
		second := func(members ...*member) {
			for _, m := range members {
				m.exchange(t.Context())
			}
			time.Sleep(exchangeEvery)
		}
		begun := time.Now()
		for range 60 {
			second(a, b)
		}
		if a.since(t, "c", hold.Lane).Sub(begun).Abs() > time.Second {
			t.Errorf("the first leader says since %s", a.since(t, "c", hold.Lane))
		}
		desk.leader = "" // it has died
		for range 3 {
			second(b)
			if since := b.since(t, "c", hold.Lane); since.Sub(begun).Abs() > time.Second {
				t.Fatalf("the next leader says since %s, it was %s", since, begun)
			}
		}
		b.tallies = []delivery.Tally{{Campaign: "c"}}
		second(b)
		b.tallies = []delivery.Tally{{Campaign: "c", Sent: 1}}
		second(b)
		if b.holdings() != 0 {
			t.Error("it is held although it sends")
		}
	})
}

// TestManyAreHeldAtOnce: the log stays readable, and warns of nothing that is meant to be.
func TestManyAreHeldAtOnce(t *testing.T) {
	testservices.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		var list []*delivery.Campaign
		for i := range 500 {
			c := campaign(fmt.Sprint("c", i), 10, 1)
			c.Status = delivery.StatusPaused
			list = append(list, c)
		}
		m, log := alone(catalogOf(list...))
		for i, c := range list {
			m.lane(1, i, c.ID, 1)
		}
		m.seconds(t, 60)
		if n := strings.Count(log.String(), "\n"); n != sayAtOnce+1 || !strings.Contains(log.String(), "campaigns=490") {
			t.Errorf("%d lines\n%s", n, log)
		}
		if strings.Contains(log.String(), "level=WARN") {
			t.Errorf("campaigns that are meant to wait are warned of\n%s", log)
		}
	})
}

// TestAQuotaThatIsUsedUpAgainAndAgain: the log does not repeat itself.
func TestAQuotaThatIsUsedUpAgainAndAgain(t *testing.T) {
	testservices.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 10, 1)
		c.Quotas = []*delivery.Quota{{ID: "provider", Windows: []delivery.Window{{Span: time.Hour, Limit: 3600}}}}
		m, log := alone(catalogOf(c))
		m.lane(1, 0, "c", 1e6)
		m.tallies = []delivery.Tally{{Campaign: "c"}}
		for i := range 300 {
			m.windows = []delivery.WindowState{{Quota: "provider", Remaining: 60}}
			if i%60 > 5 {
				m.windows = []delivery.WindowState{{Quota: "provider", FreeAt: time.Now().Add(time.Duration(60-i%60) * time.Second).UnixMicro()}}
			} else {
				m.tallies[0].Sent += 10
			}
			m.seconds(t, 1)
		}
		if n := strings.Count(log.String(), "\n"); n != 2 {
			t.Errorf("%d lines\n%s", n, log)
		}
	})
}

// TestAllKnowSinceWhen: a daemon that leads later has it from the leader before it, and so has a command.
func TestAllKnowSinceWhen(t *testing.T) {
	exchange, client := overRedis(t)
	c := campaign("c", 10, 1)
	c.Status = delivery.StatusPaused
	snapshot := catalogOf(c, campaign("behind", 10, 1))
	a, b := newMember("a", exchange, newShelf(), snapshot), newMember("b", exchange, newShelf(), snapshot)
	a.lane(1, 0, "c", 100)
	b.troubles = []delivery.Trouble{{Campaign: "behind", Refused: true}}
	a.exchange(t.Context())
	begun := a.holds.held["c"].answer.Since.Add(-time.Hour)
	a.holds.held["c"].answer.Since = begun // it has been so for long
	a.exchange(t.Context())
	b.exchange(t.Context())
	if n := b.holdings(); n != 0 {
		t.Errorf("a daemon that does not lead shows %d", n)
	}
	a.exchange(t.Context())
	board, err := ReadBoard(t.Context(), exchange)
	if err != nil {
		t.Fatal(err)
	}
	got := board.Of(c)
	if got.Daemons != 2 || got.Backlog.Total() != 100 || !got.LanesRead || got.Held != hold.Paused || got.Since.Sub(begun).Abs() > time.Millisecond {
		t.Errorf("%+v", got)
	}
	if got := board.Of(snapshot.Campaigns["behind"]).Stuck; got != hold.Refused {
		t.Errorf("%q", got)
	}
	if err := exchange.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.exchange(t.Context())
	if got := b.since(t, "c", hold.Paused); got.Sub(begun).Abs() > time.Millisecond {
		t.Errorf("the next leader says since %s, the one before %s", got, begun)
	}
	a.exchange(t.Context())
	if n := a.holdings(); n != 0 {
		t.Errorf("a daemon that leads no more shows %d", n)
	}
	client.HSet(t.Context(), "{p.}progress", "nonsense", "not a part", "old", "5 part")
	client.Del(t.Context(), "{p.}progress-summary")
	if board, err := ReadBoard(t.Context(), exchange); err != nil || board.Daemons != 2 || board.Of(c).Backlog.Total() != 100 {
		t.Errorf("%+v, %v", board, err)
	}
}

// TestJobsForClosedDestinationsAreNoStall: jobs whose time has not come, or whose destination is closed, do not make a campaign stalled.
// Once one can be sent, it should be sent within half a minute.
func TestJobsForClosedDestinationsAreNoStall(t *testing.T) {
	testservices.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		m, _ := alone(catalogOf(campaign("c", 10, 1)))
		pass := func(early int64, d time.Duration) (held bool) {
			for range d / time.Second {
				m.held = []delivery.MemoryJobs{{Campaign: "c", Jobs: 3, Units: 3, Early: early}}
				m.direct("c", 3)
				m.seconds(t, 1)
			}
			return !m.since(t, "c", hold.Stalled).IsZero()
		}
		if pass(3, 10*time.Minute) {
			t.Error("stalled by jobs of which none can be sent")
		}
		if pass(2, 20*time.Second) {
			t.Error("stalled, when one could be sent for a moment")
		}
		if !pass(2, 20*time.Second) {
			t.Error("one could be sent for long, and nothing is said")
		}
	})
}

// TestTheStoreDoesNotAnswer: the last figures stand for a while, and are not shown for true any longer. Then waiting jobs are shown as held by
// the store, if their campaign's quotas do not let it go on without, or they wait for the ledger, until it answers again. A campaign that has no
// series of its own gets none.
func TestTheStoreDoesNotAnswer(t *testing.T) {
	quota := func(policy string) []*delivery.Quota {
		return []*delivery.Quota{{ID: "q", OnStoreFailure: policy, Windows: []delivery.Window{{Span: time.Second, Limit: 10}}}}
	}
	for name, tc := range map[string]struct {
		quotas []*delivery.Quota
		ledger bool
		show   Show
		held   int
	}{
		"no quota":                     {held: 1},
		"closed":                       {quotas: quota(delivery.PolicyClosed), held: 1},
		"local share":                  {quotas: quota(delivery.PolicyLocalShare)},
		"open":                         {quotas: quota(delivery.PolicyOpen)},
		"local share, and the ledger":  {quotas: quota(delivery.PolicyLocalShare), ledger: true, held: 1},
		"open, and the ledger":         {quotas: quota(delivery.PolicyOpen), ledger: true, held: 1},
		"a campaign without a series":  {show: ShowNone},
		"closed, and without a series": {quotas: quota(delivery.PolicyClosed), show: ShowNone},
	} {
		synctest.Test(t, func(t *testing.T) {
			m, _ := alone(catalogOf(campaign("c", 10, 1, tc.quotas...)))
			m.opt.Ledger, m.opt.Show = tc.ledger, tc.show
			m.windows = []delivery.WindowState{{Quota: "q", Remaining: 10}}
			m.lane(1, 0, "c", 100)
			held := func(want int, shown bool) {
				t.Helper()
				m.exchange(t.Context())
				if n := m.holdings(); n != want || want > 0 && m.since(t, "c", hold.Store).IsZero() {
					t.Errorf("%s: %d are held, want %d by the store", name, n, want)
				}
				figures := [...]bool{m.backlogs() > 0, testutil.CollectAndCount(m.metrics.late) > 0, testutil.CollectAndCount(m.metrics.eta) > 0}
				if figures != [...]bool{shown, shown, shown && tc.show != ShowNone} {
					t.Errorf("%s: backlogs, late jobs and times are shown: %t, want %t", name, figures, shown)
				}
			}
			held(0, true)
			m.opt.Exchange = broken{}
			held(0, true)
			time.Sleep(showFor + time.Second)
			held(tc.held, false)
			m.opt.Exchange = echo{}
			held(0, true)
		})
	}
}

// TestAHeavyJobIsNoStall: what waits for its turn behind a heavy job is said to, from the beginning to the end, with when that is, and
// is done after that.
func TestAHeavyJobIsNoStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 5, 1)
		m, log := alone(catalogOf(c))
		m.lane(1, 0, "c", 50)
		turn := time.Now().Add(3 * time.Minute)
		m.held = []delivery.MemoryJobs{{Campaign: "c", Jobs: 10, Units: 10, Turn: turn}}
		for time.Until(turn) > turnSoon {
			m.exchange(t.Context())
			if a, held := m.holds.of("c"); !held || a.Cause != hold.Turn || !a.Until.Equal(turn) {
				t.Fatalf("%s before its turn: %+v", time.Until(turn), a)
			}
			m.shows(t, "c", 50, time.Until(turn).Seconds()+10)
			time.Sleep(time.Second)
		}
		if strings.Contains(log.String(), "WARN") {
			t.Errorf("the log says\n%s", log)
		}
	})
}

// TestWhatADestinationKeepsHasNoEnd: while a destination that takes nothing keeps what is left of a campaign, its end is not known, and what holds it is
// named with the destination's own answer. The failure of another destination is not shown.
func TestWhatADestinationKeepsHasNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elm, mixed, other := campaign("elm-news", 10, 1), campaign("mixed", 10, 1), campaign("other", 10, 1)
		m, _ := alone(catalogOf(elm, mixed, other))
		m.opt.Node, m.opt.Readings = func() Daemon { return Daemon{} }, func() Readings {
			return Readings{Sinks: []SinkReport{
				{Sink: "receiver", Failure: delivery.Failure{At: time.Now(), Detail: "HTTP 404"}},
				{Sink: "receiver", Of: "fox", Failure: delivery.Failure{At: time.Now(), Detail: "HTTP 404"}},
				{Sink: "receiver", Of: "elm", Failure: delivery.Failure{At: time.Now(), Detail: "HTTP 500: upstream exploded"}},
			}}
		}
		hash := delivery.CampaignHash("elm-news")
		m.lanes.Timers = []delivery.CampaignCount{{Campaign: hash, Jobs: 100, Unread: 100, Retrying: 100, Due: time.Now().Add(95 * time.Second).UnixMicro()}}
		m.direct("mixed", 100)
		m.troubles = []delivery.Trouble{{Campaign: "elm-news", Destination: "elm"}, {Campaign: "mixed", Destination: "elm"}}
		m.exchange(t.Context())
		a, held := m.holds.of("elm-news")
		why, _ := a.Words()
		if !held || a.Cause != hold.Gate || !strings.Contains(why, "destination elm") || !strings.Contains(why, "HTTP 500: upstream exploded") {
			t.Errorf("%t %q", held, why)
		}
		if a, held = m.holds.of("mixed"); held {
			t.Errorf("a campaign that sends to others: %+v", a)
		}
		b := m.board.Load()
		f := newForecast(b.At, nil, nil)
		if one := m.figure(f, elm, b.totals[hash]); one.known || one.backlog.Total() != 100 {
			t.Errorf("%+v", one)
		}
		if last := b.Failure("receiver", ""); last.Detail != "" {
			t.Errorf("of a sink with destinations: %+v", last)
		}
	})
}
