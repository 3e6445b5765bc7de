//go:build e2e

package test

import (
	"fmt"
	"os"
	"time"
)

// cost is what a process has used.
type cost struct {
	cpu     time.Duration // user and system
	mallocs float64       // objects allocated, as its metrics tell; 0 where they were not asked
}

// spent is what the daemon has used so far.
func (d *daemon) spent() cost {
	d.s.t.Helper()
	return cost{cpu: d.processor(), mallocs: d.metric("go_memstats_mallocs_total")}
}

// idle is what the daemon uses in a second without jobs.
func (d *daemon) idle(over time.Duration) cost {
	d.s.t.Helper()
	before := d.spent()
	time.Sleep(over)
	return d.spent().since(before).over(over.Seconds())
}

// since is what was used between two instants.
func (c cost) since(before cost) cost {
	return cost{cpu: c.cpu - before.cpu, mallocs: c.mallocs - before.mallocs}
}

// over is the cost divided by n: of a job, or of a second.
func (c cost) over(n float64) cost {
	return cost{cpu: time.Duration(float64(c.cpu) / n), mallocs: c.mallocs / n}
}

// less returns the cost minus that of as many idle seconds.
func (c cost) less(idle cost, seconds float64) cost {
	return cost{cpu: c.cpu - time.Duration(float64(idle.cpu)*seconds), mallocs: c.mallocs - idle.mallocs*seconds}
}

// forgetPeak begins the daemon's peak of memory anew.
func (d *daemon) forgetPeak() {
	d.s.t.Helper()
	noError(d.s.t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", d.cmd.Process.Pid), []byte("5"), 0))
}

// resident is the daemon's memory now, in MiB.
func (d *daemon) resident() float64 {
	d.s.t.Helper()
	return float64(d.stat().ResidentMemory()) / (1 << 20)
}
