package catalog

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	defaultPollInterval = 3 * time.Second
	defaultLanesTopic   = "pacer.lanes"
	// fullInterval is how often everything is read although the revisions say that nothing is missing: changes made
	// with the triggers switched off have no revision.
	fullInterval = time.Minute
	// minGap, and gapEach for every campaign, are the least time between two loads: a stream of small changes is read in
	// bundles. Whoever follows the catalog looks at every campaign when it has changed.
	minGap  = 5 * time.Millisecond
	gapEach = 2 * time.Microsecond
	// pinGap is how long a pin may go unread.
	pinGap = 250 * time.Millisecond
	// The back-off after a failure.
	minBackoff = 100 * time.Millisecond
	maxBackoff = 5 * time.Second
)

// Options of a Postgres catalog.
type Options struct {
	// DSN of the database, a URL or key=value pairs. Required.
	DSN string
	// Logger receives one line when the catalog degrades and one when it recovers. Default: slog.Default.
	Logger *slog.Logger
	// Registerer of the metrics; nil for none.
	Registerer prometheus.Registerer
	// PollInterval is how often the tables are looked at without a notification, on average. Default 3 s.
	PollInterval time.Duration
	// LanesTopic is the topic whose backlogs in the positions count when a lane is chosen. Default pacer.lanes.
	LanesTopic string
	// Application names the connections to the database. Default pacer.
	Application string
}

// Postgres follows the campaigns and quotas of a database.
//
// Run listens for notifications and then reads the state; a notification is a hint to read again what has a
// higher revision, and a poll finds what notifications missed. Each state is published as an immutable snapshot.
// When the database cannot be read, the last snapshot stays in force, Healthy says why, and Run keeps trying.
//
// All methods are safe for use by several goroutines at once. Pin, Pinned, Unpin and the positions work without Run.
// Close releases the connections once everything that uses the catalog has stopped.
type Postgres struct {
	board
	options  Options
	database *database
	metrics  *metrics

	hints     hints
	listening atomic.Bool           // written by the listener
	health    atomic.Pointer[error] // of the last read; written by Run

	// Owned by the goroutine of Run.
	state    *state
	lastFull time.Time
	degraded string // the line logged for the failure that lasts; "" when healthy
	deaf     bool   // it was logged that notifications are missing
}

// NewPostgres makes a catalog; it connects to nothing. The error is one line about postgres.dsn.
func NewPostgres(options Options) (*Postgres, error) {
	if options.Logger == nil {
		options.Logger = slog.Default()
	}
	if options.PollInterval <= 0 {
		options.PollInterval = defaultPollInterval
	}
	if options.LanesTopic == "" {
		options.LanesTopic = defaultLanesTopic
	}
	if options.Application == "" {
		options.Application = "pacer"
	}
	database, err := newDatabase(options.DSN, options.Application)
	if err != nil {
		return nil, err
	}
	return &Postgres{
		options:  options,
		database: database,
		metrics:  newMetrics(options.Registerer),
		hints:    hints{wake: make(chan struct{}, 1)},
		state:    newState(),
	}, nil
}

// Close releases the connections. Nothing can be read or written afterwards; the last snapshot stays readable.
func (p *Postgres) Close() { p.database.close() }

// Admin makes changes over the same connections; it is closed with the catalog.
func (p *Postgres) Admin() *Admin { return &Admin{database: p.database} }

// Healthy is nil while the catalog follows the database, and otherwise the reason in one line.
func (p *Postgres) Healthy() error {
	if err := p.health.Load(); err != nil {
		return *err
	}
	if !p.Ready() {
		return errors.New("the catalog has not been read yet")
	}
	return nil
}

// Run follows the database until ctx ends; it returns nil then and at no other time. Call it once.
func (p *Postgres) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	attempted := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() { p.listen(ctx, attempted) })
	defer listener.Wait()
	defer cancel()

	// Whatever is committed after LISTEN is announced, and whatever was committed before is read: so LISTEN comes
	// first. Where it fails, polling has to do, and the listener asks for a load when it gets through.
	select {
	case <-attempted:
	case <-ctx.Done():
		return nil
	}
	p.follow(ctx)
	return nil
}

// follow loads again and again: at once after a hint, at every poll, and with a back-off after failures.
func (p *Postgres) follow(ctx context.Context) {
	wanted := scope{full: true}
	nextPoll := time.Now()
	for failures := 0; ; {
		err := p.load(ctx, wanted)
		if ctx.Err() != nil {
			return
		}
		p.report(err, wanted)
		next := nextPoll
		switch {
		case err != nil:
			failures++
			next = time.Now().Add(backoff(failures))
		case wanted.full || wanted.poll || failures > 0:
			failures = 0
			nextPoll = time.Now().Add(jitter(p.options.PollInterval))
			next = nextPoll
		}
		if wanted = p.await(ctx, time.Until(next)); ctx.Err() != nil {
			return
		}
		// After a failure it is not known what was missed; a hint then says no more than that the database is back.
		wanted.full = wanted.full || failures > 0 || wanted.poll && time.Since(p.lastFull) >= fullInterval
	}
}

// await returns what to load next: what was hinted at, after the gap, or else a poll after wait.
func (p *Postgres) await(ctx context.Context, wait time.Duration) scope {
	gap := minGap + time.Duration(len(p.state.campaigns))*gapEach
	if !sleep(ctx, gap) {
		return scope{}
	}
	timer := time.NewTimer(wait - gap)
	defer timer.Stop()
	select {
	case <-p.hints.wake:
		return p.hints.take()
	case <-timer.C:
		wanted := p.hints.take()
		wanted.poll = true
		return wanted
	case <-ctx.Done():
		return scope{}
	}
}

// report keeps the health and logs when it changes, not at every failure.
func (p *Postgres) report(err error, loaded scope) {
	if err != nil {
		p.metrics.failures.Inc()
		p.health.Store(&err)
		if line := err.Error(); line != p.degraded {
			p.degraded = line
			p.options.Logger.Warn("catalog cannot be read; trying again, the last state stays in force", "error", line)
		}
		return
	}
	p.health.Store(nil)
	if p.degraded != "" {
		p.degraded = ""
		p.options.Logger.Info("catalog can be read again")
	}
	// A connection that is lost for a moment is no news; one that is still missing at the next poll is.
	listening := p.listening.Load()
	switch {
	case !listening && !p.deaf && loaded.poll:
		p.deaf = true
		p.options.Logger.Warn("catalog notifications do not arrive; changes act at the next poll",
			"poll_interval", p.options.PollInterval)
	case listening && p.deaf:
		p.deaf = false
		p.options.Logger.Info("catalog notifications arrive again")
	}
}

// backoff is how long to wait after so many failures in a row.
func backoff(failures int) time.Duration {
	return jitter(min(minBackoff<<min(failures-1, 10), maxBackoff))
}

// jitter spreads daemons that were started together: d, more or less a fifth.
func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep waits for d; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
