package command

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
)

func (c *cli) configCommand() *cobra.Command {
	printing := c.plain("print", "Print every setting in force, without secrets, and where it comes from", c.printConfig)
	printing.Long = `Prints the configuration that the other commands use: defaults, then the file, then the PACER_ variables. FROM is
the line of the file, the variable, or the setting that the value is derived from. Secrets are shown as ***.
The configuration is checked, and nothing is connected to.`
	return group("config", "Configuration: what is in force", printing)
}

func (c *cli) printConfig(context.Context) error {
	settings, warnings, err := config.Settings(c.source())
	if err != nil {
		return withHints(err, warnings)
	}
	note := &printer{w: c.Stderr}
	for _, w := range warnings {
		note.line("pacer: %s", w)
	}
	return c.printTable(settings, func(p *printer) {
		p.line("KEY\tVALUE\tFROM")
		for _, s := range settings {
			p.line("%s\t%s\t%s", s.Key, cmp.Or(visible(s.Value), "-"), s.From)
		}
	})
}
