package config

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	metricName = regexp.MustCompile("`(pacer_[a-z_]+)[`{]")
	yamlBlock  = regexp.MustCompile("(?ms)^( *)```yaml\n(.*?)^ *```$")
	recordName = regexp.MustCompile("`([a-z]+:pacer_[a-z_]+:[a-z0-9_]+)`")
	secretFile = regexp.MustCompile(`file:[a-z/_-]+`)
)

// examples are the configurations that people copy: deploy/pacer.yaml and every YAML block of README.md, docs and docs/sinks. Pages of the latter show
// the sinks, and docs/sinks/README.md the rest once.
func examples(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{"deploy/pacer.yaml": readFile(t, "../../deploy/pacer.yaml")}
	sinks := glob(t, "../../docs/sinks/*.md")
	pages := glob(t, "../../README.md", "../../docs/*.md", "../../docs/operations/*.md")
	for _, page := range slices.Concat(pages, sinks) {
		for i, block := range yamlBlock.FindAllStringSubmatch(readFile(t, page), -1) {
			text := strings.ReplaceAll("\n"+block[2], "\n"+block[1], "\n") // of a list it is indented
			if slices.Contains(sinks, page) && strings.HasPrefix(text, "\nsinks:") {
				text = services + text
			}
			found[fmt.Sprintf("%s, block %d", page, i+1)] = text
		}
	}
	if len(found) < 20 {
		t.Fatalf("%d examples; the test looks at the wrong thing", len(found))
	}
	return found
}

// secretsOfExamples are the contents of files, by a word of the names that examples give them. The first word counts; the last is in all names.
var secretsOfExamples = []struct{ word, content string }{
	{"webhook", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, {"telegram", "123456:ABC-DEF1234ghIkl"},
	{"vapid", "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"}, {"file", "postgres://pacer:s3cret@127.0.0.1/pacer"},
}

// TestExamplesLoad reads every example with the loader of the daemon: each that names brokers is all that `pacer run` needs.
func TestExamplesLoad(t *testing.T) {
	dir := t.TempDir()
	for _, s := range secretsOfExamples {
		if err := os.WriteFile(filepath.Join(dir, s.word), []byte(s.content+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range examples(t) {
		path := filepath.Join(dir, "pacer.yaml")
		text = secretFile.ReplaceAllStringFunc(text, func(ref string) string {
			i := slices.IndexFunc(secretsOfExamples, func(s struct{ word, content string }) bool { return strings.Contains(ref, s.word) })
			return "file:" + filepath.Join(dir, secretsOfExamples[i].word)
		})
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, warnings, err := Load(path, true, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(warnings) > 0 {
			t.Errorf("%s: %v", name, warnings)
		}
		if !strings.Contains(text, "brokers") {
			continue
		}
		if err := cfg.missing([]Section{NeedTopics, NeedRedis, NeedPostgres, NeedSinks}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOperatorsAreToldOfMetricsThatExist holds the pages about running pacer to the names in the code, and to those that rules record.
func TestOperatorsAreToldOfMetricsThatExist(t *testing.T) {
	var code strings.Builder
	for _, path := range glob(t, "../*/*.go", "../*/*/*.go") {
		if !strings.HasSuffix(path, "_test.go") {
			code.WriteString(readFile(t, path))
		}
	}
	rules := readFile(t, "../../deploy/prometheus/rules.yml")
	told := 0
	pages := glob(t, "../../docs/runbook.md", "../../docs/console.md", "../../docs/howto/*.md", "../../docs/operations/*.md", "../../docs/sinks/*.md")
	for _, name := range pages {
		page := readFile(t, name)
		for _, metric := range metricName.FindAllStringSubmatch(page, -1) {
			if slices.Contains([]string{"pacer_owner", "pacer_daemon", "pacer_ops"}, metric[1]) {
				continue // the roles of PostgreSQL
			}
			told++
			if !strings.Contains(code.String(), `"`+strings.TrimSuffix(metric[1], "_count")+`"`) {
				t.Errorf("%s: nothing exports %s", name, metric[1])
			}
		}
		for _, record := range recordName.FindAllStringSubmatch(page, -1) {
			told++
			if !strings.Contains(rules, "record: "+record[1]+"\n") {
				t.Errorf("%s: no rule records %s", name, record[1])
			}
		}
	}
	if told < 60 {
		t.Fatalf("%d names; the test looks at the wrong thing", told)
	}
}
