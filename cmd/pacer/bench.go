package main

import (
	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) bench() *cobra.Command {
	flags := &app.BenchPaceFlags{}
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

Without one of the commands below, one rate is measured.`
	parts.Example = "  pacer bench --rate 1000 --daemons 3 --json\n  pacer bench pace"
	parts.RunE = func(cmd *cobra.Command, _ []string) error {
		flags.Rates, flags.Daemons, flags.SlowSeconds = []string{rate}, []int{daemons}, flags.Seconds
		return app.BenchStream(cmd.Context(), c.invocation(cmd), flags)
	}
	f := parts.Flags()
	f.StringVar(&rate, "rate", "1000", "jobs per second")
	f.IntVar(&daemons, "daemons", 1, "how many daemons share the work")
	f.IntVar(&flags.Seconds, "seconds", 10, "how long is measured")
	f.StringVar(&flags.Sink, "sink", "", benchSinkUsage)
	return c.withJSON(parts)
}

const benchSinkUsage = "http, or discard, which only writes down what it gets; http up to 10,000/s if not given"

func (c *cli) benchPace() *cobra.Command {
	flags := &app.BenchPaceFlags{}
	cmd := &cobra.Command{
		Use: "pace", Short: "How exactly and how evenly rates are kept, by one daemon and by several", Args: noArgs,
		Long: benchLong + `

Rates up to 150 per second share one window of --slow-seconds; each faster one has a window of --seconds for itself.`,
		Example: "  pacer bench pace\n  pacer bench pace --rates 1000 --daemons 3 --seconds 5 --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.BenchPace(cmd.Context(), c.invocation(cmd), flags)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&flags.Rates, "rates", app.DefaultBenchRates, "jobs per second, one `RATE` or several with commas between")
	f.IntSliceVar(&flags.Daemons, "daemons", []int{1, 3}, "how many daemons share the work, one number or several")
	f.IntVar(&flags.Seconds, "seconds", 10, "how long each rate above 150/s is measured")
	f.IntVar(&flags.SlowSeconds, "slow-seconds", 60, "how long the others are measured, all at once")
	f.StringVar(&flags.Sink, "sink", "", benchSinkUsage)
	return c.withJSON(cmd)
}

func (c *cli) benchCampaigns() *cobra.Command {
	flags := &app.BenchCampaignsFlags{}
	cmd := &cobra.Command{
		Use: "campaigns", Short: "Very many campaigns in one daemon, sending or idle", Args: noArgs, Long: benchLong,
		Example: "  pacer bench campaigns\n  pacer bench campaigns --idle",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.BenchCampaigns(cmd.Context(), c.invocation(cmd), flags)
		},
	}
	f := cmd.Flags()
	f.IntVar(&flags.Campaigns, "campaigns", 10_000, "how many")
	f.StringVar(&flags.Rate, "rate", "5", "jobs per second of each")
	f.IntVar(&flags.Seconds, "seconds", 20, "how long is measured")
	f.BoolVar(&flags.Idle, "idle", false, "without any jobs: what campaigns cost that send nothing")
	return c.withJSON(cmd)
}

func (c *cli) benchStorm() *cobra.Command {
	flags := &app.BenchStormFlags{}
	cmd := &cobra.Command{
		Use: "storm", Short: "A hundred random changes of a rate in ten seconds, on three daemons", Args: noArgs, Long: benchLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.BenchStorm(cmd.Context(), c.invocation(cmd), flags)
		},
	}
	cmd.Flags().Uint64Var(&flags.Seed, "seed", 1, "of the rates and instants; the same seed makes the same storm")
	return c.withJSON(cmd)
}

func (c *cli) benchStall() *cobra.Command {
	flags := &app.BenchStallFlags{}
	cmd := &cobra.Command{
		Use: "stall", Short: "The only daemon, and one of three, suspended for two seconds", Args: noArgs, Long: benchLong,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.BenchStall(cmd.Context(), c.invocation(cmd), flags)
		},
	}
	cmd.Flags().StringVar(&flags.Rate, "rate", "1000", "jobs per second")
	return c.withJSON(cmd)
}

const benchLong = `Runs daemons of this program against the configured Kafka, Redis and PostgreSQL, with topics, keys, a database and
receivers that are made for the measurement and removed after it. What is printed was counted by the receivers. A bound
that was not met is marked, and the exit code is 1.`
