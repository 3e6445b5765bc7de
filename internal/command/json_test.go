package command

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// withoutJSON are the commands that print nothing an operator would parse: they log, as JSON with log.format, or are looked at.
var withoutJSON = []string{"pacer", "pacer run", "pacer console", "pacer receiver"}

// TestEveryCommandPrintsJSON: a command that is no group has --json, or is named above.
func TestEveryCommandPrintsJSON(t *testing.T) {
	var seen []string
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		name := cmd.CommandPath()
		seen = append(seen, name)
		has, needs := cmd.Flags().Lookup("json") != nil, !slices.Contains(withoutJSON, name)
		isGroup := strings.HasPrefix(name, "pacer ") && cmd.HasSubCommands() && !has
		if !isGroup && has != needs {
			t.Errorf("%s: --json %v, want %v", name, has, needs)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk((&cli{}).root())
	if len(seen) < 30 {
		t.Errorf("only %d commands", len(seen))
	}
	for _, name := range withoutJSON {
		if !slices.Contains(seen, name) {
			t.Errorf("there is no %s", name)
		}
	}
}
