package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheReportOfThePage runs the block of psql on the page of results, on events from a file instead of the topic.
func TestTheReportOfThePage(t *testing.T) {
	t.Parallel()
	text := documents(t)["docs/operations/publish.md"]
	_, block, _ := strings.Cut(text, "```sql\n")
	block, _, _ = strings.Cut(block, "```")
	begin, end := strings.Index(block, "PROGRAM '"), strings.Index(block, "' WITH")
	if begin < 0 || end < begin {
		t.Fatalf("the page has no block that reads a topic: %s", block)
	}
	dir := t.TempDir()
	events := filepath.Join(dir, "events")
	const lines = `{"destination": "acme", "outcome": "delivered", "origin": {"offset": 1}}
{"destination": "acme", "outcome": "delivered", "origin": {"offset": 1}}
{"destination": "acme", "outcome": "dead", "origin": {"offset": 2}, "answer": "no such hook, \"acme\""}
{"destination": "bolt", "outcome": "delivered", "origin": {"offset": 3}}
`
	noError(t, os.WriteFile(events, []byte(lines), 0o600))
	psql := exec.Command("psql", "--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", newStack(t, stackOptions{}).dsn)
	psql.Dir, psql.Stdin = dir, strings.NewReader(block[:begin]+"'"+events+block[end:])
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	report := readFile(t, filepath.Join(dir, "report.csv"))
	const want = "acme,dead,1,\"no such hook, \"\"acme\"\"\"\nacme,delivered,1,\nbolt,delivered,1,\n"
	if report != want {
		t.Errorf("the report is\n%swant\n%s", report, want)
	}
}
