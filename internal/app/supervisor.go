package app

import (
	"context"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/pacer/pacer/internal/retry"
)

// supervisor tells the service manager that started the process what state it is in, by the protocol of sd_notify(3): that it
// is ready, once, and what it waits for until then; that it stops; and, where the unit has WatchdogSec, that it makes
// progress. A process that no service manager asks for this tells nobody.
type supervisor struct {
	ready    func() (ok bool, why string)
	healthy  func() (ok bool, why string)
	tell     func(state string)
	watchdog time.Duration // within which it is to be told of progress; 0: not at all

	was   string // the status told last
	began bool
}

const superviseEvery = time.Second

func (d *Daemon) newSupervisor() *supervisor {
	within, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("the service manager's WATCHDOG_USEC is not valid; it is not told of progress", "error", err)
	}
	return &supervisor{
		ready: d.Ready, healthy: d.healthy, watchdog: within,
		// One that does not listen is asked for nothing in return.
		tell: func(state string) { _, _ = daemon.SdNotify(false, state) },
	}
}

// Run tells the service manager until ctx ends.
func (s *supervisor) Run(ctx context.Context) error {
	every := superviseEvery
	if s.watchdog > 0 {
		every = min(every, s.watchdog/3)
	}
	s.check()
	retry.Every(ctx, every, func(time.Time) { s.check() })
	return nil
}

func (s *supervisor) check() {
	ok, why := s.ready()
	if ok && !s.began {
		s.began = true
		s.tell(daemon.SdNotifyReady)
	}
	if why != s.was {
		s.was = why
		s.tell("STATUS=" + why)
	}
	if s.watchdog == 0 {
		return
	}
	if ok, _ := s.healthy(); ok {
		s.tell(daemon.SdNotifyWatchdog)
	}
}

// stopping tells that the daemon drains.
func (s *supervisor) stopping() { s.tell(daemon.SdNotifyStopping) }
