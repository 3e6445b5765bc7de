package command

import (
	"context"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/config"
)

func (c *cli) bench() *cobra.Command {
	flags := &bench.PaceFlags{}
	var rate string
	var daemons int
	parts := group("bench", "Measure end to end, on the configured services",
		c.benchPace(), c.benchCampaigns(), c.benchStorm(), c.benchStall())
	refuse := parts.Args
	parts.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return refuse(cmd, args)
	}
	parts.Long = benchLong + `

Without one of the commands below, it measures one rate.`
	parts.Example = "  pacer bench --rate 1000 --daemons 3 --json\n  pacer bench pace"
	parts.RunE = func(cmd *cobra.Command, _ []string) error {
		flags.Rates, flags.Daemons, flags.SlowSeconds = []string{rate}, []int{daemons}, flags.Seconds
		measure := func(o *bench.Options) (*bench.Report, error) { return bench.Pace(cmd.Context(), o, flags) }
		return c.runBench(measure, func(r *bench.Report) any { return r.Streams[0] })
	}
	f := parts.Flags()
	f.StringVar(&rate, "rate", "1000", "jobs per second")
	f.IntVar(&daemons, "daemons", 1, "number of daemons that share the work")
	f.IntVar(&flags.Seconds, "seconds", 10, "how long is measured")
	f.StringVar(&flags.Sink, "sink", "", benchSinkUsage)
	return c.withJSON(parts)
}

// runBench makes a measurement and prints its report; whole selects what JSON output contains. The error is ErrNotOK
// if a bound was not met.
func (c *cli) runBench(measure func(*bench.Options) (*bench.Report, error), whole func(*bench.Report) any) error {
	args := []string{"run"}
	if c.configSet {
		args = append(args, "--config", c.config)
	}
	report, err := measure(&bench.Options{
		Load: func() (*config.Config, *slog.Logger, error) {
			return c.load(config.NeedKafka, config.NeedRedis, config.NeedPostgres)
		},
		Args: args, Environ: c.Environ, Stderr: c.Stderr,
	})
	if err != nil {
		return err
	}
	err = c.print(whole(report), func(p *printer) { p.line("%s", strings.TrimSuffix(report.String(), "\n")) })
	if err == nil && !report.OK {
		err = ErrNotOK
	}
	return err
}

// measurement adds to a command its flags and its function, which prints the whole report.
func measurement[F any](
	c *cli, cmd *cobra.Command, flags *F, measure func(context.Context, *bench.Options, *F) (*bench.Report, error),
) *cobra.Command {
	cmd.Args, cmd.Long = noArgs, strings.TrimSpace(benchLong+"\n\n"+cmd.Long)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return c.runBench(func(o *bench.Options) (*bench.Report, error) { return measure(cmd.Context(), o, flags) },
			func(r *bench.Report) any { return r })
	}
	return c.withJSON(cmd)
}

const benchSinkUsage = "http, or discard, which only records what it gets; http up to 10,000/s if not given"

func (c *cli) benchPace() *cobra.Command {
	flags := &bench.PaceFlags{}
	cmd := &cobra.Command{
		Use: "pace", Short: "How exactly and how evenly rates are kept, by one daemon and by several",
		Long: "Rates up to 150 per second share one window of --slow-seconds; " +
			"each faster one has a window of --seconds for itself.",
		Example: "  pacer bench pace\n  pacer bench pace --rates 1000 --daemons 3 --seconds 5 --json",
	}
	f := cmd.Flags()
	f.StringSliceVar(&flags.Rates, "rates", bench.DefaultRates, "jobs per second, one `RATE` or several with commas between")
	f.IntSliceVar(&flags.Daemons, "daemons", []int{1, 3}, "how many daemons share the work, one number or several")
	f.IntVar(&flags.Seconds, "seconds", 10, "how long each rate above 150/s is measured")
	f.IntVar(&flags.SlowSeconds, "slow-seconds", 60, "how long the others are measured, all at once")
	f.StringVar(&flags.Sink, "sink", "", benchSinkUsage)
	return measurement(c, cmd, flags, bench.Pace)
}

func (c *cli) benchCampaigns() *cobra.Command {
	flags := &bench.CampaignsFlags{}
	cmd := &cobra.Command{
		Use: "campaigns", Short: "Very many campaigns in one daemon, sending or idle",
		Example: "  pacer bench campaigns\n  pacer bench campaigns --idle",
	}
	f := cmd.Flags()
	f.IntVar(&flags.Campaigns, "campaigns", 10_000, "number of campaigns")
	f.StringVar(&flags.Rate, "rate", "5", "jobs per second of each")
	f.IntVar(&flags.Seconds, "seconds", 20, "how long is measured")
	f.BoolVar(&flags.Idle, "idle", false, "without any jobs: what campaigns cost that send nothing")
	return measurement(c, cmd, flags, bench.Campaigns)
}

func (c *cli) benchStorm() *cobra.Command {
	flags := &bench.StormFlags{}
	cmd := &cobra.Command{Use: "storm", Short: "A hundred random changes of a rate in ten seconds, on three daemons"}
	cmd.Flags().Uint64Var(&flags.Seed, "seed", 1, "of the rates and instants; the same seed makes the same storm")
	return measurement(c, cmd, flags, bench.Storm)
}

func (c *cli) benchStall() *cobra.Command {
	flags := &bench.StallFlags{}
	cmd := &cobra.Command{Use: "stall", Short: "The only daemon, and one of three, suspended for two seconds"}
	cmd.Flags().StringVar(&flags.Rate, "rate", "1000", "jobs per second")
	return measurement(c, cmd, flags, bench.Stall)
}

const benchLong = `Runs daemons of this program against the configured Kafka, Redis and PostgreSQL, with topics, keys, a database and
receivers that are created for the measurement and removed afterwards. The figures are counted by the receivers. A bound
that was not met is marked, and the exit code is then 1.`
