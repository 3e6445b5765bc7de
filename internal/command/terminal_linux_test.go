package command

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNothingIsAskedOfTheTerminal: a package that asks for its colours as it is initialized delays every command by seconds where no answer comes, and
// swallows what was typed.
func TestNothingIsAskedOfTheTerminal(t *testing.T) {
	ours, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer ours.Close()
	number, err := unix.IoctlGetInt(int(ours.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(ours.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal := try(os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0))(t)
	defer terminal.Close()
	begun := exec.CommandContext(t.Context(), os.Args[0], "-test.list=^TestNothingIsAskedOfTheTerminal$") // initialized like pacer
	begun.Env = append(os.Environ(), "TERM=xterm-256color")
	begun.Stdin, begun.Stdout, begun.Stderr = terminal, terminal, terminal
	begun.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // in the foreground of it
	must(t, begun.Start())
	said := make([]byte, 1<<10)
	n, err := ours.Read(said)
	if err != nil || strings.Contains(string(said[:n]), "\x1b") {
		t.Errorf("the terminal is asked %q: %v", said[:n], err)
	}
	if err := begun.Wait(); err != nil {
		t.Error(err)
	}
}
