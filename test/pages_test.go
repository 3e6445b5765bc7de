package test

import (
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// documents are the texts of all pages, by their path from the root of the repository.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	read := func(path string) {
		text := readFile(t, filepath.Join("..", path))
		pages[path] = text
	}
	for _, path := range []string{"README.md", "SECURITY.md", "CHANGELOG.md"} {
		read(path)
	}
	err := fs.WalkDir(os.DirFS(".."), "docs", func(path string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" {
			read(path)
		}
		return err
	})
	if err != nil || len(pages) < 30 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	return pages
}

// runners maps pages and kinds of blocks to the test that runs them. A page is named by a pattern.
var runners = []struct{ page, kinds, test string }{
	{"README.md", "sh yaml", "TestDocumentsWork"},
	{"README.md", "python go java", "TestTheProducersOfTheReadmePublish"},
	{"docs/tutorial.md", "sh yaml", "TestDocumentsWork"},
	{"docs/howto/kubernetes.md", "yaml", "TestTheValuesOfThePageRender"},
	{"docs/howto/*.md", "sh yaml", "TestDocumentsWork"},
	{"docs/console.md", "sh", "TestTheTokenOfThePageIsGood"},
	{"docs/operations/deploy.md", "sql", "TestSecure"},
	{"docs/operations/publish.md", "sql", "TestTheReportOfThePage"},
	{"docs/*.md", "yaml", "TestExamplesLoad"},
	{"docs/operations/*.md", "yaml", "TestExamplesLoad"},
	{"docs/sinks/*.md", "yaml", "TestExamplesLoad"},
	{"docs/quotas.md", "quota", "TestTheExamplesOfQuotasAreTrue"},
	{"docs/quotas.md", "outage", "TestTheExampleOfAnOutageIsTrue"},
	{"docs/quotas.md", "eventual", "TestTheExampleOfEventualQuotasIsTrue"},
	{"docs/quotas.md", "bytes", "TestTheExampleOfBytesIsTrue"},
	{"docs/sinks/http.md", "http json", "TestPageOfHTTP"},
}

// shown are kinds of blocks that are output: printed text, events, records.
var shown = []string{"", "text", "json"}

var blockBegin = regexp.MustCompile("(?m)^ *```([a-z]+)$")

// TestEveryBlockIsRun: an existing test runs each block that a reader may copy.
func TestEveryBlockIsRun(t *testing.T) {
	tests := testNames(t)
	used := map[string]bool{}
	for path, text := range documents(t) {
		for _, block := range blockBegin.FindAllStringSubmatch(text, -1) {
			if by := runBy(t, path, block[1]); by != "" {
				used[by] = true
			} else if !slices.Contains(shown, block[1]) {
				t.Errorf("%s: no test runs its blocks of %s", path, block[1])
			}
		}
	}
	for _, r := range runners {
		if !used[r.test] || !tests[r.test] {
			t.Errorf("%s does not run blocks of %s in %s: used %t, there %t", r.test, r.kinds, r.page, used[r.test], tests[r.test])
		}
	}
}

// runBy is the test that runs blocks of a kind on a page; "" if there is none.
func runBy(t *testing.T, path, kind string) string {
	t.Helper()
	for _, r := range runners {
		matches, err := filepath.Match(r.page, path)
		noError(t, err)
		if matches && slices.Contains(strings.Fields(r.kinds), kind) {
			return r.test
		}
	}
	return ""
}

// testNames are the tests of the repository.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	found, pattern := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, root := range []string{"../internal", "../test"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, match := range pattern.FindAllStringSubmatch(string(text), -1) {
				found[match[1]] = true
			}
			return err
		})
		noError(t, err)
	}
	return found
}

var (
	blocks    = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	inline    = regexp.MustCompile("`[^`]*`")
	linked    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	headings  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	linkText  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	makeNamed = regexp.MustCompile("(?m)(?:`|^ {4})make ([a-z][a-z0-9-]*)")
)

// TestLinksLeadSomewhere: each link of a document to a file of the repository, and to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	pages, checked := documents(t), 0
	for path, text := range pages {
		for _, link := range linked.FindAllStringSubmatch(inline.ReplaceAllString(blocks.ReplaceAllString(text, ""), ""), -1) {
			if strings.Contains(link[1], "://") || strings.HasPrefix(link[1], "mailto:") {
				continue
			}
			checked++
			file, heading, _ := strings.Cut(link[1], "#")
			to := path
			if file, err := url.PathUnescape(file); err != nil {
				t.Errorf("%s links to %s: %v", path, link[1], err)
			} else if file != "" {
				to = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(filepath.Join("..", to)); err != nil {
				t.Errorf("%s links to %s: %v", path, link[1], err)
			} else if heading != "" && !slices.Contains(anchors(pages[to]), heading) {
				t.Errorf("%s links to %s, and %s has no such heading", path, link[1], to)
			}
		}
	}
	if checked < 150 {
		t.Errorf("%d links; the test looks at the wrong thing", checked)
	}
}

// anchors are the headings of a page as links name them.
func anchors(page string) (list []string) {
	seen := map[string]int{}
	for _, heading := range headings.FindAllStringSubmatch(blocks.ReplaceAllString(page, ""), -1) {
		name := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, strings.TrimSpace(linkText.ReplaceAllString(heading[1], "$1")))
		if n := seen[name]; n > 0 {
			list = append(list, fmt.Sprintf("%s-%d", name, n))
		} else {
			list = append(list, name)
		}
		seen[name]++
	}
	return list
}

// TestDocumentsNameTargetsThatExist: what they say to make is in the Makefile.
func TestDocumentsNameTargetsThatExist(t *testing.T) {
	text := readFile(t, "../Makefile")
	targets := map[string]bool{}
	for _, target := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllStringSubmatch(text, -1) {
		targets[target[1]] = true
	}
	pages, checked := documents(t), 0
	for _, path := range slices.Sorted(maps.Keys(pages)) {
		for _, named := range makeNamed.FindAllStringSubmatch(pages[path], -1) {
			if checked++; !targets[named[1]] {
				t.Errorf("%s says make %s, which the Makefile does not have", path, named[1])
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d targets; the test looks at the wrong thing", checked)
	}
}
