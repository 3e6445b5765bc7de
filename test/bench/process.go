package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/pacer/pacer/internal/retry"
)

const (
	readyPoll = 20 * time.Millisecond
	logTail   = 2000 // bytes of a log in an error
)

// Process is a daemon that runs as a child of this process and ends with it. Stop and Kill must not be called
// concurrently; the other methods are safe for concurrent use.
type Process struct {
	cmd    *exec.Cmd
	log    string        // file of its output
	ended  chan struct{} // closed when it has ended; result is set then
	result error
}

// Start starts a daemon whose output goes to a file. The caller must stop or kill it.
func Start(cmd *exec.Cmd, log string) (*Process, error) {
	output, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start a daemon: %w", err)
	}
	defer output.Close() // the child has its own
	cmd.Stdout, cmd.Stderr = output, output
	// The terminal's signals are kept away from the daemon, which this process stops itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a daemon: %w", err)
	}
	p := &Process{cmd: cmd, log: log, ended: make(chan struct{})}
	go func() {
		p.result = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// AwaitReady polls the daemon until it answers that jobs can flow, or until the daemon or ctx has ended.
func (p *Process) AwaitReady(ctx context.Context, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		if ended := p.Alive(); ended != nil {
			return ended
		}
		if retry.Sleep(ctx, readyPoll) != nil {
			return fmt.Errorf("a daemon is not ready: %w%s", err, p.said())
		}
	}
}

// Alive returns an error once the daemon has ended without having been stopped.
func (p *Process) Alive() error {
	select {
	case <-p.ended:
		return fmt.Errorf("a daemon ended by itself: %w%s", cmp.Or(p.result, errors.New("exit status 0")), p.said())
	default:
		return nil
	}
}

// said returns the end of the daemon's output, for errors.
func (p *Process) said() string {
	log, err := os.ReadFile(p.log)
	if err != nil || len(log) == 0 {
		return ""
	}
	return "; it said: " + strings.TrimSpace(string(log[max(0, len(log)-logTail):]))
}

// Stop stops the daemon gracefully, and kills it if ctx ends first.
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

// Kill kills the daemon and waits until it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // an error means that it has ended already
	<-p.ended
}

// Signal sends the daemon a signal, such as SIGSTOP, which stops it like a suspended machine.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal a daemon: %w", err)
	}
	return nil
}

// Cost returns the processor time that the daemon has used since it was started, and the bytes resident now.
func (p *Process) Cost() (cpu time.Duration, resident int64, err error) {
	var stat procfs.ProcStat
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err == nil {
		stat, err = proc.Stat()
	}
	if err != nil {
		return 0, 0, fmt.Errorf("what a daemon costs: %w", err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), int64(stat.ResidentMemory()), nil
}
