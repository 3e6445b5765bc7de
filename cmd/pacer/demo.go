package main

import (
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) demo() *cobra.Command {
	options := app.DemoOptions{Stdout: c.stdout, Stderr: c.stderr}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Watch campaigns being paced, with nothing to install",
		Long: `Everything in this process: a Kafka broker, a Redis, a destination that receives, and two daemons that share
seven campaigns. At the end the destination and the broker are asked what became of every job.
Exit code 1 if a job was lost or a limit broken.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, _, err := net.SplitHostPort(options.Listen); err != nil && options.Listen != "" {
				return app.UsageError{Err: fmt.Errorf("--listen %q is not host:port; use one such as 127.0.0.1:8080, or \"\" for none", options.Listen)}
			}
			options.JSON, options.Terminal = c.json, isTerminal(c.stdout)
			report, err := app.Demo(cmd.Context(), options)
			if err == nil && !report.OK {
				err = app.ErrNotOK
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&options.Duration, "duration", app.DefaultDemoDuration, "how long to send")
	cmd.Flags().StringVar(&options.Listen, "listen", "127.0.0.1:8080", "address of /metrics, /healthz and /readyz; \"\" for none")
	return c.withJSON(cmd)
}
