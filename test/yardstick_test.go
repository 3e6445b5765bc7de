//go:build e2e

package test

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// yardstick is what the program of that name has done and used.
type yardstick struct {
	Jobs       int64
	Seconds    float64
	CPUSeconds float64 `json:"cpu_seconds"`
	Mallocs    float64
}

// add adds what another run did.
func (y *yardstick) add(o yardstick) {
	y.Jobs, y.Seconds, y.CPUSeconds, y.Mallocs = y.Jobs+o.Jobs, y.Seconds+o.Seconds, y.CPUSeconds+o.CPUSeconds, y.Mallocs+o.Mallocs
}

func (y yardstick) perSecond() float64 { return float64(y.Jobs) / y.Seconds }

// micros is the CPU time of a job, in microseconds.
func (y yardstick) micros() float64 { return 1e6 * y.CPUSeconds / float64(y.Jobs) }

// mallocs is how many objects were allocated for a job.
func (y yardstick) mallocs() float64 { return y.Mallocs / float64(y.Jobs) }

// measureYardstick runs the program, in a process of its own, so that what it costs is known.
func measureYardstick(t *testing.T, args ...string) (y yardstick) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "yardstick")
	if out, err := exec.Command("go", "build", "-o", program, "./yardstick").CombinedOutput(); err != nil {
		t.Fatalf("build the yardstick: %v: %s", err, out)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &y)
	}
	if err != nil || y.Jobs == 0 {
		t.Fatalf("yardstick %q: %v: %s", args, err, stderr.String())
	}
	return y
}
