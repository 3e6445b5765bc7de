package progress

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// desk is a Work whose figures a test sets.
type desk struct {
	lanes    delivery.LanesBacklog
	held     []delivery.MemoryJobs
	tallies  []delivery.Tally
	gates    []delivery.Gate
	windows  []delivery.WindowState
	troubles []delivery.Trouble
	lines    map[string]int64 // by destination
}

func (d *desk) closed() []delivery.Gate { return d.gates }

func anySink(string) (string, bool) { return "sink", true }

func (d *desk) Backlog() delivery.LanesBacklog                          { return d.lanes }
func (d *desk) InMemory(context.Context) ([]delivery.MemoryJobs, error) { return d.held, nil }
func (d *desk) Tallies() []delivery.Tally                               { return d.tallies }
func (d *desk) AtDestinations(context.Context) (map[string]int64, error) {
	at := map[string]int64{}
	maps.Copy(at, d.lines)
	return at, nil
}
func (d *desk) Troubles(context.Context) ([]delivery.Trouble, error) { return d.troubles, nil }
func (d *desk) lane(generation int32, lane int, id string, jobs int64) {
	d.lanes.Generation = generation
	d.lanes.Lanes = append(d.lanes.Lanes, delivery.LaneBacklog{
		Lane: lane, Waiting: []delivery.CampaignCount{{Campaign: delivery.CampaignHash(id), Jobs: jobs}},
	})
}

// direct lets jobs of a campaign be open in ingress.
func (d *desk) direct(id string, jobs int64) {
	d.lanes.Ingress = slices.DeleteFunc(d.lanes.Ingress, func(n delivery.CampaignCount) bool { return n.Campaign == delivery.CampaignHash(id) })
	d.lanes.Ingress = append(d.lanes.Ingress, delivery.CampaignCount{Campaign: delivery.CampaignHash(id), Jobs: jobs})
}

// shelf is a Store in memory.
type shelf struct {
	settled map[string]delivery.Settled
	outlook map[string]delivery.Outlook
	fail    error
	refuses bool // outlooks
	takes   time.Duration

	mu     sync.Mutex // guards settled and what follows
	away   error      // of spreading
	spread map[string]int64
	writes int // of spread
}

func (s *shelf) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = err
}

func newShelf() *shelf {
	return &shelf{settled: map[string]delivery.Settled{}, outlook: map[string]delivery.Outlook{}}
}

func (s *shelf) SaveProgress(_ context.Context, list []delivery.Progress) error {
	if s.fail != nil {
		return s.fail
	}
	if s.refuses && list[0].Outlook != nil {
		return errors.New("no outlooks")
	}
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range list {
		id := p.Campaign
		if id == "" {
			id = "to " + p.Destination
		}
		s.settled[id] = s.settled[id].Plus(p.Settled)
		if p.Outlook != nil {
			s.outlook[id] = *p.Outlook
		}
	}
	return nil
}

func (s *shelf) LoadOutlooks(context.Context) (all []delivery.Progress, err error) {
	for id, o := range s.outlook {
		if destination, is := strings.CutPrefix(id, "to "); o != (delivery.Outlook{}) && is {
			all = append(all, delivery.Progress{Destination: destination, Outlook: &o})
		} else if o != (delivery.Outlook{}) {
			all = append(all, delivery.Progress{Campaign: id, Outlook: &o})
		}
	}
	return all, s.fail
}

func (s *shelf) LoadSettledOf(_ context.Context, destinations []string) (map[string]delivery.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := map[string]delivery.Settled{}
	for _, id := range destinations {
		of[id] = s.settled["to "+id]
	}
	return of, s.fail
}

func (s *shelf) LoadSettled(context.Context, []string) (map[string]delivery.Settled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.settled), s.fail
}

type member struct {
	*Tracker
	*desk
}

// newMember is a daemon of a fleet that shares an exchange.
func newMember(t *testing.T, name string, exchange Exchange, store Store, snapshot *delivery.Snapshot) *member {
	t.Helper()
	d := &desk{}
	tracker := New(Options{
		Daemon: name, Work: d, Exchange: exchange, Store: store, Snapshot: func() *delivery.Snapshot { return snapshot },
		Windows: func() []delivery.WindowState { return nil }, Gates: d.closed, Sink: anySink, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	return &member{tracker, d}
}

// backlog is what the member shows of a campaign, in all states.
func (m *member) backlog(campaign string) (jobs float64) {
	for i := range m.metrics.backlog {
		jobs += testutil.ToFloat64(m.metrics.backlog[i].WithLabelValues(campaign))
	}
	return jobs
}

// backlogs is how many campaigns have one that is shown.
func (m *member) backlogs() int { return testutil.CollectAndCount(m.metrics.backlog[0]) / len(states) }

func (m *member) shows(t *testing.T, campaign string, backlog, eta float64) {
	t.Helper()
	if got := m.backlog(campaign); got != backlog {
		t.Errorf("%s: backlog %f, want %f", campaign, got, backlog)
	}
	if got := testutil.ToFloat64(m.metrics.eta.WithLabelValues(campaign)); got < eta-0.01 || got > eta+0.01 {
		t.Errorf("%s: %f s, want %f", campaign, got, eta)
	}
}

func catalogOf(list ...*delivery.Campaign) *delivery.Snapshot {
	s := &delivery.Snapshot{Campaigns: map[string]*delivery.Campaign{}}
	for _, c := range list {
		s.Campaigns[c.ID] = c
	}
	return s
}

// TestTheLeaderShowsAll: over a real exchange, with a campaign that expects more, and one that is in no catalog. The other daemon shows
// nothing, and knows what waits in lanes.
func TestTheLeaderShowsAll(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange, store := NewRedisExchange(client, "p."), newShelf()
	more := campaign("more", 10, 1)
	more.ExpectedTotal = 1000
	snapshot := catalogOf(campaign("c", 10, 1), campaign("heavy", 10, 1), campaign("idle", 10, 1), more)
	a, b := newMember(t, "a", exchange, store, snapshot), newMember(t, "b", exchange, store, snapshot)
	a.lane(1, 0, "c", 100)
	a.lane(1, 1, "heavy", 50)
	b.lane(1, 2, "c", 20)
	b.held = []delivery.MemoryJobs{{Campaign: "c", Jobs: 9, Units: 9}, {Campaign: "heavy", Jobs: 10, Units: 30}, {Campaign: "gone", Jobs: 1, Units: 1}}
	b.direct("c", 5)
	b.direct("gone", 1)
	b.tallies = []delivery.Tally{{Campaign: "more", Settled: delivery.Settled{delivery.OutcomeDelivered: 400}, Sent: 400}}
	b.ledger.save(t.Context(), b.tallies, b.opt.Snapshot())
	for range 2 {
		for _, m := range []*member{a, b} {
			m.ledger.write(t.Context(), nil, m.snapshot, m.watched, false)
			m.exchange(t.Context())
		}
	}
	a.shows(t, "c", 125, 12.5)
	a.shows(t, "heavy", 50, 15)
	a.shows(t, "idle", 0, 0)
	a.shows(t, "more", 0, 60)
	if got := a.backlog(delivery.UnknownCampaign); got != 1 {
		t.Errorf("%f jobs of nobody", got)
	}
	if n := b.backlogs() + testutil.CollectAndCount(b.metrics.eta) + testutil.CollectAndCount(b.metrics.late); n != 0 {
		t.Errorf("%d figures of a daemon that does not lead", n)
	}
	for _, m := range []*member{a, b} {
		if jobs, large, _ := m.InLanes("c"); jobs != 120 || large != 0 || m.Fleet() != 2 {
			t.Errorf("%s: %d jobs in lanes, %d large backlogs, %d daemons", m.opt.Daemon, jobs, large, m.Fleet())
		}
	}
	a.ledger.save(t.Context(), nil, a.snapshot)
	if o := store.outlook["c"]; o.Total() != 125 || time.Until(o.DoneAt) > 14*time.Second || time.Until(o.DoneAt) < 10*time.Second {
		t.Errorf("the leader keeps %+v", o)
	}
	if ttl := client.PTTL(t.Context(), "{p.}progress").Val(); ttl <= 0 || ttl > keepFor {
		t.Errorf("the exchange lasts %s", ttl)
	}
}

// save writes to the catalog, and waits for it.
func (l *ledger) save(ctx context.Context, tallies []delivery.Tally, s *delivery.Snapshot) {
	l.write(ctx, tallies, s, nil, false)
}

// write writes to the catalog and reads it, and waits for it.
func (l *ledger) write(ctx context.Context, tallies []delivery.Tally, s *delivery.Snapshot, campaigns map[string]*delivery.Campaign, leads bool) {
	w := l.begin(tallies, s, campaigns, leads, nil)
	l.perform(ctx, &w)
	l.note(w)
}

// steady delivers a job a second, 30 in all.
type steady struct {
	*desk
	since time.Time
}

func (s steady) Tallies() []delivery.Tally {
	n := min(int64(time.Since(s.since)/time.Second), 30)
	return []delivery.Tally{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: n}, Sent: n}}
}

// TestASlowStoreDelaysNoFigure: what is exchanged is as fresh as ever while the catalog takes seconds for each call, and what was settled
// meanwhile is counted once, at the end too.
func TestASlowStoreDelaysNoFigure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newShelf()
		m, _ := alone(catalogOf(campaign("c", 10, 1)))
		m.opt.Store, m.ledger.store, m.opt.Work = store, store, steady{m.desk, time.Now()}
		store.takes = saveTimeout
		m.lane(1, 0, "c", 1000)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		for i := range 30 {
			time.Sleep(time.Second)
			if age := time.Since(m.board.Load().At); age > exchangeLeast {
				t.Errorf("after %d s the figures are %s old", i, age)
			}
		}
		stop()
		running.Wait()
		if got := store.settled["c"][delivery.OutcomeDelivered]; got != 30 {
			t.Errorf("%d settled jobs are in the catalog, want 30", got)
		}
		if got := store.outlook["c"].Total(); got != 1000 {
			t.Errorf("the catalog says that %d wait, want 1000", got)
		}
	})
}

// TestAnOutlookThatChangesDuringAWriteIsWrittenNext, and one who leads no more keeps none of what a write has written.
func TestAnOutlookThatChangesDuringAWriteIsWrittenNext(t *testing.T) {
	store := newShelf()
	l := newLedger(store, slog.New(slog.DiscardHandler))
	waiting := func(n int64) {
		l.foresee(time.Now(), map[counted]delivery.Outlook{{campaign: "c"}: {Backlog: delivery.Backlog{Waiting: n}}})
	}
	waiting(7)
	w := l.begin(nil, nil, nil, true, nil)
	waiting(6)
	l.perform(t.Context(), &w)
	l.note(w)
	l.save(t.Context(), nil, nil)
	if got := store.outlook["c"].Total(); got != 6 {
		t.Errorf("%d wait, want 6", got)
	}
	waiting(5)
	w = l.begin(nil, nil, nil, true, nil)
	l.perform(t.Context(), &w)
	l.stepDown()
	l.note(w)
	if len(l.kept)+len(l.outlook) > 0 || l.asked {
		t.Errorf("%v and %v are remembered", l.kept, l.outlook)
	}
}

// TestWhatIsSavedCountsOnce: though outlooks cannot be saved again and again.
func TestWhatIsSavedCountsOnce(t *testing.T) {
	store := newShelf()
	l := newLedger(store, slog.New(slog.DiscardHandler))
	known := catalogOf(campaign("plain", 1, 1), campaign("waits", 1, 1))
	tallies := []delivery.Tally{
		{Campaign: "plain", Settled: delivery.Settled{delivery.OutcomeDelivered: 3}}, {Campaign: "waits", Settled: delivery.Settled{delivery.OutcomeDelivered: 5, delivery.OutcomeDead: 1}},
	}
	l.foresee(time.Now(), map[counted]delivery.Outlook{{campaign: "waits"}: {Backlog: delivery.Backlog{Waiting: 7}}})
	store.refuses = true
	for range 3 {
		l.save(t.Context(), tallies, known)
	}
	if got := store.settled["plain"]; got != tallies[0].Settled || len(store.settled) != 1 {
		t.Errorf("%+v", store.settled)
	}
	store.refuses = false
	for range 2 {
		l.save(t.Context(), tallies, known)
	}
	for _, tally := range tallies {
		if got := store.settled[tally.Campaign]; got != tally.Settled {
			t.Errorf("%s: %+v", tally.Campaign, got)
		}
	}
	if store.outlook["waits"].Total() != 7 {
		t.Errorf("%+v", store.outlook)
	}
	tallies = []delivery.Tally{{Campaign: "plain", Settled: delivery.Settled{delivery.OutcomeDelivered: 2}}} // both were deleted, one came again
	l.save(t.Context(), tallies, known)
	if got := store.settled["plain"][delivery.OutcomeDelivered]; got != 5 || len(l.saved) != 1 {
		t.Errorf("%d, and %d are remembered", got, len(l.saved))
	}
}

// TestDestinationsAreSavedAsCampaignsAre: what all daemons have settled adds up, and what waits for destinations in their memory and their timers is
// stored by the one that leads. Destinations without a row are left out, and what another daemon has stored of one that is empty by now is corrected.
func TestDestinationsAreSavedAsCampaignsAre(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange, store := NewRedisExchange(client, "p."), newShelf()
	snapshot := catalogOf(campaign("c", 10, 1))
	snapshot.Destinations = map[string]*delivery.Destination{"shop": {ID: "shop"}, "cafe": {ID: "cafe"}, "empty": {ID: "empty"}}
	store.outlook["to empty"] = delivery.Outlook{Backlog: delivery.Backlog{Waiting: 5}}
	a, b := newMember(t, "a", exchange, store, snapshot), newMember(t, "b", exchange, store, snapshot)
	a.lines, a.lanes.Destinations = map[string]int64{"shop": 3, "none": 1}, map[string]int64{"shop": 40}
	b.lines, b.lanes.Destinations = map[string]int64{}, map[string]int64{"shop": 500, "cafe": 7, "none": 1}
	turn := func() {
		for range 2 {
			for _, m := range []*member{a, b} {
				m.exchange(t.Context())
				m.ledger.write(t.Context(), m.tallies, m.snapshot, m.watched, m.Leads())
			}
		}
	}
	for i, m := range []*member{a, b} {
		settled := delivery.Settled{delivery.OutcomeDelivered: 10 + int64(i), delivery.OutcomeDead: 1}
		m.tallies = []delivery.Tally{{Campaign: "c", Settled: settled}, {Destination: "shop", Settled: settled}, {Destination: "none", Settled: settled}}
	}
	turn()
	want := delivery.Settled{delivery.OutcomeDelivered: 21, delivery.OutcomeDead: 2}
	if store.settled["to shop"] != want || store.settled["c"] != want || store.settled["to none"].Total() != 0 {
		t.Errorf("%+v", store.settled)
	}
	for id, n := range map[string]int64{"shop": 543, "cafe": 7, "empty": 0, "none": 0} {
		if got := store.outlook["to "+id].Total(); got != n {
			t.Errorf("%d wait for %s, want %d", got, id, n)
		}
	}
	a.tallies[1].Settled[delivery.OutcomeDelivered] += 4
	a.lines, a.lanes.Destinations, b.lanes.Destinations = nil, nil, nil
	b.tallies = b.tallies[:1] // forgotten, and then counted anew
	turn()
	b.tallies = append(b.tallies, delivery.Tally{Destination: "shop", Settled: delivery.Settled{delivery.OutcomeDelivered: 2}})
	turn()
	if want[delivery.OutcomeDelivered] += 6; store.settled["to shop"] != want || store.outlook["to shop"].Total() != 0 {
		t.Errorf("%+v, want %+v; %+v", store.settled["to shop"], want, store.outlook)
	}
}

// TestTheLeaderWritesAnewAfterOthersDid: a daemon that was away does not take the catalog for as it left it, and one that
// leads no more writes nothing.
func TestTheLeaderWritesAnewAfterOthersDid(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange, store := NewRedisExchange(client, "p."), newShelf()
	snapshot := catalogOf(campaign("c", 10, 1))
	a, b := newMember(t, "a", exchange, store, snapshot), newMember(t, "b", exchange, store, snapshot)
	a.lane(1, 0, "c", 9)
	turn := func(m *member) {
		m.exchange(t.Context())
		m.ledger.save(t.Context(), nil, m.snapshot)
	}
	turn(a)
	store.outlook["c"] = delivery.Outlook{Backlog: delivery.Backlog{Waiting: 5}} // by another, while this one is away
	a.okAt = a.okAt.Add(-freshFor)
	turn(a)
	if got := store.outlook["c"].Total(); got != 9 {
		t.Errorf("the catalog says %d wait, want 9", got)
	}
	client.Set(t.Context(), "{p.}progress-leader", "b", time.Minute) // as if this one had not led in time
	b.exchange(t.Context())
	store.outlook["c"] = delivery.Outlook{Backlog: delivery.Backlog{Waiting: 5}}
	turn(a)
	if got := store.outlook["c"].Total(); got != 5 || len(a.ledger.kept)+len(a.ledger.outlook) > 0 {
		t.Errorf("%d wait by the word of one that does not lead; it remembers %v", got, a.ledger.kept)
	}
}

// TestWhatOtherLeadersHaveStored: of campaigns that have no jobs any more is corrected, also if these have no figures.
func TestWhatOtherLeadersHaveStored(t *testing.T) {
	store := newShelf()
	m, _ := alone(vast("c"))
	m.opt.Store, m.ledger.store = store, store
	store.outlook = map[string]delivery.Outlook{"campaign-7": {Backlog: delivery.Backlog{Waiting: 5}}, "campaign-8": {DoneAt: time.Now()}, "c": {Backlog: delivery.Backlog{Waiting: 4}}}
	m.lane(1, 0, "c", 9)
	for range 3 {
		m.exchange(t.Context())
		m.ledger.write(t.Context(), nil, m.snapshot, m.watched, true)
	}
	left, _ := store.LoadOutlooks(t.Context())
	if len(left) != 1 || left[0].Outlook.Total() != 9 || len(m.ledger.kept) != 1 {
		t.Errorf("%+v are stored, %d kept", left, len(m.ledger.kept))
	}
}

// vast returns a catalog so large that campaigns without jobs have no figures.
func vast(more ...string) *delivery.Snapshot {
	list := make([]*delivery.Campaign, maxIdle, maxIdle+len(more))
	for i := range list {
		list[i] = campaign("campaign-"+strconv.Itoa(i), 10, 1)
	}
	for _, id := range more {
		list = append(list, campaign(id, 10, 1))
	}
	return catalogOf(list...)
}

// TestIdleCampaignsHaveNoFigures: in a large catalog only those with jobs have, for a while longer, and those with a fault.
func TestIdleCampaignsHaveNoFigures(t *testing.T) {
	testservices.Simulation(t)
	synctest.Test(t, func(t *testing.T) {
		s := vast("c", "faulty", "expected")
		s.Campaigns["faulty"].Invalid, s.Campaigns["expected"].ExpectedTotal = "burst must not be negative", 100
		m, _ := alone(s)
		m.lane(1, 0, "c", 100)
		series := func() (backlogs, rates, holds int) {
			return m.backlogs(), testutil.CollectAndCount(m.metrics.rate), testutil.CollectAndCount(m.holds.gauge)
		}
		for range 2 {
			m.exchange(t.Context())
			time.Sleep(exchangeEvery)
		}
		m.shows(t, "c", 100, 10)
		m.shows(t, "expected", 0, 10)
		if backlogs, rates, holds := series(); backlogs != 4 || rates != 3 || holds != 1 { // one is (unknown)
			t.Errorf("%d backlogs, %d rates, %d holds", backlogs, rates, holds)
		}
		m.lanes.Lanes = nil
		time.Sleep(movesFor)
		m.exchange(t.Context())
		m.shows(t, "c", 0, 0)
		time.Sleep(livelyFor + time.Second)
		m.exchange(t.Context())
		m.exchange(t.Context())
		if backlogs, rates, holds := series(); backlogs != 3 || rates != 2 || holds != 1 {
			t.Errorf("later %d backlogs, %d rates, %d holds", backlogs, rates, holds)
		}
		delete(s.Campaigns, "campaign-1")
		delete(s.Campaigns, "campaign-2")
		delete(s.Campaigns, "campaign-3")
		m.exchange(t.Context())
		if backlogs, rates, _ := series(); backlogs != maxIdle+1 || rates != maxIdle {
			t.Errorf("%d backlogs, %d rates in a smaller catalog", backlogs, rates)
		}
	})
}

// TestRampsShowInTheGauge: the rate exported is the one in force.
func TestRampsShowInTheGauge(t *testing.T) {
	ramp := &delivery.Ramp{Start: 2_000_000, Add: 1_000_000, Per: time.Second, Every: time.Minute, Since: time.Now().Add(-90 * time.Second)}
	c := campaign("c", 100, 1)
	c.Ramp = ramp
	m := newMetrics(prometheus.NewRegistry())
	for after, want := range map[time.Duration]float64{90 * time.Second: 3, 200 * time.Second: 5, 24 * time.Hour: 100} {
		m.showRates(catalogOf(c).Campaigns, ramp.Since.Add(after))
		if got := testutil.ToFloat64(m.rate.WithLabelValues("c")); got != want {
			t.Errorf("%v/s after %s, want %v", got, after, want)
		}
	}
	m.showRates(nil, time.Now())
	if n := testutil.CollectAndCount(m.rate); n != 0 {
		t.Errorf("%d rates of a campaign that is gone", n)
	}
}

// TestLateOverAllDaemons: what both send together counts.
func TestLateOverAllDaemons(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange, snapshot := NewRedisExchange(client, "p."), catalogOf(campaign("c", 100, 1))
	a, b := newMember(t, "a", exchange, newShelf(), snapshot), newMember(t, "b", exchange, newShelf(), snapshot)
	a.lane(1, 0, "c", 1e6)
	play := func(seconds int, each int64) {
		for range seconds {
			for _, m := range []*member{a, b} {
				sent := each
				if len(m.tallies) > 0 {
					sent += m.tallies[0].Sent
				}
				m.tallies = []delivery.Tally{{Campaign: "c", Sent: sent}}
				if m.Leads() {
					m.at = time.Now().Add(-time.Second) // a second has passed since it looked last
				}
				m.exchange(t.Context())
			}
		}
	}
	by := func(m *member, cause string) float64 {
		return testutil.ToFloat64(m.metrics.late.WithLabelValues(cause))
	}
	late := func(m *member) float64 { return by(m, "capacity") + by(m, "destination") }
	play(60, 50)
	if late(a) != 0 {
		t.Errorf("%f are late of a campaign that keeps its rate", late(a))
	}
	play(30, 20)
	if late(a) < 500 || late(a) > 2000 {
		t.Errorf("%f are late when 60 of 100 a second were missing for 30 s", late(a))
	}
	if by(a, "destination") != 0 {
		t.Error("late by the destination, whose gate is open")
	}
	capacity := by(a, "capacity")
	a.gates = []delivery.Gate{{Sink: "sink", Cause: delivery.GateFailing, Until: time.Now().Add(time.Hour)}}
	play(30, 0)
	if by(a, "capacity") > capacity || by(a, "destination") < 1500 {
		t.Errorf("%f are late by a destination whose gate was closed for 30 s, %f were late before and %f are now",
			by(a, "destination"), capacity, by(a, "capacity"))
	}
}

// TestExchange: only the daemon that leads reads the parts, and each hears what it makes of them; old parts go, and there is
// a bound.
func TestExchange(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange, ctx := NewRedisExchange(client, "p."), t.Context()
	var got map[string]string // the parts that were read
	leave := func(daemon, part string) Summary {
		t.Helper()
		got = nil
		told, err := exchange.Swap(ctx, daemon, []byte(part), func(left []Left) []byte {
			got = map[string]string{}
			for _, l := range left {
				if l.Age < keepFor {
					got[l.Daemon] = string(l.Part)
				}
			}
			return []byte("sum \x00\xff of " + strconv.Itoa(len(got)))
		})
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
	leave("a", "first")
	if told := leave("b", "other"); got != nil || told.Leader != "a" || string(told.Summary) != "sum \x00\xff of 1" {
		t.Errorf("%+v; read %q", told, got)
	}
	client.HSet(ctx, "{p.}progress", "nonsense", "not a part", "old", "5 part")
	told := leave("a", "second \x00\xff part")
	if want := map[string]string{"a": "second \x00\xff part", "b": "other"}; !maps.Equal(got, want) || told.Leader != "a" {
		t.Errorf("%+v; read %q", told, got)
	}
	if n := client.HLen(ctx, "{p.}progress").Val(); n != 2 {
		t.Errorf("%d parts are kept", n)
	}
	client.Del(ctx, "{p.}progress-leader") // it made no summary in time
	if told := leave("b", "other"); told.Leader != "b" || len(got) != 2 {
		t.Errorf("%+v; read %q", told, got)
	}
	for i := range maxParts + 3 {
		leave(time.Duration(i).String(), "x")
	}
	if n := client.HLen(ctx, "{p.}progress").Val(); n != maxParts {
		t.Errorf("%d parts at the exchange, want %d", n, maxParts)
	}
	for _, key := range []string{"progress", "progress-leader", "progress-summary"} {
		if ttl := client.PTTL(ctx, "{p.}"+key).Val(); ttl <= 0 || ttl > keepFor {
			t.Errorf("%s lasts %s", key, ttl)
		}
	}
}

// TestALeaderThatStops: it gives up its lead, so that another one sums up at its next exchange; one that does not lead takes
// nothing from the leader.
func TestALeaderThatStops(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange := NewRedisExchange(client, "p.")
	stopped, stop := context.WithCancel(t.Context())
	stop()
	a, b := newMember(t, "a", exchange, newShelf(), catalogOf()), newMember(t, "b", exchange, newShelf(), catalogOf())
	a.exchange(t.Context())
	for _, c := range []struct {
		stops  *member
		leader string
	}{{b, "a"}, {a, "b"}} {
		if err := c.stops.Run(stopped); err != nil {
			t.Fatal(err)
		}
		b.exchange(t.Context())
		if leader := client.Get(t.Context(), "{p.}progress-leader").Val(); leader != c.leader {
			t.Errorf("after the stop of %s, %q leads, want %s", c.stops.opt.Daemon, leader, c.leader)
		}
	}
}

// TestASummaryOfADeposedLeader: it does not replace that of its successor.
func TestASummaryOfADeposedLeader(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange, ctx := NewRedisExchange(client, "p."), t.Context()
	_, err := exchange.Swap(ctx, "a", nil, func([]Left) []byte {
		client.Del(ctx, "{p.}progress-leader") // it took too long
		if told, err := exchange.Swap(ctx, "b", nil, func([]Left) []byte { return []byte("newer") }); err != nil || told.Leader != "b" {
			t.Errorf("%+v, %v", told, err)
		}
		return []byte("older")
	})
	if !errors.Is(err, errDeposed) {
		t.Errorf("%v", err)
	}
	if told, err := exchange.last(ctx); err != nil || told.Leader != "b" || string(told.Summary) != "newer" {
		t.Errorf("%+v, %v", told, err)
	}
}

// TestAnotherTakesOver: a leader that dies is succeeded, and in between and after it nothing is taken for late; what is sent counts on.
func TestAnotherTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		desk, snapshot := &table{parts: map[string]Left{}}, catalogOf(campaign("c", 100, 1))
		a, b := newMember(t, "a", desk, newShelf(), snapshot), newMember(t, "b", desk, newShelf(), snapshot)
		a.lane(1, 0, "c", 1e6)
		b.lane(2, 0, "c", 1e6)
		a.tallies, b.tallies = []delivery.Tally{{Campaign: "c"}}, []delivery.Tally{{Campaign: "c"}}
		second := func(members ...*member) {
			for _, m := range members {
				m.tallies[0].Sent += 100 / int64(len(members))
				m.exchange(t.Context())
			}
			time.Sleep(exchangeEvery)
		}
		for range 60 {
			second(a, b)
		}
		for i := range 60 {
			if i == leads {
				desk.leader = ""
			}
			second(b)
			if i < leads {
				continue
			}
			b.shows(t, "c", 1e6, 1e4)
			if late := testutil.ToFloat64(b.metrics.late.WithLabelValues("capacity")); late != 0 {
				t.Fatalf("%f are late %d s after the leader has died", late, i)
			}
		}
		if !b.Leads() || len(b.ledger.outlook) == 0 {
			t.Errorf("leads %t, %v", b.Leads(), b.ledger.outlook)
		}
	})
}

// leads is for how many seconds no daemon sums up after a leader has died.
const leads = int(leadFor / time.Second)

// table is an exchange in memory, of a leader that the test removes.
type table struct {
	Exchange
	parts  map[string]Left
	leader string
	told   Summary
	made   time.Time
}

func (x *table) Swap(_ context.Context, daemon string, part []byte, sumUp func([]Left) []byte) (Summary, error) {
	x.parts[daemon] = Left{daemon, time.Duration(time.Now().UnixNano()), part} // when it was left, here
	x.leader = cmp.Or(x.leader, daemon)
	if x.leader == daemon {
		var left []Left
		for _, l := range x.parts {
			l.Age = time.Duration(time.Now().UnixNano()) - l.Age
			left = append(left, l)
		}
		x.told, x.made = Summary{Leader: daemon, Summary: sumUp(left)}, time.Now()
	}
	x.told.Age = time.Since(x.made)
	return x.told, nil
}

func (x *table) Resign(context.Context) error {
	x.leader = ""
	return nil
}

// broken is an exchange that does not answer.
type broken struct{ Exchange }

func (broken) Swap(context.Context, string, []byte, func([]Left) []byte) (Summary, error) {
	return Summary{}, errors.New("no connection")
}

// TestFiguresVanish: without the exchange the last figures stand for a while, and are not shown for true any longer.
func TestFiguresVanish(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	defer client.Close()
	exchange := NewRedisExchange(client, "p.")
	m := newMember(t, "a", exchange, newShelf(), catalogOf(campaign("c", 10, 1)))
	m.lane(1, 0, "c", 100)
	m.exchange(t.Context())
	m.opt.Exchange = broken{}
	m.exchange(t.Context())
	m.shows(t, "c", 100, 10)
	m.at = time.Now().Add(-showFor - time.Second)
	m.exchange(t.Context())
	if n := m.backlogs() + testutil.CollectAndCount(m.metrics.eta) + testutil.CollectAndCount(m.metrics.late); n != 0 {
		t.Errorf("%d figures that nobody knows", n)
	}
	m.opt.Exchange = exchange
	m.exchange(t.Context())
	m.shows(t, "c", 100, 10)
}

// counting is a desk where a campaign's jobs become more by one each 100 ms.
type counting struct {
	desk
	since  time.Time
	others int // campaigns with a job each
}

func (c *counting) jobs() int64 { return int64(time.Since(c.since) / (100 * time.Millisecond)) }

func (c *counting) Backlog() delivery.LanesBacklog {
	d := &desk{}
	d.lane(1, 0, "c", c.jobs())
	for i := range c.others {
		d.lanes.Lanes[0].Waiting = append(d.lanes.Lanes[0].Waiting, delivery.CampaignCount{Campaign: uint64(i + 1), Jobs: 1})
	}
	return d.Backlog()
}

// TestWhatIsStoredIsFresh: what the catalog says of a daemon's jobs is less than 3 s old, so that it is less than 5 s old with what another
// daemon has said a second or two before.
func TestWhatIsStoredIsFresh(t *testing.T) {
	for _, others := range []int{0, 3000, 10_000} { // exchanges come less often
		synctest.Test(t, func(t *testing.T) { whatIsStoredIsFresh(t, others) })
	}
}

func whatIsStoredIsFresh(t *testing.T, others int) {
	m, _ := alone(catalogOf(campaign("c", 10, 1)))
	work, store := &counting{since: time.Now(), others: others}, m.opt.Store.(*shelf)
	m.opt.Work = work
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	time.Sleep(10 * time.Second)
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		store.mu.Lock()
		is := store.outlook["c"].Total()
		store.mu.Unlock()
		if now := work.jobs(); is < now-30 || is > now {
			t.Errorf("%d jobs are stored, %d are there, and 30 more come in 3 s", is, now)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLedgerAddsOnce: what could not be saved is saved the next time, and nothing twice.
func TestLedgerAddsOnce(t *testing.T) {
	store := newShelf()
	l := newLedger(store, slog.New(slog.DiscardHandler))
	snapshot := catalogOf(campaign("c", 1, 1))
	tallies := func(n int64) []delivery.Tally {
		return []delivery.Tally{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: n, delivery.OutcomeDead: 1}}, {Campaign: "gone", Settled: delivery.Settled{delivery.OutcomeDelivered: n}}}
	}
	l.save(t.Context(), tallies(10), snapshot)
	store.fail = errors.New("no connection")
	l.save(t.Context(), tallies(20), snapshot)
	store.fail = nil
	for range 3 {
		l.save(t.Context(), tallies(30), snapshot)
	}
	if got := store.settled["c"]; got != (delivery.Settled{delivery.OutcomeDelivered: 30, delivery.OutcomeDead: 1}) || len(store.settled) != 1 {
		t.Errorf("%+v", store.settled)
	}
}

// BenchmarkExchange is a second of a daemon with ten thousand campaigns that all have a backlog in working hours.
func BenchmarkExchange(b *testing.B) {
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: 540, To: 1080}}, time.UTC)
	if err != nil {
		b.Fatal(err)
	}
	var list []*delivery.Campaign
	d := &desk{}
	for i := range 10_000 {
		c := campaign(string(rune('a'+i%26))+time.Duration(i).String(), 10, 1)
		c.Hours = hours
		list = append(list, c)
		d.lane(1, i%256, c.ID, 1_000_000)
	}
	tracker := New(Options{
		Daemon: "a", Work: d, Exchange: echo{}, Store: newShelf(), Snapshot: func() *delivery.Snapshot { return nil },
		Windows: func() []delivery.WindowState { return nil }, Gates: d.closed, Sink: anySink, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	snapshot := catalogOf(list...)
	tracker.opt.Snapshot = func() *delivery.Snapshot { return snapshot }
	for b.Loop() {
		tracker.exchange(b.Context())
	}
}

// echo is an exchange with one daemon.
type echo struct{}

func (echo) Resign(context.Context) error { return nil }

func (echo) Swap(_ context.Context, daemon string, part []byte, sumUp func([]Left) []byte) (Summary, error) {
	return Summary{Leader: daemon, Summary: sumUp([]Left{{Daemon: daemon, Part: part}})}, nil
}

func TestManyCampaignsAreToldOfLessOften(t *testing.T) {
	for campaigns, want := range map[int]time.Duration{0: time.Second, 2500: 1500 * time.Millisecond, 1_000_000: 2 * time.Second} {
		if got := exchangeAfter(campaigns); got != want || 2*got >= freshFor || got >= leadFor {
			t.Errorf("%d campaigns: every %s, want %s", campaigns, got, want)
		}
	}
}

// TestWhatMayNotSendHasNoRate: the sum over all campaigns is what could be sent, so one that is over, or is not to send now, adds nothing.
func TestWhatMayNotSendHasNoRate(t *testing.T) {
	now := time.Now()
	sends, cancelled, paused, ended, later := campaign("sends", 10, 1), campaign("cancelled", 10, 1), campaign("paused", 10, 1), campaign("ended", 10, 1), campaign("later", 10, 1)
	cancelled.Status, paused.Status = delivery.StatusCancelled, delivery.StatusPaused
	ended.EndsAt, later.StartsAt = now.Add(-time.Hour), now.Add(time.Hour)
	m := newMetrics(prometheus.NewRegistry())
	m.showRates(catalogOf(sends, cancelled, paused, ended, later).Campaigns, now)
	for id, want := range map[string]float64{"sends": 10, "cancelled": 0, "paused": 0, "ended": 0, "later": 0} {
		if got := testutil.ToFloat64(m.rate.WithLabelValues(id)); got != want {
			t.Errorf("%s: %v/s, want %v", id, got, want)
		}
	}
}
