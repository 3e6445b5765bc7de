package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

const (
	readyPoll = 20 * time.Millisecond
	logTail   = 2000 // bytes of a log that an error shows
)

// ProcessOptions describe a daemon.
type ProcessOptions struct {
	Path string   // of the executable
	Args []string // without its name
	Env  []string // all of its environment
	Log  string   // file that gets what it prints
}

// Process is a daemon that runs beside this process and ends with it. Stop and Kill are for one goroutine at a time; the
// rest may be called by any.
type Process struct {
	options ProcessOptions
	cmd     *exec.Cmd
	ended   chan struct{} // closed when it has ended; result is set then
	result  error
}

// Start runs a daemon. Whoever starts one stops or kills it.
func Start(options ProcessOptions) (*Process, error) {
	log, err := os.OpenFile(options.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start a daemon: %w", err)
	}
	defer log.Close()                                                                                             // the child has its own
	p := &Process{options: options, cmd: exec.Command(options.Path, options.Args...), ended: make(chan struct{})} //nolint:gosec // our own executable
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = options.Env, log, log
	p.cmd.SysProcAttr = childAttributes()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a daemon: %w", err)
	}
	go func() {
		p.result = p.cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// AwaitReady asks the daemon again and again until it answers that jobs can flow, or has ended, or ctx has.
func (p *Process) AwaitReady(ctx context.Context, ask func(context.Context) error) error {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("a daemon is not ready: %w%s", err, p.said())
		case <-p.ended:
			return p.unexpected()
		case <-tick.C:
		}
	}
}

// Alive is an error once the daemon has ended without having been told to.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return p.unexpected()
	default:
		return nil
	}
}

func (p *Process) unexpected() error {
	result := p.result
	if result == nil {
		result = errors.New("exit status 0")
	}
	return fmt.Errorf("a daemon ended by itself: %w%s", result, p.said())
}

// said is the end of what the daemon printed, for errors.
func (p *Process) said() string {
	log, err := os.ReadFile(p.options.Log)
	if err != nil || len(log) == 0 {
		return ""
	}
	return "; it said: " + strings.TrimSpace(string(log[max(0, len(log)-logTail):]))
}

// Stop ends the daemon gracefully, and kills it when ctx ends first.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop a daemon: %w", err)
	}
	select {
	case <-p.ended:
	case <-ctx.Done():
		p.Kill()
		return fmt.Errorf("a daemon did not stop in time and was killed%s", p.said())
	}
	if p.result != nil {
		return fmt.Errorf("a daemon stopped badly: %w%s", p.result, p.said())
	}
	return nil
}

// Kill ends the daemon at once and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it has ended already, or it ends now
	<-p.ended
}

// Cost is what a process uses of the machine.
type Cost struct {
	CPU time.Duration // user and system time since it was started
	RSS int64         // bytes resident now
}
