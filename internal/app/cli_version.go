package app

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"
)

// Version is set by the linker; a binary built without that takes its module's version.
var Version = "dev"

// WriteVersion writes which pacer this is: version, Go version and commit, as far as they are known.
func WriteVersion(w io.Writer) error {
	version := Version
	info, ok := debug.ReadBuildInfo()
	if !ok {
		_, err := fmt.Fprintf(w, "pacer %s\n", version)
		return err
	}
	if version == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	parts := []string{"pacer " + version, info.GoVersion}
	var commit, dirty string
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = "commit " + s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				dirty = " (modified)"
			}
		}
	}
	if commit != "" {
		parts = append(parts, commit+dirty)
	}
	_, err := fmt.Fprintln(w, strings.Join(parts, ", "))
	return err
}
