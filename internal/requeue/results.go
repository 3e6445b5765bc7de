package requeue

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

const (
	linger      = 5 * time.Millisecond // how long an event waits for others to share its batch
	admitPoll   = 50 * time.Millisecond
	eventsBatch = 2 * maxBatchJobs
)

// result is the final outcome of a job. Its item writes an event of it and then settles the job at next.
type result struct {
	outcome delivery.Outcome
	next    delivery.Receipt
	at      time.Time
	headers map[string]string // of the job, that its event has
	short   bool              // the event is larger than its topic takes, and is written without its variable parts
}

// Receipt returns a receipt that settles jobs with a final outcome at next once the broker has acknowledged an event of each. Until then
// their offsets stay open, so events are delivered at least once, like jobs: after a crash the job is read again and makes its event
// again. The key of an event is the job's id, so a large campaign loads all partitions evenly.
func (r *Relay) Receipt(next delivery.Receipt) delivery.Receipt { return &resultReceipt{r, next} }

type resultReceipt struct {
	relay *Relay
	next  delivery.Receipt
}

// Settle implements delivery.Receipt.
func (c *resultReceipt) Settle(job *delivery.Job, outcome delivery.Outcome) {
	if !outcome.Final() {
		c.next.Settle(job, outcome)
		return
	}
	f := &result{outcome: outcome, next: c.next, at: time.Now(), headers: c.relay.headersOf(job)}
	const event, escaped = 600, 6 // bytes, at most, besides the names; of a byte in JSON
	size := event + 2*len(job.ID) + len(job.Campaign) + len(job.Destination)
	for name, value := range job.Keys() {
		size += len(name) + escaped*len(value)
	}
	for name, value := range f.headers {
		size += len(name) + escaped*len(value)
	}
	if p := job.Call.Provider; p != nil {
		size += escaped * len(p.Answer)
	}
	c.relay.put(&item{job: job, to: delivery.Reroute{Kind: delivery.ToResult}, size: size, result: f})
}

// maxHeader bounds the value of a header in an event, in bytes.
const maxHeader = 256

// headersOf returns the job's headers that its event has, the last of each name, nil for none.
func (r *Relay) headersOf(j *delivery.Job) map[string]string {
	var headers map[string]string
	for _, h := range j.Headers {
		if slices.Contains(r.opts.ResultHeaders, h.Key) {
			if headers == nil {
				headers = map[string]string{}
			}
			headers[h.Key] = record.OneLine(string(h.Value), maxHeader)
		}
	}
	return headers
}

// Admit waits while the broker refuses events, until ctx ends but not longer than atMost: jobs that are sent meanwhile
// cannot be settled, and a crash would send all of them again. The error is the context's.
func (r *Relay) Admit(ctx context.Context, atMost time.Duration) error {
	for until := time.Now().Add(atMost); r.refusesResults() && time.Now().Before(until); {
		if err := retry.Sleep(ctx, admitPoll); err != nil {
			return err
		}
	}
	return nil
}

func (r *Relay) refusesResults() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.box.stalled().results > 0
}

// event is the wire form of a result.
type event struct {
	JobID       string            `json:"job_id"`
	Campaign    string            `json:"campaign"`
	Destination string            `json:"destination,omitempty"`
	Keys        map[string]string `json:"keys,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"` // those of the job that are configured
	Outcome     string            `json:"outcome"`
	Reason      string            `json:"reason,omitempty"` // of a dead letter
	Quota       string            `json:"quota,omitempty"`  // of a capped job: which did not allow it, and when it would
	FreeAt      time.Time         `json:"free_at,omitzero"`
	Attempts    int               `json:"attempts"`
	Status      int               `json:"status,omitempty"` // of the last call, if it had one

	ProviderCode      string    `json:"provider_code,omitempty"` // of the last call
	ProviderMessageID string    `json:"provider_message_id,omitempty"`
	Answer            string    `json:"answer,omitempty"`    // its beginning, if it did not take the job
	GoneSince         time.Time `json:"gone_since,omitzero"` // since when the recipient's token has not been valid

	Origin string `json:"origin"` // <topic>/<partition>/<offset> of the first record

	EnqueuedAt   time.Time `json:"enqueued_at,omitzero"`   // when pacer last moved the job to a lane or a timer
	FirstReadAt  time.Time `json:"first_read_at,omitzero"` // by pacer
	DispatchedAt time.Time `json:"dispatched_at,omitzero"` // the last time
	SettledAt    time.Time `json:"settled_at"`

	SinkLatency  float64 `json:"sink_latency_ms,omitzero"` // of the last call
	TotalLatency float64 `json:"total_latency_ms"`         // from the first read until it was settled
}

func (f *result) encode(j *delivery.Job) []byte {
	e := event{
		JobID: j.ID, Campaign: j.Campaign, Destination: j.AnyDestination(), Keys: j.Keys(), Headers: f.headers,
		Outcome: f.outcome.String(), Attempts: j.Attempt, Origin: j.Origin.String(),
		EnqueuedAt: eventTime(j.EnqueuedAt.Time()), FirstReadAt: eventTime(j.FirstRead), SettledAt: eventTime(f.at),
	}
	if c := j.Call; !c.At.IsZero() {
		e.Status, e.DispatchedAt, e.SinkLatency = int(c.Status), eventTime(c.At), float64(c.Took)/1000
	}
	if p := j.Call.Provider; p != nil {
		e.ProviderCode, e.ProviderMessageID, e.GoneSince, e.Answer = p.Code, p.MessageID, eventTime(p.GoneSince), p.Answer
	}
	switch f.outcome {
	case delivery.OutcomeDead:
		e.Reason = j.Reason
	case delivery.OutcomeCapped:
		e.Quota, e.FreeAt = j.Reason, eventTime(j.Due)
	}
	if !j.FirstRead.IsZero() {
		e.TotalLatency = float64(max(0, f.at.Sub(j.FirstRead)).Microseconds()) / 1000
	}
	if f.short {
		e.Keys, e.Headers, e.Answer = nil, nil, ""
	}
	text, err := json.Marshal(&e)
	if err != nil {
		panic(fmt.Sprintf("encode a result: %v", err)) // strings, numbers and times of eventTime can always be encoded
	}
	return text
}

// eventTime truncates a time to microseconds in UTC; zero stays zero. A year for which JSON has no notation is zero as well.
func eventTime(t time.Time) time.Time {
	if t = t.UTC().Truncate(time.Microsecond); t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}
	}
	return t
}
