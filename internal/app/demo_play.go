package app

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/embedded"
	"github.com/pacer/pacer/internal/requeue"
)

// sceneRecord is what was done and when, on the receiver's clock. play writes it; evidence reads it when play has
// returned.
type sceneRecord struct {
	span      embedded.Interval
	rates     map[string][]bench.RateChange
	paused    map[string][]embedded.Interval
	mu        sync.Mutex     // guards published
	published map[string]int // jobs acknowledged by the broker; their ids count up from 0
}

// play waits for the daemons, publishes wave after wave, and performs the acts, until the duration is over or ctx
// ends.
func (st *stage) play(ctx context.Context, view demoView) error {
	for _, note := range st.notes {
		view.say(note)
	}
	if err := st.awaitReady(ctx); err != nil {
		return err
	}
	st.beginRecord()
	playing, stop := context.WithCancel(ctx)
	defer stop()
	published := make(chan error, 1)
	began := make(chan struct{})
	go func() { published <- st.publish(playing, sync.OnceFunc(func() { close(began) })) }()
	select {
	case <-began:
	case err := <-published:
		return fmt.Errorf("publish: %w", err)
	case <-ctx.Done():
		return errors.Join(ctx.Err(), <-published)
	}
	err := st.pass(playing, view)
	stop()
	if publishErr := <-published; publishErr != nil && !errors.Is(publishErr, context.Canceled) {
		err = errors.Join(err, publishErr)
	}
	return err
}

func (st *stage) beginRecord() {
	st.redis.Mark()
	now := st.receiver.Now()
	st.record.published = make(map[string]int)
	st.record.rates = make(map[string][]bench.RateChange)
	st.record.paused = make(map[string][]embedded.Interval)
	for _, c := range st.scene.campaigns {
		st.record.rates[c.id] = []bench.RateChange{{At: now, Rate: delivery.PerSecond(c.rate)}}
	}
}

// publish writes the waves when their time has come. began is called when the first jobs have been acknowledged: the
// demo's clock starts there.
func (st *stage) publish(ctx context.Context, began func()) error {
	producer, err := requeue.NewProducer(requeue.ProducerOptions{Client: st.client, Linger: time.Millisecond})
	if err != nil {
		return err
	}
	start := time.Now()
	for i, w := range st.scene.waves() {
		if !waitUntil(ctx, start.Add(w.at)) {
			return nil
		}
		// A wave is written to its end even if the demo is over: what is published must be known exactly.
		writing := context.WithoutCancel(ctx)
		if _, err := producer.Publish(writing, demoTopic, recordsOf(w.jobs), func(int) { began() }); err != nil {
			return err
		}
		st.record.mu.Lock()
		for _, j := range w.jobs {
			st.record.published[j.campaign]++
		}
		st.record.mu.Unlock()
		if i == 0 {
			start = time.Now()
		}
	}
	return nil
}

// pass lets the time pass, with what happens in it.
func (st *stage) pass(ctx context.Context, view demoView) error {
	start := time.Now()
	st.record.span.From = st.receiver.At(start)
	frames := time.NewTicker(frameInterval)
	defer frames.Stop()
	shown := newShow(st, start)
	acts := st.scene.acts
	for {
		next := start.Add(st.scene.duration)
		if len(acts) > 0 {
			next = start.Add(acts[0].at)
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			st.record.span.To = st.receiver.Now()
			return nil // an early end is an end
		case <-frames.C:
			timer.Stop()
			view.update(shown.frame(time.Now()))
		case <-timer.C:
			if len(acts) == 0 {
				st.record.span.To = st.receiver.Now()
				view.update(shown.frame(time.Now()))
				return nil
			}
			st.change(acts[0])
			view.say(fmt.Sprintf("%4.1fs  %s", time.Since(start).Seconds(), acts[0].say()))
			acts = acts[1:]
		}
	}
}

// change makes one change in the catalog and records when.
func (st *stage) change(a act) {
	now := st.receiver.Now()
	switch {
	case a.rate > 0:
		rate := delivery.PerSecond(a.rate)
		st.catalog.SetRate(a.campaign, rate)
		st.record.rates[a.campaign] = append(st.record.rates[a.campaign], bench.RateChange{At: now, Rate: rate})
	case a.status == delivery.StatusPaused:
		st.catalog.SetStatus(a.campaign, a.status)
		// Until the end, unless it is resumed.
		st.record.paused[a.campaign] = append(st.record.paused[a.campaign], embedded.Interval{From: now, To: 1 << 62})
	default:
		st.catalog.SetStatus(a.campaign, a.status)
		if p := st.record.paused[a.campaign]; len(p) > 0 {
			p[len(p)-1].To = st.receiver.Now()
		}
	}
}

// waitUntil is false if ctx ended first.
func waitUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// evidence gathers what the report is computed from, after the daemons have stopped.
func (st *stage) evidence(ctx context.Context) (*evidence, error) {
	left := &inventory{client: st.client, group: demoGroup, spec: st.topics, open: consumer.Unsettled}
	found, err := left.take(ctx)
	if err != nil {
		return nil, err
	}
	journals, dropped := st.receiver.Journals()
	byCampaign := make(map[string]embedded.Journal, len(journals))
	for _, j := range journals {
		byCampaign[j.Campaign] = j
	}
	quota := st.scene.quota
	e := &evidence{
		Span: st.record.span, Quotas: map[string]*delivery.Quota{quota.ID: &quota},
		Redis: st.redis.Usage(), Stalls: st.receiver.Stalls(), Unread: dropped,
	}
	for i := range st.scene.campaigns {
		c := &st.scene.campaigns[i]
		journal := byCampaign[c.id]
		ev := campaignEvidence{
			ID: c.id, Published: c.ids()[:st.record.published[c.id]], Journal: journal,
			demand: demand{
				Rates: st.record.rates[c.id], Weight: c.weight, Quotas: c.quotas,
				Busy:   []embedded.Interval{busy(st.record.span, &journal, st.record.published[c.id])},
				Paused: clip(st.record.paused[c.id], st.record.span), Closed: clip(journal.Closed, st.record.span),
			},
		}
		if r := found[c.id]; r != nil {
			ev.Records = *r
		}
		e.Campaigns = append(e.Campaigns, ev)
	}
	return e, nil
}

// busy is the time in which a campaign had jobs: all of it, or until the last of them was accepted.
func busy(span embedded.Interval, j *embedded.Journal, published int) embedded.Interval {
	accepted, _ := tally(j)
	if len(accepted) < published {
		return span
	}
	last := span.From
	for _, a := range j.Arrivals {
		if a.Accepted() {
			last = max(last, a.At)
		}
	}
	return embedded.Interval{From: span.From, To: min(span.To, last)}
}

// clip cuts intervals to the span; empty ones are left out.
func clip(intervals []embedded.Interval, span embedded.Interval) []embedded.Interval {
	var cut []embedded.Interval
	for _, in := range intervals {
		in.From, in.To = max(in.From, span.From), min(in.To, span.To)
		if in.From < in.To {
			cut = append(cut, in)
		}
	}
	return cut
}
