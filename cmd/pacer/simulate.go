package main

import (
	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) simulate() *cobra.Command {
	flags := &app.SimulateFlags{}
	cmd := &cobra.Command{
		Use: "simulate", Short: "Compare rate-limiting algorithms: what each lets through in any second", Args: noArgs,
		Long: `The same jobs through several rate-limiting algorithms, on a virtual clock. There is always a job to send, except
while --idle says that there is none. Shown are the most jobs in any second and in any tenth of one, when the last job
went, and how many went in each second.`,
		Example: `  pacer simulate
  pacer simulate --algorithm fixed-window,slots --idle 2s:900ms --out plots
  pacer simulate --idle "" --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.Simulate(cmd.Context(), c.invocation(cmd), flags)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&flags.Algorithms, "algorithm", nil, "a `NAME`, or several with commas between; may be repeated; all if not given.\n"+
		"The first words of a name do: token-bucket, sliding")
	f.Int64Var(&flags.Rate, "rate", app.DefaultSimulateRate, "the limit, in jobs per second")
	f.Int64Var(&flags.Jobs, "jobs", app.DefaultSimulateJobs, "how many jobs")
	f.StringVar(&flags.Idle, "idle", app.DefaultSimulateIdle, "`PAUSES`: when each begins and how long it lasts; \"\" for none")
	f.StringVar(&flags.Out, "out", "", "write plots into this `DIR`: simulate-overview.svg, and one for each algorithm")
	return c.withJSON(cmd)
}
