package main

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// leadJobs is how many jobs are published ahead of those that are sent. Much more than three quarters of the open
	// offsets that a daemon accepts per partition (20,000) would go to a lane, which only one daemon reads.
	leadJobs = 7_000 * ingressPartitions
	// mostWaiting bounds the jobs that wait when daemons do not keep up with their rate: the measurement is about how
	// much they send, not about how they store the rest.
	mostWaiting = leadJobs * 14 / 10
	lookEvery   = 50 * time.Millisecond
	// linger lets a batch fill at the publishing rate of the window.
	linger = 50 * time.Millisecond
)

// publish writes enough jobs of every campaign to last until the window ends.
func (r *trial) publish(ctx context.Context) error {
	producer := broker.NewProducer(broker.ProducerOptions{Client: r.st.services.Kafka, Linger: linger})
	_, err := producer.Publish(ctx, r.st.services.Topics.Ingress[0], r.records(ctx), nil)
	return err
}

// records yields the jobs in the order of their publishing. Campaigns of one rate take turns, job by job; those of different rates follow
// each other, so that each is spread evenly over the partitions. The lead is published at once, the rest at the sending rate.
func (r *trial) records(ctx context.Context) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		lead := &lead{began: time.Now(), primed: r.primed, settled: r.settled}
		defer lead.prime()
		var err error
		if lead.before, err = lead.settled(ctx); err != nil {
			yield(delivery.Record{}, err)
			return
		}
		for first := 0; first < len(r.campaigns); {
			last := first + 1
			for last < len(r.campaigns) && r.campaigns[last].rate == r.campaigns[first].rate {
				last++
			}
			lead.rate += r.campaigns[first].rate.PerSecond() * float64(last-first)
			for n := 0; float64(n) < r.need(&r.campaigns[first], lead.elapsed()); n++ {
				for i := first; i < last; i++ {
					if err := lead.next(ctx); err != nil {
						yield(delivery.Record{}, err)
						return
					}
					r.run.Loads[i].Published++
					if !yield(jobRecord(r.campaigns[i].id, n), nil) {
						return
					}
				}
			}
			first = last
		}
	}
}

// need returns how many jobs of a campaign last until the window's end, if publishing the lead takes that long.
func (r *trial) need(c *campaign, elapsed time.Duration) float64 {
	if r.jobs != nil {
		return r.jobs(c, elapsed)
	}
	return reserve*c.rate.PerSecond()*(elapsed+warmUp+r.window).Seconds() + 1
}

// lead keeps publishing ahead of sending, within bounds.
type lead struct {
	began  time.Time
	rate   float64 // at which jobs are sent, in jobs per second
	count  int     // jobs so far
	primed chan struct{}
	ready  bool // the lead is there, after
	took   time.Duration

	settled func(context.Context) (int, error) // number of jobs of the topic that the daemons have settled
	before  int                                // of those, the number before this run
	known   int                                // number of jobs of this run that they have settled, at least
	waited  bool                               // for daemons that did not keep up
}

// elapsed returns how long publishing the lead has taken.
func (l *lead) elapsed() time.Duration {
	if l.ready {
		return l.took
	}
	return time.Since(l.began)
}

func (l *lead) prime() {
	if !l.ready {
		l.ready, l.took = true, time.Since(l.began)
		close(l.primed)
	}
}

// next waits until another job may be published. The error means that the broker does not keep up with the daemons.
func (l *lead) next(ctx context.Context) error {
	l.count++
	if l.count <= leadJobs {
		return nil
	}
	l.prime()
	sent := l.rate * time.Since(l.began).Seconds() // at most
	ahead := float64(l.count) - sent
	switch {
	case ahead < 0 && !l.waited:
		return fmt.Errorf("kafka.brokers: only %d jobs in %s could be published, at most as many as were sent; use lower rates",
			l.count, time.Since(l.began).Round(time.Second))
	case ahead > leadJobs:
		due := l.began.Add(time.Duration((float64(l.count) - leadJobs) / l.rate * float64(time.Second)))
		if retry.Sleep(ctx, time.Until(due.Add(linger))) != nil { // once per batch, not per job
			return context.Cause(ctx)
		}
	}
	return l.awaitDaemons(ctx)
}

// awaitDaemons waits while too many jobs wait in the topic.
func (l *lead) awaitDaemons(ctx context.Context) error {
	for l.count-l.known > mostWaiting {
		settled, err := l.settled(ctx)
		if err != nil {
			return err
		}
		if l.known = settled - l.before; l.count-l.known <= mostWaiting {
			return nil
		}
		l.waited = true
		if retry.Sleep(ctx, lookEvery) != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// settled returns how many jobs of the topic precede the daemons' committed offsets.
func (st *environment) settled(ctx context.Context) (sum int, err error) {
	list := make([]broker.Partition, ingressPartitions)
	for i := range list {
		list[i] = broker.Partition{Topic: st.services.Topics.Ingress[0], ID: i}
	}
	commits, err := st.services.Kafka.Committed(ctx, st.name, list)
	if err != nil {
		return 0, fmt.Errorf("look at what the daemons have committed: %w", err)
	}
	for _, c := range commits {
		sum += int(c.Offset)
	}
	return sum, nil
}

func jobRecord(campaign string, n int) delivery.Record {
	number := strconv.Itoa(n)
	return record.New(campaign, number, []byte(`{"n":`+number+`}`))
}
