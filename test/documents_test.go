package test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var fenced = regexp.MustCompile("(?ms)^ *```(sh|text)\n(.*?)^ *```$")

// setUp are the commands of the documents that the test has done otherwise.
const setUp = `
make() { :; }
scripts/services.sh() { :; }
`

// TestDocumentsWork types what the tutorial and the pages of docs/howto say, each in an installation of its own. Each line of a text
// block has to be among what the commands before it print.
func TestDocumentsWork(t *testing.T) {
	alongside(t, 30*time.Second)
	pages, err := filepath.Glob("../docs/howto/*.md")
	pages = slices.DeleteFunc(pages, func(page string) bool { return filepath.Base(page) == "kubernetes.md" }) // test/chart reads its values
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, "../docs/tutorial.md") {
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			typePage(t, page)
		})
	}
}

func typePage(t *testing.T, path string) {
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks := fenced.FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("it has no commands")
	}
	s := newStack(t, stackOptions{partitions: 6})
	dir := t.TempDir()
	if err := os.Symlink(filepath.Dir(s.binary), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\n" + setUp
	for i, b := range blocks {
		if b[1] == "sh" {
			script += fmt.Sprintf("echo '=== %d'\n%s", i, b[2])
		}
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(environment(), "PACER_KAFKA_BROKERS="+strings.Join(s.brokers, ","), "PACER_REDIS_ADDRS="+s.redis,
		"PACER_POSTGRES_DSN="+s.dsn, "PACER_KAFKA_TOPICS="+s.ingress, "PACER_KAFKA_GROUP="+s.ingress, "PACER_KAFKA_TOPIC_PREFIX="+s.prefix,
		fmt.Sprint("PACER_KAFKA_LANES=", defaultLanes), "PACER_SINKS_OUT_TYPE=log")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	printed := ""
	for i, b := range blocks {
		if b[1] == "sh" {
			_, printed, _ = strings.Cut(string(out), fmt.Sprintf("=== %d\n", i))
			printed, _, _ = strings.Cut(printed, "\n=== ")
			continue
		}
		for line := range strings.Lines(b[2]) {
			if line = strings.TrimSpace(line); !strings.Contains(printed, line) {
				t.Errorf("%q is not among what is printed:\n%s", line, printed)
			}
		}
	}
}
