package test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const unitFile = "../deploy/systemd/pacer.service"

// TestTheUnitOfSystemdIsValidAndExposesLittle has systemd look at the unit itself.
func TestTheUnitOfSystemdIsValidAndExposesLittle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the daemon is needed: not under -short")
	}
	unit := readFile(t, unitFile)
	binary := os.Getenv("PACER_BIN")
	here := filepath.Join(t.TempDir(), "pacer.service")
	noError(t, os.WriteFile(here, []byte(strings.ReplaceAll(unit, "/usr/local/bin/pacer", binary)), 0o600))
	// Both print nothing, and end with an error, only where something is wrong; 15 is an exposure of 1.5.
	for _, args := range [][]string{{"verify", "--man=no", here}, {"security", "--offline=true", "--no-pager", "--threshold=15", here}} {
		out, err := exec.Command("systemd-analyze", args...).CombinedOutput()
		if err != nil || args[0] == "verify" && strings.Contains(string(out), "pacer.service:") {
			t.Errorf("systemd-analyze %s: %v\n%s", args[0], err, out)
		}
	}
}

// TestTheServiceManagerIsTold: a daemon says that it is ready when it is, and that it stops.
func TestTheServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{})
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	noError(t, err)
	defer func() { _ = socket.Close() }()
	d := s.start("one", "NOTIFY_SOCKET="+path, "WATCHDOG_USEC=3000000")
	var told []string
	hear := func(what string) {
		t.Helper()
		_ = socket.SetReadDeadline(time.Now().Add(20 * time.Second))
		for b := make([]byte, 4096); len(told) == 0 || told[len(told)-1] != what; {
			n, err := socket.Read(b)
			if err != nil {
				t.Fatalf("told %q, and then not %s: %v", told, what, err)
			}
			told = append(told, string(b[:n]))
		}
	}
	if hear("READY=1"); d.get("/readyz") != 200 {
		t.Error("told that it is ready, and is not")
	}
	hear("STATUS=ready")
	hear("WATCHDOG=1")
	d.stop()
	hear("STOPPING=1")
}
