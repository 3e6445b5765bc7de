//go:build browser

package test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// axeFolder holds axe-core (https://github.com/dequelabs/axe-core, Mozilla Public License 2.0) as npm has it: what checks a page for those
// who use it with a screen reader, with keys alone, or need contrast. It is for tests only, and no part of any program.
const axeFolder = "testdata/axe-core"

// axeRun checks the page by all rules of WCAG 2.0 to 2.2, levels A and AA, and by what axe calls best practices. Checks that axe leaves
// open are no findings.
const axeRun = `axe.run(document, {
	resultTypes: ["violations"],
	rules: {"target-size": {enabled: true}},
}).then(r => JSON.stringify(r.violations.flatMap(v => v.nodes.map(n => v.id + ": " + v.help + ": " + n.html.slice(0, 160) + " " + n.failureSummary.replace(/\s+/g, " ")))))`

// readAxe reads axe, and checks that it is what was published.
func readAxe(t *testing.T) string {
	t.Helper()
	sums, err := os.Open(filepath.Join(axeFolder, "axe.sum"))
	noError(t, err)
	defer func() { _ = sums.Close() }()
	script := ""
	for lines := bufio.NewScanner(sums); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		content := readFile(t, filepath.Join(axeFolder, name))
		if got := sha256.Sum256([]byte(content)); hex.EncodeToString(got[:]) != sum {
			t.Fatalf("%s is not what was published", name)
		}
		if strings.HasSuffix(name, ".js") {
			script = content
		}
	}
	if script == "" {
		t.Fatal("axe.sum names no script")
	}
	return script
}

// findings are those of axe about the page that is shown.
func (b *browser) findings(tab context.Context) (list []string) {
	b.t.Helper()
	var text string
	b.do(tab, chromedp.Evaluate(b.axe+"; true", nil), chromedp.Evaluate(axeRun, &text, func(p *runtime.EvaluateParams) *runtime.EvaluateParams {
		return p.WithAwaitPromise(true)
	}))
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		b.t.Fatalf("%v: %s", err, text)
	}
	return list
}

// accessible fails the test for every finding of axe about the shown page. how names the way of showing.
func (b *browser) accessible(tab context.Context, how string) {
	b.t.Helper()
	for _, finding := range b.findings(tab) {
		b.t.Errorf("%s: axe: %s", how, finding)
	}
}
