package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/pacer/pacer/internal/command"
)

// commands is the page of all commands, in Markdown: docs/reference/commands.md.
func commands() []byte {
	var page bytes.Buffer
	page.WriteString("# Commands\n\nGenerated from the program by `make reference`; `--help` prints the same. Every command also has `--config FILE`, by\n" +
		"default `pacer.yaml`; `PACER_…` variables take precedence ([configuration.md](../configuration.md)). Exit codes: 0 done, 1 a check or\n" +
		"an operation failed, also because what the command is about does not exist, 2 bad configuration or arguments.\n")
	root := command.Root()
	root.InitDefaultCompletionCmd()
	eachCommand(root, func(cmd *cobra.Command) {
		about := cmd.Long
		if about == "" {
			about = cmd.Short + "."
		}
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n```\n%s\n", cmd.CommandPath(), about, cmd.UseLine())
		if flags := cmd.NonInheritedFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(&page, "\n%s", flags)
		}
		page.WriteString("```\n")
		if cmd.Example != "" {
			fmt.Fprintf(&page, "\nExamples:\n\n```\n%s\n```\n", cmd.Example)
		}
	})
	return page.Bytes()
}

// eachCommand visits the commands that do something, in the order of the help.
func eachCommand(cmd *cobra.Command, visit func(*cobra.Command)) {
	if group := strings.HasPrefix(cmd.CommandPath(), "pacer ") && cmd.HasSubCommands() && cmd.NonInheritedFlags().Lookup("json") == nil; !group {
		cmd.InitDefaultHelpFlag()
		visit(cmd)
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" {
			eachCommand(sub, visit)
		}
	}
}

// packageFiles writes what packages contain beside the program: man pages into man/, completions of shells into completions/.
func packageFiles(dir string) error {
	root := command.Root()
	root.DisableAutoGenTag = true
	man, completions := filepath.Join(dir, "man"), filepath.Join(dir, "completions")
	for _, d := range []string{man, completions} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			return fmt.Errorf("make a folder: %w", err)
		}
	}
	if err := doc.GenManTree(root, &doc.GenManHeader{Title: "PACER", Section: "1", Source: "pacer", Manual: "pacer"}, man); err != nil {
		return fmt.Errorf("write man pages: %w", err)
	}
	for name, write := range map[string]func(string) error{
		"pacer.bash": func(to string) error { return root.GenBashCompletionFileV2(to, true) },
		"_pacer":     root.GenZshCompletionFile,
		"pacer.fish": func(to string) error { return root.GenFishCompletionFile(to, true) },
	} {
		if err := write(filepath.Join(completions, name)); err != nil {
			return fmt.Errorf("write completions: %w", err)
		}
	}
	return nil
}
