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

	"github.com/pacer/pacer/internal/testservices"
)

var fenced = regexp.MustCompile("(?ms)^ *```(sh|text|yaml)\n(.*?)^ *```$")

// setUp are the commands of the documents that the test has done otherwise.
const setUp = `
make() { :; }
scripts/services.sh() { :; }
`

// TestDocumentsWork runs the commands of README.md, the tutorial and the pages of docs/howto. README and tutorial have installations of
// their own. The pages share one, since their campaigns and quotas have different names. Each line of a text block has to be among what
// the commands before it print; a block of yaml is the configuration of the commands behind it.
func TestDocumentsWork(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/howto/*.md")
	pages = slices.DeleteFunc(pages, func(page string) bool { return filepath.Base(page) == "kubernetes.md" }) // test/chart reads its values
	if err != nil || len(pages) < 8 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for name, together := range map[string][]string{"howto": pages, "tutorial": {"../docs/tutorial.md"}, "readme": {readme}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, stackOptions{partitions: 6})
			for _, page := range together {
				t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) { s.typePage(t, page) })
			}
		})
	}
}

const readme = "../README.md"

// typed is what one types of README.md, in blocks: how pacer is run, for some seconds.
func typed(text string) string {
	_, text, _ = strings.Cut(text, "\n## Run it\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text = regexp.MustCompile(`(?m)(?:^ {4}.*\n)+`).ReplaceAllString(text, "```sh\n$0```\n")
	return strings.Replace(text, "bin/pacer run\n", "PACER_HTTP_LISTEN=off timeout 3 bin/pacer run || test $? = 124\n", 1)
}

// example is the address of the receiver in pages.
const example = "127.0.0.1:9000"

func (s *stack) typePage(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if path == readme {
		page = typed(page)
	}
	if strings.Contains(page, example) {
		port := fmt.Sprint(testservices.FreePort(t))
		page = strings.ReplaceAll(strings.ReplaceAll(page, example, "127.0.0.1:"+port), "443, 9000", "443, "+port)
	}
	blocks := fenced.FindAllStringSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("it has no commands")
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Dir(s.binary), filepath.Join(dir, "bin")); err != nil {
		t.Fatal(err)
	}
	script := "set -euo pipefail\n" + setUp
	for i, b := range blocks {
		switch b[1] {
		case "sh":
			script += fmt.Sprintf("echo '=== %d'\n%s", i, b[2])
		case "yaml":
			script += "unset PACER_SINKS_OUT_TYPE\ncat > pacer.yaml <<'END'\n" + b[2] + "END\n"
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
		if b[1] == "yaml" {
			continue
		}
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
