package test

import (
	"os"
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
