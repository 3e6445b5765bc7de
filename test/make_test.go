package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// TestWhatIsLeftOutUnderTheRaceDetectorRuns: `make test` also runs without it the tests that are left out or shorter there, by
// themselves or by a function that they call.
func TestWhatIsLeftOutUnderTheRaceDetectorRuns(t *testing.T) {
	t.Parallel()
	list := func(what string) string {
		out, err := exec.Command("../scripts/unraced.sh", what).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	runs := regexp.MustCompile(list("tests"))
	found := 0
	for _, folder := range strings.Fields(list("packages")) {
		for _, test := range leftOut(t, filepath.Join("..", folder)) {
			if found++; !runs.MatchString(test) {
				t.Errorf("%s of %s is shorter under the race detector and runs nowhere else", test, folder)
			}
		}
	}
	if found == 0 {
		t.Error("no tests")
	}
}

// leftOut lists the tests of a folder that ask whether the race detector watches.
func leftOut(t *testing.T, folder string) (tests []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	uses := map[string]map[string]bool{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			names := map[string]bool{}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok {
					names[id.Name] = true
				}
				return true
			})
			uses[f.Name.Name] = names
		}
	}
	asks := map[string]bool{"Simulation": true, "Raced": true}
	for more := true; more; {
		more = false
		for f, names := range uses {
			for name := range names {
				if asks[name] && !asks[f] && f != "TestMain" {
					asks[f], more = true, true
				}
			}
		}
	}
	for f := range asks {
		if strings.HasPrefix(f, "Test") {
			tests = append(tests, f)
		}
	}
	return tests
}
