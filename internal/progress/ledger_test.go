package progress

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// shelf is a Store in memory.
type shelf struct {
	settled map[string]delivery.Settled
	outlook map[string]delivery.Outlook
	fail    error
	refuses bool // outlooks
	takes   time.Duration
	events  chan string // is told of each save, if it is set

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
	if s.events != nil {
		s.events <- "a save"
	}
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

// save writes to the catalog, and waits for it.
func (l *ledger) save(ctx context.Context, tallies []delivery.Tally, s *delivery.Snapshot) {
	l.write(ctx, tallies, s, nil, false)
}

// write writes to the catalog and reads it, and waits for it.
func (l *ledger) write(ctx context.Context, tallies []delivery.Tally, s *delivery.Snapshot, campaigns map[string]*delivery.Campaign, leads bool) {
	w := l.begin(tallies, nil, s, campaigns, leads, nil)
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
		stop := m.start(t)
		for i := range 30 {
			time.Sleep(time.Second)
			if age := time.Since(m.board.Load().At); age > exchangeLeast {
				t.Errorf("after %d s the figures are %s old", i, age)
			}
		}
		stop()
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
		l.foreseen = map[counted]delivery.Outlook{{campaign: "c"}: {Backlog: delivery.Backlog{Waiting: n}}}
	}
	waiting(7)
	w := l.begin(nil, nil, nil, nil, true, nil)
	waiting(6)
	l.perform(t.Context(), &w)
	l.note(w)
	l.save(t.Context(), nil, nil)
	if got := store.outlook["c"].Total(); got != 6 {
		t.Errorf("%d wait, want 6", got)
	}
	waiting(5)
	w = l.begin(nil, nil, nil, nil, true, nil)
	l.perform(t.Context(), &w)
	l.stepDown()
	l.note(w)
	if len(l.kept)+len(l.foreseen) > 0 || l.asked {
		t.Errorf("%v and %v are remembered", l.kept, l.foreseen)
	}
}

// TestWhatIsSavedCountsOnce: though nothing can be saved for a while, or no outlooks. Counts of a campaign that does not exist are not saved.
func TestWhatIsSavedCountsOnce(t *testing.T) {
	store := newShelf()
	l := newLedger(store, slog.New(slog.DiscardHandler))
	known := catalogOf(campaign("plain", 1, 1), campaign("waits", 1, 1))
	tallies := []delivery.Tally{
		{Campaign: "plain", Settled: delivery.Settled{delivery.OutcomeDelivered: 2}},
		{Campaign: "gone", Settled: delivery.Settled{delivery.OutcomeDelivered: 9}},
	}
	l.save(t.Context(), tallies, known)
	tallies[0].Settled[delivery.OutcomeDelivered]++
	tallies = append(tallies, delivery.Tally{Campaign: "waits", Settled: delivery.Settled{delivery.OutcomeDelivered: 5, delivery.OutcomeDead: 1}})
	store.fail = errors.New("no connection")
	l.save(t.Context(), tallies, known)
	store.fail = nil
	l.foreseen = map[counted]delivery.Outlook{{campaign: "waits"}: {Backlog: delivery.Backlog{Waiting: 7}}}
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
	if store.settled["plain"] != tallies[0].Settled || store.settled["waits"] != tallies[2].Settled || len(store.settled) != 2 {
		t.Errorf("%+v", store.settled)
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
	exchange, _ := overRedis(t)
	store := newShelf()
	snapshot := catalogOf(campaign("c", 10, 1))
	snapshot.Destinations = map[string]*delivery.Destination{"shop": {ID: "shop"}, "cafe": {ID: "cafe"}, "empty": {ID: "empty"}}
	store.outlook["to empty"] = delivery.Outlook{Backlog: delivery.Backlog{Waiting: 5}}
	a, b := newMember("a", exchange, store, snapshot), newMember("b", exchange, store, snapshot)
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
	exchange, client := overRedis(t)
	store := newShelf()
	snapshot := catalogOf(campaign("c", 10, 1))
	a, b := newMember("a", exchange, store, snapshot), newMember("b", exchange, store, snapshot)
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
	if got := store.outlook["c"].Total(); got != 5 || len(a.ledger.kept)+len(a.ledger.foreseen) > 0 {
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
	stop := m.start(t)
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
	stop()
}
