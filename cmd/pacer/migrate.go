package main

import (
	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) migrate() *cobra.Command {
	up := &cobra.Command{
		Use: "up", Short: "Create or update the schema and pacer's own topics; changes nothing the second time", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.MigrateUp(cmd.Context(), c.invocation(cmd)) },
	}
	down := &cobra.Command{
		Use: "down", Short: "Undo the newest step of the schema; topics hold jobs and stay", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.MigrateDown(cmd.Context(), c.invocation(cmd)) },
	}
	status := c.withJSON(&cobra.Command{
		Use: "status", Short: "Show the schema and the topics; exit code 1 while something is missing", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.MigrateStatus(cmd.Context(), c.invocation(cmd)) },
	})
	return group("migrate", "Schema and topics", up, down, status)
}

func (c *cli) check() *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use: "check", Short: "Validate the configuration and every connection, one line each", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ready {
				return app.CheckReady(cmd.Context(), c.invocation(cmd))
			}
			return app.Check(cmd.Context(), c.invocation(cmd))
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "only ask the daemon on this machine whether it is ready; cheap, for health checks")
	return cmd
}

func (c *cli) run() *cobra.Command {
	return &cobra.Command{
		Use: "run", Short: "The daemon: deliver jobs until told to stop", Args: noArgs,
		Long: `Takes jobs from Kafka and delivers them. Start as many as needed, on any machines: they share every rate and quota.
Waits for services that cannot be reached. SIGTERM or Ctrl-C: finishes what is under way and exits with 0.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.RunDaemon(cmd.Context(), c.invocation(cmd)) },
	}
}

func (c *cli) version() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Which pacer this is", Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return app.WriteVersion(c.stdout) },
	}
}
