package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/pacer/pacer/internal/retry"
)

const (
	watchEvery = time.Second
	// watchLooks is the number of consecutive looks with the same finding before the watchdog ends the process: a process that was
	// suspended and resumes looks stalled for a moment.
	watchLooks = 5
	// stalledAfter is how long one turn of the scheduler may take.
	stalledAfter = 30 * time.Second
	// overdueAfter is how long a daemon may take to end beyond its shutdown timeout.
	overdueAfter = 5 * time.Second
)

// errOverdue means that a daemon does not end.
var errOverdue = errors.New("something in the daemon does not return, so it ends without waiting for it; what was in flight may be sent twice")

// watchdog looks every second how the daemon is. It ends a process that makes no progress and that no supervisor has restarted: as a
// member of the group it would keep its partitions for ever. By the protocol of sd_notify(3) it tells the service manager whether the
// process is ready and what it waits for. If the unit has WatchdogSec, it also reports progress.
type watchdog struct {
	ready    func() (ok bool, why string)
	stalled  func() (why string, over time.Duration)
	patience time.Duration // beyond what a stall may last
	ends     time.Duration // within which the process ends, once it stops
	notify   func(state string)
	within   time.Duration // within which the service manager expects progress; 0: not at all
	log      *slog.Logger

	status string // told last
	began  bool
	found  int // looks in a row with a stall
}

func (d *Daemon) newWatchdog() *watchdog {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("the service manager's WATCHDOG_USEC is not valid; it is not told of progress", "error", err)
	}
	return &watchdog{
		ready: d.Ready, stalled: d.stalled, patience: d.parts.Config.Watchdog, within: within, log: d.log,
		ends: d.parts.Config.ShutdownTimeout + overdueAfter,
		// A service manager that does not listen needs no answer.
		notify: func(state string) { _, _ = daemon.SdNotify(false, state) },
	}
}

// Run looks until ctx ends, and then returns nil. The error is that the process makes no progress.
func (w *watchdog) Run(ctx context.Context) error {
	every := watchEvery
	if w.within > 0 {
		every = min(every, w.within/3)
	}
	for err := w.look(); ; err = w.look() {
		if err != nil || retry.Sleep(ctx, every) != nil {
			return err
		}
	}
}

func (w *watchdog) look() error {
	ok, why := w.ready()
	if ok && !w.began {
		w.began = true
		w.notify(daemon.SdNotifyReady)
	}
	if why != w.status {
		w.status = why
		w.notify("STATUS=" + why)
	}
	why, over := w.stalled()
	if why == "" && w.within > 0 {
		w.notify(daemon.SdNotifyWatchdog)
	}
	if why == "" || over < w.patience {
		w.found = 0
		return nil
	}
	if w.found++; w.found < watchLooks {
		return nil
	}
	w.log.Error("no progress for twice the time allowed; ending, so that other daemons take the partitions over", "why", why)
	return fmt.Errorf("no progress: %s", why)
}

// stalled returns what in the process makes no progress although it could, and by how much it exceeds its tolerance: the scheduler or a
// reader. "" if both do.
func (d *Daemon) stalled() (why string, over time.Duration) {
	if lag := d.pacer.Stalled(); lag > stalledAfter {
		return fmt.Sprintf("the scheduler has not turned for %s", lag.Round(time.Second)), lag - stalledAfter
	}
	return d.consumer.Stalled()
}

// healthy is the answer of /healthz: whether the process makes progress.
func (d *Daemon) healthy() (ok bool, why string) {
	if why, _ := d.stalled(); why != "" {
		return false, why
	}
	return true, "ok"
}

// stopping tells the service manager that the daemon ends, and how long that may take. This counts, not TimeoutStopSec.
func (w *watchdog) stopping() {
	w.notify(daemon.SdNotifyStopping)
	w.notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (w.ends + overdueAfter).Microseconds()))
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
	case <-time.After(d.watchdog.ends):
		return errOverdue
	}
}
