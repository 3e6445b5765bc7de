// Package replay runs replays of dead letters in the background. The installation runs one replay at a time, at a rate, and with a bound
// on its letters.
package replay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/deadletter"
)

const (
	// MaxLetters bounds one replay.
	MaxLetters = 100_000
	// LookWithin bounds a look for dead letters, as a dry run is one, and runWithin a replay.
	LookWithin = 10 * time.Second
	runWithin  = 24 * time.Hour
	// keep is how many replays are remembered.
	keep = 20
)

// Job is a replay.
type Job struct {
	ID     string            `json:"id"`
	State  string            `json:"state" enum:"running,done,stopped,failed"`
	Filter deadletter.Filter `json:"filter"`
	Chosen int               `json:"chosen,omitempty" doc:"how many letters were chosen one by one; absent: all that the filter selects"`
	// DropExpiry is that of the request.
	DropExpiry bool                    `json:"drop_expiry,omitempty" doc:"those that have expired, too"`
	Again      bool                    `json:"again,omitempty" doc:"those that were replayed before, too"`
	Rate       string                  `json:"rate"`
	Expected   int                     `json:"expected" doc:"letters at most"`
	By         string                  `json:"by"`
	Why        string                  `json:"why,omitempty"`
	Started    time.Time               `json:"started"`
	Ended      *time.Time              `json:"ended,omitempty"`
	Error      string                  `json:"error,omitempty"`
	Outcome    deadletter.ReplayReport `json:"outcome"`
}

// Run replays. When ctx ends it finishes the current batch.
type Run func(ctx context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error)

// Lease keeps other processes from replaying until release is called; held ends when it no longer can. The error is ErrBusy if
// another process replays.
type Lease func(ctx context.Context) (held context.Context, release func(), err error)

// ErrBusy means that a replay is running: two of the same letters at a time would publish each twice.
var ErrBusy = errors.New("a replay is running; wait for it, or stop it")

// Jobs are the replays of a process, and with a Book those of all. Safe for concurrent use.
type Jobs struct {
	run   Run
	lease Lease
	book  Book // nil: those of others are not known
	log   *slog.Logger

	count   Run // a dry run
	running sync.WaitGroup
	busy    atomic.Bool        // a replay begins or runs here
	mu      sync.Mutex         // guards what follows
	list    []*Job             // the newest first
	stop    context.CancelFunc // ends the newest one
	closed  bool
}

// New makes Jobs; it starts nothing.
func New(run Run, lease Lease, log *slog.Logger) *Jobs {
	return &Jobs{run: run, count: Limited(run), lease: lease, log: log}
}

// ErrSearching means that enough others read dead letters already.
var ErrSearching = fmt.Errorf("%d others look for dead letters already; try again in some seconds", maxSearches)

// maxSearches bounds how many look for dead letters at a time, since each reads thousands of records. One more is kept for
// operators, so that viewers, who need no token, cannot keep them from it.
const maxSearches = 2

// Limited returns a look for dead letters that ends within LookWithin, and is ErrSearching while others look.
func Limited[F, A any](look func(context.Context, F) (A, error)) func(context.Context, F) (A, error) {
	var looking atomic.Int32
	return func(ctx context.Context, f F) (answer A, err error) {
		most := int32(maxSearches)
		if auth.Of(ctx).Role > auth.Viewer {
			most++
		}
		defer looking.Add(-1)
		if looking.Add(1) > most {
			return answer, ErrSearching
		}
		ctx, cancel := context.WithTimeout(ctx, LookWithin)
		defer cancel()
		return look(ctx, f)
	}
}

// Count returns what a replay would do, of the letters at these places if there are any. The error is ErrSearching while others count.
func (j *Jobs) Count(ctx context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
	o.Limit, o.DryRun = MaxLetters, true
	outcome, err := j.count(ctx, o)
	if errors.Is(err, context.DeadlineExceeded) {
		err = errors.New("counting the letters takes too long; narrow the filter")
	}
	return outcome, err
}

var errClosed = errors.New("this process is being stopped")

// Start begins a replay, whose rate is shown as it was typed. The error is ErrBusy if one is running, here or in another process.
func (j *Jobs) Start(by, why, rate string, o deadletter.ReplayOptions) (Job, error) {
	if !j.busy.CompareAndSwap(false, true) {
		return Job{}, ErrBusy
	}
	ctx, cancel := context.WithTimeout(context.Background(), runWithin) // it outlives the request
	ctx, release, err := j.lease(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil && j.closed {
		release()
		err = errClosed
	}
	if err != nil {
		cancel()
		j.busy.Store(false)
		return Job{}, err
	}
	job := &Job{
		ID: rand.Text(), State: Running, Filter: o.Filter, Chosen: len(o.Places), DropExpiry: o.DropExpiry, Again: o.Again, Rate: rate,
		Expected: o.Limit, By: by, Why: why, Started: time.Now().UTC(),
	}
	j.stop = cancel
	j.list = append([]*Job{job}, j.list[:min(len(j.list), keep-1)]...)
	j.log.Info("a replay of dead letters begins", "replay", job.ID, "campaign", o.Campaign, "reason", o.Reason, "rate", rate,
		"letters", o.Limit, "by", by)
	o.Progress = func(replayed int) {
		j.mu.Lock()
		defer j.mu.Unlock()
		job.Outcome.Replayed = replayed
	}
	j.running.Go(func() {
		defer cancel()
		defer j.follow(ctx, cancel, job)()
		outcome, err := j.run(ctx, o)
		cause, stopped := context.Cause(ctx), ctx.Err() != nil
		if stopped && !errors.Is(cause, ctx.Err()) { // the lease was lost
			err = cause
		}
		release() // before others see that it has ended
		j.end(job, outcome, err, stopped)
	})
	return *job, nil
}

func (j *Jobs) end(job *Job, outcome deadletter.ReplayReport, err error, stopped bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := time.Now().UTC()
	job.Outcome, job.Ended, job.State = outcome, &now, Done
	switch {
	case stopped:
		job.State = Stopped
	case err != nil:
		job.State = Failed
	}
	if err != nil && !errors.Is(err, context.Canceled) { // that it was stopped is no news, but what failed meanwhile is
		job.Error = strings.Join(strings.Fields(err.Error()), " ")
	}
	j.busy.Store(false) // under mu: who sees that it has ended may begin the next
	j.log.Info("a replay of dead letters has ended", "replay", job.ID, "state", job.State, "replayed", outcome.Replayed,
		"doubtful", outcome.Doubtful, "error", job.Error)
}

// Quiet has nothing logged: who runs a command sees what it answers.
func (j *Jobs) Quiet() {
	if j != nil {
		j.log = slog.New(slog.DiscardHandler)
	}
}

// Wait waits for the replay that is running.
func (j *Jobs) Wait() { j.running.Wait() }

// Close stops the replay that is running, and waits for it.
func (j *Jobs) Close() {
	j.mu.Lock()
	j.closed = true
	if j.stop != nil {
		j.stop()
	}
	j.mu.Unlock()
	j.running.Wait()
}
