package bench

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// clockTick is USER_HZ, which Linux shows to programs as 100 on every machine.
const clockTick = 10 * time.Millisecond

// childAttributes keep signals of the terminal away from a daemon, which this process stops itself, and end it when
// this process is killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// Freeze stops the daemon as a suspended machine does.
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets it run again.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal a daemon: %w", err)
	}
	return nil
}

// Cost asks the system what the daemon has used.
func (p *Process) Cost() (Cost, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return Cost{}, fmt.Errorf("what a daemon costs: %w", err)
	}
	return parseStat(string(stat), int64(os.Getpagesize()))
}

// parseStat reads /proc/<pid>/stat. The second field, the program's name in parentheses, may hold anything; the others
// are counted from behind it.
func parseStat(stat string, page int64) (Cost, error) {
	const userTime, systemTime, resident = 11, 12, 21 // behind the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= resident {
		return Cost{}, errors.New("what a daemon costs: /proc has fewer fields than expected")
	}
	user, err := strconv.ParseInt(fields[userTime], 10, 64)
	system, err2 := strconv.ParseInt(fields[systemTime], 10, 64)
	pages, err3 := strconv.ParseInt(fields[resident], 10, 64)
	if err := errors.Join(err, err2, err3); err != nil {
		return Cost{}, fmt.Errorf("what a daemon costs: %w", err)
	}
	return Cost{CPU: time.Duration(user+system) * clockTick, RSS: pages * page}, nil
}
