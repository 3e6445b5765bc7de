// Package base is what the sinks of all kinds have in common: what the daemon provides, and what is made of settings,
// files and secrets, which are read again while the daemon runs.
package base

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/token"
)

// Host is what the daemon provides to its sinks.
type Host struct {
	Version string // of pacer, for User-Agent
	Logger  *slog.Logger
	Writer  Writer // nil where there is no daemon
	// Endpoints looks destinations of pacer.destinations up, nil for one that is not known; nil where there are none.
	Endpoints func(id string) *delivery.Destination
}

// Writer writes a record to a topic of the daemon's own Kafka, in the partition of its key. It returns nil once all in-sync
// replicas have it, and tooLarge if the topic never takes it.
type Writer interface {
	Write(ctx context.Context, topic string, record delivery.Record) (tooLarge bool, err error)
}

// Sink is a configured sink. All methods are safe for concurrent use. Deliver may be called before Run.
type Sink interface {
	// Deliver delivers one job and returns the result. It returns soon after ctx is cancelled (with class Interrupted unless
	// an answer was already there), and does not retain the job. It records the request and its answer in shown, unless that is nil.
	Deliver(ctx context.Context, job *delivery.Job, shown *Exchange) delivery.Result
	// Run does the background work until ctx is cancelled. An error means that the sink cannot work at all.
	Run(ctx context.Context) error
	// Check returns an error unless the destination can be reached. It delivers nothing.
	Check(ctx context.Context) error
	// Unreached says what of the sink Check cannot reach; "" for nothing.
	Unreached() string
	// Destinations returns what finds the name of the destination that a job is sent to, if the job does not name it itself, ""
	// for none; nil for a sink with one destination for all jobs.
	Destinations() func(job *delivery.Job) string
	// Reread reads the files and secrets of the configuration again, and reports whether they have changed. Run does so by itself.
	Reread() (changed bool)
	// Instrument registers the sink's own metrics.
	Instrument(reg prometheus.Registerer)
	// Close comes last, after Run and the last Deliver.
	Close() error
}

// Plain has the methods of a Sink that has none of the things that they are about.
type Plain struct{}

// Unreached returns "".
func (Plain) Unreached() string { return "" }

// Destinations returns nil.
func (Plain) Destinations() func(job *delivery.Job) string { return nil }

// Reread reads nothing.
func (Plain) Reread() (changed bool) { return false }

// Instrument registers nothing.
func (Plain) Instrument(prometheus.Registerer) {}

// Entry is one configured sink.
type Entry struct {
	Sink Sink
	// MaxInFlight bounds the concurrent calls of Deliver in one daemon; at least 1.
	MaxInFlight int
	// Timeout bounds a call of Deliver; 0 for a sink that answers at once.
	Timeout time.Duration
	// MaxRetryAfter is how long a wait that the destination asks for is believed; 0 for one that asks for none.
	MaxRetryAfter time.Duration
	// FollowUps is how many calls a second this daemon may make for steps after the first of requests; 0 for the default.
	FollowUps int
	// Destinations says that it sends to those of pacer.destinations.
	Destinations bool
	// DisableAfter is how long one of these fails before it is disabled; 0 for never.
	DisableAfter time.Duration
	// KeepRejected makes dead letters of jobs that the destination rejects.
	KeepRejected bool
}

// Exchange is the requests of a trial and their answers, one after the other, as a person is to see them: without secrets, and with the
// beginnings of their bodies. Each is "" if there was none.
type Exchange struct{ Request, Answer string }

// Parts are what a kind makes of its configuration, and of the files and secrets that the configuration names.
type Parts interface {
	// Where is the destination, for log lines.
	Where() string
	// Close closes idle connections. Those in use are closed once they are idle.
	Close()
}

// Dialect is what one kind adds to a Service.
type Dialect[P Parts] struct {
	Secrets access.Secrets
	// Build makes the parts, and reports errors to the Reader. Each error begins with the key. It opens no connection.
	Build func(*access.Reader) P
	// Attempt is Deliver of the Sink.
	Attempt func(ctx context.Context, job *delivery.Job, shown *Exchange) delivery.Result
	// Fetch gets an access token; nil if there are none.
	Fetch func(ctx context.Context, p P) (token.Token, error)
	// Work is background work until ctx is cancelled; nil for none.
	Work func(ctx context.Context)
}

// Service is the sink of a service, which the kinds embed. It is safe for concurrent use. Run gets the access token, if there
// is one, and reads files and secrets again.
type Service[P Parts] struct {
	Plain
	Host
	Tokens *token.Source // nil: no access token is needed
	// Repeats counts the requests that were written once more, since the destination had certainly not processed them.
	Repeats atomic.Uint64
	dialect Dialect[P]
	current atomic.Pointer[reading[P]]
	renewal sync.Mutex   // held while they are read again
	outage  retry.Outage // of the files
}

// reading is what was made of the files and secrets at one time.
type reading[P Parts] struct {
	parts  P
	digest string // of them
}

// RereadEvery is how often files and secrets are read again.
const RereadEvery = 10 * time.Second

// Open reads the files and secrets for the first time. It is called before anything else. An error begins with the key.
func (s *Service[P]) Open(host Host, d Dialect[P]) error {
	s.Host, s.dialect = host, d
	first, err := s.read()
	if err != nil {
		return err
	}
	s.current.Store(first)
	if d.Fetch != nil {
		s.Tokens = token.New(token.Options{Fetch: s.FetchToken, Logger: host.Logger, Destination: s.Now().Where()})
	}
	return nil
}

func (s *Service[P]) read() (*reading[P], error) {
	parts, digest, err := access.Read(s.dialect.Secrets, s.dialect.Build)
	return &reading[P]{parts, digest}, err
}

// Now returns the parts as they were made last.
func (s *Service[P]) Now() P { return s.current.Load().parts }

// Deliver delivers the job and waits for the answer, at most for the configured timeout.
func (s *Service[P]) Deliver(ctx context.Context, job *delivery.Job, shown *Exchange) delivery.Result {
	return s.dialect.Attempt(ctx, job, shown)
}

// Run does the background work until ctx is cancelled.
func (s *Service[P]) Run(ctx context.Context) error {
	var work sync.WaitGroup
	if s.Tokens != nil {
		work.Go(func() { s.Tokens.Run(ctx) })
	}
	if s.dialect.Work != nil {
		work.Go(func() { s.dialect.Work(ctx) })
	}
	retry.Every(ctx, RereadEvery, func(time.Time) { s.Reread() })
	work.Wait()
	return nil
}

// Reread reads files and secrets again. Content that cannot be used changes nothing.
func (s *Service[P]) Reread() (changed bool) {
	s.renewal.Lock()
	defer s.renewal.Unlock()
	old := s.current.Load()
	fresh, err := s.read()
	if err != nil {
		if s.outage.Failed(); s.outage.Failures() == 2 { // one of two files may have been written before the other
			s.Logger.Error("the certificates or secrets of a sink cannot be read again; it uses the old ones",
				"destination", old.parts.Where(), "error", err)
		}
		return false
	}
	told := s.outage.Failures() >= 2
	s.outage.Worked()
	if fresh.digest == old.digest {
		if told {
			s.Logger.Info("the certificates or secrets of a sink can be read again", "destination", old.parts.Where())
		}
		return false
	}
	s.current.Store(fresh)
	s.Logger.Info("the certificates or secrets of a sink have changed; it uses the new ones", "destination", old.parts.Where())
	old.parts.Close()
	if s.Tokens != nil {
		s.Tokens.Renew()
	}
	return true
}

// FetchToken gets an access token; none if none is needed.
func (s *Service[P]) FetchToken(ctx context.Context) (t token.Token, err error) {
	if s.dialect.Fetch != nil {
		t, err = s.dialect.Fetch(ctx, s.Now())
	}
	return t, err
}

// Instrument registers the counter of repeats.
func (s *Service[P]) Instrument(reg prometheus.Registerer) {
	promauto.With(reg).NewCounterFunc(prometheus.CounterOpts{
		Name: "pacer_sink_resent_total",
		Help: "Requests that a sink wrote once more, since the destination had certainly not processed them.",
	}, func() float64 { return float64(s.Repeats.Load()) })
}

// Close closes idle connections.
func (s *Service[P]) Close() error {
	s.Now().Close()
	return nil
}
