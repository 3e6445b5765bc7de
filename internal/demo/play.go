package demo

import (
	"context"
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
func (st *environment) play(ctx context.Context, view *view) error {
	for _, note := range st.notes {
		view.say(note)
	}
	st.beginRecord()
	switch err := st.awaitReady(ctx); {
	case ctx.Err() != nil:
		return nil // an early end is no error
	case err != nil:
		return err
	}
	st.redis.Mark()
	playing, stop := context.WithCancel(ctx)
	defer stop()
	published := make(chan error, 1)
	began := make(chan struct{})
	go func() { published <- st.publish(playing, sync.OnceFunc(func() { close(began) })) }()
	select {
	case <-began:
		st.pass(playing, view)
	case <-ctx.Done():
	case err := <-published:
		return err
	}
	stop()
	return <-published
}

func (st *environment) beginRecord() {
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
	for from, to := 0, firstWaves; to <= waves; from, to = to, to+1 {
		if retry.Sleep(ctx, time.Until(start.Add(st.scenario.waveAt(to)))) != nil {
			return nil
		}
		// A wave is written to its end even if the demo is over: the number of published jobs must be exact.
		writing := context.WithoutCancel(ctx)
		if _, err := producer.Publish(writing, demoTopic, st.scenario.records(from, to), func(int) { began() }); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
		st.waves.Store(int64(to))
		if from == 0 {
			start = time.Now()
		}
	}
	return nil
}

// pass waits for the duration, or until ctx ends, and updates the view.
func (st *environment) pass(ctx context.Context, view *view) {
	start := time.Now()
	st.seen.Span.From = st.receiver.At(start)
	frames := time.NewTicker(frameInterval)
	defer frames.Stop()
	shown := &show{environment: st, start: start, past: []sample{{start, st.receiver.Accepted()}}}
	steps := st.scenario.steps
	for {
		next := start.Add(st.scenario.duration)
		if len(steps) > 0 {
			next = start.Add(steps[0].at)
		}
		select {
		case <-ctx.Done():
			st.seen.Span.To = st.receiver.Now()
			return
		case <-frames.C:
			view.update(shown.frame(time.Now()))
		case <-time.After(time.Until(next)):
			if len(steps) == 0 {
				st.seen.Span.To = st.receiver.Now()
				view.update(shown.frame(time.Now()))
				return
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
		st.catalog.ChangeCampaign(a.campaign, func(c *delivery.Campaign) { c.Rate = rate })
		c.Rates = append(c.Rates, count.RateChange{At: now, Rate: rate})
		return
	}
	st.catalog.ChangeCampaign(a.campaign, func(c *delivery.Campaign) { c.Status = a.status })
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
	journals := st.receiver.Journals()
	e := &st.seen
	e.Quotas = map[string]*delivery.Quota{st.scenario.quota.ID: &st.scenario.quota}
	e.Redis = st.redis.Usage()
	for i := range e.Campaigns {
		c := &e.Campaigns[i]
		planned := &st.scenario.campaigns[i]
		for n := range planned.published(int(st.waves.Load())) {
			c.Published = append(c.Published, jobID(c.ID, n))
		}
		c.Journal, c.Records = journals[c.ID], found[c.ID]
		c.Closed = c.Journal.Closed
	}
	return e, nil
}
