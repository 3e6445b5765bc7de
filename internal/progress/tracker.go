package progress

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// exchangeEvery is the shortest interval between exchanges, and callTimeout bounds an exchange and a read of the
	// memory. With many campaigns the interval grows by exchangeEach per campaign, up to exchangeLeast: what a daemon says
	// is summed up within one interval and heard within another, and both are less than freshFor.
	exchangeEvery = time.Second
	// exchangeFirst is how soon the first exchange comes once the catalog is loaded: jobs that are read go behind those that wait in lanes.
	exchangeFirst = 50 * time.Millisecond
	exchangeEach  = 200 * time.Microsecond
	exchangeLeast = 2 * time.Second
	callTimeout   = 2 * time.Second
	// turnSoon is how far off the next job of a campaign may be, by its rate, without a word of it.
	turnSoon = 2 * time.Second
	// showFor is how long outdated figures are shown.
	showFor = 10 * time.Second
	// An exchange is followed by a write to the catalog if the last write is saveEvery ago: what the catalog says is then less than 5 s old, with
	// what another daemon has said an exchange before. saveTimeout bounds a write.
	saveEvery   = 1500 * time.Millisecond
	saveTimeout = 5 * time.Second
)

// Work is what this daemon has to do and has done, as known to the pacer and the consumer.
type Work interface {
	// Backlog returns the jobs that wait in the lanes that this daemon reads.
	Backlog() delivery.LanesBacklog
	// InMemory returns the jobs that wait in its memory.
	InMemory(ctx context.Context) ([]delivery.MemoryJobs, error)
	// AtDestinations returns how many jobs in its memory wait for destinations of the catalog, without those of timers.
	AtDestinations(ctx context.Context) (map[string]int64, error)
	// Tallies returns what the daemon has done since it started.
	Tallies() []delivery.Tally
	// Answers returns the last answers of destinations, since they were returned last.
	Answers() map[string][]delivery.Answer
	// Troubles returns the campaigns whose jobs their sinks do not take.
	Troubles(ctx context.Context) ([]delivery.Trouble, error)
}

// Store stores progress durably.
type Store interface {
	// SaveProgress adds settled jobs and replaces outlooks; either all in the list have an outlook or none. Campaigns and destinations that do
	// not exist any more are skipped. An error means that nothing was saved, as far as the store can tell.
	SaveProgress(ctx context.Context, list []delivery.Progress) error
	// SpreadCampaigns sets the rates of campaigns until their finish_by, in millionths of a unit per hour.
	SpreadCampaigns(ctx context.Context, rates map[string]int64) error
	// LoadSettled returns the settled jobs, over all time, of the campaigns with an expected total, and of these others.
	LoadSettled(ctx context.Context, others []string) (map[string]delivery.Settled, error)
	// LoadSettledOf returns the settled jobs, over all time, of destinations.
	LoadSettledOf(ctx context.Context, destinations []string) (map[string]delivery.Settled, error)
	// LoadOutlooks returns the outlooks that are stored, except empty ones.
	LoadOutlooks(ctx context.Context) ([]delivery.Progress, error)
}

// Options of a Tracker. All are required.
type Options struct {
	Daemon   string // unique name of this daemon
	Work     Work
	Exchange Exchange
	Store    Store
	Snapshot func() *delivery.Snapshot // nil while the catalog is not loaded
	// Windows returns the states of quota windows as last observed; windows that were not observed recently are left
	// out.
	Windows func() []delivery.WindowState
	// Gates returns the gates of sinks that are closed.
	Gates func() []delivery.Gate
	// Sink returns the configured sink of a campaign that names this one; ok is false if there is none.
	Sink func(name string) (id string, ok bool)
	Show Show // "" is ShowAll
	// Ledger: jobs wait for the dedupe ledger, which is in the quota store.
	Ledger bool
	// Recount counts in the log how many jobs of a campaign were published, without those that wait, and how many of them name each destination; nil: it
	// cannot be counted.
	Recount func(ctx context.Context, campaign string) (jobs int64, to map[string]int64, err error)
	// Node, if it is set, describes this daemon: Host, Address, Version, Ready, State and KafkaAway. Readings is what it counts and measures.
	Node       func() Daemon
	Readings   func() Readings
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Tracker updates the figures of all campaigns; see the package comment. Make one with New and call Run once, which
// does everything in one goroutine.
type Tracker struct {
	opt     Options
	log     *slog.Logger
	metrics *metrics

	view
	leads   atomic.Int64                                  // until when this daemon leads, by what it was told, Unix nanoseconds
	board   atomic.Pointer[Board]                         // the last one
	showing atomic.Pointer[map[string]*delivery.Campaign] // those with series of their own
	okAt    time.Time                                     // of the last exchange
	active  map[uint64]activity                           // what this daemon has done, by campaign
	recent  recent
	outage  retry.Outage // of the exchange
	foreign retry.Outage // what others leave there cannot be read

	// Of the daemon that leads.
	merger   merger
	sent     map[uint64]int64 // units by campaign, as of the last figures
	debts    map[uint64]debt
	late     Lateness
	at       time.Time // of the last figures; zero: there are none
	holds    holds
	saidLate map[string]string // what is in the way of campaigns that will miss their FinishBy, as logged
	ledger   ledger
	recounts recounts
}

// view is what is known of the catalog.
type view struct {
	snapshot *delivery.Snapshot
	looked   int                           // at how many campaigns, in the last exchange
	byHash   map[uint64]*delivery.Campaign // of snapshot
	watched  map[string]*delivery.Campaign // of these, those that matter without jobs
	lively   map[string]time.Time          // when they last had jobs, if not all campaigns have figures
}

// New makes a Tracker; it starts nothing.
func New(o Options) *Tracker {
	o.Show = cmp.Or(o.Show, ShowAll)
	t := &Tracker{
		opt: o, log: o.Logger, metrics: newMetrics(o.Registerer), recent: newRecent(time.Now()), sent: map[uint64]int64{}, debts: map[uint64]debt{},
		view:  view{watched: map[string]*delivery.Campaign{}, lively: map[string]time.Time{}},
		holds: newHolds(o.Logger, o.Registerer), ledger: newLedger(o.Store, o.Logger), saidLate: map[string]string{},
		recounts: recounts{log: o.Logger, count: o.Recount, killed: map[string]bool{}, asked: map[string]time.Time{}, wanted: make(chan recount)},
	}
	t.board.Store(&Board{})
	return t
}

// Run updates the figures until ctx ends, and then saves what was settled since the last save.
func (t *Tracker) Run(ctx context.Context) error {
	exchange := time.NewTicker(exchangeFirst)
	defer exchange.Stop()
	var recounting sync.WaitGroup
	recounting.Go(func() { t.recounts.run(ctx, t.Leads, t.opt.Store) })
	defer recounting.Wait()
	for saved := time.Now(); ; {
		select {
		case <-exchange.C:
			t.exchange(ctx)
			if t.snapshot == nil {
				continue
			}
			exchange.Reset(exchangeAfter(t.looked))
			if now := time.Now(); now.Sub(saved) >= saveEvery && t.ledger.ended == nil {
				saved = now
				t.save(ctx)
			}
		case w := <-t.ledger.ended:
			t.ledger.ended = nil
			t.ledger.note(w)
		case <-ctx.Done():
			if t.ledger.ended != nil {
				t.ledger.note(<-t.ledger.ended)
			}
			t.save(ctx)
			<-t.ledger.ended
			t.resign(context.WithoutCancel(ctx)) // what the next leader writes replaces what this one has written
			return nil
		}
	}
}

// save begins a write to the catalog.
func (t *Tracker) save(ctx context.Context) {
	w, ended := t.ledger.begin(t.opt.Work.Tallies(), t.opt.Work.Answers(), t.snapshot, t.watched, t.Leads(), t.recounts.ids()), make(chan write)
	t.ledger.ended = ended
	go func() {
		t.ledger.perform(ctx, &w)
		ended <- w
	}()
}

// resign gives up the lead if this daemon has it; otherwise no daemon would sum up until the lead has expired.
func (t *Tracker) resign(ctx context.Context) {
	if !t.Leads() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.opt.Exchange.Resign(ctx); err != nil {
		t.log.Debug("the lead of the exchange of progress is not given up; it expires", "error", err)
	}
}

// exchangeAfter returns the time from an exchange to the next, by how many campaigns it looked at.
func exchangeAfter(campaigns int) time.Duration {
	return min(exchangeEvery+time.Duration(campaigns)*exchangeEach, exchangeLeast)
}

// exchange stores this daemon's part, and uses the sum of all parts.
func (t *Tracker) exchange(ctx context.Context) {
	t.refreshListed()
	if t.snapshot == nil {
		return
	}
	t.metrics.showRates(t.shown(), time.Now())
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	mine, err := t.part(call)
	if err == nil {
		var told Summary
		if told, err = t.opt.Exchange.Swap(call, t.opt.Daemon, mine.encode(), t.sumUp); err == nil {
			if away, over := t.outage.Worked(); over {
				t.log.Info("backlogs of campaigns are up to date again", "away", away.Round(time.Second))
			}
			t.hear(told)
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	t.metrics.lost.Inc()
	if t.outage.Failed() {
		t.log.Warn("backlogs of campaigns are not up to date: progress cannot be exchanged; trying again", "error", err)
	}
	if t.outdated() {
		t.holds.unanswered(time.Now(), t.snapshot, t.opt.Ledger)
		t.holds.show(t.shown())
	}
}

// outdated hides the figures if they are out of date, and reports whether they are.
func (t *Tracker) outdated() bool {
	if time.Since(t.at) <= showFor {
		return false
	}
	t.metrics.hide()
	return true
}

// sumUp makes the summary of all parts.
func (t *Tracker) sumUp(left []Left) []byte {
	parts, err := decode(left)
	t.understood(err)
	t.recounts.died(parts, t.byHash)
	s := t.merger.merge(parts)
	s.Late, s.Holds = t.late, t.holds.notes()
	if t.at.IsZero() { // another daemon led until now, and has passed on since when
		s.Holds = t.board.Load().Holds
	}
	return s.encode()
}

// understood notes whether what another daemon left at the exchange could be read.
func (t *Tracker) understood(err error) {
	if err == nil {
		t.foreign.Worked()
	} else if t.foreign.Failed() {
		t.log.Warn("backlogs of campaigns lack what another daemon reports, which cannot be read; run one version of pacer on all daemons", "error", err)
	}
}

// hear uses a summary. One that is out of date, since the daemon that led has died, changes nothing: another takes over within seconds.
func (t *Tracker) hear(told Summary) {
	leads, now := told.Leader == t.opt.Daemon, time.Now()
	if leads {
		t.leads.Store(now.Add(leadFor).UnixNano())
	} else {
		t.leads.Store(0)
		t.stepDown()
	}
	if now.Sub(t.okAt) >= freshFor { // the other daemons have taken this one for dead
		t.ledger.stepDown()
	}
	t.okAt = now
	s, err := decodePart(told.Summary)
	if !leads && told.Summary != nil {
		t.understood(err)
	}
	if err != nil || told.Age >= freshFor {
		t.outdated()
		return
	}
	board := newBoard(now, s)
	t.board.Store(board)
	listed, busy := t.listed(board)
	t.looked = len(listed)
	t.markActive(listed, busy, now)
	shown := t.shown()
	t.showing.Store(&shown)
	if leads {
		t.combine(board, listed, shown)
	}
}

// stepDown forgets what a daemon knows that leads: another one counts, shows and writes.
func (t *Tracker) stepDown() {
	t.merger, t.late, t.at = merger{}, Lateness{}, time.Time{}
	clear(t.sent)
	clear(t.debts)
	t.metrics.hide()
	t.holds.clear()
	clear(t.saidLate)
	t.recounts.stepDown()
	t.ledger.stepDown()
}

// Leads reports whether this daemon leads the exchange. For seconds after a change, two daemons may do so, or none.
// It may be called concurrently.
func (t *Tracker) Leads() bool { return time.Now().UnixNano() < t.leads.Load() }

// Fleet returns how many daemons run, as told last; 0 before that. It may be called concurrently.
func (t *Tracker) Fleet() int { return t.board.Load().Daemons }

// InLanes returns how many jobs of a campaign wait in lanes, and how many campaigns have large and huge backlogs there, as of the last
// exchange. It may be called concurrently.
func (t *Tracker) InLanes(campaign string) (jobs int64, large, huge int) {
	b := t.board.Load()
	return b.totals[delivery.CampaignHash(campaign)].inLanes(), b.large, b.huge
}

// MeanWeight returns the mean weight of the campaign's jobs in memory, 1 if there are none. It may be called concurrently.
func (t *Tracker) MeanWeight(campaign string) float64 {
	return t.board.Load().totals[delivery.CampaignHash(campaign)].meanWeight()
}
