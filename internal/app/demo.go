package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/pacer"
)

const (
	// DefaultDemoDuration is how long the demo sends, starting and stopping aside.
	DefaultDemoDuration = 20 * time.Second
	minDemoDuration     = 5 * time.Second
	maxDemoDuration     = 30 * time.Minute
	demoThreads         = 8
)

// DemoOptions describe one run of the demo.
type DemoOptions struct {
	Duration time.Duration // 0 means DefaultDemoDuration
	JSON     bool          // the report as JSON on Stdout, and nothing else there
	Listen   string        // where the first daemon serves /metrics and health; "" for nowhere
	Stdout   io.Writer
	Stderr   io.Writer
	Terminal bool // Stdout is one: show a live table

	// WrapSinks and WrapLimiter, where set, stand between each daemon's pacer and the real ones. Tests break the demo
	// with them on purpose: a report that cannot fail proves nothing.
	WrapSinks   func(pacer.Sinks) pacer.Sinks
	WrapLimiter func(pacer.Limiter) pacer.Limiter
}

func (o *DemoOptions) validate() error {
	if o.Duration == 0 {
		o.Duration = DefaultDemoDuration
	}
	if o.Duration < minDemoDuration || o.Duration > maxDemoDuration {
		return fmt.Errorf("--duration %s must lie between %s and %s", o.Duration, minDemoDuration, maxDemoDuration)
	}
	if o.Stdout == nil || o.Stderr == nil {
		return errors.New("the demo needs a stdout and a stderr")
	}
	return nil
}

// Demo runs everything in this process: a broker, a Redis, a destination and two daemons that share a handful of
// campaigns. It shows what happens while it does, counts afterwards what the destination received and what the broker
// still holds, and prints the report. A cancelled ctx ends the demo early, with a report of what there was.
//
// The error is about a demo that could not be held; whether pacer kept its promises is in Report.OK.
func Demo(ctx context.Context, options DemoOptions) (*Report, error) {
	if err := options.validate(); err != nil {
		return nil, UsageError{err}
	}
	// What would be five processes is one here. With a thread for each of them, the system shares the processors
	// between, say, a script of the store and a job that is due now; Go's own scheduler makes the latter wait.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(demoThreads, runtime.GOMAXPROCS(0))))
	if !options.Terminal {
		options.Stdout, options.Stderr = oneAtATime(options.Stdout, options.Stderr)
	}
	s := newScene(options.Duration)
	view, log := newDemoView(&options, s)
	st, err := newStage(s, &options, log)
	if err != nil {
		view.close()
		return nil, fmt.Errorf("demo: %w", err)
	}
	e, err := st.perform(ctx, view)
	view.close()
	st.close()
	if err != nil {
		return nil, fmt.Errorf("demo: %w", err)
	}
	report := buildReport(e)
	if options.JSON {
		return report, report.WriteJSON(options.Stdout)
	}
	return report, writeDemoReport(options.Stdout, report)
}

// perform brings the stage up, plays the scene, stops the daemons and collects the evidence.
func (st *stage) perform(ctx context.Context, view demoView) (*evidence, error) {
	// The stage outlives ctx: an interrupted demo still drains and counts.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group, running := errgroup.WithContext(running)
	group.Go(func() error { return st.receiver.Run(running) })

	daemons, stopDaemons := context.WithCancel(running)
	defer stopDaemons()
	crew, daemons := errgroup.WithContext(daemons)
	for i, d := range st.daemons {
		crew.Go(func() error {
			if err := d.Run(daemons); err != nil {
				return fmt.Errorf("daemon %d: %w", i+1, err)
			}
			return nil
		})
	}
	// Whoever plays stops when the audience leaves or a daemon fails.
	playing, stopPlaying := context.WithCancel(daemons)
	defer stopPlaying()
	defer context.AfterFunc(ctx, stopPlaying)()

	playErr := st.play(playing, view)
	view.say("stopping: what is under way is finished, the rest stays in the broker")
	stopDaemons()
	if err := crew.Wait(); err != nil {
		return nil, err
	}
	if playErr != nil {
		return nil, playErr
	}
	e, err := st.evidence(running)
	stop()
	return e, errors.Join(err, group.Wait())
}

// discardLog is for those who must not talk while a table is drawn.
func discardLog() *slog.Logger { return slog.New(slog.DiscardHandler) }

// oneAtATime lets the daemons' logs and the demo's own lines share writers that are not safe for that, and that may be
// one and the same.
func oneAtATime(stdout, stderr io.Writer) (io.Writer, io.Writer) {
	var mu sync.Mutex
	return &lockedWriter{&mu, stdout}, &lockedWriter{&mu, stderr}
}

type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
