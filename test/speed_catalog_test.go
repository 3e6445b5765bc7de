//go:build e2e

package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices"
)

// benched makes a measurement with the program in bench/ and reads the JSON that it prints.
func benched(t *testing.T, into any, args ...string) {
	t.Helper()
	cmd := exec.Command("go", slices.Concat([]string{"run", "./bench"}, args, []string{"--json"})...)
	cmd.Env = append(os.Environ(), "PACER_KAFKA_BROKERS="+strings.Join(testservices.Kafka(t), ","),
		"PACER_REDIS_ADDRS="+testservices.RedisAddr(t), "PACER_POSTGRES_DSN="+testservices.PostgresDSN(t))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output() // it fails, too, if a bound of its own was not met
	if bad := json.Unmarshal(out, into); bad != nil {
		t.Fatalf("%v: %v in %s; %s", err, bad, out, stderr.String())
	}
}

// benchStream is what a measurement reports of a stream of jobs.
type benchStream struct {
	CPU       float64 `json:"cpu_seconds_per_million"`
	OfRate    float64 `json:"achieved_over_target"`
	RSS       float64 `json:"rss_mib"`
	Lost      int     `json:"lost"`
	Duplicate int     `json:"duplicates"`
}

// measureCampaignsCPU: ten thousand campaigns cost no more than twice what one of the same rate costs.
func measureCampaignsCPU(t *testing.T, table *speedTable) {
	campaigns, each, seconds := scaled(t, 10_000), 5, fmt.Sprint(int(scaledTime(t, 10*time.Second).Seconds())+1)
	var single, many struct {
		Streams []benchStream `json:"streams"`
	}
	benched(t, &single, "pace", "--rates", fmt.Sprint(campaigns*each), "--daemons", "1", "--sink", "discard",
		"--seconds", seconds, "--slow-seconds", seconds)
	benched(t, &many, "campaigns", "--campaigns", fmt.Sprint(campaigns), "--rate", fmt.Sprint(each), "--seconds", seconds)
	if len(many.Streams) != 1 || len(single.Streams) != 1 {
		t.Fatalf("%d and %d streams", len(single.Streams), len(many.Streams))
	}
	one, all := single.Streams[0], many.Streams[0]
	table.add(t, "campaigns-cpu", speedSample{
		Figure: all.CPU, Yardstick: one.CPU,
		Note: fmt.Sprintf("%.1f %% of the rate and %.0f MiB, the one %.1f %% and %.0f MiB", 100*all.OfRate, all.RSS, 100*one.OfRate, one.RSS),
	})
	if n := all.Lost + all.Duplicate + one.Lost + one.Duplicate; n > 0 {
		t.Errorf("%d jobs lost or sent twice", n)
	}
}

// measureStorm: the jobs that are sent while a rate changes all the time.
func measureStorm(t *testing.T, table *speedTable) {
	var report struct {
		Facts []struct {
			Name     string
			Measured float64
		}
	}
	benched(t, &report, "storm")
	for _, f := range report.Facts {
		if f.Name == "jobs of those that the rates gave" {
			table.add(t, "storm", speedSample{Figure: f.Measured, Yardstick: 100})
			return
		}
	}
	t.Errorf("%+v do not say how many jobs were sent", report.Facts)
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
