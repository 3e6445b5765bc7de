package config

import (
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/sink/steps"
)

const stepsConfig = `
kafka: {brokers: ["127.0.0.1:9092"]}
redis: {addrs: ["127.0.0.1:6379"]}
postgres: {dsn: "postgres://pacer@127.0.0.1:5432/pacer"}
sinks:
  api:
    type: steps
    steps:
      - {id: a, url: "https://u:p4ssword@api.example.com/a", classes: {404: delivered}}
      - id: b
        url: "https://api.example.com/b"
        headers: {x-key: "file:KEY"}
        poll: {every: 5s, until: "true"}
`

// TestListsOfSections: the sections of a list are read like others, with their secrets.
func TestListsOfSections(t *testing.T) {
	cfg := mustLoad(t, strings.ReplaceAll(stepsConfig, "KEY", write(t, "key", "s3cret\n")))
	c := cfg.Sinks["api"].(*steps.Config)
	if len(c.Steps) != 2 || c.Steps[0].Classes["404"] != "delivered" || c.Steps[1].Headers["x-key"] != "s3cret" || c.Steps[1].Poll.Every.Seconds() != 5 {
		t.Errorf("%+v", c.Steps)
	}
	shown := cfg.String()
	for _, line := range []string{"sinks.api.steps.0.id: a\n", "sinks.api.steps.1.poll.every: 5s\n", "sinks.api.steps.1.headers: {x-key: ***}\n"} {
		if !strings.Contains(shown, line) {
			t.Errorf("%q is not shown", line)
		}
	}
	if strings.Contains(shown, "s3cret") || strings.Contains(shown, "p4ssword") {
		t.Error("a secret is shown")
	}
	for change, want := range map[string]string{
		"id: b":         "sinks.api.steps.1.idd: there is no such key; use one of ",
		"every: 5s":     "sinks.api.steps.1.poll.every: \"often\" is not a duration",
		"file:KEY":      "sinks.api.steps.1.headers.x-key: cannot read the secret",
		`until: "true"`: "sinks.api.steps.1.poll.until: required",
		"steps:\n":      "sinks.api.steps: must be a list",
		"- id: b":       "sinks.api.steps.1: must be a section",
	} {
		with := map[string]string{
			"id: b": "idd: b", "every: 5s": "every: often", "file:KEY": "file:/nowhere", `until: "true"`: `until: ""`,
			"steps:\n": "steps: no\n    more:\n", "- id: b": "- text\n      - id: b",
		}[change]
		_, _, err := load(t, strings.Replace(strings.Replace(stepsConfig, change, with, 1), "file:KEY", "k", 1))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", change, err, want)
		}
	}
}
