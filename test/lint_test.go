package test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// leaves are the packages that all others may import.
var leaves = []string{"delivery", "limits/model", "broker", "record", "retry", "shards", "notation", "hold", "measure", "metric", "harness"}

// Every package below internal/ has a rule for what it may import, so that a new one cannot be forgotten.
func TestEveryPackageHasAnImportRule(t *testing.T) {
	text, err := os.ReadFile("../.golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						Mode  string `yaml:"list-mode"`
						Files []string
						Allow []string
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("../internal")
	if err != nil {
		t.Fatal(err)
	}
	rules := config.Linters.Settings.Depguard.Rules
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() {
			continue
		}
		if rule, ok := rules[name]; !ok || !slices.Contains(rule.Files, "**/internal/"+name+"/**") {
			t.Errorf("internal/%s has no import rule in .golangci.yml", name)
		}
		for _, allowed := range rules[name].Allow {
			own := strings.HasPrefix(allowed, "github.com/pacer/pacer/internal/"+name)
			room := strings.TrimSuffix(strings.TrimPrefix(allowed, "github.com/pacer/pacer/internal/"), "$")
			leaf := slices.Contains(leaves, room) || slices.Contains([]string{"$gostd", "github.com/pacer/pacer/migrations$"}, allowed)
			leaf = leaf || name == "measure" && slices.Contains([]string{"requeue", "consumer/offset"}, room) // it reads what Kafka holds
			if !own && !leaf {
				t.Errorf("internal/%s is allowed to import %s", name, allowed)
			}
		}
	}
	for name, rule := range rules {
		if rule.Mode != "lax" && rule.Mode != "strict" {
			t.Errorf("rule %s has no list-mode and would forbid every import it does not allow", name)
		}
	}
}
