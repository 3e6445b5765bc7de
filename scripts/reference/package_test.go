package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// packaging is .goreleaser.yaml as far as files are named in it. A key that none of these types has is an error: it is misspelled,
// or new, and then has to be thought about here.
type packaging struct {
	Version     int
	ProjectName string `yaml:"project_name"`
	Before      struct{ Hooks []string }
	Builds      []struct {
		ID, Main, Binary                  string
		Env, Flags, Ldflags, Goos, Goarch []string
		ModTimestamp                      string `yaml:"mod_timestamp"`
	}
	Archives []struct {
		Formats      []string
		NameTemplate string `yaml:"name_template"`
		Files        []packagedFile
	}
	Nfpms []struct {
		ID, Vendor, Homepage, Maintainer, Description, License, Section, Bindir string
		PackageName                                                             string `yaml:"package_name"`
		Formats                                                                 []string
		Contents                                                                []packagedFile
		Scripts                                                                 map[string]string
	}
	Checksum, Snapshot, Changelog map[string]any
	Sboms                         []struct {
		Artifacts, Cmd string
		Args           []string
	}
	Release map[string]any
}

type packagedFile struct {
	Src, Dst, Type string
	FileInfo       struct{ Mode os.FileMode } `yaml:"file_info"`
}

// UnmarshalYAML also takes a name alone.
func (f *packagedFile) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		f.Src = n.Value
		return nil
	}
	type plain packagedFile
	return n.Decode((*plain)(f))
}

// TestPackagesContainWhatExists makes what packages contain, as the hook in .goreleaser.yaml does, and looks for each file named there.
func TestPackagesContainWhatExists(t *testing.T) {
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var p packaging
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&p); err != nil {
		t.Fatal(err)
	}
	made := t.TempDir()
	if err := packageFiles(made); err != nil {
		t.Fatal(err)
	}
	const hook, folder = "go run ./scripts/reference -package ", "build/package"
	if len(p.Before.Hooks) != 1 || p.Before.Hooks[0] != hook+folder || len(p.Archives) != 1 || len(p.Nfpms) != 1 || len(p.Builds) != 1 {
		t.Fatalf("it is about something else: %+v", p)
	}
	files := append(p.Archives[0].Files, p.Nfpms[0].Contents...)
	for _, script := range p.Nfpms[0].Scripts {
		files = append(files, packagedFile{Src: script})
		if info, err := os.Stat("../../" + script); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("%s is no program: %v", script, err)
		}
	}
	if len(p.Sboms) != 1 || p.Sboms[0].Cmd != "go" || len(p.Sboms[0].Args) < 2 || p.Sboms[0].Args[0] != "run" {
		t.Fatalf("documents of what programs are built from: %+v", p.Sboms)
	}
	files = append(files, packagedFile{Src: p.Builds[0].Main}, packagedFile{Src: filepath.Join("dist", p.Sboms[0].Args[1])})
	for _, f := range files {
		from := filepath.Join("../..", f.Src)
		if rest, ok := strings.CutPrefix(f.Src, folder); ok {
			from = made + rest
		}
		if found, err := filepath.Glob(from); err != nil || len(found) == 0 {
			t.Errorf("%s is not there: %v", f.Src, err)
		}
	}
	dockerfile, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`-X (\S+)=`)
	if a, b := version.FindStringSubmatch(p.Builds[0].Ldflags[0]), version.FindStringSubmatch(string(dockerfile)); a == nil || b == nil || a[1] != b[1] {
		t.Errorf("the version is set at %q here and at %q in the image", a, b)
	}
	page, err := os.ReadFile(filepath.Join(made, "man/pacer-campaign-set.1"))
	if err != nil || !strings.Contains(string(page), `--rate`) {
		t.Errorf("the page of campaign set: %v\n%s", err, page)
	}
}
