package catalog

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/retry"
)

const (
	defaultPollInterval = 3 * time.Second
	// listenWithin is how long the first load waits for the listener.
	listenWithin = time.Second
	// fullInterval is the interval of full loads, made although the revisions show no gap: changes made with the
	// triggers disabled have no revision.
	fullInterval = time.Minute
	// minGap plus gapEach per campaign is the shortest time between two loads, so that a stream of small changes is
	// read in batches. Readers of the catalog examine every campaign after a change.
	minGap  = 5 * time.Millisecond
	gapEach = 2 * time.Microsecond
	// jitter is the variation of an interval, as a part of it. It keeps daemons that started together from querying together.
	jitter = 0.2
)

// backoff is the delay between attempts to read or to listen.
var backoff = retry.Backoff{Initial: 100 * time.Millisecond, Max: 5 * time.Second, Jitter: jitter}

// Options of a Postgres catalog.
type Options struct {
	// DSN of the database, a URL or key=value pairs. Required.
	DSN string
	Renewal
	// Logger receives one line when the catalog degrades and one when it recovers. Default: slog.Default.
	Logger *slog.Logger
	// Registerer of the metrics; nil for none.
	Registerer prometheus.Registerer
	// PollInterval is the average interval of reads without a notification. Default 3 s.
	PollInterval time.Duration
	// HasSink reports whether a sink of this name is configured, "" being the default one. Campaigns without one count as
	// invalid in the metrics. Default: every name is.
	HasSink func(name string) bool
}

// Postgres follows the campaigns and quotas of a database.
//
// Run listens for notifications and then reads the state. A notification is a hint to read the rows with a higher
// revision, and a poll finds what notifications missed. Each state is published as an immutable snapshot. While the
// database cannot be read, the last snapshot stays current, Healthy returns the reason, and Run keeps trying.
//
// All methods are safe for concurrent use. The positions work without Run. Close closes the
// connections once everything that uses the catalog has stopped.
type Postgres struct {
	publisher
	options  Options
	database *database
	metrics  *metrics

	wake      retry.Signal          // a read is requested
	listening atomic.Bool           // written by the listener
	health    atomic.Pointer[error] // of the last read; written by Run

	// Owned by the goroutine of Run.
	state    *state
	invalid  map[string]bool // campaigns that cannot be sent
	lastFull time.Time
	resumeAt time.Time    // not before then the database is asked to end pauses
	unpaused retry.Outage // of that
	deaf     retry.Outage // of the notifications
}

// NewPostgres makes a catalog; it opens no connection. The error is one line about postgres.dsn.
func NewPostgres(options Options) (*Postgres, error) {
	options.Logger = cmp.Or(options.Logger, slog.Default())
	options.PollInterval = cmp.Or(max(options.PollInterval, 0), defaultPollInterval)
	database, err := newDatabase(options.DSN, daemonApplication, queryTimeout, options.Renewal)
	if err != nil {
		return nil, err
	}
	return &Postgres{
		options:  options,
		database: database,
		metrics:  newMetrics(options.Registerer),
		wake:     retry.NewSignal(),
		state:    newState(),
		invalid:  map[string]bool{},
	}, nil
}

// Close closes the connections. After that only the last snapshot can be read.
func (p *Postgres) Close() { p.database.close() }

// Healthy returns nil while the catalog follows the database, and otherwise the reason in one line.
func (p *Postgres) Healthy() error {
	if err := p.health.Load(); err != nil {
		return *err
	}
	if !p.Ready() {
		return errors.New("the catalog has not been read yet")
	}
	return nil
}

// Run follows the database until ctx ends, and only then returns, with nil. Call it once.
func (p *Postgres) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	attempted := make(chan struct{})
	var listener sync.WaitGroup
	listener.Go(func() { p.listen(ctx, attempted) })
	defer listener.Wait()
	defer cancel()

	// LISTEN comes first: changes committed after it are announced, and those committed before it are read. If it
	// fails, polling takes its place, and the listener requests a load when it succeeds. A database that does not answer is
	// reported when the first load has failed, which therefore does not wait for long.
	select {
	case <-attempted:
	case <-time.After(listenWithin):
	case <-ctx.Done():
		return nil
	}
	p.follow(ctx)
	return nil
}

// refreshPoll is how often Refresh looks whether the catalog has been read.
const refreshPoll = 5 * time.Millisecond

// Refresh has the database read at once, and returns when the snapshot has what was committed before the call, or ctx ends.
func (p *Postgres) Refresh(ctx context.Context) {
	called := time.Now()
	p.wake.Send()
	for s := p.Snapshot(); s == nil || !s.LoadedAt.After(called); s = p.Snapshot() {
		if retry.Sleep(ctx, refreshPoll) != nil {
			return
		}
	}
}

// follow loads repeatedly: at once after a request, at every poll, and with a back-off after failures.
func (p *Postgres) follow(ctx context.Context) {
	full, polled := true, false
	nextPoll := time.Now()
	poll := retry.Backoff{Initial: p.options.PollInterval, Max: p.options.PollInterval, Jitter: jitter}
	for failures := 0; ; {
		err := p.load(ctx, full)
		if ctx.Err() != nil {
			return
		}
		p.report(err, polled)
		next := nextPoll
		switch {
		case err != nil:
			failures++
			next = time.Now().Add(backoff.Delay(failures))
		case full || polled || failures > 0:
			failures = 0
			nextPoll = time.Now().Add(poll.Delay(1))
			next = nextPoll
		}
		if end := p.nextResume(); !end.IsZero() && end.Before(next) {
			next = end
		}
		if polled = p.await(ctx, time.Until(next)); ctx.Err() != nil {
			return
		}
		// After a failure it is unknown what was missed; a notification then only means that the database is back.
		full = failures > 0 || polled && time.Since(p.lastFull) >= fullInterval
	}
}

// await waits until a read is requested, but at least for the gap, or until a poll is due after wait. It returns whether one is.
func (p *Postgres) await(ctx context.Context, wait time.Duration) (polled bool) {
	gap := minGap + time.Duration(len(p.state.campaigns))*gapEach
	if retry.Sleep(ctx, gap) != nil {
		return false
	}
	timer := time.NewTimer(wait - gap)
	defer timer.Stop()
	select {
	case <-p.wake:
	case <-timer.C:
		return true
	case <-ctx.Done():
	}
	return false
}

// report records the health and logs changes of it, not every failure.
func (p *Postgres) report(err error, polled bool) {
	if err != nil {
		p.metrics.failures.Inc()
		if before := p.health.Swap(&err); before == nil || (*before).Error() != err.Error() {
			p.options.Logger.Warn("catalog cannot be read; trying again, the last state stays in force", "error", err)
		}
		return
	}
	if p.health.Swap(nil) != nil {
		p.options.Logger.Info("catalog can be read again")
	}
	// A connection that is lost for a moment is not reported; one that is still missing at the next poll is.
	if p.listening.Load() {
		if _, over := p.deaf.Worked(); over {
			p.options.Logger.Info("catalog notifications arrive again")
		}
	} else if polled && p.deaf.Failed() {
		p.options.Logger.Warn("catalog notifications do not arrive; changes act at the next poll",
			"poll_interval", p.options.PollInterval)
	}
}
