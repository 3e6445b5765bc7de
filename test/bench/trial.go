package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// maxJobs bounds the jobs of one run, and so the memory here and the space in the broker.
	maxJobs = 6_000_000
	// warmUp is the time from the end of publishing the lead to the beginning of the window.
	warmUp = time.Second
	// reserve is how much more is published than can be sent until the window ends.
	reserve       = 1.05
	sampleEvery   = 250 * time.Millisecond
	leastPatience = 4 * time.Second // without a further job, the rest is considered lost
	drainTime     = 30 * time.Second
)

// trial is one run with the running daemons: publish, wait for the end of the window, wait for the rest.
type trial struct {
	st        *environment
	campaigns []campaign
	window    time.Duration
	// jobs returns how many jobs a campaign needs if publishing the lead took that long; nil means as many as its rate
	// sends until the window's end.
	jobs func(c *campaign, elapsed time.Duration) float64
	// during, if set, is called in the window. The run continues when it returns.
	during func(ctx context.Context) error

	// settled returns how many jobs of the topic the daemons have settled.
	settled func(ctx context.Context) (int, error)

	run    Run
	primed chan struct{} // closed when the lead, or everything, has been passed to the producer
}

// perform makes the run. Arrivals are counted after the daemons have stopped.
func (r *trial) perform(ctx context.Context) error {
	for i, c := range r.campaigns {
		r.st.owners[c.id] = owner{run: r, campaign: int32(i)}
		r.run.Loads = append(r.run.Loads, Load{ID: c.id, Rate: c.rate})
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

// send publishes jobs, and begins the window once there are enough.
func (r *trial) send(ctx context.Context) error {
	r.primed = make(chan struct{})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.publish(ctx) })
	group.Go(func() error {
		select {
		case <-r.primed:
			return r.pass(ctx, warmUp)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	return group.Wait()
}

// pass waits for the end of the window, and computes its cost.
func (r *trial) pass(ctx context.Context, after time.Duration) error {
	if retry.Sleep(ctx, after) != nil {
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
	used, err := r.cost()
	if err != nil {
		return err
	}
	r.run.CPU = used - before
	called, err := r.st.scripts(ctx)
	r.run.Scripts = called - scripts
	return err
}

// sample samples the daemons until the end of the window, while during runs.
func (r *trial) sample(ctx context.Context, end time.Time) error {
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
		if retry.Sleep(ctx, min(sampleEvery, time.Until(end))) != nil {
			return errors.Join(context.Cause(ctx), <-acted)
		}
		if _, err := r.cost(); err != nil {
			cancel()
			return errors.Join(err, <-acted)
		}
	}
	return <-acted
}

// cost returns the CPU time of all daemons so far, and records the largest memory.
func (r *trial) cost() (time.Duration, error) {
	sum := time.Duration(0)
	for _, p := range r.st.daemons {
		if err := p.Alive(); err != nil {
			return 0, err
		}
		used, resident, err := p.Cost()
		if err != nil {
			return 0, err
		}
		sum += used
		r.run.RSS = max(r.run.RSS, resident)
	}
	return sum, nil
}

// drain waits until every job has arrived, no further job arrives, or a timeout.
func (r *trial) drain(ctx context.Context) error {
	patience := leastPatience
	for _, c := range r.campaigns {
		patience = max(patience, 3*time.Duration(c.rate.Spacing())*time.Microsecond)
	}
	seen, quiet, end := 0, time.Now(), time.Now().Add(drainTime)
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
		if retry.Sleep(ctx, sampleEvery) != nil {
			return context.Cause(ctx)
		}
	}
}

// owner is the run that a campaign belongs to, and its index there.
type owner struct {
	run      *trial
	campaign int32
}

// accepted returns how many requests of a run the receivers have accepted.
func (st *environment) accepted(r *trial) (n int) {
	for _, receiver := range st.receivers {
		for id, accepted := range receiver.Accepted() {
			if st.owners[id].run == r {
				n += accepted
			}
		}
	}
	return n
}

// collect adds the jobs that arrived to every run, after the daemons have stopped.
func (st *environment) collect(runs []*trial) error {
	if err := st.readRecordings(); err != nil {
		return err
	}
	for i, receiver := range st.receivers {
		began := receiver.At(st.epoch)
		for campaign, j := range receiver.Journals() {
			for _, a := range j.Arrivals {
				if err := st.add(a.At-began, campaign, j.Jobs[a.Job], i); err != nil {
					return err
				}
			}
		}
	}
	for _, r := range runs {
		Sort(r.run.Events)
	}
	return nil
}

// readRecordings adds what was recorded since the last call to the runs.
func (st *environment) readRecordings() error {
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

// add records one job that arrived, unless its run has been reported.
func (st *environment) add(at time.Duration, campaign, job string, daemon int) error {
	owner, ok := st.owners[campaign]
	if !ok {
		return nil
	}
	run := &owner.run.run
	n, err := strconv.ParseInt(job, 10, 32)
	if err != nil || n < 0 || int(n) >= run.Loads[owner.campaign].Published {
		return fmt.Errorf("job %q of campaign %s arrived, which was never published", job, campaign)
	}
	run.Events = append(run.Events, Event{At: at, Campaign: owner.campaign, Job: int32(n), Daemon: int8(daemon)})
	return nil
}

// requeued returns how many records were ever written to lanes and timers.
func (st *environment) requeued(ctx context.Context) (sum int64, err error) {
	prefix := st.services.Topics.Prefix
	topics := []string{requeue.LaneTopic(prefix)}
	for _, delay := range st.services.Topics.Timers {
		topics = append(topics, requeue.TimerTopic(prefix, delay))
	}
	all, err := st.services.Kafka.PartitionsOf(ctx, topics...)
	var ends map[broker.Partition]int64
	if err == nil {
		ends, err = st.services.Kafka.Offsets(ctx, broker.Latest, all...)
	}
	if err != nil {
		return 0, fmt.Errorf("count re-enqueued jobs: %w", err)
	}
	for _, end := range ends {
		sum += end
	}
	return sum, nil
}

// waiting finds, after the daemons have stopped, which of the jobs that did not arrive are still in the broker. It
// reads nothing if all arrived.
func (st *environment) waiting(ctx context.Context, runs []*Run) error {
	missing := 0
	for _, r := range runs {
		missing += r.Published() - len(r.Events)
	}
	if missing <= 0 {
		return nil
	}
	found, err := count.Inventory(ctx, st.services.Kafka, st.name, st.services.Topics)
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

// notArrived counts the jobs of a campaign that are in the broker and have not arrived.
func notArrived(found count.Records, arrived func(job int32) bool) (n int) {
	ids := maps.Clone(found.Waiting)
	maps.Copy(ids, found.Dead)
	for id := range ids {
		if job, err := strconv.ParseInt(id, 10, 32); err == nil && !arrived(int32(job)) {
			n++
		}
	}
	return n
}
