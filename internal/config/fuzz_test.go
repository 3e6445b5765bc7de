package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzConfig: no file panics, each problem is one line of bounded length, and a configuration that is accepted can be
// printed.
func FuzzConfig(f *testing.F) {
	examples, err := filepath.Glob("../../deploy/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range append(examples, "../../pacer.example.yaml") {
		if text, err := os.ReadFile(path); err == nil {
			f.Add(text)
		}
	}
	for _, s := range []string{
		"", "null", "[]", "kafka: {brokers: [a:1], topics: [t]}\nredis: {addrs: [a:1]}\npostgres: {dsn: 'postgres://a@b/c'}\ndefault_sink: s\n" +
			"sinks: {s: {type: http, url: 'http://h/', headers: {a: b}}}\n",
		"kafka: &k {brokers: [*k]}", "a: &a [1]\nb: [*a, *a]", "? [a]\n: b", "1: 2\ntrue: {~: x}", "sinks: {a: {type: log, max_in_flight: 1e9}}",
		"pacing: {max_buffer_bytes: -1, max_open_age: 99999999h}", "postgres: {dsn: *secret}", "kafka: {brokers: !!binary aGFsbG8=}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if strings.Contains(string(text), "_file") {
			return // reads files of this machine
		}
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, warnings, err := Load(path, true, nil)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				warnings = append(warnings, strings.TrimSuffix(line, "\n"))
			}
		} else if cfg == nil {
			t.Fatal("neither a configuration nor an error")
		}
		for _, line := range warnings {
			if len(line) > maxProblem+len(path) || strings.ContainsAny(line, "\n\r") {
				t.Errorf("a problem of %d bytes: %.2000q", len(line), line)
			}
		}
	})
}

// maxProblem bounds one line about a configuration.
const maxProblem = 2000
