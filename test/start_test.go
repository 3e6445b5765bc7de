package test

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

var initialised = regexp.MustCompile(`(?m)^init (github\.com/pacer/\S+) .* (\d+) bytes`)

// TestCommandsStartLightly: each command, and each daemon, pays for what packages do before main. Parts that only some of them need are
// made on first use.
func TestCommandsStartLightly(t *testing.T) {
	const most = 256 << 10
	cmd := exec.Command(program(t), "version")
	cmd.Env = append(environment(), "GODEBUG=inittrace=1")
	text, err := cmd.CombinedOutput()
	found := initialised.FindAllSubmatch(text, -1)
	if err != nil || len(found) == 0 {
		t.Fatalf("no trace of initialisation: %v\n%s", err, text)
	}
	for _, m := range found {
		if n, err := strconv.Atoi(string(m[2])); err != nil || n > most {
			t.Errorf("package %s allocates %s bytes before main, of %d: make it when it is needed", m[1], m[2], most)
		}
	}
}
