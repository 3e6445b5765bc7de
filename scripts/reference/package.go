package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra/doc"

	"github.com/pacer/pacer/internal/command"
)

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
