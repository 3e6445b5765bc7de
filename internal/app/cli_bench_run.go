package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/requeue"
)

const (
	// benchMaxJobs bounds the jobs of one run, and with them memory here and space in the broker.
	benchMaxJobs = 6_000_000
	// benchWarmUp is how long after that lead was published the window begins.
	benchWarmUp = time.Second
	// benchReserve is how much more is published than can be sent until the window ends.
	benchReserve  = 1.05
	benchSample   = 250 * time.Millisecond
	benchPatience = 4 * time.Second // without a job more, the rest is not coming
	benchDrain    = 30 * time.Second
)

// benchRun is one run of the daemons that are up: publish, let the window pass, wait for the rest.
type benchRun struct {
	st        *benchStage
	campaigns []benchCampaign
	window    time.Duration
	// jobs is how many jobs a campaign needs when publishing the lead took so long; nil for its rate, until the window's
	// end.
	jobs func(c *benchCampaign, elapsed time.Duration) float64
	// during, if set, does something while the window passes. The run goes on when it returns.
	during func(ctx context.Context) error

	// settled is how many jobs of the topic the daemons are done with.
	settled func(ctx context.Context) (int, error)

	run    bench.Run
	primed chan struct{} // closed when the lead, or everything, has been handed to the producer
}

// perform makes the run. What arrived, and what did not, is known when the daemons have stopped.
func (r *benchRun) perform(ctx context.Context) error {
	for i, c := range r.campaigns {
		r.st.owners[c.id] = benchOwner{run: r, campaign: int32(i)}
		r.run.Loads = append(r.run.Loads, bench.Load{ID: c.id, Rate: c.rate})
	}
	r.run.Daemons = len(r.st.daemons)
	r.settled = r.st.settled
	before, err := r.st.requeued(ctx)
	if err != nil {
		return err
	}
	if err := r.send(ctx); err != nil {
		return err
	}
	if err := r.drain(ctx); err != nil {
		return err
	}
	after, err := r.st.requeued(ctx)
	r.run.Requeued = after - before
	return err
}

// send publishes jobs, and lets the window pass once there are enough.
func (r *benchRun) send(ctx context.Context) error {
	r.primed = make(chan struct{})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.publish(ctx) })
	group.Go(func() error {
		select {
		case <-r.primed:
			return r.pass(ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return group.Wait()
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

// drain waits until every job has arrived, or none does any more, or it takes too long.
func (r *benchRun) drain(ctx context.Context) error {
	patience := benchPatience
	for _, c := range r.campaigns {
		patience = max(patience, 3*time.Duration(c.rate.Spacing())*time.Microsecond)
	}
	seen, quiet, end := 0, time.Now(), time.Now().Add(benchDrain)
	for {
		if err := r.st.readRecordings(); err != nil {
			return err
		}
		if n := len(r.run.Events) + r.st.accepted(r); n > seen {
			seen, quiet = n, time.Now()
		}
		if seen >= r.run.Published() || time.Since(quiet) > patience || time.Now().After(end) {
			return nil
		}
		if !waitUntil(ctx, time.Now().Add(benchSample)) {
			return context.Cause(ctx)
		}
	}
}

// benchOwner is the run that a campaign belongs to, and its index there.
type benchOwner struct {
	run      *benchRun
	campaign int32
}

// accepted is how many requests of a run the receivers have answered.
func (st *benchStage) accepted(r *benchRun) (n int) {
	for _, receiver := range st.receivers {
		for id, accepted := range receiver.Accepted() {
			if st.owners[id].run == r {
				n += accepted
			}
		}
	}
	return n
}

// collect gives every run what arrived of its jobs, once the daemons have stopped.
func (st *benchStage) collect(runs []*benchRun) error {
	if err := st.readRecordings(); err != nil {
		return err
	}
	for i, receiver := range st.receivers {
		journals, dropped := receiver.Journals()
		if dropped > 0 {
			return fmt.Errorf("%d requests did not fit the receiver's memory; use lower rates or fewer seconds", dropped)
		}
		offset := receiver.Epoch().Sub(st.epoch)
		for _, j := range journals {
			for _, a := range j.Arrivals {
				if err := st.add(offset+a.At, j.Campaign, j.Jobs[a.Job], i); err != nil {
					return err
				}
			}
		}
	}
	for _, r := range runs {
		bench.Sort(r.run.Events)
	}
	return nil
}

// readRecordings gives the runs what has been recorded since the last call.
func (st *benchStage) readRecordings() error {
	for i, recording := range st.recordings {
		err := recording.Next(func(at time.Time, campaign, job string) error {
			return st.add(at.Sub(st.epoch.Round(0)), campaign, job, i) // wall clock against wall clock
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// add notes one job that arrived, unless its run has been reported.
func (st *benchStage) add(at time.Duration, campaign, job string, daemon int) error {
	owner, ok := st.owners[campaign]
	if !ok {
		return nil
	}
	run := &owner.run.run
	n, err := strconv.ParseInt(job, 10, 32)
	if err != nil || n < 0 || int(n) >= run.Loads[owner.campaign].Published {
		return fmt.Errorf("job %q of campaign %s arrived, which was never published", job, campaign)
	}
	run.Events = append(run.Events, bench.Event{At: at, Campaign: owner.campaign, Job: int32(n), Daemon: int8(daemon)})
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
