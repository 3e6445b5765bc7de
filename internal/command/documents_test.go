package command

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// commandWritten finds where documents say a command: between backticks, and at the begin of a line.
var (
	subcommandName = regexp.MustCompile(`^[a-z]+$`)
	commandWritten = regexp.MustCompile("(?m)`(?:bin/)?pacer ([a-z][^`]*)`|^ *(?:bin/)?pacer ([a-z].*)$")
)

// TestDocumentsNameCommandsThatExist holds each command of the documents against the program: its name, and the names of its flags.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	root := (&cli{}).root()
	root.InitDefaultCompletionCmd()
	checked := 0
	check := func(path string) {
		text := try(os.ReadFile(path))(t)
		for _, found := range commandWritten.FindAllStringSubmatch(string(text), -1) {
			line, inBlock := found[1], found[1] == ""
			if inBlock {
				line = found[2]
			}
			words := strings.Fields(strings.NewReplacer("; ", " | ", "# ", "| # ", "` ", "| ").Replace(line))
			cmd, rest, err := root.Find(words)
			if inBlock && cmd == root { // the line is prose
				continue
			}
			if err != nil || cmd.HasSubCommands() && len(rest) > 0 && subcommandName.MatchString(rest[0]) {
				t.Errorf("%s: %s has no command %s", path, cmd.CommandPath(), line)
			}
			for _, argument := range rest {
				if strings.ContainsAny(argument[:1], "|>&") {
					break
				}
				name, isFlag := strings.CutPrefix(argument, "--")
				name, _, _ = strings.Cut(name, "=")
				if cmd.InitDefaultHelpFlag(); isFlag && cmd.Flag(name) == nil {
					t.Errorf("%s: %s has no --%s", path, cmd.CommandPath(), name)
				}
			}
			checked++
		}
	}
	check("../../README.md")
	err := filepath.WalkDir("../../docs", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			check(path)
		}
		return err
	})
	if err != nil || checked < 200 {
		t.Errorf("%d commands were found: %v", checked, err)
	}
}
