package command

import (
	"cmp"
	"context"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/demo"
)

func (c *cli) run() *cobra.Command {
	cmd := bare("run", "The daemon: deliver jobs until told to stop", c.runDaemon)
	cmd.Long = `Reads jobs from Kafka and delivers them. Start as many daemons as needed, on any machines: they share every rate and
quota. Waits for services that cannot be reached. On SIGTERM or Ctrl-C it finishes the jobs in flight and exits with 0. On
SIGHUP it reads certificates and secrets again; it also does so by itself when their files change.`
	return cmd
}

// runDaemon is `pacer run`. It returns nil after a graceful stop.
func (c *cli) runDaemon(ctx context.Context) error {
	s, err := c.services(config.NeedTopics, config.NeedRedis, config.NeedPostgres, config.NeedSinks, config.NeedServer)
	if err != nil {
		return err
	}
	defer s.Close()
	return onHangup(ctx, s.RunDaemon)
}

// onHangup runs what reads certificates and secrets again on SIGHUP.
func onHangup(ctx context.Context, run func(context.Context, <-chan os.Signal) error) error {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	return run(ctx, hangup)
}

func (c *cli) consoleCommand() *cobra.Command {
	var listen string
	cmd := bare("console", "The console of an installation, in a process of its own", func(ctx context.Context) error {
		s, err := c.services(config.NeedRedis, config.NeedPostgres, config.NeedServer)
		if err != nil {
			return err
		}
		defer s.Close()
		if len(s.Config.Kafka.Brokers) > 0 {
			if err := s.Config.Fault(config.NeedKafka); err != nil {
				return config.UsageError{Err: err}
			}
			if err := s.OpenKafka(); err != nil {
				return err
			}
		}
		http := &s.Config.HTTP
		if err := checkListen(listen); err != nil {
			return err
		}
		if http.Listen = cmp.Or(listen, http.Listen); http.Listen == "" {
			return config.Usagef("http.listen is off; name an address with --listen, such as 127.0.0.1:8080")
		}
		return onHangup(ctx, s.RunConsole)
	})
	cmd.Long = `Serves the pages and the API that every daemon serves as well, without taking part in the work: it needs PostgreSQL and Redis,
and Kafka only for dead letters. On SIGHUP it reads certificates and secrets again, as pacer run does.`
	cmd.Flags().StringVar(&listen, "listen", "", "address, instead of http.listen")
	return cmd
}

// checkListen checks the flag of an address; "" is none.
func checkListen(address string) error {
	if _, _, err := net.SplitHostPort(address); err != nil && address != "" {
		return config.Usagef("--listen %q is not host:port; use one such as 127.0.0.1:8080", address)
	}
	return nil
}

func (c *cli) demo() *cobra.Command {
	options := demo.Options{Stdout: c.Stdout, Stderr: c.Stderr}
	cmd := c.plain("demo", "Watch campaigns being paced, with nothing to install", func(ctx context.Context) error {
		if err := checkListen(options.Listen); err != nil {
			return err
		}
		options.JSON, options.Terminal = c.json, isTerminal(c.Stdout)
		report, err := demo.Run(ctx, options)
		if err != nil {
			return err
		}
		if err = c.print(report, func(p *printer) { p.line("%s", strings.TrimSuffix(report.Text(), "\n")) }); err == nil && !report.OK {
			err = ErrNotOK
		}
		return err
	})
	cmd.Long = `Runs everything in this process: a Kafka broker, a Redis, a receiver, and two daemons that share seven campaigns.
At the end the outcome of every job is read from the receiver and the broker.
Exit code 1 if a job was lost or a limit exceeded.`
	spanVar(cmd.Flags(), &options.Duration, "duration", demo.DefaultDuration, "how long to send")
	cmd.Flags().StringVar(&options.Listen, "listen", "127.0.0.1:8080", "address of /metrics, /healthz and /readyz; \"\" for none")
	return cmd
}
