package command

import (
	"context"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) versionCommand() *cobra.Command {
	return c.plain("version", "Print the version", c.printVersion)
}

// version is the version of pacer, with what the build recorded.
type version struct {
	Version  string `json:"version"`
	Go       string `json:"go,omitempty"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the work tree had changes
}

func versionOf() version {
	v := version{Version: app.Version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = info.GoVersion
	if v.Version == "dev" && info.Main.Version != "" && info.Main.Version != "(devel)" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

func (c *cli) printVersion(context.Context) error {
	v := versionOf()
	parts := []string{"pacer " + v.Version}
	if v.Go != "" {
		parts = append(parts, v.Go)
	}
	if v.Commit != "" {
		parts = append(parts, "commit "+v.Commit+map[bool]string{true: " (modified)"}[v.Modified])
	}
	return c.print(v, func(p *printer) { p.line("%s", strings.Join(parts, ", ")) })
}
