package progress

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// TestActiveCampaignsAreShown: of a catalog that is not small, only campaigns with jobs have series of their own, and only so
// many; the others are added up.
func TestActiveCampaignsAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := make([]*delivery.Campaign, maxActive+3)
		for i := range list {
			list[i] = campaign("c"+strconv.Itoa(i), 10, 1)
		}
		m, _ := alone(catalogOf(list...))
		m.opt.Show = ShowActive
		if !m.Shows("c1") {
			t.Error("a campaign is not shown although nothing is known")
		}
		m.lane(1, 0, "c1", 7)
		m.exchange(t.Context())
		m.exchange(t.Context())
		m.shows(t, "c1", 7, 0.7)
		if n := m.backlogs(); n != 3 || !m.Shows("c1") || m.Shows("c2") {
			t.Errorf("%d backlogs, want those of c1, (unknown) and (others)", n)
		}
		for i := range list {
			m.lane(1, i+1, list[i].ID, 1)
		}
		m.exchange(t.Context())
		if n := m.backlogs(); n != maxActive+2 {
			t.Errorf("%d backlogs, want %d and two", n, maxActive)
		}
		if n := m.backlog(Others); n != 3 {
			t.Errorf("the others wait for %v jobs, want 3", n)
		}
		m.lanes.Lanes = nil
		m.exchange(t.Context())
		time.Sleep(livelyFor + time.Second)
		m.exchange(t.Context())
		if n := m.backlogs(); n != 2 {
			t.Errorf("%d backlogs of idle campaigns", n)
		}
	})
}

// TestNoCampaignIsShown: nothing is lost but the names.
func TestNoCampaignIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paused := campaign("paused", 10, 1)
		paused.Status = delivery.StatusPaused
		m, _ := alone(catalogOf(campaign("c", 10, 1), paused))
		m.opt.Show = ShowNone
		m.lane(1, 0, "c", 7)
		m.lane(1, 1, "paused", 5)
		m.seconds(t, 2)
		if n := m.backlog(Others); n != 12 || m.Shows("c") {
			t.Errorf("the others wait for %v jobs, want 12", n)
		}
		if n := m.holdings() + testutil.CollectAndCount(m.metrics.rate); n != 0 {
			t.Errorf("%d series of campaigns", n)
		}
		if n := testutil.ToFloat64(m.holds.states.WithLabelValues("paused")); n != 1 {
			t.Errorf("%v campaigns are paused, want 1", n)
		}
		if n := testutil.ToFloat64(m.holds.states.WithLabelValues(stateSending)); n != 1 { // as pages say, however long it is until the next job
			t.Errorf("%v campaigns send, want 1", n)
		}
		if got := m.ledger.foreseen[counted{campaign: "c"}].Total() + m.ledger.kept[counted{campaign: "c"}].Total(); got != 7 {
			t.Errorf("a backlog of %d is saved, want 7", got)
		}
	})
}

// TestLateCampaignsAreNamed: the campaign's part of the actionable lag is shown while there is one.
func TestLateCampaignsAreNamed(t *testing.T) {
	m, _ := alone(catalogOf(campaign("c", 10, 1), campaign("d", 10, 1), campaign("hidden", 10, 1), campaign("hidden too", 10, 1)))
	m.opt.Show = ShowNone
	m.refreshListed()
	shown, totals := map[string]*delivery.Campaign{"c": m.snapshot.Campaigns["c"], "d": m.snapshot.Campaigns["d"]}, map[uint64]total{}
	for hash := range m.byHash {
		totals[hash] = total{waiting: 9}
	}
	show := func(late map[string]int64) {
		m.metrics.show(m.figures(newForecast(time.Now(), nil, nil), shown, totals, late), Lateness{})
	}
	show(map[string]int64{"c": 5, "hidden": 2, "hidden too": 3})
	for id, want := range map[string]float64{"c": 5, Others: 5} {
		if n := testutil.ToFloat64(m.metrics.lateOf.WithLabelValues(id)); n != want {
			t.Errorf("%s: %v late, want %v", id, n, want)
		}
	}
	show(map[string]int64{"d": 1})
	if n := testutil.CollectAndCount(m.metrics.lateOf); n != 1 {
		t.Errorf("%d campaigns are late, want 1", n)
	}
}
