package app

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// defaultWatchdog is how long a partition may make no progress though it could.
const defaultWatchdog = 2 * time.Minute

const (
	guardEvery = time.Second
	// guardLooks is how often in a row the guard has to find the same before it ends the process: one that was suspended
	// and goes on looks wedged for a moment.
	guardLooks = 5
	// overdueAfter is how long a daemon may take to end beyond its shutdown timeout.
	overdueAfter = 5 * time.Second
)

// errOverdue says that a daemon does not end.
var errOverdue = errors.New("something in the daemon does not return, so it ends without waiting for it; what was in flight may be sent twice")

// stalled tells what in the process makes no progress though it could, and for how long patience with it is over; "" when
// all is well.
func (d *Daemon) stalled() (why string, over time.Duration) {
	if lag := d.pacer.Stalled(); lag > stalledAfter {
		return fmt.Sprintf("the scheduler has not turned for %s", lag.Round(time.Second)), lag - stalledAfter
	}
	return d.consumer.Stalled()
}

// stalledAfter is how long the scheduler may take to turn.
const stalledAfter = 30 * time.Second

// healthy tells /healthz whether the process makes progress.
func (d *Daemon) healthy() (ok bool, why string) {
	if why, _ := d.stalled(); why != "" {
		return false, why
	}
	return true, "ok"
}

// guard gives the process up when it makes no progress and nothing has restarted it: as a member of the group it would
// keep its partitions from all others for ever. It returns an error then, or nil when ctx ends.
func (d *Daemon) guard(ctx context.Context) error {
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for found := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		why, over := d.stalled()
		if why == "" || over < d.parts.Watchdog {
			found = 0
			continue
		}
		if found++; found == guardLooks {
			d.log.Error("no progress for twice the time allowed; ending, so that other daemons take the partitions over",
				"why", why)
			return fmt.Errorf("no progress: %s", why)
		}
	}
}

// RunToEnd is Run, given up when it has not returned a while after it should have: for a process that exits then.
func (d *Daemon) RunToEnd(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-d.ending:
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(d.parts.ShutdownTimeout + overdueAfter):
		return errOverdue
	}
}
