// Command pacer delivers jobs from Kafka at the pace that their campaigns and the quotas of their destinations allow.
// This package catches signals and ends the process; the commands are in internal/command.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/pacer/pacer/internal/command"
)

func main() { os.Exit(run()) }

// run executes the command line and returns the exit code.
func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks to finish; a second one must not be swallowed while that takes its time.
	defer context.AfterFunc(ctx, stop)()
	return command.Run(ctx, os.Args[1:], command.World{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(),
	})
}
