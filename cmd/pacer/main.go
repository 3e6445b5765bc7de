// Command pacer delivers jobs from Kafka at the pace that their campaigns and the quotas of their destinations allow.
// This package reads flags, catches signals and chooses exit codes; what the commands do is in internal/app.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/pacer/pacer/internal/app"
)

// world is what the process was started with.
type world struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
}

func main() {
	os.Exit(run(os.Args[1:], world{os.Stdin, os.Stdout, os.Stderr, os.Environ()}))
}

// run executes one command line and returns the exit code.
func run(args []string, w world) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks to finish; a second one must not be swallowed while that takes its time.
	defer context.AfterFunc(ctx, stop)()

	c := &cli{world: w}
	root := c.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && !c.started {
		err = app.UsageError{Err: err} // cobra refused the command line before any command began
	}
	if err != nil && !errors.Is(err, app.ErrNotOK) {
		// Nothing can be done about a stderr that cannot be written to.
		_, _ = fmt.Fprintf(w.stderr, "pacer: %s\n", oneLine(err.Error()))
	}
	return app.ExitCode(err)
}

// oneLine keeps an error within a line, whatever it wraps.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

// cli is the state of one command line.
type cli struct {
	world
	config  string
	json    bool
	started bool // a command began: flags and arguments were fine
}

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "pacer",
		Short: "Deliver jobs from Kafka at the pace that campaigns and quotas allow",
		Long: `pacer delivers jobs from Kafka to HTTP endpoints, no faster than each campaign's send_rate and no faster
than the shared quotas of a destination allow, over any number of daemons, and never drops one.

New here? Run: pacer demo`,
		SilenceErrors: true, SilenceUsage: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("there is no command %q; pacer --help lists them", args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return errors.New("which command? pacer --help lists them")
		},
		PersistentPreRun: func(cmd *cobra.Command, _ []string) { c.started = cmd.HasParent() },
	}
	root.SetIn(c.stdin)
	root.SetOut(c.stdout)
	root.SetErr(c.stderr)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().StringVar(&c.config, "config", "pacer.yaml", "configuration file; PACER_… variables win over it")
	root.AddCommand(c.run(), c.demo(), c.migrate(), c.check(), c.campaign(), c.quota(), c.publish(), c.dead(), c.bench(), c.simulate(), c.top(), c.version())
	return root
}

// flagError words what is wrong with a flag. What strconv says of a number is for programmers.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	if errors.As(err, &invalid) && errors.As(err, &number) {
		must := "must be a whole number"
		switch {
		case errors.Is(err, strconv.ErrRange):
			must = "is out of range"
		case number.Func == "ParseBool":
			must = "must be true or false"
		}
		err = fmt.Errorf("--%s %q %s", invalid.GetFlag().Name, invalid.GetValue(), must)
	}
	return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
}

// invocation is what a command may know of the world.
func (c *cli) invocation(cmd *cobra.Command) app.Invocation {
	return app.Invocation{
		ConfigPath: c.config, ConfigSet: cmd.Flags().Changed("config"), Environ: c.environ,
		Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr, JSON: c.json, Progress: isTerminal(c.stderr),
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			names := make([]string, 0, len(commands))
			for _, sub := range commands {
				names = append(names, sub.Name())
			}
			if len(args) > 0 {
				return fmt.Errorf("%s has no command %q; it has %s", cmd.CommandPath(), args[0], strings.Join(names, ", "))
			}
			return fmt.Errorf("%s needs one of %s", cmd.CommandPath(), strings.Join(names, ", "))
		},
		RunE: func(*cobra.Command, []string) error { return nil }, // Args has refused
	}
	cmd.AddCommand(commands...)
	return cmd
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args[0])
	}
	return nil
}

// oneID wants exactly one id.
func oneID(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs exactly one id, got %d arguments", cmd.CommandPath(), len(args))
	}
	return nil
}

// withJSON adds --json.
func (c *cli) withJSON(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().BoolVar(&c.json, "json", false, "print JSON")
	return cmd
}
