package config

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	metricName = regexp.MustCompile("`(pacer_[a-z_]+)[`{]")
	yamlBlock  = regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```")
	secretFile = regexp.MustCompile(`file:/[a-z/_-]+`)
)

// examples are the configurations that people copy: deploy/pacer.yaml and every YAML block of README.md and docs.
func examples(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	found := map[string]string{"deploy/pacer.yaml": read(filepath.Join(root, "deploy", "pacer.yaml"))}
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		for _, block := range yamlBlock.FindAllStringSubmatch(read(page), -1) {
			first, _, _ := strings.Cut(block[1], "\n")
			found[filepath.Base(page)+": "+first] = block[1]
		}
	}
	if len(found) < 3 {
		t.Fatalf("%d examples; the test looks at the wrong thing", len(found))
	}
	return found
}

// TestExamplesLoad reads every example with the loader of the daemon: each is all that `pacer run` needs. The file of a
// secret is one that exists here; a connection string will do for any secret.
func TestExamplesLoad(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("postgres://pacer:s3cret@127.0.0.1/pacer\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	signing := filepath.Join(dir, "signing")
	if err := os.WriteFile(signing, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, text := range examples(t) {
		path := filepath.Join(dir, "pacer.yaml")
		text = secretFile.ReplaceAllStringFunc(text, func(ref string) string {
			if strings.Contains(ref, "webhook") {
				return "file:" + signing
			}
			return "file:" + secret
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
		if err := cfg.Require(NeedTopics, NeedRedis, NeedPostgres, NeedSinks); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOperatorsAreToldOfMetricsThatExist holds docs/operations.md to the names in the code.
func TestOperatorsAreToldOfMetricsThatExist(t *testing.T) {
	var code strings.Builder
	sources, err := filepath.Glob("../*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	nested, err := filepath.Glob("../*/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(sources, nested...) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := metricName.FindAllStringSubmatch(string(page), -1)
	if len(names) < 20 {
		t.Fatalf("%d names; the test looks at the wrong thing", len(names))
	}
	for _, name := range names {
		if !strings.Contains(code.String(), `"`+name[1]+`"`) {
			t.Errorf("nothing exports %s", name[1])
		}
	}
}
