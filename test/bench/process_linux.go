package main

import (
	"fmt"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// childAttributes keep the terminal's signals away from a daemon, which this process stops itself, and kill the daemon
// when this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Freeze stops the daemon's execution, like a suspended machine.
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw resumes it.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal a daemon: %w", err)
	}
	return nil
}

// Cost returns the resources that the daemon has used.
func (p *Process) Cost() (Cost, error) {
	var stat procfs.ProcStat
	proc, err := procfs.NewProc(p.cmd.Process.Pid)
	if err == nil {
		stat, err = proc.Stat()
	}
	if err != nil {
		return Cost{}, fmt.Errorf("what a daemon costs: %w", err)
	}
	return Cost{CPU: time.Duration(stat.CPUTime() * float64(time.Second)), RSS: int64(stat.ResidentMemory())}, nil
}
