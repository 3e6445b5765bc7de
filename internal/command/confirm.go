package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pacer/pacer/internal/config"
)

func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVar(yes, "yes", false, "do not ask before something that cannot be undone")
}

// confirm asks before something that cannot be undone, or only in part: which of many campaigns were paused before is lost. Without a
// terminal, --yes is required.
func (c *cli) confirm(ctx context.Context, yes bool, what string) error {
	if yes {
		return nil
	}
	if f, ok := c.Stdin.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return config.Usagef("give --yes to %s: there is no terminal to ask on", what)
	}
	return confirmOn(ctx, c.Stdin, c.Stderr, what)
}

// confirmOn asks on a terminal. The error is nil if the answer is yes.
func confirmOn(ctx context.Context, in io.Reader, out io.Writer, what string) error {
	if _, err := fmt.Fprintf(out, "%s%s? [y/N] ", strings.ToUpper(what[:1]), what[1:]); err != nil {
		return fmt.Errorf("ask for confirmation: %w", err)
	}
	answer := make(chan string, 1)
	go func() { // ends with the process if there is no answer
		line, _ := bufio.NewReader(in).ReadString('\n') // what was read so far counts
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case said := <-answer:
		if said == "y" || said == "yes" {
			return nil
		}
	case <-ctx.Done():
	}
	return errors.New("nothing was done")
}
