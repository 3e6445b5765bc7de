package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/retry"
)

// play waits for the daemons, publishes the waves and takes the steps, until the duration is over or ctx ends.
func (st *environment) play(ctx context.Context, view viewer) error {
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

func (st *environment) beginRecord() {
	st.redis.Mark()
	now := st.receiver.Now()
	for _, c := range st.scenario.campaigns {
		st.seen.Campaigns = append(st.seen.Campaigns, campaignObservations{ID: c.id, demand: demand{
			Rates: []count.RateChange{{At: now, Rate: delivery.PerSecond(c.rate)}}, Quotas: c.quotas,
		}})
	}
}

// publish writes the waves at their times. It calls began when the first jobs have been acknowledged, which starts the
// demo's clock.
func (st *environment) publish(ctx context.Context, began func()) error {
	producer := broker.NewProducer(broker.ProducerOptions{Client: st.client, Linger: time.Millisecond})
	start := time.Now()
	for i, w := range st.scenario.waves() {
		if retry.Sleep(ctx, time.Until(start.Add(w.at))) != nil {
			return nil
		}
		// A wave is written to its end even if the demo is over: the number of published jobs must be exact.
		writing := context.WithoutCancel(ctx)
		if _, err := producer.Publish(writing, demoTopic, recordsOf(w.jobs), func(int) { began() }); err != nil {
			return err
		}
		st.mu.Lock()
		for _, j := range w.jobs {
			st.published[j.campaign]++
		}
		st.mu.Unlock()
		if i == 0 {
			start = time.Now()
		}
	}
	return nil
}

// pass waits for the duration, and updates the view.
func (st *environment) pass(ctx context.Context, view viewer) error {
	start := time.Now()
	st.seen.Span.From = st.receiver.At(start)
	frames := time.NewTicker(frameInterval)
	defer frames.Stop()
	shown := newShow(st, start)
	steps := st.scenario.steps
	for {
		next := start.Add(st.scenario.duration)
		if len(steps) > 0 {
			next = start.Add(steps[0].at)
		}
		select {
		case <-ctx.Done():
			st.seen.Span.To = st.receiver.Now()
			return nil // an early end is no error
		case <-frames.C:
			view.update(shown.frame(time.Now()))
		case <-time.After(time.Until(next)):
			if len(steps) == 0 {
				st.seen.Span.To = st.receiver.Now()
				view.update(shown.frame(time.Now()))
				return nil
			}
			st.change(steps[0])
			view.say(fmt.Sprintf("%4.1fs  %s", time.Since(start).Seconds(), steps[0].describe()))
			steps = steps[1:]
		}
	}
}

// change makes one change in the catalog and records when.
func (st *environment) change(a step) {
	now := st.receiver.Now()
	c := &st.seen.Campaigns[slices.IndexFunc(st.seen.Campaigns, func(c campaignObservations) bool { return c.ID == a.campaign })]
	if a.rate > 0 {
		rate := delivery.PerSecond(a.rate)
		st.catalog.SetRate(a.campaign, rate)
		c.Rates = append(c.Rates, count.RateChange{At: now, Rate: rate})
		return
	}
	st.catalog.SetStatus(a.campaign, a.status)
	if a.status == delivery.StatusPaused {
		c.Paused = append(c.Paused, count.Interval{From: now, To: 1 << 62}) // until the end, unless it is resumed
	} else if last := len(c.Paused) - 1; last >= 0 {
		c.Paused[last].To = st.receiver.Now()
	}
}

// observe completes the input of the report, after the daemons have stopped.
func (st *environment) observe(ctx context.Context) (*observations, error) {
	found, err := count.Inventory(ctx, st.client, demoGroup, st.topics)
	if err != nil {
		return nil, err
	}
	journals, dropped := st.receiver.Journals()
	e := &st.seen
	e.Quotas = map[string]*delivery.Quota{st.scenario.quota.ID: &st.scenario.quota}
	e.Redis, e.Unread = st.redis.Usage(), dropped
	for i := range e.Campaigns {
		c := &e.Campaigns[i]
		c.Published = st.scenario.campaigns[i].ids()[:st.published[c.ID]]
		c.Journal, c.Records = journals[c.ID], found[c.ID]
		c.Busy = []count.Interval{busy(e.Span, c)}
		c.Paused, c.Closed = clip(c.Paused, e.Span), clip(c.Journal.Closed, e.Span)
	}
	return e, nil
}

// busy returns the interval with jobs of a campaign: all of the time, or until its last job was accepted.
func busy(span count.Interval, c *campaignObservations) count.Interval {
	accepted, _ := tally(&c.Journal)
	if len(accepted) < len(c.Published) {
		return span
	}
	last := span.From
	for _, a := range c.Journal.Arrivals {
		if a.Accepted() {
			last = max(last, a.At)
		}
	}
	return count.Interval{From: span.From, To: min(span.To, last)}
}

// clip intersects intervals with the span and leaves out empty ones.
func clip(intervals []count.Interval, span count.Interval) []count.Interval {
	var cut []count.Interval
	for _, in := range intervals {
		in.From, in.To = max(in.From, span.From), min(in.To, span.To)
		if in.From < in.To {
			cut = append(cut, in)
		}
	}
	return cut
}
