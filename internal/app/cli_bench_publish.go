package app

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

const (
	// benchLead is how many jobs are published ahead of those that are sent. Far more than three quarters of the open
	// offsets that a daemon takes per partition (20,000) would go to a lane, which one daemon reads.
	benchLead = 7_000 * benchPartitions
	// benchMost is how many jobs may wait when daemons do not keep up with what they should send: what is measured is how
	// much they send, not how they put the rest aside.
	benchMost = benchLead * 14 / 10
	benchLook = 50 * time.Millisecond
	// benchLinger lets a batch fill at the pace at which jobs are published during the window.
	benchLinger = 50 * time.Millisecond
)

// publish writes enough jobs of every campaign to last until the window ends.
func (r *benchRun) publish(ctx context.Context) error {
	producer, err := requeue.NewProducer(requeue.ProducerOptions{Client: r.st.services.kafka, Linger: benchLinger})
	if err != nil {
		return err
	}
	_, err = producer.Publish(ctx, r.st.services.topics.Ingress[0], r.records(ctx), nil)
	return err
}

// records are the jobs in the order in which they are published. Campaigns of one rate take turns, job by job; those of
// different rates come one after the other, so that each is spread evenly over the partitions. The lead comes at once,
// what is more at the rate at which it is sent.
func (r *benchRun) records(ctx context.Context) iter.Seq2[requeue.Record, error] {
	return func(yield func(requeue.Record, error) bool) {
		lead := &benchLeader{began: time.Now(), primed: r.primed, settled: r.settled}
		defer lead.prime()
		var err error
		if lead.before, err = lead.settled(ctx); err != nil {
			yield(requeue.Record{}, err)
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
						yield(requeue.Record{}, err)
						return
					}
					r.run.Loads[i].Published++
					if !yield(benchRecord(r.campaigns[i].id, n), nil) {
						return
					}
				}
			}
			first = last
		}
	}
}

// need is how many jobs of a campaign last until the window's end, when publishing the lead took so long.
func (r *benchRun) need(c *benchCampaign, elapsed time.Duration) float64 {
	if r.jobs != nil {
		return r.jobs(c, elapsed)
	}
	return benchReserve*c.rate.PerSecond()*(elapsed+benchWarmUp+r.window).Seconds() + 1
}

// benchLeader keeps publishing ahead of sending by as much as can wait, and no more.
type benchLeader struct {
	began  time.Time
	rate   float64 // at which jobs are sent, per second
	count  int     // jobs so far
	primed chan struct{}
	ready  bool // the lead is there, after
	took   time.Duration

	settled func(context.Context) (int, error) // how many jobs of the topic the daemons are done with
	before  int                                // of those, how many before this run
	known   int                                // how many of this run they are done with, at least
	waited  bool                               // for daemons that did not keep up
}

// elapsed is how long publishing the lead has taken.
func (l *benchLeader) elapsed() time.Duration {
	if l.ready {
		return l.took
	}
	return time.Since(l.began)
}

func (l *benchLeader) prime() {
	if !l.ready {
		l.ready, l.took = true, time.Since(l.began)
		close(l.primed)
	}
}

// next waits until another job may be published. The error says that the broker does not keep up with what is sent.
func (l *benchLeader) next(ctx context.Context) error {
	l.count++
	if l.count <= benchLead {
		return nil
	}
	l.prime()
	sent := l.rate * time.Since(l.began).Seconds() // at most
	ahead := float64(l.count) - sent
	switch {
	case ahead < 0 && !l.waited:
		return fmt.Errorf("kafka.brokers: only %d jobs in %s could be published, at most as many as were sent; use lower rates",
			l.count, time.Since(l.began).Round(time.Second))
	case ahead > benchLead:
		due := l.began.Add(time.Duration((float64(l.count) - benchLead) / l.rate * float64(time.Second)))
		if !waitUntil(ctx, due.Add(benchLinger)) { // once a batch, not once a job
			return context.Cause(ctx)
		}
	}
	return l.awaitDaemons(ctx)
}

// awaitDaemons waits while too many jobs lie in the topic.
func (l *benchLeader) awaitDaemons(ctx context.Context) error {
	for l.count-l.known > benchMost {
		settled, err := l.settled(ctx)
		if err != nil {
			return err
		}
		if l.known = settled - l.before; l.count-l.known <= benchMost {
			return nil
		}
		l.waited = true
		if !waitUntil(ctx, time.Now().Add(benchLook)) {
			return context.Cause(ctx)
		}
	}
	return nil
}

// settled is how many jobs of the topic lie before what the daemons have committed.
func (st *benchStage) settled(ctx context.Context) (sum int, err error) {
	topic := st.services.topics.Ingress[0]
	partitions := make([]int, benchPartitions)
	for i := range partitions {
		partitions[i] = i
	}
	answer, err := st.services.kafka.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: st.name, Topics: map[string][]int{topic: partitions},
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		return 0, fmt.Errorf("look at what group %s has committed: %w", st.name, err)
	}
	for _, p := range answer.Topics[topic] {
		sum += int(max(0, p.CommittedOffset))
	}
	return sum, nil
}

func benchRecord(campaign string, n int) requeue.Record {
	number := strconv.Itoa(n)
	return requeue.Record{Value: []byte(`{"n":` + number + `}`), Headers: []delivery.Header{
		{Key: delivery.HeaderCampaign, Value: []byte(campaign)}, {Key: delivery.HeaderJobID, Value: []byte(number)},
		{Key: delivery.HeaderContentType, Value: []byte("application/json")},
	}}
}
