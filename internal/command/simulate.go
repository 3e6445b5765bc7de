package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/simulate"
)

func (c *cli) simulate() *cobra.Command {
	flags := &simulateFlags{}
	compare := func(ctx context.Context) error { return c.runSimulation(ctx, flags) }
	cmd := c.plain("simulate", "Compare rate-limiting algorithms: what each lets through in any second", compare)
	cmd.Long = `Gives the same jobs to several rate-limiting algorithms, on a virtual clock. There is always a job to send, except
in the pauses of --idle. Prints the most jobs in any second and in any tenth of one, and when the last job was sent. --json
adds how many were sent in each second.`
	cmd.Example = `  pacer simulate
  pacer simulate --algorithm fixed-window,slots --idle 2s:900ms --out plots
  pacer simulate --idle "" --json`
	f := cmd.Flags()
	f.StringSliceVar(&flags.Algorithms, "algorithm", nil, "a `NAME`, or several with commas between; may be repeated; all if not given.\n"+
		"The first words of a name do: token-bucket, sliding")
	f.Int64Var(&flags.Load.Rate, "rate", 1_000, "the limit, in jobs per second")
	f.Int64Var(&flags.Load.Jobs, "jobs", 10_000, "how many jobs")
	f.StringVar(&flags.Idle, "idle", "4s:500ms,6s:1s", "`PAUSES`: when each begins and how long it lasts; \"\" for none")
	f.StringVar(&flags.Out, "out", "", "write plots into this `DIR`: simulate-overview.svg, and one for each algorithm")
	return cmd
}

// simulateFlags are the flags of `pacer simulate`.
type simulateFlags struct {
	Algorithms []string // empty for all
	Load       simulate.Load
	Idle       string // as in 4s:500ms,6s:1s
	Out        string // directory of the plots, "" for none
}

// simulation is the JSON output. Seconds are since the start.
type simulation struct {
	Rate       int64                 `json:"rate"`
	Jobs       int64                 `json:"jobs"`
	Idle       []simulationIdle      `json:"idle"`
	Algorithms []simulationAlgorithm `json:"algorithms"`
}

type simulationIdle struct {
	AtS  float64 `json:"at_s"`
	ForS float64 `json:"for_s"`
}

type simulationAlgorithm struct {
	Name            string  `json:"name"`
	Title           string  `json:"title"`
	Sent            int64   `json:"sent"`
	SentPerSecond   []int64 `json:"sent_per_second"` // from the start to the last job
	MaxRolling1s    int64   `json:"max_rolling_1s"`
	MaxRolling100ms int64   `json:"max_rolling_100ms"`
	FinishedS       float64 `json:"finished_s"` // the last job
}

// runSimulation compares rate-limiting algorithms side by side, on a virtual clock.
func (c *cli) runSimulation(ctx context.Context, flags *simulateFlags) error {
	algorithms, err := simulate.Select(flags.Algorithms)
	if err != nil {
		return config.Usagef("--algorithm: %w", err)
	}
	load := &flags.Load
	if load.Idle, err = simulate.ParseIdle(flags.Idle); err != nil {
		return config.Usagef("--idle: %w", err)
	}
	if err := load.Validate(); err != nil {
		return config.Usagef("--%w", err)
	}
	results, err := simulate.Run(ctx, load, algorithms)
	if err != nil {
		return err
	}
	if flags.Out != "" {
		if err := writePlots(flags.Out, simulate.NewChart(load, results), results); err != nil {
			return err
		}
	}
	view := newSimulation(load, results)
	return c.print(view, func(p *printer) { view.print(p, load) })
}

func newSimulation(load *simulate.Load, results []simulate.Result) *simulation {
	second := time.Second.Microseconds()
	s := &simulation{Rate: load.Rate, Jobs: load.Jobs, Idle: []simulationIdle{}}
	for _, p := range load.Idle {
		s.Idle = append(s.Idle, simulationIdle{AtS: p.At.Seconds(), ForS: p.For.Seconds()})
	}
	for i := range results {
		r := &results[i]
		s.Algorithms = append(s.Algorithms, simulationAlgorithm{
			Name: r.Name, Title: r.Title, Sent: int64(len(r.Sent)), SentPerSecond: r.Bins(second),
			MaxRolling1s: r.MaxRolling(second), MaxRolling100ms: r.MaxRolling(second / 10),
			FinishedS: float64(r.Finished()) / float64(second),
		})
	}
	return s
}

// print writes the most that each algorithm let through.
func (s *simulation) print(p *printer, load *simulate.Load) {
	p.line("%d jobs at %d/s, %s\n", s.Jobs, s.Rate, spellIdle(load.Idle))
	p.table(func(p *printer) {
		p.line("ALGORITHM\tMAX IN 1 S\tMAX IN 100 MS\tFINISHED")
		for i := range s.Algorithms {
			a := &s.Algorithms[i]
			p.line("%s\t%d\t%d\t%.3f s", a.Name, a.MaxRolling1s, a.MaxRolling100ms, a.FinishedS)
		}
	})
}

func spellIdle(pauses []simulate.Pause) string {
	if len(pauses) == 0 {
		return "without a pause"
	}
	words := make([]string, 0, len(pauses))
	for _, p := range pauses {
		words = append(words, fmt.Sprintf("%s after %s", p.For, p.At))
	}
	return "nothing to send for " + strings.Join(words, ", ")
}

// writePlots writes one SVG file for each result, and one for all.
func writePlots(dir string, chart *simulate.Chart, results []simulate.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // plots are for everybody
		return config.Usagef("--out: %w", err)
	}
	if err := writePlot(dir, "overview", chart.Overview); err != nil {
		return err
	}
	for i := range results {
		if err := writePlot(dir, results[i].Name, func(w io.Writer) error { return chart.One(w, i) }); err != nil {
			return err
		}
	}
	return nil
}

func writePlot(dir, name string, plot func(io.Writer) error) error {
	var picture bytes.Buffer
	if err := plot(&picture); err != nil {
		return err
	}
	file := filepath.Join(dir, "simulate-"+name+".svg")
	if err := os.WriteFile(file, picture.Bytes(), 0o644); err != nil { //nolint:gosec // plots are for everybody
		return fmt.Errorf("--out: %w", err)
	}
	return nil
}
