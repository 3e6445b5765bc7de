package progress

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
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
	answers  map[string][]delivery.Answer
	gates    []delivery.Gate
	windows  []delivery.WindowState
	troubles []delivery.Trouble
	lines    map[string]int64 // by destination
}

func (d *desk) closed() []delivery.Gate { return d.gates }

func (d *desk) Backlog() delivery.LanesBacklog                          { return d.lanes }
func (d *desk) InMemory(context.Context) ([]delivery.MemoryJobs, error) { return d.held, nil }
func (d *desk) Tallies() []delivery.Tally                               { return d.tallies }
func (d *desk) Answers() map[string][]delivery.Answer                   { return d.answers }
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

// member is a daemon, and what it has said in its log.
type member struct {
	*Tracker
	*desk
	said *bytes.Buffer
}

// newMember is a daemon of a fleet that shares an exchange.
func newMember(name string, exchange Exchange, store Store, snapshot *delivery.Snapshot) *member {
	d, said := &desk{}, &bytes.Buffer{}
	return &member{New(Options{
		Daemon: name, Work: d, Exchange: exchange, Store: store, Snapshot: func() *delivery.Snapshot { return snapshot },
		Windows: func() []delivery.WindowState { return d.windows }, Gates: d.closed,
		Sink:   func(name string) (string, bool) { return "receiver", name != "typo" },
		Logger: slog.New(slog.NewTextHandler(said, nil)), Registerer: prometheus.NewRegistry(),
	}), d, said}
}

// overRedis is an exchange in a Redis of its own.
func overRedis(t *testing.T) (*RedisExchange, *redis.Client) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: testservices.FreshRedis(t).Addr})
	t.Cleanup(func() { _ = client.Close() })
	return NewRedisExchange(client, "p."), client
}

// start runs the daemon. The returned function ends it.
func (m *member) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// seconds lets seconds pass, each after an exchange.
func (m *member) seconds(t *testing.T, n int) {
	t.Helper()
	for range n {
		m.exchange(t.Context())
		time.Sleep(exchangeEvery)
	}
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
	exchange, client := overRedis(t)
	store := newShelf()
	more := campaign("more", 10, 1)
	more.ExpectedTotal = 1000
	snapshot := catalogOf(campaign("c", 10, 1), campaign("heavy", 10, 1), campaign("idle", 10, 1), more)
	a, b := newMember("a", exchange, store, snapshot), newMember("b", exchange, store, snapshot)
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
			m.ledger.write(t.Context(), nil, m.snapshot, m.watched, m.Leads())
			m.exchange(t.Context())
		}
	}
	a.shows(t, "c", 125, 12.5)
	a.shows(t, "heavy", 50, 15)
	a.shows(t, "idle", 0, 0)
	a.shows(t, "more", 0, 60)
	if b.ledger.loaded != nil {
		t.Error("a daemon that does not lead reads what is settled")
	}
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
			return m.backlogs(), testutil.CollectAndCount(m.metrics.rate), m.holdings()
		}
		m.seconds(t, 1)
		m.ledger.write(t.Context(), nil, m.snapshot, m.watched, true)
		m.seconds(t, 1)
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

// TestRatesInTheGauge: the rate exported is the one in force. The sum over all campaigns is what could be sent, so one that is over, or is not
// to send now, adds nothing.
func TestRatesInTheGauge(t *testing.T) {
	begin := time.Now()
	list := []*delivery.Campaign{
		campaign("sends", 100, 1), campaign("cancelled", 10, 1), campaign("paused", 10, 1), campaign("ended", 10, 1), campaign("later", 10, 1),
	}
	list[0].Ramp = &delivery.Ramp{Start: 2_000_000, Add: 1_000_000, Per: time.Second, Every: time.Minute, Since: begin}
	list[1].Status, list[2].Status = delivery.StatusCancelled, delivery.StatusPaused
	list[3].EndsAt, list[4].StartsAt = begin.Add(-time.Hour), begin.Add(48*time.Hour)
	m := newMetrics(prometheus.NewRegistry())
	for after, rate := range map[time.Duration]float64{90 * time.Second: 3, 200 * time.Second: 5, 24 * time.Hour: 100} {
		m.showRates(catalogOf(list...).Campaigns, begin.Add(after))
		for id, want := range map[string]float64{"sends": rate, "cancelled": 0, "paused": 0, "ended": 0, "later": 0} {
			if got := testutil.ToFloat64(m.rate.WithLabelValues(id)); got != want {
				t.Errorf("%s: %v/s after %s, want %v", id, got, after, want)
			}
		}
	}
	m.showRates(nil, begin)
	if n := testutil.CollectAndCount(m.rate); n != 0 {
		t.Errorf("%d rates of campaigns that are gone", n)
	}
}

// TestLateOverAllDaemons: what both send together counts.
func TestLateOverAllDaemons(t *testing.T) {
	exchange, _ := overRedis(t)
	snapshot := catalogOf(campaign("c", 100, 1))
	a, b := newMember("a", exchange, newShelf(), snapshot), newMember("b", exchange, newShelf(), snapshot)
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
	a.gates = []delivery.Gate{{Sink: "receiver", Cause: delivery.GateFailing, Until: time.Now().Add(time.Hour)}}
	play(30, 0)
	if by(a, "capacity") > capacity || by(a, "destination") < 1500 {
		t.Errorf("%f are late by a destination whose gate was closed for 30 s, %f were late before and %f are now",
			by(a, "destination"), capacity, by(a, "capacity"))
	}
}

// TestExchange: only the daemon that leads reads the parts, and each hears what it makes of them; old parts go, and there is
// a bound.
func TestExchange(t *testing.T) {
	exchange, client := overRedis(t)
	ctx := t.Context()
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
	const many = 300
	for i := range many {
		leave(time.Duration(i).String(), "x")
	}
	if n := client.HLen(ctx, "{p.}progress").Val(); n != 2+many {
		t.Errorf("%d parts at the exchange, want one of each of %d daemons", n, 2+many)
	}
	for _, key := range []string{"progress", "progress-leader", "progress-summary"} {
		if ttl := client.PTTL(ctx, "{p.}"+key).Val(); ttl <= 0 || ttl > keepFor {
			t.Errorf("%s lasts %s", key, ttl)
		}
	}
}

// TestWhatIsFromTheFutureIsOld: Redis' clock has jumped back, and what a daemon left before, which is dead by now, does not count on.
func TestWhatIsFromTheFutureIsOld(t *testing.T) {
	exchange, client := overRedis(t)
	m := newMember("m", exchange, newShelf(), catalogOf(campaign("c", 10, 1)))
	future, dead := time.Now().Add(time.Hour), (&part{Memory: map[uint64]memory{delivery.CampaignHash("c"): {Direct: 50}}}).encode()
	client.HSet(t.Context(), "{p.}progress", "dead", strconv.FormatInt(future.UnixMilli(), 10)+" "+string(dead))
	client.Set(t.Context(), "{p.}progress-summary", strconv.FormatInt(future.UnixMicro(), 10)+" dead "+string(dead), time.Minute)
	if board, err := ReadBoard(t.Context(), exchange); err != nil || board.Of(m.opt.Snapshot().Campaign("c")).Backlog.Total() != 0 {
		t.Errorf("%+v, %v", board, err)
	}
	m.exchange(t.Context())
	if m.Fleet() != 1 || m.backlog("c") != 0 {
		t.Errorf("%d daemons, %f jobs", m.Fleet(), m.backlog("c"))
	}
}

// TestALeaderThatStops: it gives up its lead, so that another one sums up at its next exchange; one that does not lead takes
// nothing from the leader.
func TestALeaderThatStops(t *testing.T) {
	exchange, client := overRedis(t)
	stopped, stop := context.WithCancel(t.Context())
	stop()
	a, b := newMember("a", exchange, newShelf(), catalogOf()), newMember("b", exchange, newShelf(), catalogOf())
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
	exchange, client := overRedis(t)
	ctx := t.Context()
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
		a, b := newMember("a", desk, newShelf(), snapshot), newMember("b", desk, newShelf(), snapshot)
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
		if !b.Leads() || len(b.ledger.foreseen) == 0 {
			t.Errorf("leads %t, %v", b.Leads(), b.ledger.foreseen)
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

// TestOutagesEnd: an outage of the exchange, and one of the catalog, are one line each when they begin, and one when they are over.
func TestOutagesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, log := alone(catalogOf(campaign("c", 10, 1)))
		store := m.opt.Store.(*shelf)
		for i := range 6 {
			m.opt.Exchange, store.fail = echo{}, nil
			if i == 2 || i == 3 {
				m.opt.Exchange, store.fail = broken{}, errors.New("no connection")
			}
			m.exchange(t.Context())
			m.tallies = []delivery.Tally{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: int64(i + 1)}}}
			m.ledger.save(t.Context(), m.tallies, m.snapshot)
			time.Sleep(time.Second)
		}
		for _, line := range []string{"not up to date", "up to date again", "cannot be saved", "saved again"} {
			if n := strings.Count(log.String(), line); n != 1 {
				t.Errorf("%q is logged %d times:\n%s", line, n, log)
			}
		}
	})
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
	for campaigns, want := range map[int]int{10: 60, maxIdle: 30, maxIdle + 1: 60} { // of those beyond, none is looked at without jobs
		synctest.Test(t, func(t *testing.T) {
			var list []*delivery.Campaign
			for i := range campaigns {
				list = append(list, campaign(strconv.Itoa(i), 1, 1))
			}
			m, _ := alone(catalogOf(list...))
			n := 0
			m.opt.Readings = func() (none Readings) { return none }
			m.opt.Node = func() Daemon { n++; return Daemon{} } // once in each part
			stop := m.start(t)
			time.Sleep(time.Minute)
			stop()
			if n < want || n > want+2 {
				t.Errorf("%d campaigns without jobs: %d exchanges in a minute, want %d", campaigns, n, want)
			}
		})
	}
}

// TestWhatIsSettledAtOnceIsNotMoving: jobs that waited at one exchange and are settled at the next, the first ones of their campaign.
func TestWhatIsSettledAtOnceIsNotMoving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := alone(catalogOf(campaign("c", 1000, 1)))
		m.direct("c", 500)
		m.tallies = []delivery.Tally{{Campaign: "c"}}
		m.seconds(t, 1)
		m.direct("c", 0)
		m.tallies = []delivery.Tally{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: 500}, Sent: 500}}
		m.exchange(t.Context())
		m.shows(t, "c", 0, 0)
	})
}

// resigning is an exchange that tells of a leader that resigns.
type resigning struct {
	echo
	events chan string
}

func (x resigning) Resign(context.Context) error {
	x.events <- "the end of the lead"
	return nil
}

// TestTheLastWriteIsThatOfALeader: a daemon that stops does not write over what its successor has written.
func TestTheLastWriteIsThatOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		events := make(chan string, 100)
		m, _ := alone(catalogOf(campaign("c", 10, 1)))
		store := m.opt.Store.(*shelf)
		m.opt.Work, m.opt.Exchange, store.events = steady{m.desk, time.Now()}, resigning{events: events}, events
		stop := m.start(t)
		time.Sleep(5900 * time.Millisecond)
		stop()
		close(events)
		var all []string
		for event := range events {
			all = append(all, event)
		}
		if got := store.settled["c"].Total(); got != 5 || slices.Index(all, "the end of the lead") != len(all)-1 {
			t.Errorf("%d settled jobs are saved: %q", got, all)
		}
	})
}
