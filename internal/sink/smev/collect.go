package smev

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// collector takes responses from SMEV's queue: GetResponse, then the response is written to the topic, and only then Ack. SMEV gives a
// response that is not acknowledged once more after a while. So a crash in between loses none, but a response may be in the topic twice.
// The queue is that of the information system: any daemon may take the responses of all, and several of them share it without harm.
// Campaigns do not pace it, since a full queue has SMEV refuse the requests of others.
//
// run owns all goroutines.
type collector struct {
	direct
	selectors []soap.Selector
	fates     *lru.Cache[string, *fate]
	fetching  []retry.Outage // GetResponse, by selector
	storing   retry.Outage   // the topic
	acking    retry.Outage
}

const (
	maxResponse = 32 << 20        // bytes of an answer of GetResponse, attachments included
	finishTime  = 5 * time.Second // for a write to the topic, and for what has begun when the daemon ends
	ackTries    = 3
	maxKept     = 16_384 // MessageIDs that are remembered
)

func newCollector(d direct) *collector {
	selectors := d.config.Collect.selectors()
	fates, _ := lru.New[string, *fate](maxKept) // an error is about the size
	return &collector{direct: d, selectors: selectors, fetching: make([]retry.Outage, len(selectors)), fates: fates}
}

// run collects until ctx is cancelled. Once an interval it looks at the queue; while there are responses, up to the
// configured number of them are taken at once, without a pause.
func (c *collector) run(ctx context.Context) {
	var takers errgroup.Group
	takers.SetLimit(c.config.Collect.Parallel)
	for ctx.Err() == nil {
		takers.TryGo(func() error { c.take(ctx, &takers); return nil })
		// Daemons that were started together do not look together for long.
		_ = retry.Sleep(ctx, time.Duration((0.9+0.2*rand.Float64())*float64(c.config.Collect.Interval)))
	}
	_ = takers.Wait() // they return no error
}

// take takes responses until there are none. A type that is refused does not keep back those of others.
func (c *collector) take(ctx context.Context, takers *errgroup.Group) {
	for more := true; more && ctx.Err() == nil; {
		more = false
		for i := range c.selectors {
			more = c.takeOne(ctx, i, takers) || more
		}
	}
}

// takeOne takes a response of a selector. It reports whether there was one.
func (c *collector) takeOne(ctx context.Context, selector int, takers *errgroup.Group) bool {
	held, over := context.WithCancel(ctx) // a long response has its place until it is written
	defer over()
	r, err := c.next(held, c.selectors[selector])
	if !c.account(ctx, stepGet, &c.fetching[selector], err) || r == nil {
		return false
	}
	takers.TryGo(func() error { c.take(ctx, takers); return nil })
	c.handle(ctx, r)
	return true
}

// account notes how a step went, with a line in the log when it begins to fail and one when it works again.
func (c *collector) account(ctx context.Context, step string, o *retry.Outage, err error) (ok bool) {
	switch {
	case err == nil:
		if lasted, over := o.Worked(); over {
			c.Logger.Info("responses of SMEV are collected again", "step", step, "after", lasted.Round(time.Millisecond))
		}
		return true
	case ctx.Err() == nil:
		c.metrics.failed.WithLabelValues(step).Inc()
		if o.Failed() {
			c.Logger.Warn("responses of SMEV cannot be collected; they stay in its queue, and it is tried again", "step", step, "error", err)
		}
	}
	return false
}

// response is a message about a request, from SMEV's queue or from the adapter.
type response struct {
	soap.Message
	body        []byte // as it was said
	contentType string
}

// next asks for the next response; nil if there is none.
func (c *collector) next(ctx context.Context, s soap.Selector) (*response, error) {
	call := soap.GetResponse(c.config.Version, s, c.config.NodeID, time.Now())
	answer, said, problem := c.ask(ctx, call, nil, maxResponse)
	switch {
	case problem != nil:
		return nil, errors.New(problem.Detail)
	case !answer.Whole || !said.Whole:
		return nil, errors.New("an answer of GetResponse was cut off, or is longer than 32 MiB")
	case said.Message == nil:
		return nil, nil
	case said.Message.ID == "":
		return nil, errors.New("a response without a MessageID, which cannot be acknowledged")
	}
	r := &response{Message: *said.Message, body: answer.Body, contentType: answer.Header.Get("Content-Type")}
	if envelope, bare, err := soap.XML(r.contentType, r.body); err == nil && bare {
		r.body, r.contentType = envelope, "text/xml; charset=utf-8"
	}
	return r, nil
}

// handle writes a response to the topic, unless that was done, and acknowledges it. SMEV may give a response that it has acknowledged, when it
// has lost that: it is acknowledged once more. When the daemon ends, a response in progress has finishTime left, so that few come twice.
func (c *collector) handle(ctx context.Context, r *response) {
	f := c.fateOf(r.ID)
	if !f.TryLock() {
		c.metrics.again.Inc()
		return // another goroutine has it
	}
	defer f.Unlock()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(finishTime, cancel) })
	defer stop()
	if f.stored {
		c.metrics.again.Inc()
	} else if f.stored = c.store(work, r); !f.stored {
		return
	}
	if c.ack(work, r) && !f.acked {
		f.acked = true
		c.metrics.collected.WithLabelValues(string(r.Kind)).Inc()
	}
}

// fate is how far a response has come. Its lock is held by the goroutine that is at work on it.
type fate struct {
	sync.Mutex
	stored, acked bool
}

// fateOf returns the fate of a response by its MessageID. Those of the latest ones are remembered.
func (c *collector) fateOf(id string) *fate {
	fresh := &fate{}
	known, has, _ := c.fates.PeekOrAdd(id, fresh)
	if !has {
		return fresh
	}
	c.fates.Get(id) // so that it is one of the latest
	return known
}

// Headers of the records in the topic.
const (
	headerKind     = "smev-kind"
	headerMessage  = "smev-message-id"
	headerOriginal = "smev-original-message-id"
	headerCode     = "smev-code"
	headerClient   = "smev-client-id" // through the adapter
)

func header(key, value string) delivery.Header {
	return delivery.Header{Key: key, Value: []byte(value)}
}

// record returns the response as it is written. Its key is the request, so that all that is said of one is in order.
func (r *response) record() delivery.Record {
	list := []delivery.Header{
		header(headerKind, string(r.Kind)), header(headerMessage, r.ID), header(headerOriginal, r.Original),
		header(delivery.HeaderContentType, r.contentType),
	}
	if r.Code != "" {
		list = append(list, header(headerCode, r.Code))
	}
	return delivery.Record{Key: []byte(r.Original), Value: r.body, Headers: list}
}

var storeBackoff = retry.Backoff{Initial: 100 * time.Millisecond, Max: 10 * time.Second, Jitter: 1. / 3}

// store writes a response to the topic, for as long as it takes.
func (c *collector) store(ctx context.Context, r *response) bool {
	for {
		tooLarge, err := c.Writer.Write(ctx, c.config.Responses, r.record())
		if tooLarge {
			c.metrics.failed.WithLabelValues(stepStore).Inc()
			c.Logger.Error("a response of SMEV is larger than its topic takes; it stays in SMEV's queue: raise max.message.bytes",
				"topic", c.config.Responses, "smev_message", r.ID, "bytes", len(r.body), "error", err)
			return false
		}
		if c.account(ctx, stepStore, &c.storing, err) {
			return true
		}
		if retry.Sleep(ctx, storeBackoff.Delay(c.storing.Failures())) != nil {
			return false
		}
	}
}

// ack acknowledges a response. One that cannot be acknowledged comes once more.
func (c *collector) ack(ctx context.Context, r *response) bool {
	for try := 1; ; try++ {
		_, said, problem := c.ask(ctx, soap.Ack(c.config.Version, r.ID), nil, maxAnswer)
		var err error
		if problem != nil && said.Fault.Name != "TargetMessageIsNotFound" { // which says that it is acknowledged already
			err = errors.New(problem.Detail)
		}
		if c.account(ctx, stepAck, &c.acking, err) {
			return true
		}
		if try == ackTries || retry.Sleep(ctx, storeBackoff.Delay(try)) != nil {
			return false
		}
	}
}
