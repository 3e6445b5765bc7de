package consumer

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

const (
	maxFetchBytes   = 256 << 10
	minFetchBytes   = 16 << 10
	timerFetchBytes = 32 << 10
	longPoll        = 500 * time.Millisecond // how long a fetch from ingress waits for data
	shortPoll       = 50 * time.Millisecond  // the same if data is known to exist
	offerJobs       = 500                    // jobs handed over at once
	expansion       = 4                      // a fetch that decompresses to more jobs than this times its bytes is read in parts
	stuckAfter      = time.Second            // how often the handler is asked again to relieve a full window
)

// reader is the part common to the readers of all partitions: one goroutine that fetches, decodes and offers.
type reader struct {
	opt     *Options
	health  *broker.Health
	hearts  *heartbeats
	src     *source
	receipt delivery.Receipt          // of the jobs that are read
	settle  func(ctx context.Context) // waits until what is in hand of the source is settled or given back
	memory  fetchMemory
	brought *broker.Brought // by the poll that woke this reader
	decoder record.Decoder
}

// run calls turn until ctx ends, or the partition has to be begun anew. A turn does one piece of work and returns whether there was
// any; it returns the error of a fetch at once, before it waits.
func (r *reader) run(ctx context.Context, turn func(context.Context) (worked bool, err error)) (anew *start) {
	name := r.src.String()
	defer r.health.Forget(name)
	defer r.hearts.begin(&r.src.heart, name, placeNames[r.src.from])()
	var wait backoff
	doubted := false
	for ctx.Err() == nil {
		r.src.heart.beat("its next step")
		worked, err := false, error(nil)
		pause := doubted
		if doubted { // until it works: a topic that is gone for a moment may be made anew, and have grown
			anew, err = r.verify(ctx)
			doubted = err != nil
		} else {
			turning, end := r.src.beginTurn(ctx)
			worked, err = turn(turning)
			if doubted = broker.OutOfRange(err) || broker.NoTopic(err) || turning.Err() != nil; doubted {
				err = nil
			}
			end()
		}
		_, again := errors.AsType[*broker.LargeAnswer](err) // with memory for the answer
		switch {
		case ctx.Err() != nil:
			return nil
		case anew != nil:
			return anew
		case again:
		case err != nil:
			pause = true
			r.health.Fail(name, err)
		case worked:
			wait.reset()
		}
		if pause && wait.pause(ctx) != nil {
			return nil
		}
	}
	return nil
}

// errEnough ends a fetch once enough was taken; the rest is read again.
var errEnough = errors.New("enough was read")

// read fetches once, within the budget, and calls visit for each record. It returns the error of the context, of the
// fetch, or errEnough of visit; records visited before an error are valid.
func (r *reader) read(
	ctx context.Context, from, maxBytes int64, maxWait time.Duration, visit func(*delivery.Record) error,
) (broker.Fetched, error) {
	m := &r.memory
	m.kept = 0
	room, end := m.room(r.src.budget)
	defer end()
	request := broker.FetchRequest{
		Partition: r.src.partition, Offset: from, MaxBytes: maxBytes, MaxWait: maxWait, Claimed: m.answer, Room: room, Aside: true,
		Yields: r.src.from == delivery.FromIngress, Throttled: r.src.heart.rest, // what is due goes first
	}
	if r.brought != nil && r.brought.Offset == from {
		request.Brought, r.brought = r.brought, nil
	}
	r.src.heart.beat("a fetch to end")
	out, err := r.opt.Client.Fetch(ctx, request, visit)
	r.src.heart.beat("its next step")
	large, isLarge := errors.AsType[*broker.LargeAnswer](err)
	result, failed := resultOK, err != nil && !errors.Is(err, errEnough)
	switch {
	case failed && ctx.Err() != nil:
		return out, ctx.Err()
	case isLarge:
		result, m.last = resultEmpty, large.Bytes
	case failed:
		result = resultError
	case out.Records == 0:
		result = resultEmpty
	}
	metrics, label := r.src.metrics, placeNames[r.src.from]
	metrics.fetches.WithLabelValues(label, result).Inc()
	metrics.records.WithLabelValues(label).Add(float64(out.Records))
	if !failed {
		m.last, m.need = max(out.Answer, m.last/4), min(m.need, m.kept)
		r.health.OK(r.src.String())
		r.src.proven.Store(true)
	}
	return out, err
}

// fetchMemory is the memory of a reader's fetch, and what the last one tells of the next.
type fetchMemory struct {
	answer, jobs int64 // what is claimed for the answer, and what is left of that for jobs
	kept         int64 // bytes of jobs
	last         int64 // about the bytes of the last answer
	need         int64 // of jobs, since there was no memory for them
}

// largestClaim divides the budget: an answer claims at most that part of it. The excess of an answer with the largest claim is charged
// without waiting, and at most largestClaim such answers are read at a time. Any other answer ends if its excess is not free, and the next
// fetch claims more.
const largestClaim = 4

// room returns what charges the bytes of an answer beyond its claim, if they are free, and what gives them back at the end. A connection may
// begin to read the answer to a fetch that has ended.
func (m *fetchMemory) room(b *share) (room func(bytes int64) bool, end func()) {
	const over = -1
	large := m.answer >= b.limit/largestClaim
	var charged atomic.Int64
	return func(bytes int64) bool {
			if large {
				b.charge(bytes)
			} else if !b.try(bytes) {
				return false
			}
			fits := charged.CompareAndSwap(0, bytes)
			if !fits {
				b.charge(-bytes)
			}
			return fits
		}, func() {
			b.charge(-max(0, charged.Swap(over)))
		}
}

// admit waits for the memory of a fetch: for its answer, which is as large as the last one, and for the jobs that there was no
// memory for.
func (r *reader) admit(ctx context.Context, maxBytes int64) error {
	m := &r.memory
	m.answer, m.jobs = max(maxBytes, min(m.last, r.src.budget.limit/largestClaim)), m.need
	return r.src.budget.acquire(ctx, m.answer+m.jobs)
}

// release gives back what was claimed for a fetch and is not used by its jobs.
func (r *reader) release() {
	r.src.budget.charge(-r.memory.answer - r.memory.jobs)
	r.memory.answer, r.memory.jobs = 0, 0
}

// keep charges a job that was read. Without memory for it, it returns false: the job is read again, once there is.
func (r *reader) keep(size int64) bool {
	m := &r.memory
	if more := size - m.jobs; more > 0 && !r.src.budget.try(more) {
		m.need = max(size, min(m.answer, r.src.budget.limit/16))
		m.kept = m.need
		return false
	}
	m.jobs = max(0, m.jobs-size)
	m.kept += size
	return true
}

// decode makes a job of a record.
func (r *reader) decode(rec *delivery.Record, now time.Time) *delivery.Job {
	rec.TopicID = r.src.topic
	return r.decoder.Decode(rec, r.src.from, r.opt.limits(), now)
}

// adopt sets the fields of a decoded job that are common to the partition, counts its flaw, and logs one that has cost its payload. Jobs
// that are passed over, and may be met again and again, are not adopted.
func (r *reader) adopt(j *delivery.Job) {
	j.Source, j.Receipt = r.src, r.receipt
	if j.Flaw == nil {
		return
	}
	r.src.metrics.defects.WithLabelValues(string(j.Flaw.Defect)).Inc()
	if j.Flaw.Lost > 0 {
		r.opt.Logger.Error("a record cannot be read as a whole; it becomes a dead letter without its payload",
			"partition", r.src.String(), "offset", j.Offset, "reason", j.Flaw.Defect, "detail", j.Flaw.Detail)
	}
}

// offer calls the handler until it accepts the call, and returns the jobs that it refused. An error of the handler
// means that it accepted none of them, and is retried; the error returned is the context's.
func (r *reader) offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	defer r.src.heart.beat("its next step")
	var wait backoff
	for {
		r.src.heart.beat("the handler to take the jobs it is offered")
		refused, err = r.opt.Handler.Offer(ctx, jobs)
		if err == nil {
			return refused, nil
		}
		r.opt.Logger.Debug("jobs are not taken yet", "jobs", len(jobs), "error", err)
		if err = wait.pause(ctx); err != nil {
			return nil, err
		}
	}
}

// lastsAfter is how long a state of a partition may last before it is logged.
const lastsAfter = 10 * time.Second

// lasting is a state of a partition, at an offset. The zero value is not in it.
type lasting struct {
	at    int64
	since time.Time
	long  bool
}

// note records whether the partition is in the state at now. It returns 1 once that has lasted for long, -1 when it ends after that, and for how
// long it has lasted.
func (l *lasting) note(is bool, at int64, now time.Time) (change int, lasted time.Duration) {
	lasted = now.Sub(l.since)
	switch same := is && !l.since.IsZero() && at == l.at; {
	case !same:
		if l.long {
			change = -1
		}
		if *l = (lasting{}); is {
			*l = lasting{at: at, since: now}
		}
	case !l.long && lasted >= lastsAfter:
		l.long, change = true, 1
	}
	return change, lasted.Round(time.Millisecond)
}

// brokerBackoff waits from 50 to 100 ms at first and up to 2 s, with jitter so that readers do not retry together.
var brokerBackoff = retry.Backoff{Initial: 75 * time.Millisecond, Max: 1500 * time.Millisecond, Jitter: 1. / 3}

// backoff counts failures and waits before the next attempt. Not safe for concurrent use; the zero value is ready.
type backoff struct{ failures int }

func (b *backoff) reset() { b.failures = 0 }

// pause waits. It returns the context's error if ctx ends first.
func (b *backoff) pause(ctx context.Context) error {
	b.failures++
	return retry.Sleep(ctx, brokerBackoff.Delay(b.failures))
}
