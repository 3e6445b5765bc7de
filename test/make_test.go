package test

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// TestMakeDemoPrintsNothingOfItsOwn: what `make demo ARGS=--json` prints is JSON alone, so that no recipe on its way is
// echoed.
func TestMakeDemoPrintsNothingOfItsOwn(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	recipes := map[string][]string{}
	needs := map[string][]string{}
	target := ""
	for line := range strings.Lines(string(text)) {
		if recipe, ok := strings.CutPrefix(line, "\t"); ok {
			recipes[target] = append(recipes[target], recipe)
			continue
		}
		if name, rest, ok := strings.Cut(line, ":"); ok && !strings.Contains(name, " ") {
			rest, _, _ = strings.Cut(rest, "#")
			target, needs[name] = name, strings.Fields(rest)
		}
	}
	for _, name := range append(needs["demo"], "demo") {
		if len(recipes[name]) == 0 {
			t.Errorf("make %s has no recipe", name)
		}
		for _, recipe := range recipes[name] {
			if !strings.HasPrefix(recipe, "@") {
				t.Errorf("make %s echoes %s", name, recipe)
			}
		}
	}
}

// TestWhatIsLeftOutUnderTheRaceDetectorRuns: a package with a test that is left out or shorter there is one of those that
// `make test` also tests without it.
func TestWhatIsLeftOutUnderTheRaceDetectorRuns(t *testing.T) {
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nSIMULATIONS := ")
	list, _, _ := strings.Cut(rest, "\n")
	twice := func(dir string) bool {
		for _, pattern := range strings.Fields(list) {
			root, all := strings.CutSuffix(strings.TrimPrefix(pattern, "./"), "/...")
			if dir == root || all && strings.HasPrefix(dir, root+"/") {
				return true
			}
		}
		return false
	}
	found := 0
	repository := os.DirFS("..")
	err = fs.WalkDir(repository, "internal", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(file, "_test.go") {
			return err
		}
		source, err := fs.ReadFile(repository, file)
		if err != nil {
			return err
		}
		if strings.Contains(string(source), "harness.Simulation(") || strings.Contains(string(source), "harness.Raced") {
			found++
			if !twice(path.Dir(file)) {
				t.Errorf("%s is shorter under the race detector, but not in SIMULATIONS of the Makefile", file)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d files, %v", found, err)
	}
}
