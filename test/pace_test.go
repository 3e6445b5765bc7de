//go:build e2e

package test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/demo/count"
)

// The flags of `make pace`, in its ARGS.
var paceFlags = struct {
	rates, daemons, sink, rate, config *string
	seconds, slow, campaigns           *int
	seed                               *uint64
	idle, json                         *bool
}{
	flag.String("rates", "1,2.5,10,150,1000,10000,50000", "pace: jobs per second, one or several with commas between"),
	flag.String("daemons", "1,3", "pace: how many daemons share the work, one number or several"),
	flag.String("sink", "", "pace: http, or discard, which only records what it gets (default http up to 10,000/s)"),
	flag.String("rate", "", "jobs per second: campaigns, of each (5); stall (1000)"),
	flag.String("config", "", "configuration `file` with the addresses of your services"),
	flag.Int("seconds", 0, "how long pace measures each rate above 150/s (10), or campaigns are measured (20)"),
	flag.Int("slow-seconds", 60, "pace: how long the other rates are measured, all at once"),
	flag.Int("campaigns", 10_000, "campaigns: their number"),
	flag.Uint64("seed", 1, "storm: of the rates and instants; the same seed makes the same storm"),
	flag.Bool("idle", false, "campaigns: without any jobs, what campaigns cost that send nothing"),
	flag.Bool("json", false, "print JSON"),
}

const (
	// maxSlowRate is the largest rate of the campaigns that share one long run: at low rates, ten seconds show little.
	maxSlowRate = 150
	// maxHTTPRate is the largest rate that is sent over HTTP by itself: at higher rates the network would be measured.
	maxHTTPRate = 10_000
	maxIdleCPU  = 0.02
)

// TestPace measures how exactly rates are kept, each figure on a stack of its own, and prints a table. It fails if a bound is not met.
func TestPace(t *testing.T) {
	if file := *paceFlags.config; file != "" {
		cfg, _, err := config.LoadFor(config.Source{Path: file, Explicit: true}, config.NeedKafka, config.NeedRedis, config.NeedPostgres)
		noError(t, err)
		t.Setenv("PACER_KAFKA_BROKERS", strings.Join(cfg.Kafka.Brokers, ","))
		t.Setenv("PACER_REDIS_ADDRS", cfg.Redis.Addrs[0])
		t.Setenv("PACER_POSTGRES_DSN", cfg.Postgres.DSN.Reveal())
	}
	seconds, rate := *paceFlags.seconds, 0.0
	if *paceFlags.rate != "" {
		rate = numbersOf(t, "rate", *paceFlags.rate)[0]
	}
	for _, figure := range []struct {
		name    string
		measure func(*testing.T) *paceReport
	}{
		{"pace", func(t *testing.T) *paceReport { return paceGrid(t, cmp.Or(seconds, 10), *paceFlags.slow) }},
		{"campaigns", func(t *testing.T) *paceReport {
			if *paceFlags.idle {
				return idleCampaigns(t, *paceFlags.campaigns, cmp.Or(rate, 5), cmp.Or(seconds, 20))
			}
			return campaignsReport(paceCampaigns(t, *paceFlags.campaigns, cmp.Or(rate, 5), cmp.Or(seconds, 20)))
		}},
		{"storm", func(t *testing.T) *paceReport {
			storm, run := paceStorm(t, *paceFlags.seed)
			return &paceReport{Facts: storm.facts(run)}
		}},
		{"stall", func(t *testing.T) *paceReport { return paceStall(t, cmp.Or(rate, 1000)) }},
	} {
		t.Run(figure.name, func(t *testing.T) {
			report := figure.measure(t)
			if report.judge(); *paceFlags.json {
				noError(t, json.NewEncoder(os.Stdout).Encode(report))
			} else {
				fmt.Printf("\n%s\n", report)
			}
			if !report.OK {
				t.Error("bounds are not met")
			}
		})
	}
}

// numbersOf are those of a flag.
func numbersOf(t *testing.T, name, text string) (list []float64) {
	t.Helper()
	for one := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseFloat(one, 64)
		if err != nil || n < 0.5 {
			t.Fatalf("--%s %s: want numbers of 0.5 and more", name, text)
		}
		list = append(list, n)
	}
	return list
}

// paceGrid is the grid of rates and numbers of daemons: the slow rates together, then each fast one alone.
func paceGrid(t *testing.T, seconds, slowSeconds int) *paceReport {
	rates, report := numbersOf(t, "rates", *paceFlags.rates), &paceReport{}
	slices.Sort(rates)
	for _, n := range numbersOf(t, "daemons", *paceFlags.daemons) {
		var plan []*paceTrial
		for _, rate := range slices.Compact(rates) {
			load := paceLoad{id: fmt.Sprintf("%g-%g", rate, n), rate: rate}
			if last := len(plan) - 1; rate <= maxSlowRate && last >= 0 {
				plan[last].loads = append(plan[last].loads, load)
				continue
			}
			trial := &paceTrial{sink: *paceFlags.sink, seconds: seconds, paceRun: paceRun{loads: []paceLoad{load}}}
			if rate <= maxSlowRate {
				trial.seconds = slowSeconds
			}
			if trial.sink == "" {
				trial.sink = map[bool]string{true: "http", false: "discard"}[rate <= maxHTTPRate]
			}
			plan = append(plan, trial)
		}
		newPaceRig(t, int(n), plan...).perform(plan...)
		for _, trial := range plan {
			for c := range trial.loads {
				s := trial.stream(c)
				s.Sink = trial.sink
				s.judge()
				report.Streams = append(report.Streams, s)
			}
		}
	}
	return report
}

// paceCampaigns sends for that long the jobs of many campaigns of one rate, with one daemon.
func paceCampaigns(t *testing.T, n int, rate float64, seconds int) *paceRun {
	t.Helper()
	trial := &paceTrial{sink: "discard", seconds: seconds}
	for _, id := range numbered(n) {
		trial.loads = append(trial.loads, paceLoad{id: id, rate: rate})
	}
	newPaceRig(t, 1, trial).perform(trial)
	return &trial.paceRun
}

// idleCampaigns measures the cost of campaigns without jobs.
func idleCampaigns(t *testing.T, n int, rate float64, seconds int) *paceReport {
	s := newStack(t, stackOptions{partitions: pacePartitions})
	s.campaigns("receiver", "active", numbered(n), func(int) float64 { return rate })
	d := s.start("one")
	s.awaitWhole(1, d)
	time.Sleep(3 * time.Second) // for what follows a start
	idle := d.idle(time.Duration(seconds) * time.Second)
	return &paceReport{Facts: []paceFact{
		told("idle campaigns", float64(n), ""),
		atMost("processors", 100*idle.cpu.Seconds(), 100*maxIdleCPU, "% of a core"),
		atMost("memory", float64(d.peakRSS()), maxManyMiB, "MiB"),
	}}
}

// paceStorm sends a campaign's jobs with three daemons while its rate changes a hundred times in ten seconds.
func paceStorm(t *testing.T, seed uint64) (*stormy, *paceRun) {
	t.Helper()
	storm := newStorm(seed)
	trial := &paceTrial{
		sink: "http", seconds: int(stormWindow.Seconds()), paceRun: paceRun{loads: []paceLoad{{id: "storm", rate: stormFirst}}},
		jobs: func(begins time.Duration) int {
			return int(stormFirst*begins.Seconds() + paceReserve*storm.units() + stormHighest)
		},
	}
	p := newPaceRig(t, stormDaemons, trial)
	trial.during = func() error {
		return storm.blow(p.now, func(rate int64) error {
			_, err := p.db.Exec(t.Context(), `UPDATE pacer.campaigns SET send_rate = $1`, rate)
			return err
		})
	}
	p.perform(trial)
	return storm, &trial.paceRun
}

// paceStall suspends the only daemon for two seconds, and one of three.
func paceStall(t *testing.T, rate float64) *paceReport {
	if rate <= maxSlowRate {
		t.Fatalf("--rate %g is too low to tell a burst from none; use more than %d", rate, maxSlowRate)
	}
	report := &paceReport{}
	for _, daemons := range []int{1, 3} {
		trial := &paceTrial{sink: "http", seconds: 10, paceRun: paceRun{loads: []paceLoad{{id: fmt.Sprintf("stall-%d", daemons), rate: rate}}}}
		p := newPaceRig(t, daemons, trial)
		var frozen count.Interval
		trial.during = func() (err error) {
			frozen, err = p.up[0].freeze(p.now)
			return err
		}
		p.perform(trial)
		report.Facts = append(report.Facts, stallFacts(&trial.paceRun, frozen)...)
	}
	return report
}
