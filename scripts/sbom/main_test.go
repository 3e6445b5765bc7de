package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"testing"
)

// TestTheDocumentIsOfTheProgram: it has each module that Go has noted in the program, once, and nothing else.
func TestTheDocumentIsOfTheProgram(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program := cmp.Or(os.Getenv("PACER_BIN"), self)
	if _, err := os.Stat(program); err != nil {
		program = self // nothing is built yet
	}
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "sbom.json")
	if err := run(program, to, "1.2.3"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{}
	for _, c := range d.Components {
		listed[c.Name] = c.Version
	}
	want := map[string]string{"std": info.GoVersion[len("go"):]}
	for _, m := range info.Deps {
		want[m.Path] = m.Version
	}
	if !reflect.DeepEqual(listed, want) || len(d.Components) != len(want) || len(d.Dependencies) != 1 || len(d.Dependencies[0].DependsOn) != len(want) {
		t.Errorf("the document lists %v, and the program has %v", listed, want)
	}
	if main := d.Metadata.Component; main.Name != info.Main.Path || main.Version != "1.2.3" || len(main.Hashes) != 1 || len(main.Hashes[0].Content) != 64 {
		t.Errorf("the program is %+v", main)
	}
}

// TestModulesAreNamedAsOthersLookThemUp: what looks for vulnerabilities goes by these.
func TestModulesAreNamedAsOthersLookThemUp(t *testing.T) {
	d := describe(&debug.BuildInfo{
		GoVersion: "go1.26.1", Main: debug.Module{Path: "github.com/pacer/pacer", Version: "v1.2.3"},
		Settings: []debug.BuildSetting{{Key: "vcs.time", Value: "2026-11-25T10:00:00Z"}, {Key: "GOOS", Value: "linux"}, {Key: "-ldflags", Value: "-X secret=1"}},
		Deps: []*debug.Module{
			{Path: "github.com/BurntSushi/toml", Version: "v1.5.0", Sum: "h1:x"}, {Path: "github.com/a/old", Version: "v2.0.0+incompatible"},
			{Path: "github.com/a/b", Version: "v1.0.0", Replace: &debug.Module{Path: "github.com/c/b", Version: "v1.0.1"}},
		},
	}, "00")
	want := []string{"pkg:golang/std@1.26.1", "pkg:golang/github.com/burntsushi/toml@v1.5.0", "pkg:golang/github.com/a/old@v2.0.0%2Bincompatible", "pkg:golang/github.com/c/b@v1.0.1"}
	if got := d.Dependencies[0].DependsOn; !reflect.DeepEqual(got, want) {
		t.Errorf("the modules are %q, want %q", got, want)
	}
	if main := d.Metadata.Component; main.PURL != "pkg:golang/github.com/pacer/pacer@v1.2.3" || len(main.Properties) != 1 || d.Metadata.Timestamp == "" {
		t.Errorf("the program is %+v", main)
	}
}

// TestWhatIsNoProgramIsRefused, and no document is written.
func TestWhatIsNoProgramIsRefused(t *testing.T) {
	to := filepath.Join(t.TempDir(), "sbom.json")
	if err := run("main.go", to, ""); err == nil {
		t.Error("main.go was taken for a program")
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a document was written")
	}
}
