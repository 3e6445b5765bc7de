// Command bench measures pacer from outside: it runs daemons as processes on real services, lets them send to its own
// receivers, and compares what arrived with bounds. docs/measured.md has the results.
//
// The exit code is 1 if a bound was not met.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	if !ok {
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// run makes one measurement and prints its report. It reports whether all bounds were met.
func run(ctx context.Context, args []string) (bool, error) {
	if len(args) == 0 {
		return false, fmt.Errorf("which measurement? pace, campaigns, storm or stall")
	}
	o := &Options{Daemon: os.Getenv("PACER_BIN"), Environ: os.Environ(), Stderr: os.Stderr}
	f := flag.NewFlagSet("bench "+args[0], flag.ExitOnError)
	f.StringVar(&o.Config, "config", "", "configuration `file` of the services; PACER_… variables take precedence")
	asJSON := f.Bool("json", false, "print JSON")
	measure, err := measurement(ctx, o, args[0], f)
	if err != nil {
		return false, err
	}
	_ = f.Parse(args[1:]) // it exits
	if f.NArg() > 0 {
		return false, fmt.Errorf("%s takes no arguments, got %q", args[0], f.Args())
	}
	report, err := measure()
	if err != nil {
		return false, err
	}
	if *asJSON {
		return report.OK, json.NewEncoder(os.Stdout).Encode(report)
	}
	fmt.Print(report)
	return report.OK, nil
}

// measurement adds the flags of a measurement and returns its function.
func measurement(ctx context.Context, o *Options, name string, f *flag.FlagSet) (func() (*Report, error), error) {
	switch name {
	case "pace":
		flags := &PaceFlags{Rates: DefaultRates, Daemons: []int{1, 3}}
		f.Func("rates", "jobs per second, one or several with commas between (default "+strings.Join(DefaultRates, ",")+")", func(text string) error {
			flags.Rates = strings.Split(text, ",")
			return nil
		})
		f.Func("daemons", "how many daemons share the work, one number or several (default 1,3)", func(text string) error {
			flags.Daemons = nil
			for n := range strings.SplitSeq(text, ",") {
				daemons, err := strconv.Atoi(n)
				if err != nil {
					return err
				}
				flags.Daemons = append(flags.Daemons, daemons)
			}
			return nil
		})
		f.IntVar(&flags.Seconds, "seconds", 10, "how long each rate above 150/s is measured")
		f.IntVar(&flags.SlowSeconds, "slow-seconds", 60, "how long the others are measured, all at once")
		f.StringVar(&flags.Sink, "sink", "", "http, or discard, which only records what it gets (default http up to 10,000/s)")
		return func() (*Report, error) { return Pace(ctx, o, flags) }, nil
	case "campaigns":
		flags := &CampaignsFlags{}
		f.IntVar(&flags.Campaigns, "campaigns", 10_000, "number of campaigns")
		f.StringVar(&flags.Rate, "rate", "5", "jobs per second of each")
		f.IntVar(&flags.Seconds, "seconds", 20, "how long is measured")
		f.BoolVar(&flags.Idle, "idle", false, "without any jobs: what campaigns cost that send nothing")
		return func() (*Report, error) { return Campaigns(ctx, o, flags) }, nil
	case "storm":
		seed := f.Uint64("seed", 1, "of the rates and instants; the same seed makes the same storm")
		return func() (*Report, error) { return Storm(ctx, o, *seed) }, nil
	case "stall":
		rate := f.String("rate", "1000", "jobs per second")
		return func() (*Report, error) { return Stall(ctx, o, *rate) }, nil
	}
	return nil, fmt.Errorf("no measurement %q; there are pace, campaigns, storm and stall", name)
}
