// Package demo shows pacer at work without installed services: a broker, a Redis, a destination and two daemons in one process. Its
// report is computed from the destination's requests and the broker's remaining records.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/pacer"
)

const (
	// DefaultDuration is how long the demo sends, without its start and stop.
	DefaultDuration = 20 * time.Second
	minDuration     = 5 * time.Second
	maxDuration     = 30 * time.Minute
	threads         = 8
)

// Options describe one run of the demo.
type Options struct {
	Duration time.Duration // 0 means DefaultDuration
	JSON     bool          // nothing is shown on Stdout, which is for the report
	Listen   string        // address of the first daemon's /metrics and health; "" for none
	Stdout   io.Writer     // of both, writes may be concurrent
	Stderr   io.Writer
	Terminal bool // Stdout is one: show a live table

	// WrapSinks and WrapLimiter, if set, wrap the sinks and the limiter of each daemon's pacer. Tests inject faults
	// with them, to check that the report can fail.
	WrapSinks   func(pacer.Sinks) pacer.Sinks
	WrapLimiter func(pacer.Limiter) pacer.Limiter
}

func (o *Options) validate() error {
	if o.Duration == 0 {
		o.Duration = DefaultDuration
	}
	if o.Duration < minDuration || o.Duration > maxDuration {
		return fmt.Errorf("--duration %s must lie between %s and %s", o.Duration, minDuration, maxDuration)
	}
	return nil
}

// Run runs everything in this process: a broker, a Redis, a destination and two daemons that share a few campaigns. It
// shows the progress, counts afterwards what the destination received and what the broker still holds, and returns the
// report. A cancelled ctx ends the demo early, with a report on the time so far.
//
// An error means that the demo could not run; whether pacer kept its promises is in Report.OK.
func Run(ctx context.Context, options Options) (*Report, error) {
	if err := options.validate(); err != nil {
		return nil, config.UsageError{Err: err}
	}
	// The demo combines what would be five processes. With a thread for each, the system shares the processors
	// between, for example, a script of the store and a job that is due now; Go's own scheduler would let the job
	// wait.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(threads, runtime.GOMAXPROCS(0))))
	s := newScenario(options.Duration)
	view, log := newView(&options, s)
	st, err := newEnvironment(s, &options, log)
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	e, err := st.perform(ctx, view)
	st.close()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	return buildReport(e), nil
}

// perform starts the environment, plays the scenario, stops the daemons and returns the observations.
func (st *environment) perform(ctx context.Context, view *view) (*observations, error) {
	// The environment outlives ctx: an interrupted demo still drains and counts.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, running := errgroup.WithContext(running)
	group.Go(func() error { return st.receiver.Run(running) })

	working, stopDaemons := context.WithCancel(running)
	defer stopDaemons()
	daemons, working := errgroup.WithContext(working)
	for i, d := range st.daemons {
		daemons.Go(func() error {
			if err := d.Run(working); err != nil {
				return fmt.Errorf("daemon %d: %w", i+1, err)
			}
			return nil
		})
	}
	// The scenario stops when the caller cancels or a daemon fails.
	playing, stopPlaying := context.WithCancel(working)
	defer stopPlaying()
	defer context.AfterFunc(ctx, stopPlaying)()

	playErr := st.play(playing, view)
	view.say("stopping: what is under way is finished, the rest stays in the broker")
	stopDaemons()
	if err := daemons.Wait(); err != nil {
		return nil, err
	}
	if playErr != nil {
		return nil, playErr
	}
	e, err := st.observe(running)
	stop()
	return e, errors.Join(err, group.Wait())
}
