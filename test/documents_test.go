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

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

var fenced = regexp.MustCompile("(?ms)^ *```(sh|text|yaml|python|go|java)\n(.*?)^ *```$")

// setUp are the commands of the documents that the test has done otherwise. Where Python has no client of Kafka, the program in Go publishes.
const setUp = `
make() { :; }
scripts/services.sh() { :; }
pip() { :; }
python3() {
  if command python3 -c 'import confluent_kafka' 2> /dev/null; then command python3 "$@"; else go -C "$TESTS" run "$PWD/publish.go"; fi
}
`

// producers are the files of the programs in README.md, by their languages.
var producers = map[string]string{"python": "publish.py", "go": "publish.go", "java": "Publish.java"}

// TestDocumentsWork runs the commands of README.md, the tutorial and the pages of docs/howto. README and tutorial have installations of
// their own. The pages share one, since their campaigns and quotas have different names. The commands before a text block print each of
// its lines. A block of yaml is the configuration of the commands behind it, and a program is a file.
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

// example is the address of the receiver in pages.
const example = "127.0.0.1:9000"

func (s *stack) typePage(t *testing.T, path string) {
	text := readFile(t, path)
	page := strings.ReplaceAll(text, `"pacer.jobs"`, `"`+s.ingress+`"`)
	if strings.Contains(page, example) {
		port := fmt.Sprint(testservices.FreePort(t))
		page = strings.ReplaceAll(strings.ReplaceAll(page, example, "127.0.0.1:"+port), "443, 9000", "443, "+port)
	}
	blocks := fenced.FindAllStringSubmatch(page, -1)
	if len(blocks) == 0 {
		t.Fatal("it has no commands")
	}
	dir := t.TempDir()
	noError(t, os.Symlink(filepath.Dir(s.binary), filepath.Join(dir, "bin")))
	script := "set -euo pipefail\n" + setUp
	for i, b := range blocks {
		switch b[1] {
		case "sh":
			script += fmt.Sprintf("echo '=== %d'\n%s", i, b[2])
		case "yaml":
			script += "unset PACER_SINKS_OUT_TYPE\ncat > pacer.yaml <<'END'\n" + b[2] + "END\n"
		case "python", "go", "java":
			script += "cat > " + producers[b[1]] + " <<'END'\n" + b[2] + "END\n"
		}
	}
	tests, err := filepath.Abs(".")
	noError(t, err)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script+"wait\n")
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	cmd.Env = append(environment(), "PACER_KAFKA_BROKERS="+strings.Join(s.brokers, ","), "PACER_REDIS_ADDRS="+s.redis,
		"PACER_POSTGRES_DSN="+s.dsn, "PACER_KAFKA_TOPICS="+s.ingress, "PACER_KAFKA_GROUP="+s.ingress, "PACER_KAFKA_TOPIC_PREFIX="+s.prefix,
		fmt.Sprint("PACER_KAFKA_LANES=", defaultLanes), "PACER_SINKS_OUT_TYPE=log", "TESTS="+tests,
		fmt.Sprint("PACER_HTTP_LISTEN=127.0.0.1:", testservices.FreePort(t)))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	printed := ""
	for i, b := range blocks {
		if b[1] == "sh" {
			_, printed, _ = strings.Cut(string(out), fmt.Sprintf("=== %d\n", i))
			printed, _, _ = strings.Cut(printed, "\n=== ")
		}
		if b[1] != "text" {
			continue
		}
		for line := range strings.Lines(b[2]) {
			if line = strings.TrimSpace(line); !strings.Contains(printed, line) {
				t.Errorf("%q is not among what is printed:\n%s", line, printed)
			}
		}
	}
}

// TestTheProducersOfTheReadmePublish runs the program of each language in README.md, where the machine has what it needs.
func TestTheProducersOfTheReadmePublish(t *testing.T) {
	t.Parallel()
	text := readFile(t, readme)
	libs, err := filepath.Glob("../.services/kafka-*-libs")
	if err != nil || len(libs) == 0 {
		t.Fatalf("Kafka's libraries are %q: %v", libs, err)
	}
	found := 0
	for _, block := range fenced.FindAllStringSubmatch(text, -1) {
		file := producers[block[1]]
		if file == "" {
			continue
		}
		found++
		t.Run(block[1], func(t *testing.T) {
			t.Parallel()
			s := newStack(t, stackOptions{partitions: 6})
			path := filepath.Join(t.TempDir(), file)
			noError(t, os.WriteFile(path, []byte(strings.ReplaceAll(block[2], `"pacer.jobs"`, `"`+s.ingress+`"`)), 0o600))
			words := map[string][]string{"python": {"python3", path}, "go": {"go", "run", path}, "java": {"java", "-cp", libs[0] + "/*", path}}[block[1]]
			if block[1] == "python" && exec.Command("python3", "-c", "import confluent_kafka").Run() != nil {
				if out, err := exec.CommandContext(t.Context(), "python3", "-m", "py_compile", path).CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
				return // without the library it can only be compiled
			}
			cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
			cmd.Env = append(environment(), "PACER_KAFKA_BROKERS="+strings.Join(s.brokers, ","))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			ids := map[string]bool{}
			s.eachIn(s.ingress, func(r delivery.Record) {
				if r.Header("pacer-campaign") != "orders" || !strings.HasPrefix(string(r.Value), `{"order": `) {
					t.Fatalf("%+v", r)
				}
				ids[r.Header("pacer-job-id")] = true
			})
			if len(ids) != 500 {
				t.Errorf("%d jobs", len(ids))
			}
		})
	}
	if found != len(producers) {
		t.Errorf("%d programs", found)
	}
}
