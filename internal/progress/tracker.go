package progress

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// exchangeEvery is how often parts are exchanged at most, and callTimeout how long that, or a look at the memory, may
	// take. With many campaigns they are exchanged less often, by exchangeEach for each, down to every exchangeLeast, which
	// is less than freshFor.
	exchangeEvery = time.Second
	exchangeEach  = 200 * time.Microsecond
	exchangeLeast = 3 * time.Second
	callTimeout   = 2 * time.Second
	// showFor is how long figures are shown that cannot be brought up to date.
	showFor = 10 * time.Second
	// saveEvery is how often the catalog is brought up to date, and saveTimeout how long that may take.
	saveEvery   = 5 * time.Second
	saveTimeout = 5 * time.Second
)

// Work is what this daemon does, as the pacer and the consumer know it.
type Work interface {
	// Backlog is what waits in the lanes that this daemon reads.
	Backlog() delivery.LanesBacklog
	// Held is what waits in its memory.
	Held(ctx context.Context) ([]delivery.HeldJobs, error)
	// Tallies is what it has done since it started.
	Tallies() []delivery.Tally
}

// Store keeps progress for good.
type Store interface {
	// SaveProgress adds what was settled and replaces the outlooks that are given, which all campaigns in the list have or
	// none. Campaigns that do not exist any more are passed over. After an error nothing is saved, as far as it can tell.
	SaveProgress(ctx context.Context, list []delivery.Progress) error
	// LoadSettled returns what was ever settled of the campaigns that say how many jobs are expected.
	LoadSettled(ctx context.Context) (map[string]delivery.Settled, error)
}

// Options are what a Tracker is made of. All is required.
type Options struct {
	Daemon   string // its name, unlike any other's
	Work     Work
	Board    Board
	Store    Store
	Snapshot func() *delivery.Snapshot // nil while the catalog is not loaded
	// Windows are the states of quota windows as they were seen last; those that were not seen lately are left out.
	Windows    func() []delivery.WindowState
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Tracker keeps the figures of all campaigns up to date; see the package. Make one with New and call Run once; one
// goroutine does all.
type Tracker struct {
	opt     Options
	log     *slog.Logger
	metrics *metrics
	started time.Time

	snapshot *delivery.Snapshot
	byHash   map[uint64]*delivery.Campaign // of snapshot

	active    map[string]activity         // what this daemon sent lately
	seen      map[string]map[uint64]int64 // units sent, by daemon and campaign, as they were left last
	debts     map[uint64]*debt
	campaigns int   // with something to tell, in the last exchange
	late      int64 // as this daemon has it
	at        time.Time
	okAt      time.Time
	failing   bool

	ledger ledger
}

// activity is how much a daemon had sent of a campaign when it last sent something.
type activity struct {
	units int64
	at    time.Time
}

// New makes a Tracker; it starts nothing.
func New(o Options) (*Tracker, error) {
	if o.Daemon == "" || o.Work == nil || o.Board == nil || o.Store == nil || o.Snapshot == nil || o.Windows == nil ||
		o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("progress: all options are required")
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Tracker{
		opt: o, log: o.Logger, metrics: m, started: time.Now(),
		active: map[string]activity{}, seen: map[string]map[uint64]int64{}, debts: map[uint64]*debt{},
		ledger: newLedger(o.Store, o.Logger),
	}, nil
}

// Run works until ctx ends, and then saves what was settled last.
func (t *Tracker) Run(ctx context.Context) error {
	exchange := time.NewTicker(exchangeEvery)
	defer exchange.Stop()
	save := time.NewTicker(saveEvery)
	defer save.Stop()
	for {
		select {
		case <-exchange.C:
			t.exchange(ctx)
			exchange.Reset(exchangeAfter(t.campaigns))
		case <-save.C:
			t.ledger.save(ctx, t.opt.Work.Tallies(), t.known)
			t.ledger.load(ctx, t.snapshot)
		case <-ctx.Done():
			t.ledger.save(context.WithoutCancel(ctx), t.opt.Work.Tallies(), t.known)
			return nil
		}
	}
}

// exchangeAfter is how long to wait for the next exchange when so many campaigns had something to tell.
func exchangeAfter(campaigns int) time.Duration {
	return min(exchangeEvery+time.Duration(campaigns)*exchangeEach, exchangeLeast)
}

// exchange leaves this daemon's part, takes all, and shows what they say together.
func (t *Tracker) exchange(ctx context.Context) {
	t.look()
	if t.snapshot == nil {
		return
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	mine, err := t.part(call)
	if err == nil {
		var left []Left
		if left, err = t.opt.Board.Exchange(call, t.opt.Daemon, mine.encode(), keepFor); err == nil {
			if time.Since(t.okAt) >= freshFor { // the others took this daemon for gone
				t.ledger.resign()
			}
			t.failing, t.okAt = false, time.Now()
			t.combine(t.decode(left))
			return
		}
	}
	if ctx.Err() != nil {
		return
	}
	t.metrics.lost.Inc()
	if !t.failing {
		t.failing = true
		t.log.Warn("backlogs of campaigns are not up to date: progress cannot be exchanged; trying again", "error", err)
	}
	if time.Since(t.okAt) > showFor {
		t.metrics.hide()
	}
}

// look takes a new snapshot of the catalog into use.
func (t *Tracker) look() {
	s := t.opt.Snapshot()
	if s == nil || s == t.snapshot {
		return
	}
	t.snapshot, t.byHash = s, make(map[uint64]*delivery.Campaign, len(s.Campaigns))
	for id, c := range s.Campaigns {
		t.byHash[delivery.CampaignHash(id)] = c
	}
	for _, sent := range t.seen {
		maps.DeleteFunc(sent, func(campaign uint64, _ int64) bool { return t.byHash[campaign] == nil })
	}
}

func (t *Tracker) known(campaign string) bool { return t.snapshot.Campaign(campaign) != nil }

// sentFor is for how long after its last job a campaign's tally is left on the board. Longer pauses do no harm: the
// others remember the last one.
const sentFor = 30 * time.Second

// part is what this daemon knows.
func (t *Tracker) part(ctx context.Context) (*part, error) {
	jobs, err := t.opt.Work.Held(ctx)
	if err != nil {
		return nil, err
	}
	p := &part{started: t.started.UnixMicro(), late: t.late, lanes: t.opt.Work.Backlog()}
	for _, h := range jobs {
		p.held = append(p.held, held{delivery.CampaignHash(h.Campaign), h.Direct, h.Jobs, h.Units})
	}
	now, active := time.Now(), make(map[string]activity, len(t.active))
	for _, tally := range t.opt.Work.Tallies() {
		a := t.active[tally.Campaign]
		if a.units != tally.Sent {
			a = activity{tally.Sent, now}
		}
		active[tally.Campaign] = a
		if now.Sub(a.at) < sentFor {
			p.sent = append(p.sent, sent{delivery.CampaignHash(tally.Campaign), a.units})
		}
	}
	t.active = active
	return p, nil
}

// decode reads what was left. Parts of other releases do not count.
func (t *Tracker) decode(left []Left) []reported {
	var parts []reported
	for _, l := range left {
		if p, err := decodePart(l.Part); err == nil {
			parts = append(parts, reported{part: p, daemon: l.Daemon, age: l.Age})
		}
	}
	return parts
}

// combine works the figures out and shows them.
func (t *Tracker) combine(parts []reported) {
	now := time.Now()
	totals, sent := sum(parts), t.sentSince(parts)
	t.campaigns = len(totals)
	var waiting []*delivery.Campaign
	for hash, total := range totals {
		if c := t.byHash[hash]; c != nil && (total.waiting > 0 || c.ExpectedTotal > 0) {
			waiting = append(waiting, c)
		}
	}
	f := newForecast(now, waiting, t.opt.Windows())
	figures := make(map[string]figure, len(t.byHash)+1)
	for hash, c := range t.byHash {
		figures[c.ID] = t.figure(f, c, totals[hash])
	}
	unknown := figure{known: false}
	for hash, total := range totals {
		if t.byHash[hash] == nil {
			unknown.backlog += total.waiting
		}
	}
	figures[unknownCampaign] = unknown
	t.compare(f, totals, sent)
	late, first := t.late, eldest(parts)
	if first != nil && first.daemon != t.opt.Daemon {
		late = first.late
	}
	t.metrics.show(figures, late)
	if first != nil && first.daemon == t.opt.Daemon {
		t.ledger.foresee(now, figures)
	} else {
		t.ledger.resign()
	}
}

// figure is what is shown of one campaign.
func (t *Tracker) figure(f *forecast, c *delivery.Campaign, all *total) figure {
	var fig figure
	weight := 1.0
	if all != nil {
		fig.backlog, weight = all.waiting, all.meanWeight()
	}
	todo := fig.backlog
	if c.ExpectedTotal > 0 {
		todo = max(todo, c.ExpectedTotal-t.ledger.settled(c.ID))
	}
	if todo == 0 {
		fig.known = true
		return fig
	}
	if at, ok := f.done(c, float64(todo)*weight); ok {
		fig.eta, fig.known = at.Sub(f.now).Seconds(), true
	}
	return fig
}

// sentSince is how many units of each campaign all daemons have sent since the last time.
func (t *Tracker) sentSince(parts []reported) map[uint64]float64 {
	delta, here := map[uint64]float64{}, map[string]bool{}
	for _, p := range parts {
		here[p.daemon] = true
		before := t.seen[p.daemon]
		if before == nil {
			before = map[uint64]int64{}
			t.seen[p.daemon] = before
		}
		for _, s := range p.sent {
			if was, ok := before[s.campaign]; ok { // else nobody knows since when
				delta[s.campaign] += float64(max(0, s.units-was))
			}
			before[s.campaign] = s.units
		}
	}
	for daemon := range t.seen {
		if !here[daemon] {
			delete(t.seen, daemon)
		}
	}
	return delta
}

// compare holds what was sent against what should have been, and adds up what is late.
func (t *Tracker) compare(f *forecast, totals map[uint64]*total, sent map[uint64]float64) {
	dt := min(f.now.Sub(t.at), 5*exchangeEvery)
	if t.at.IsZero() {
		dt = 0
	}
	t.at, t.late = f.now, 0
	for hash, all := range totals {
		c := t.byHash[hash]
		if c == nil || all.waiting == 0 {
			continue
		}
		d := t.debts[hash]
		if d == nil {
			d = &debt{}
			t.debts[hash] = d
		}
		rate := f.rates[c]
		if f.held(c) {
			rate = 0
		}
		d.step(dt, rate, sent[hash])
		if rate > 0 {
			t.late += d.late(rate, all.waiting, all.meanWeight())
		}
	}
	for hash, d := range t.debts {
		if all := totals[hash]; all == nil || all.waiting == 0 {
			if d.step(dt, 0, 0); d.forgotten() {
				delete(t.debts, hash)
			}
		}
	}
}
