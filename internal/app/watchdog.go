package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	watchEvery = time.Second
	// watchLooks is the number of consecutive looks with the same finding before the watchdog ends the process: a
	// process that was suspended and resumes looks stalled for a moment.
	watchLooks = 5
	// overdueAfter is how long a daemon may take to end beyond its shutdown timeout.
	overdueAfter = 5 * time.Second
)

// errOverdue means that a daemon does not end.
var errOverdue = errors.New("something in the daemon does not return, so it ends without waiting for it; what was in flight may be sent twice")

// stalled returns what in the process makes no progress although it could, and by how much it exceeds its tolerance;
// "" if there is nothing.
func (d *Daemon) stalled() (why string, over time.Duration) {
	if lag := d.pacer.Stalled(); lag > stalledAfter {
		return fmt.Sprintf("the scheduler has not turned for %s", lag.Round(time.Second)), lag - stalledAfter
	}
	return d.consumer.Stalled()
}

// stalledAfter is how long one turn of the scheduler may take.
const stalledAfter = 30 * time.Second

// healthy is the answer of /healthz: whether the process makes progress.
func (d *Daemon) healthy() (ok bool, why string) {
	if why, _ := d.stalled(); why != "" {
		return false, why
	}
	return true, "ok"
}

// watch is the liveness watchdog. It ends the process if that makes no progress and no supervisor has restarted it: as
// a member of the group it would keep its partitions for ever. It then returns an error, or nil when ctx ends.
func (d *Daemon) watch(ctx context.Context) error {
	for found := 0; retry.Sleep(ctx, watchEvery) == nil; {
		why, over := d.stalled()
		if why == "" || over < d.parts.Config.Watchdog {
			found = 0
			continue
		}
		if found++; found == watchLooks {
			d.log.Error("no progress for twice the time allowed; ending, so that other daemons take the partitions over",
				"why", why)
			return fmt.Errorf("no progress: %s", why)
		}
	}
	return nil
}

// RunToEnd is Run with a deadline after ctx ends, for a process that exits afterwards.
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
	case <-time.After(d.parts.Config.ShutdownTimeout + overdueAfter):
		return errOverdue
	}
}
