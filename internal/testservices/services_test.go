package testservices

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A missing service must fail the test: a skip would let a run without services pass for one with them.
func TestMissingServiceFails(t *testing.T) {
	if testing.Short() {
		t.Skip("under -short a missing service skips")
	}
	for name, value := range map[string]string{"unset": "", "nobody answers": "127.0.0.1:1"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(envRedis, value)
			spy := &recorder{TB: t}
			spy.run(func() { RedisAddr(spy) })
			if !strings.Contains(spy.fatal, remedy) || strings.Contains(spy.fatal, "\n") {
				t.Errorf("the complaint is %q", spy.fatal)
			}
		})
	}
}

// TestPortsAreOnesOwn: ports lie below those of outgoing connections and are given out once while their test runs.
func TestPortsAreOnesOwn(t *testing.T) {
	seen := map[int]bool{}
	for range 300 {
		port := FreePort(t)
		if port < firstPort || port >= lastPort || seen[port] {
			t.Errorf("port %d", port)
		}
		seen[port] = true
	}
}

// TestStacksChoosePortsOfTheirOwn: two stacks that start together choose different ports, also before they listen and while a service is
// down.
func TestStacksChoosePortsOfTheirOwn(t *testing.T) {
	base := t.TempDir()
	// Both draw the same numbers. The second one does while the first still waits for its service.
	choose := func(name, then string) *exec.Cmd {
		cmd := exec.Command("bash", "-euc", `. ../../scripts/services/process.sh; mkdir -p "$dir/ports"; RANDOM=7
			free_port >"$dir/ports/kafka"; cat "$dir/ports/kafka"; `+then)
		cmd.Env = append(os.Environ(), "base="+base, "dir="+filepath.Join(base, "stacks", name), "TMPDIR="+base)
		return cmd
	}
	first := choose("one", "read -r _")
	hold, err := first.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := first.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	one, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	here, elsewhere := filepath.Join(base, "stacks", "one"), filepath.Join(base, "elsewhere")
	if err := os.Rename(here, elsewhere); err != nil { // it is a stack of another checkout
		t.Fatal(err)
	}
	two, err := choose("two", ":").Output()
	if err != nil || string(two) == one {
		t.Errorf("a stack that starts at the same time is given port %q, the first has %q (%v)", two, one, err)
	}
	_ = hold.Close()
	_ = first.Wait()
	if err := os.Rename(elsewhere, here); err != nil {
		t.Fatal(err)
	}
	three, err := choose("three", ":").Output()
	if err != nil || string(three) == one || string(three) == string(two) {
		t.Errorf("a stack is given port %q, of a service that is down (%v)", three, err)
	}
}
