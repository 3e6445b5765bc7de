// Package command contains the commands of pacer: their flags, what they do, and how they print the result.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/notation"
)

// World is the environment of the process.
type World struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Environ        []string
}

// Run executes one command line and returns the exit code: 0 done or drained, 1 a check or operation failed, 2 bad
// configuration or arguments.
func Run(ctx context.Context, args []string, w World) int {
	log.SetOutput(io.Discard) // net/http writes there what destinations say, as often as they like
	c := &cli{World: w}
	root := c.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	for _, end := range c.atEnd {
		end()
	}
	if errors.Is(ctx.Err(), context.Canceled) && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted") // whatever was being asked
	}
	if err != nil && !c.started {
		err = config.UsageError{Err: err} // cobra rejected the command line before any command began
	}
	if err != nil && !errors.Is(err, ErrNotOK) {
		// There is no remedy for a failing stderr.
		_, _ = fmt.Fprintf(w.Stderr, "pacer: %s\n", oneLine(err.Error()))
	}
	return ExitCode(err)
}

// oneLine joins the lines of an error's text.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// cli is the state of one command line.
type cli struct {
	World
	config    string           // of --config
	configSet bool             // --config was given, so the file must exist
	version   bool             // --version
	json      bool             // --json
	server    server           // --server and --token
	needs     []config.Section // of a command that asks the API in this process
	who       string           // who it is for, where that is to be logged
	api       *client          // of the API; nil: it was not asked yet
	started   bool             // a command began: flags and arguments were valid
	atEnd     []func()
}

// Root returns the command line, for what is made from it.
func Root() *cobra.Command { return (&cli{}).root() }

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pacer",
		Short: "Deliver jobs from Kafka at the pace that campaigns and quotas allow",
		Long: `pacer delivers jobs from Kafka to destinations, no faster than each campaign's send_rate and no faster
than the shared quotas of a destination allow, over any number of daemons, and never drops one.

New here? Run: pacer demo`,
		SilenceErrors: true, SilenceUsage: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return noCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.version {
				return c.printVersion(cmd.Context())
			}
			return errors.New("which command? pacer --help lists them")
		},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			if slices.Contains(args, "") {
				return fmt.Errorf("an argument is empty; use %s", cmd.UseLine())
			}
			c.started, c.configSet = cmd.HasParent(), cmd.Flags().Changed("config")
			return nil
		},
	}
	root.SetIn(c.Stdin)
	root.SetOut(c.Stdout)
	root.SetErr(c.Stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().StringVar(&c.config, "config", "pacer.yaml", "configuration file; PACER_… variables take precedence")
	root.Flags().BoolVar(&c.version, "version", false, "print the version")
	root.SetHelpCommand(help())
	root.AddCommand(c.run(), c.consoleCommand(), c.demo(), c.migrate(), c.check(), c.configCommand(), c.campaign(), c.explain(), c.plan(), c.quota(), c.key(), c.job(), c.sink(), c.destination(), c.publish(), c.dead(),
		c.receiver(), c.simulate(), c.top(), c.versionCommand())
	return root
}

// help is `pacer help`, which prints the help of a command.
func help() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if len(rest) > 0 {
				return config.UsageError{Err: noCommand(about, rest[0])}
			}
			if err != nil {
				return err
			}
			return about.Help()
		},
	}
}

// noCommand says that a command does not exist, and which there are.
func noCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, sub := range parent.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	has := ""
	switch {
	case !parent.HasParent():
		has = "pacer --help lists them"
	case len(names) > 0:
		has = "it has " + strings.Join(names, ", ")
	}
	hints := strings.TrimRight("; "+has, "; ")
	return fmt.Errorf("%s has no command %q%s", parent.CommandPath(), notation.Shorten(name), hints)
}

// group makes a command that only contains others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noCommand(cmd, args[0])
			}
			names := make([]string, 0, len(commands))
			for _, sub := range commands {
				names = append(names, sub.Name())
			}
			return fmt.Errorf("%s needs one of %s", cmd.CommandPath(), strings.Join(names, ", "))
		},
		RunE: func(*cobra.Command, []string) error { return nil }, // Args has rejected the command line
	}
	cmd.AddCommand(commands...)
	return cmd
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// bare makes a command without arguments.
func bare(name, short string, run func(context.Context) error) *cobra.Command {
	return &cobra.Command{
		Use: name, Short: short, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	}
}

// plain makes a command without arguments, with --json.
func (c *cli) plain(name, short string, run func(context.Context) error) *cobra.Command {
	return c.withJSON(bare(name, short, run))
}

// ofID makes a command about one id, with --json.
func (c *cli) ofID(name, short string, run func(ctx context.Context, id string) error) *cobra.Command {
	return c.of(name+" ID", short, "exactly one id", func(ctx context.Context, args []string) error { return run(ctx, args[0]) })
}

// of makes a command about what its arguments name, which use lists behind its own name, with --json. needs is what it says without them.
func (c *cli) of(use, short, needs string, run func(ctx context.Context, args []string) error) *cobra.Command {
	return c.withJSON(&cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != strings.Count(use, " ") {
				return fmt.Errorf("%s needs %s, got %d arguments", cmd.CommandPath(), needs, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return run(cmd.Context(), args) },
	})
}

// withJSON adds --json.
func (c *cli) withJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	return cmd
}
