package progress

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
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
	// saveEvery is the interval of writes to the catalog, and saveTimeout bounds one of them.
	saveEvery   = 5 * time.Second
	saveTimeout = 5 * time.Second
)

// Work is what this daemon has to do and has done, as known to the pacer and the consumer.
type Work interface {
	// Backlog returns the jobs that wait in the lanes that this daemon reads.
	Backlog() delivery.LanesBacklog
	// InMemory returns the jobs that wait in its memory.
	InMemory(ctx context.Context) ([]delivery.MemoryJobs, error)
	// Tallies returns what the daemon has done since it started.
	Tallies() []delivery.Tally
}

// Store stores progress durably.
type Store interface {
	// SaveProgress adds settled jobs and replaces outlooks; either all campaigns in the list have an outlook or none.
	// Campaigns that do not exist any more are skipped. An error means that nothing was saved, as far as the store can
	// tell.
	SaveProgress(ctx context.Context, list []delivery.Progress) error
	// LoadSettled returns the settled jobs, over all time, of the campaigns with an expected total.
	LoadSettled(ctx context.Context) (map[string]delivery.Settled, error)
	// LoadOutlooks returns the outlooks that are stored, except empty ones.
	LoadOutlooks(ctx context.Context) (map[string]delivery.Outlook, error)
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
	Gates func(ctx context.Context) ([]delivery.Gate, error)
	// Sink returns the configured sink of a campaign that names this one; ok is false if there is none.
	Sink func(name string) (id string, ok bool)
	// Stuck returns what this daemon found out about campaigns.
	Stuck func(ctx context.Context) []Stuck
	// Denials, if it is set, lists what windows of quotas have reduced or denied to this daemon.
	Denials func() []delivery.Denial
	Show    Show // "" is ShowAll
	// Node, if it is set, describes this daemon: Host, Address, Version, Ready, State and KafkaAway. Readings is what it counts and measures.
	Node       func() Node
	Readings   func() Readings
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Stuck is what a daemon found out about a campaign.
type Stuck struct {
	Campaign string
	Cause    hold.Cause
	Since    time.Time
	By       string // the campaign in the way; "" for none
}

// Tracker updates the figures of all campaigns; see the package comment. Make one with New and call Run once, which
// does everything in one goroutine.
type Tracker struct {
	opt     Options
	log     *slog.Logger
	metrics *metrics

	view
	lastSummary

	active    active // when the counts of this daemon last changed
	merger    merger // while this daemon leads
	recent    recent
	debts     map[uint64]debt
	campaigns int                                           // campaigns with entries in the last exchange
	inLanes   atomic.Pointer[inLanes]                       // see InLanes
	showing   atomic.Pointer[map[string]*delivery.Campaign] // those with series of their own
	late      lateness                                      // as computed by this daemon
	at        time.Time
	okAt      time.Time
	outage    retry.Outage // of the exchange
	foreign   retry.Outage // what others leave there cannot be read

	holds  holds
	ledger ledger
}

// view is what is known of the catalog.
type view struct {
	snapshot *delivery.Snapshot
	byHash   map[uint64]*delivery.Campaign // of snapshot
	watched  map[string]*delivery.Campaign // of these, those that matter without jobs
	lively   map[string]time.Time          // when they last had jobs, if not all campaigns have figures
}

// lastSummary is the summary that was used last.
type lastSummary struct {
	leader string           // that made it
	toldAt int64            // when that was
	sent   map[uint64]int64 // units sent of each campaign, as counted by the leader
	leads  atomic.Int64     // until when this daemon leads, by what it was told, Unix nanoseconds
	fleet  atomic.Int64     // how many daemons run
}

// active are counts of this daemon and when they last changed: of units sent, by campaign, and of asks denied, by window.
type active struct{ sent, denied map[uint64]activity }

// activity is a count as it was when it last changed.
type activity struct {
	n  int64
	at time.Time
}

// trackActivity returns the counts with their last changes, and those that have changed within sentFor.
func trackActivity(before map[uint64]activity, counts []count, now time.Time) (after map[uint64]activity, lately []count) {
	after = make(map[uint64]activity, len(counts))
	for _, one := range counts {
		a := before[one.Of]
		if a.n != one.N {
			a = activity{one.N, now}
		}
		after[one.Of] = a
		if now.Sub(a.at) < sentFor {
			lately = append(lately, one)
		}
	}
	return after, lately
}

// New makes a Tracker; it starts nothing.
func New(o Options) *Tracker {
	o.Show = cmp.Or(o.Show, ShowAll)
	return &Tracker{
		opt: o, log: o.Logger, metrics: newMetrics(o.Registerer), recent: newRecent(time.Now()), debts: map[uint64]debt{},
		view:  view{watched: map[string]*delivery.Campaign{}, lively: map[string]time.Time{}},
		holds: newHolds(o.Logger, o.Registerer), ledger: newLedger(o.Store, o.Logger),
	}
}

// Run updates the figures until ctx ends, and then saves what was settled since the last save.
func (t *Tracker) Run(ctx context.Context) error {
	exchange := time.NewTicker(exchangeFirst)
	defer exchange.Stop()
	save := time.NewTicker(saveEvery)
	defer save.Stop()
	for {
		select {
		case <-exchange.C:
			t.exchange(ctx)
			if t.snapshot != nil {
				exchange.Reset(exchangeAfter(t.campaigns))
			}
		case <-save.C:
			t.ledger.save(ctx, t.opt.Work.Tallies(), t.known)
			t.ledger.load(ctx, t.watched, t.leader == t.opt.Daemon)
		case <-ctx.Done():
			t.resign(context.WithoutCancel(ctx))
			t.ledger.save(context.WithoutCancel(ctx), t.opt.Work.Tallies(), t.known)
			return nil
		}
	}
}

// resign gives up the lead if this daemon has it; otherwise nobody would sum up until it has expired. An exchange that was
// given up may have made it the leader, so the exchange decides.
func (t *Tracker) resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.opt.Exchange.Resign(ctx, t.opt.Daemon); err != nil {
		t.log.Debug("the lead of the exchange of progress is not given up; it expires", "error", err)
	}
}

// exchangeAfter returns the time until the next exchange, after one with entries of that many campaigns.
func exchangeAfter(campaigns int) time.Duration {
	return min(exchangeEvery+time.Duration(campaigns)*exchangeEach, exchangeLeast)
}

// exchange stores this daemon's part, reads all parts, and shows their sum.
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
			t.outage.Worked()
			t.hear(call, told)
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
		t.holds.unanswered(time.Now())
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
	s := t.merger.merge(parts)
	s.Late, s.Holds = t.late, t.holds.notes()
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

// hear shows what a summary says. One that was used before, or is out of date, since a daemon that led has died, changes
// nothing: another takes over within seconds.
func (t *Tracker) hear(ctx context.Context, told Summary) {
	leads := told.Leader == t.opt.Daemon
	if leads {
		t.leads.Store(time.Now().Add(leadFor).UnixNano())
	} else {
		t.leads.Store(0)
	}
	if !leads || time.Since(t.okAt) >= freshFor { // the other daemons have taken this one for dead
		t.ledger.stepDown()
	}
	if !leads {
		t.merger = merger{}
	}
	t.okAt = time.Now()
	s, err := decodePart(told.Summary)
	if !leads && told.Summary != nil {
		t.understood(err)
	}
	if err != nil || told.Age >= freshFor || !leads && told.Leader == t.leader && told.At == t.toldAt {
		t.outdated()
		return
	}
	t.fleet.Store(int64(s.Daemons))
	gates, err := t.opt.Gates(ctx)
	if err != nil {
		t.log.Debug("the gates of sinks could not be read", "error", err)
	}
	sent, known := t.sentSince(s, told.Leader)
	if !known {
		t.at = time.Time{} // what was sent meanwhile is not known, so nothing is late by it
	}
	t.leader, t.toldAt = told.Leader, told.At
	t.combine(s, sent, gates)
}

// Leads reports whether this daemon leads the exchange. For seconds after a change, two daemons may do so, or none.
// It may be called concurrently.
func (t *Tracker) Leads() bool { return time.Now().UnixNano() < t.leads.Load() }

// Fleet returns how many daemons run, as told last; 0 before that. It may be called concurrently.
func (t *Tracker) Fleet() int { return int(t.fleet.Load()) }

func (t *Tracker) known(campaign string) bool { return t.snapshot.Campaign(campaign) != nil }

// sentFor is how long after its last job a campaign's tally is included in the part. Longer pauses do no harm: the
// other daemons remember the last tally.
const sentFor = 30 * time.Second

// part returns the part of this daemon.
func (t *Tracker) part(ctx context.Context) (*part, error) {
	jobs, err := t.opt.Work.InMemory(ctx)
	if err != nil {
		return nil, err
	}
	p, now := &part{Late: t.late, Lanes: t.opt.Work.Backlog()}, time.Now()
	queued, inFlight := int64(0), int64(0)
	for _, m := range jobs {
		queued, inFlight = queued+m.Jobs, inFlight+m.InHand
		one := memory{Campaign: delivery.CampaignHash(m.Campaign), Direct: m.Direct, Jobs: m.Jobs, Units: m.Units, InHand: m.InHand, Early: m.Early}
		if m.Turn.After(now.Add(turnSoon)) {
			one.Turn = m.Turn.UnixMicro()
		}
		if one != (memory{Campaign: one.Campaign}) {
			p.Memory = append(p.Memory, one)
		}
	}
	t.count(p, now)
	if t.opt.Node != nil {
		node := t.opt.Node()
		node.Name, node.Started, node.Revision = t.opt.Daemon, t.recent.started, t.snapshot.Revision
		node.Lanes, node.Queued, node.InFlight = len(p.Lanes.Lanes), queued, inFlight
		node.Report, p.Sinks = t.recent.report(now, t.opt.Readings())
		p.Nodes = []Node{node}
	}
	for _, s := range t.opt.Stuck(ctx) {
		n := note{Campaign: delivery.CampaignHash(s.Campaign), Cause: s.Cause, Since: s.Since.UnixMicro()}
		if s.By != "" {
			n.By = delivery.CampaignHash(s.By)
		}
		p.Stuck = append(p.Stuck, n)
	}
	return p, nil
}

// count adds to the part what this daemon has sent, and what it was denied.
func (t *Tracker) count(p *part, now time.Time) {
	var units, asks []count
	for _, tally := range t.opt.Work.Tallies() {
		units = append(units, count{delivery.CampaignHash(tally.Campaign), tally.Sent})
	}
	t.active.sent, p.Sent = trackActivity(t.active.sent, units, now)
	if t.opt.Denials == nil {
		return
	}
	for _, d := range t.opt.Denials() {
		asks = append(asks, count{windowHash(d.Quota, d.Span), d.Asks})
	}
	t.active.denied, p.Denied = trackActivity(t.active.denied, asks, now)
}

// windowHash identifies a window of a quota in parts.
func windowHash(quota string, span time.Duration) uint64 {
	return delivery.CampaignHash(quota + " " + span.String()) // an id has no space
}

// combine computes the figures and shows them.
func (t *Tracker) combine(s *part, sent map[uint64]float64, gates []delivery.Gate) {
	now := time.Now()
	board := newBoard(now, s)
	totals := board.totals
	t.inLanes.Store(board.inLanes)
	t.campaigns = len(totals)
	waiting := map[*delivery.Campaign]todo{}
	for hash, total := range totals {
		if c := t.byHash[hash]; c != nil {
			if todo := t.todo(c, total); todo.jobs > 0 {
				waiting[c] = todo
			}
		}
	}
	windows := t.opt.Windows()
	f := newForecast(now, waiting, windows)
	listed, lively := t.listed(board, sent)
	t.markActive(listed, lively, now)
	shown := t.shown()
	t.showing.Store(&shown)
	seen := findings{board: board, snapshot: t.snapshot, listed: listed, shown: shown, gates: gates, sink: t.opt.Sink, sent: sent}
	if windows != nil {
		seen.windows = hold.Windows(windows)
	}
	t.holds.update(seen)
	figures := t.figures(f, shown, totals)
	late := t.compare(f, totals, sent)
	t.metrics.showLate(late, shown)
	if t.leader != t.opt.Daemon {
		t.metrics.show(figures, s.Late)
		return
	}
	t.metrics.show(figures, t.late)
	t.ledger.foresee(now, t.foreseen(f, figures, listed, totals))
	t.holds.say(now)
}

// sentSince returns how many units of each campaign all daemons have sent since the summary before; known is false if that
// was made by another daemon, which counts from another time on.
func (t *Tracker) sentSince(s *part, leader string) (delta map[uint64]float64, known bool) {
	if known = leader == t.leader; !known {
		t.sent = map[uint64]int64{}
	}
	delta = map[uint64]float64{}
	for _, one := range s.Sent {
		if was, ok := t.sent[one.Of]; ok { // otherwise it is not known since when
			delta[one.Of] = float64(max(0, one.N-was))
		}
		t.sent[one.Of] = one.N
	}
	return delta, known
}
