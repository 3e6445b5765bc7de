package test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// report is a page of docs/ with a table. It collects rows, also of cases that run at the same time.
type report struct {
	heading, columns string
	names            []string // of all cases, in the order of the table

	mu   sync.Mutex        // guards rows
	rows map[string]string // by name, one for each round
}

func (r *report) add(name, row string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[string]string{}
	}
	r.rows[name] += row
}

// publish prints the table, and writes the page to a file, unless it is "". Cases that did not run keep the rows that they have there.
func (r *report) publish(t *testing.T, file string) {
	if len(r.rows) == 0 {
		return
	}
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read the report: %v", err)
	}
	_, kept, _ := strings.Cut(string(before), r.columns)
	old := map[string]string{}
	for line := range strings.Lines(kept) {
		old[caseOf(line)] += line
	}
	ran, table := "", ""
	for _, name := range r.names {
		ran += r.rows[name]
		table += cmp.Or(r.rows[name], old[name])
	}
	fmt.Print("\n", r.columns, ran)
	if file == "" {
		return
	}
	if err := os.WriteFile(file, []byte(r.heading+r.columns+table), 0o644); err != nil {
		t.Errorf("write the report: %v", err)
	}
}

// caseOf is the case that a row is about.
func caseOf(row string) string {
	name := strings.TrimLeft(row, "| ")
	return name[:max(0, strings.IndexAny(name, " \n"))]
}

func TestReportsKeepOtherRows(t *testing.T) {
	second, first := chaosCases()[1].name, chaosCases()[0].name // not in their order
	for _, c := range []struct {
		of   func() *report
		runs [][]fmt.Stringer
		want string
	}{
		{newChaosReport, [][]fmt.Stringer{
			{chaosRow{name: second, jobs: 1, failed: true, how: "a"}, chaosRow{name: first, jobs: 2, how: "bc"}}, {chaosRow{name: second, jobs: 3}},
		}, "| " + first + " | 2 | 0 | 0 | 0 bc | 0 | 0.0 % | 0.00 |\n| " + second + " | 3 | 0 | 0 | 0 | 0 | 0.0 % | 0.00 |\n"},
		{newSinksReport, [][]fmt.Stringer{
			{sinksRow{name: "fcm", jobs: 7}}, {sinksRow{name: "http", jobs: 3, over: 1.5, failed: true}},
		}, "| http (FAILED) | 3 | 0 | 0 | 0 | 0 | 0 | 1.5 | 0.0 % | 0 |\n| fcm | 7 | 0 | 0 | 0 | 0 | 0 | 0 | 0.0 % | 0 |\n"},
	} {
		file := filepath.Join(t.TempDir(), "report.md")
		noError(t, os.WriteFile(file, []byte("# Old\n"+c.of().columns+"| no-case-any-more | 1 | 0 | 0 | 0 | 0 | - | - |\n"), 0o600))
		for _, rows := range c.runs {
			r := c.of()
			for _, row := range rows {
				r.add(caseOf(row.String()), row.String())
			}
			r.publish(t, file)
		}
		if got, want := readFile(t, file), c.of().heading+c.of().columns+c.want; got != want {
			t.Errorf("the report is\n%s\nwant\n%s", got, want)
		}
	}
}
