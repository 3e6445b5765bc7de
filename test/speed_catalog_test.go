//go:build e2e

package test

import (
	"fmt"
	"testing"
	"time"
)

// measureCampaignsCPU: ten thousand campaigns cost no more than twice what one of the same rate costs.
func measureCampaignsCPU(t *testing.T, table *speedTable) {
	campaigns, each, seconds := scaled(t, 10_000), 5.0, int(scaledTime(t, 10*time.Second).Seconds())+1
	one := paceCampaigns(t, 1, float64(campaigns)*each, seconds).stream(-1)
	all := paceCampaigns(t, campaigns, each, seconds).stream(-1)
	table.add(t, "campaigns-cpu", speedSample{
		Figure: all.CPUSecondsPerMillion, Yardstick: one.CPUSecondsPerMillion,
		Note: fmt.Sprintf("%.1f %% of the rate and %.0f MiB, the one %.1f %% and %.0f MiB", 100*all.AchievedOverTarget, all.RSSMiB,
			100*one.AchievedOverTarget, one.RSSMiB),
	})
	if n := all.Lost + all.Duplicates + one.Lost + one.Duplicates; n > 0 {
		t.Errorf("%d jobs lost or sent twice", n)
	}
}

// measureStorm: the jobs that are sent while a rate changes all the time.
func measureStorm(t *testing.T, table *speedTable) {
	storm, run := paceStorm(t, 1)
	table.add(t, "storm", speedSample{Figure: storm.share(run), Yardstick: 100})
}

// measureCatalog: a daemon with 100,000 campaigns without jobs; then one statement changes all.
func measureCatalog(t *testing.T, table *speedTable) {
	s := newStack(t, stackOptions{partitions: 6, lanes: 256})
	ids := numbered(scaled(t, 100_000))
	s.campaigns("receiver", "active", ids, func(int) float64 { return 5 })
	s.sql(`ANALYZE pacer.campaigns`)
	d := s.start("one")
	s.awaitWhole(1, d)
	time.Sleep(10 * time.Second) // for what follows a start
	d.calm()
	idle := d.idle(scaledTime(t, 15*time.Second))
	const mib = 1 << 20
	table.add(t, "idle-memory", speedSample{Figure: d.resident(), Note: fmt.Sprintf("peak %d MiB", d.peakRSS())})
	table.add(t, "idle-heap", speedSample{
		Figure: d.metric("go_memstats_heap_inuse_bytes") / mib,
		Note:   fmt.Sprintf("%.0f MiB of it allocated", d.metric("go_memstats_heap_alloc_bytes")/mib),
	})
	table.add(t, "idle-cpu", speedSample{Figure: 100 * idle.cpu.Seconds(), Note: fmt.Sprintf("%.0f allocations a second", idle.mallocs)})

	d.forgetPeak()
	before, began := d.spent(), time.Now()
	s.sql(`UPDATE pacer.campaigns SET send_rate = send_rate + 1`)
	took := time.Since(began)
	time.Sleep(scaledTime(t, 12*time.Second))
	d.calm()
	used := d.spent().since(before).less(idle, time.Since(began).Seconds())
	table.add(t, "update-cpu", speedSample{
		Figure: used.cpu.Seconds(),
		Note:   fmt.Sprintf("the statement took %.1f s; the daemon was calm again after %.1f s", took.Seconds(), time.Since(began).Seconds()),
	})
	table.add(t, "update-memory", speedSample{Figure: float64(d.peakRSS())})
}

// calm waits until the daemon does little, at most a minute.
func (d *daemon) calm() {
	d.s.t.Helper()
	const little = time.Second / 5 // of a processor
	end := time.Now().Add(time.Minute)
	for d.idle(3*time.Second).cpu > little && time.Now().Before(end) {
		d.s.t.Log("the daemon is still busy")
	}
}
