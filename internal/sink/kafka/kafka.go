// Package kafka is the sink that writes jobs to a topic: the payload, the headers and the key of each.
package kafka

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
)

// Sink writes each job to a topic, in batches of the jobs of all calls of Deliver, with acks=all.
//
// A batch is written again only where the broker has certainly not written it (see batches). A batch that may have been written is
// reported so. A request cannot be taken back, so the record of a call that was given up may be written later.
//
// Memory: at most max_in_flight jobs wait, in the memory that they have already. Requests in flight, one for each broker
// that leads a partition, have up to 4 MiB of records each.
type Sink struct {
	base.Service[parts]
	config  *Config
	client  *broker.Client
	where   string // for details
	batches *batches
}

// parts are what connections are made with, and the template of the key, if there is one.
type parts struct {
	broker.Security
	texts render.Set
	sink  *Sink
}

// Where is the topic.
func (p parts) Where() string { return p.sink.where }

// Close closes idle connections.
func (p parts) Close() { p.sink.client.Close() }

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c, where: "topic " + c.Topic + " at " + c.Brokers[0]}
	s.batches = newBatches(s)
	err := s.Open(host, base.Dialect[parts]{Secrets: c.Secrets, Build: s.build, Attempt: s.attempt})
	if err != nil {
		return nil, err
	}
	s.client, err = broker.New(broker.Options{
		// A connection that cannot be made is known to have failed before the call is over.
		Brokers: c.Brokers, Topics: []string{c.Topic}, DialTimeout: c.Timeout * 2 / 3, Security: func() broker.Security { return s.Now().Security },
	})
	if err != nil {
		return nil, fmt.Errorf("username: %w", err)
	}
	return s, nil
}

// build reads what connections are made with.
func (s *Sink) build(r *access.Reader) parts {
	c, p := s.config, parts{sink: s, texts: r.Texts(s.config.texts())}
	if c.TLS {
		p.TLS = r.TLS("", c.Certificates)
	}
	if c.SASLMechanism != "" {
		p.SASL = broker.SASL{Mechanism: c.SASLMechanism, Username: c.Username, Password: r.Secret("password", c.Password)}
	}
	return p
}

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) (res delivery.Result) {
	e, problem := s.entry(job)
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	if shown != nil {
		shown.Request = s.shown(e.record)
	}
	res = s.write(ctx, e)
	switch {
	case shown == nil:
	case res.Class == delivery.Delivered:
		shown.Answer = "acknowledged by all in-sync replicas"
	case res.Provider != nil:
		shown.Answer = res.Provider.Code
	}
	return res
}

// shown returns a record as a person is to see it. None of the sink's secrets is in it.
func (s *Sink) shown(r delivery.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "topic: %s\nkey: %s\n", s.config.Topic, cmp.Or(httpcall.Shorten(r.Key), "(none)"))
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "header %s: %s\n", h.Key, httpcall.Shorten(h.Value))
	}
	fmt.Fprintf(&b, "\n%s", httpcall.Shorten(r.Value))
	return b.String()
}

// write has a record written, and waits for its acknowledgement.
func (s *Sink) write(ctx context.Context, e *entry) delivery.Result {
	limited, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	if err := s.batches.put(limited, e); err != nil {
		if ctx.Err() != nil {
			return s.withdrawn(ctx, e)
		}
		return s.result(err)
	}
	select {
	case err := <-e.done:
		return s.result(err)
	case <-limited.Done():
	}
	if s.batches.withdraw(e) {
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
	if s.config.Key != "" {
		text, err := s.Now().texts.Make("key", render.NewJob(job, time.Now()), maxKey)
		if err != nil {
			return nil, err.Error()
		}
		if key = nil; text != "" {
			key = []byte(text)
		}
	}
	r := delivery.Record{Key: key, Value: job.Payload, Headers: headers(job)}
	return &entry{record: r, size: broker.RecordSize(r), begun: time.Now(), most: maxBatchRecords, waits: true, done: make(chan error, 1)}, ""
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

// Close ends what is under way, and closes connections.
func (s *Sink) Close() error {
	s.batches.close()
	return s.Service.Close()
}
