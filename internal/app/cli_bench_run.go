package app

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

const (
	// benchMaxJobs bounds the jobs of one run, and with them memory here and space in the broker.
	benchMaxJobs = 6_000_000
	// benchWarmUp is how long after the last job was published the window begins.
	benchWarmUp = time.Second
	// benchReserve is how much more is published than can be sent until the window ends.
	benchReserve  = 1.05
	benchSample   = 250 * time.Millisecond
	benchPatience = 4 * time.Second // without a job more, the rest is not coming
	// benchTimes is how many times what the window needs may be published. While jobs are written others are sent, so
	// a broker that takes them little faster than they are sent would never get ahead.
	benchTimes = 3
)

// benchRun is one run of the daemons that are up: publish, let the window pass, wait for the rest.
type benchRun struct {
	st        *benchStage
	campaigns []benchCampaign
	index     map[string]int32 // by campaign's id
	window    time.Duration
	// jobs is how many jobs a campaign needs whose publishing has taken so long already; nil for its rate, until the
	// window's end.
	jobs func(c *benchCampaign, elapsed time.Duration) float64
	// during, if set, does something while the window passes. The run goes on when it returns.
	during func(ctx context.Context) error

	run      bench.Run
	requeued int64 // records in lanes and timers when the run began
}

// perform makes the run. In the result, Load.Waiting is not known yet.
func (r *benchRun) perform(ctx context.Context) (*bench.Run, error) {
	r.index = make(map[string]int32, len(r.campaigns))
	for i, c := range r.campaigns {
		r.index[c.id] = int32(i)
		r.run.Loads = append(r.run.Loads, bench.Load{ID: c.id, Rate: c.rate})
	}
	r.run.Daemons = len(r.st.daemons)
	var err error
	if r.requeued, err = r.st.requeued(ctx); err != nil {
		return nil, err
	}
	if err := r.publish(ctx); err != nil {
		return nil, err
	}
	if err := r.pass(ctx); err != nil {
		return nil, err
	}
	if err := r.drain(ctx); err != nil {
		return nil, err
	}
	after, err := r.st.requeued(ctx)
	r.run.Requeued = after - r.requeued
	return &r.run, err
}

// publish writes enough jobs of every campaign to last until the window ends. Campaigns of one rate take turns, job by
// job; those of different rates are written one after the other, so that each is spread evenly over the partitions.
func (r *benchRun) publish(ctx context.Context) error {
	producer, err := requeue.NewProducer(requeue.ProducerOptions{Client: r.st.services.kafka, Linger: time.Millisecond})
	if err != nil {
		return err
	}
	if _, err := producer.Publish(ctx, r.st.services.topics.Ingress[0], r.records(), nil); err != nil {
		return err
	}
	return nil
}

func (r *benchRun) records() iter.Seq2[requeue.Record, error] {
	began, total := time.Now(), 0
	most := min(benchMaxJobs, int(benchTimes*r.needed(0))+len(r.campaigns))
	return func(yield func(requeue.Record, error) bool) {
		for first := 0; first < len(r.campaigns); {
			last := first + 1
			for last < len(r.campaigns) && r.campaigns[last].rate == r.campaigns[first].rate {
				last++
			}
			for n := 0; float64(n) < r.need(&r.campaigns[first], time.Since(began)); n++ {
				if total += last - first; total > most {
					yield(requeue.Record{}, fmt.Errorf("kafka.brokers: the broker takes jobs hardly faster than they are sent (%d in %s); "+
						"use lower rates", total, time.Since(began).Round(time.Second)))
					return
				}
				for i := first; i < last; i++ {
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

// need is how many jobs of a campaign last until the window's end.
func (r *benchRun) need(c *benchCampaign, elapsed time.Duration) float64 {
	if r.jobs != nil {
		return r.jobs(c, elapsed)
	}
	return benchReserve*c.rate.PerSecond()*(elapsed+benchWarmUp+r.window).Seconds() + 1
}

// needed is how many jobs all campaigns need.
func (r *benchRun) needed(elapsed time.Duration) (n float64) {
	for i := range r.campaigns {
		n += r.need(&r.campaigns[i], elapsed)
	}
	return n
}

func benchRecord(campaign string, n int) requeue.Record {
	number := strconv.Itoa(n)
	return requeue.Record{Value: []byte(`{"n":` + number + `}`), Headers: []delivery.Header{
		{Key: delivery.HeaderCampaign, Value: []byte(campaign)}, {Key: delivery.HeaderJobID, Value: []byte(number)},
		{Key: delivery.HeaderContentType, Value: []byte("application/json")},
	}}
}

// pass lets the window pass and adds up what it costs.
func (r *benchRun) pass(ctx context.Context) error {
	if !waitUntil(ctx, time.Now().Add(benchWarmUp)) {
		return context.Cause(ctx)
	}
	scripts, err := r.st.scripts(ctx)
	if err != nil {
		return err
	}
	before, err := r.cost()
	if err != nil {
		return err
	}
	r.run.Window.From = time.Since(r.st.epoch)
	r.run.Window.To = r.run.Window.From + r.window
	end := r.st.epoch.Add(r.run.Window.To)
	if err := r.sample(ctx, end); err != nil {
		return err
	}
	after, err := r.cost()
	if err != nil {
		return err
	}
	r.run.CPU = after - before
	called, err := r.st.scripts(ctx)
	r.run.Scripts = called - scripts
	return err
}

// sample watches the daemons until the end of the window, while what is to happen in it happens.
func (r *benchRun) sample(ctx context.Context, end time.Time) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	acted := make(chan error, 1)
	go func() {
		if r.during == nil {
			acted <- nil
			return
		}
		acted <- r.during(ctx)
	}()
	for time.Now().Before(end) {
		next := time.Now().Add(benchSample)
		if next.After(end) {
			next = end
		}
		if !waitUntil(ctx, next) {
			return errors.Join(context.Cause(ctx), <-acted)
		}
		if _, err := r.cost(); err != nil {
			cancel()
			return errors.Join(err, <-acted)
		}
	}
	return <-acted
}

// cost is the processor time of all daemons so far; it keeps the largest memory seen.
func (r *benchRun) cost() (time.Duration, error) {
	sum := time.Duration(0)
	for _, p := range r.st.daemons {
		if err := p.Alive(); err != nil {
			return 0, err
		}
		c, err := p.Cost()
		if err != nil {
			return 0, err
		}
		sum += c.CPU
		r.run.RSS = max(r.run.RSS, c.RSS)
	}
	return sum, nil
}

// drain waits until every job has arrived, or none does any more, and collects what arrived.
func (r *benchRun) drain(ctx context.Context) error {
	patience := benchPatience
	for _, c := range r.campaigns {
		patience = max(patience, 3*time.Duration(c.rate.Spacing())*time.Microsecond)
	}
	seen, quiet := 0, time.Now()
	for {
		n, err := r.arrived()
		if err != nil {
			return err
		}
		if n > seen {
			seen, quiet = n, time.Now()
		}
		if seen >= r.run.Published() || time.Since(quiet) > patience {
			break
		}
		if !waitUntil(ctx, time.Now().Add(benchSample)) {
			return context.Cause(ctx)
		}
	}
	if err := r.collectRequests(); err != nil {
		return err
	}
	bench.Sort(r.run.Events)
	return nil
}

// arrived is how many jobs have arrived; those in record files are collected by the way.
func (r *benchRun) arrived() (n int, err error) {
	for i, recording := range r.st.recordings {
		err := recording.Next(func(at time.Time, campaign, job string) error {
			return r.add(at.Sub(r.st.epoch.Round(0)), campaign, job, i) // wall clock against wall clock
		})
		if err != nil {
			return 0, err
		}
	}
	n = len(r.run.Events)
	for _, receiver := range r.st.receivers {
		for id, accepted := range receiver.Accepted() {
			if _, own := r.index[id]; own {
				n += accepted
			}
		}
	}
	return n, nil
}

// collectRequests adds what the receivers have written down.
func (r *benchRun) collectRequests() error {
	for i, receiver := range r.st.receivers {
		journals, dropped := receiver.Journals()
		if dropped > 0 {
			return fmt.Errorf("%d requests did not fit the receiver's memory; use lower rates or fewer seconds", dropped)
		}
		offset := receiver.Epoch().Sub(r.st.epoch)
		for _, j := range journals {
			for _, a := range j.Arrivals {
				if err := r.add(offset+a.At, j.Campaign, j.Jobs[a.Job], i); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// add notes one job that arrived, unless it belongs to another run.
func (r *benchRun) add(at time.Duration, campaign, job string, daemon int) error {
	c, own := r.index[campaign]
	if !own {
		return nil
	}
	n, err := strconv.Atoi(job)
	if err != nil || n < 0 || n >= r.run.Loads[c].Published {
		return fmt.Errorf("job %q of campaign %s arrived, which was never published", job, campaign)
	}
	r.run.Events = append(r.run.Events, bench.Event{At: at, Campaign: c, Job: int32(n), Daemon: int8(daemon)})
	return nil
}

// requeued is how many records were ever written to lanes and timers.
func (st *benchStage) requeued(ctx context.Context) (int64, error) {
	asks := make(map[string][]kafka.OffsetRequest)
	prefix := st.services.topics.Prefix
	topics := []string{requeue.LaneTopic(prefix)}
	for _, delay := range st.services.topics.Timers {
		topics = append(topics, requeue.TimerTopic(prefix, delay))
	}
	for _, topic := range topics {
		n, err := requeue.Partitions(ctx, st.services.kafka, topic)
		if err != nil {
			return 0, fmt.Errorf("count re-enqueued jobs: %w", err)
		}
		for p := range n {
			asks[topic] = append(asks[topic], kafka.LastOffsetOf(p))
		}
	}
	answer, err := st.services.kafka.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: asks})
	if err != nil {
		return 0, fmt.Errorf("count re-enqueued jobs: %w", err)
	}
	sum := int64(0)
	for _, partitions := range answer.Topics {
		for _, p := range partitions {
			if p.Error != nil {
				return 0, fmt.Errorf("count re-enqueued jobs: %w", p.Error)
			}
			sum += p.LastOffset
		}
	}
	return sum, nil
}

// waiting finds, once the daemons have stopped, which of the jobs that did not arrive the broker still has. Nothing is
// read when all arrived.
func (st *benchStage) waiting(ctx context.Context, runs []*bench.Run) error {
	missing := 0
	for _, r := range runs {
		missing += r.Published() - len(r.Events)
	}
	if missing <= 0 {
		return nil
	}
	left := &inventory{client: st.services.kafka, group: st.name, spec: st.services.topics, open: consumer.Unsettled}
	found, err := left.take(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		arrived := make(map[[2]int32]bool, len(r.Events))
		for _, e := range r.Events {
			arrived[[2]int32{e.Campaign, e.Job}] = true
		}
		for i := range r.Loads {
			r.Loads[i].Waiting = notArrived(found[r.Loads[i].ID], func(job int32) bool { return arrived[[2]int32{int32(i), job}] })
		}
	}
	return nil
}

// notArrived counts the jobs of a campaign that the broker has and that have not arrived.
func notArrived(found *records, arrived func(job int32) bool) (n int) {
	if found == nil {
		return 0
	}
	ids := make(map[string]bool, len(found.Waiting)+len(found.Dead))
	for _, held := range []map[string]bool{found.Waiting, found.Dead} {
		for id := range held {
			ids[id] = true
		}
	}
	for id := range ids {
		if job, err := strconv.ParseInt(id, 10, 32); err == nil && !arrived(int32(job)) {
			n++
		}
	}
	return n
}
