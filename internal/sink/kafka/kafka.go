// Package kafka is the sink that writes jobs to a topic: the payload, the headers and the key of each.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
)

// Options configure a Sink.
type Options struct {
	Config Config // valid: Config.Problems found none
	Logger *slog.Logger
}

// Sink writes each job to a topic, in batches, with acks=all. It is safe for concurrent use. Run collects the jobs of all
// calls of Deliver and writes them; without it nothing is written.
//
// A batch is written again only where the broker has certainly not written it (see batches): what may have been written
// is reported so. A request cannot be taken back, so the record of a call that was given up may be written later.
//
// Memory: at most max_in_flight jobs wait, in the memory that they have already. Requests in flight, one for each broker
// that leads a partition, have up to 4 MiB of records each.
type Sink struct {
	config Config
	key    *render.Template // nil: the key of the job's own record
	client *broker.Client
	access *access.Kept[broker.Security]
	log    *slog.Logger
	where  string // for details

	queue  chan *entry // to the goroutine of Run
	resent atomic.Uint64
}

// New makes a Sink. It reads the files that the configuration names and opens no connection.
func New(opt Options) (*Sink, error) {
	c := opt.Config
	if p := c.Problems(); len(p) > 0 {
		return nil, errors.New(p[0])
	}
	s := &Sink{config: c, log: opt.Logger, queue: make(chan *entry)}
	s.where = "topic " + c.Topic + " at " + c.Brokers[0]
	var err error
	if c.Key != "" {
		if s.key, err = render.Parse("key", c.Key, render.Plain); err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
	}
	if s.access, err = access.Keep(c.secrets, c.security); err != nil {
		return nil, err
	}
	s.client, err = broker.New(broker.Options{
		// A connection that cannot be made is known to have failed before the call is over.
		Brokers: c.Brokers, Topics: []string{c.Topic}, Security: s.access.Now, DialTimeout: c.Timeout * 2 / 3,
	})
	if err != nil {
		return nil, fmt.Errorf("username: %w", err)
	}
	return s, nil
}

// security reads what connections are made with.
func (c *Config) security(r *access.Reader) (s broker.Security) {
	if c.TLS {
		s.TLS = r.TLS(c.Certificates)
	}
	if c.SASLMechanism != "" {
		s.SASL = broker.SASL{Mechanism: c.SASLMechanism, Username: c.Username, Password: r.Secret("password", c.Password)}
	}
	return s
}

// Deliver writes the job and waits for its acknowledgement, at most for the configured timeout.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	e, problem := s.entry(job)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	return s.write(ctx, e)
}

// Try delivers a job as Deliver does, and returns the record and what became of it as text.
func (s *Sink) Try(ctx context.Context, job *delivery.Job) (res delivery.Result, request, answer string) {
	e, problem := s.entry(job)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}, "", ""
	}
	request = s.shown(e.record)
	switch res = s.write(ctx, e); {
	case res.Class == delivery.Delivered:
		answer = "acknowledged by all in-sync replicas"
	case res.Provider != nil:
		answer = res.Provider.Code
	}
	return res, request, answer
}

// shown returns a record as a person is to see it. None of the sink's secrets is in it.
func (s *Sink) shown(r delivery.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "topic: %s\nkey: %s\n", s.config.Topic, cmp.Or(sinkhttp.Shorten(r.Key), "(none)"))
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "header %s: %s\n", h.Key, sinkhttp.Shorten(h.Value))
	}
	fmt.Fprintf(&b, "\n%s", sinkhttp.Shorten(r.Value))
	return b.String()
}

// write has a record written, and waits for its acknowledgement.
func (s *Sink) write(ctx context.Context, e *entry) delivery.Result {
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	e.latest = time.Now().Add(s.config.Timeout * 2 / 3)
	select {
	case s.queue <- e:
	case <-limited.Done():
		return s.withdrawn(ctx, e)
	}
	select {
	case err := <-e.done:
		return s.result(err)
	case <-limited.Done():
	}
	if e.withdraw() {
		return s.withdrawn(ctx, e)
	}
	select {
	case err := <-e.done:
		return s.result(err)
	default:
	}
	if ctx.Err() != nil {
		return delivery.Result{Class: delivery.Interrupted, Detail: "given up by pacer before " + s.where + " answered; it may have been written"}
	}
	return delivery.Result{
		Class: delivery.Temporary, By: delivery.ByNobody,
		Detail: fmt.Sprintf("no acknowledgement from %s within %s; it may have been written", s.where, s.config.Timeout),
	}
}

// maxKey bounds a key that a template makes, in bytes.
const maxKey = 8 << 10

// entry returns the record of a job, to be written; problem says why it can never be.
func (s *Sink) entry(job *delivery.Job) (e *entry, problem string) {
	key := job.Key
	if s.key != nil {
		text, err := s.key.Text(render.NewJob(job, time.Now()), maxKey)
		if err != nil {
			return nil, "the key cannot be made: " + err.Error()
		}
		if key = nil; text != "" {
			key = []byte(text)
		}
	}
	r := delivery.Record{Key: key, Value: job.Payload, Headers: headers(job)}
	return &entry{record: r, key: key, size: broker.RecordSize(r), most: maxBatchRecords, done: make(chan error, 1)}, ""
}

// headers returns the headers of the job's own record, and its id and campaign.
func headers(job *delivery.Job) []delivery.Header {
	list := make([]delivery.Header, 0, len(job.Headers)+4)
	for _, h := range job.Headers {
		if !strings.HasPrefix(h.Key, delivery.HeaderPrefix) {
			list = append(list, h)
		}
	}
	add := func(key, value string) {
		if value != "" {
			list = append(list, delivery.Header{Key: key, Value: []byte(value)})
		}
	}
	add(delivery.HeaderContentType, job.ContentType)
	add(delivery.HeaderTraceParent, job.TraceParent)
	add(delivery.HeaderJobID, job.ID)
	add(delivery.HeaderCampaign, job.Campaign)
	return list
}

// Run writes jobs until ctx is cancelled, and reads the files that the configuration names again.
func (s *Sink) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { newBatches(s).run(ctx); return nil })
	group.Go(func() error {
		s.access.Follow(ctx, access.Following[broker.Security]{
			Logger: s.log, Destination: s.where, Changed: func(broker.Security) { s.client.Close() },
		})
		return nil
	})
	return group.Wait()
}

// Check reads the layout of the topic, and whether the sink may write to it. It writes nothing.
func (s *Sink) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, max(s.config.Timeout, checkTimeout))
	defer cancel()
	if _, err := s.client.Leaders(ctx, s.config.Topic); err != nil {
		return fmt.Errorf("%s: %s", blamed(err), s.describe(err))
	}
	missing, err := s.client.LackingOnTopics(ctx, map[string][]broker.Operation{s.config.Topic: {broker.OpWrite}})
	if err != nil {
		return fmt.Errorf("brokers: %s", s.describe(err))
	}
	if len(missing) > 0 {
		return fmt.Errorf("topic: %s may not be written by the sink's user; grant the operation Write", s.config.Topic)
	}
	return nil
}

const checkTimeout = 5 * time.Second

// Resent returns how many records were written once more, since the broker had certainly not written them.
func (s *Sink) Resent() uint64 { return s.resent.Load() }

// Close closes idle connections.
func (s *Sink) Close() error {
	s.client.Close()
	return nil
}
