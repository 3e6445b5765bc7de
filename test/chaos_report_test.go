package test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// chaosRow is the result of one case.
type chaosRow struct {
	name                   string
	jobs, lost, duplicates int
	inFlight               int      // the bound on duplicates
	how                    []string // where the bound is from
	over                   int
	bystander              float64       // the part of its rate; negative: nothing was asked of it for long enough
	recovery               time.Duration // from the healing to the first job; negative: nothing was healed
	failed                 bool
}

// String is the row of the table.
func (r chaosRow) String() string {
	recovery := "-"
	if r.recovery >= 0 {
		recovery = fmt.Sprintf("%.2f", r.recovery.Seconds())
	}
	bystander := "-"
	if r.bystander >= 0 {
		bystander = fmt.Sprintf("%.1f %%", math.Floor(1000*r.bystander)/10)
	}
	name := r.name
	if r.failed {
		name += " (FAILED)"
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %s | %s |", name, r.jobs, r.lost, r.duplicates, r.inFlight, r.over, bystander, recovery)
}

// chaosReport collects rows, also of cases that run at the same time.
type chaosReport struct {
	full bool

	mu   sync.Mutex // guards rows
	rows []chaosRow
}

func (r *chaosReport) add(row chaosRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, row)
}

const chaosHeading = `# Chaos

What happens to jobs when something breaks under load, counted by the receivers and by reading the broker:
` + "`make chaos`" + ` (` + "`CASE=name`" + ` for one, ` + "`ROUNDS=n`" + ` for several rounds; the instants of the faults are random).
Daemons are processes, Kafka, Redis and PostgreSQL are real servers, and proxies disturb the network between them. A short
form is part of ` + "`make test`" + `.

- **lost**: published jobs that were not accepted, are not dead letters, and no longer wait in the broker. Must be 0.
- **duplicates**: requests that were accepted for a job that had been accepted before. Must not exceed the
  number **in flight** at the fault; its source is given below the table.
- **over-limit**: requests that begin a second with more than send_rate * 1.02 + 1, or a quota's window with more than its
  limit, less the blur from stalls of the machine around that request. Must be 0.
- **bystander**: a campaign that the case is not about, with a lane, a sink and a receiver of its own, at 10/s for the whole
  case: the part of its rate at which it was sent. What is not counted: the time in which a shared service or every daemon is
  down, and then the time until its next job, at most 15 s after Kafka or the last daemon and 5 s after Redis; 3 s after a
  daemon comes or goes in order; 2 s after Redis has lost its data; slots that passed during a stall of the machine. Must be 99 %, less one job.
- **recovery**: seconds from the end of the damage to the first accepted job.

A case fails as well if a request carries the campaign or the payload of another job than its id names; if a campaign whose
jobs wait gets no request for 40 s while no daemon logs a warning that names it or tells of the fault, and ` + "`pacer explain`" + `
says nothing; and if the line or the metric that has to tell of its fault is missing (` + "`tells`" + ` in test/chaos_silence_test.go).

Jobs that lay unread in a topic that is deleted, or in the lost end of a log, are lost by definition. What was in the old
lanes is read from outside until they are deleted.

`

const (
	chaosColumns = "| case | jobs | lost | duplicates | in flight | over-limit | bystander | recovery |\n" +
		"| --- | --- | --- | --- | --- | --- | --- | --- |\n"
	chaosBounds = "\nIn flight, the bound on duplicates, is 0 for cases that are not listed:\n\n"
)

// publish logs the table, sorted by case, and writes it to the file that CHAOS_REPORT names, if set. Cases that did not
// run keep the rows that they have there.
func (r *chaosReport) publish(t *testing.T) {
	if len(r.rows) == 0 {
		return
	}
	rows, bounds := r.lines()
	fmt.Print("\n", chaosColumns, strings.Join(rows, ""))
	file := os.Getenv("CHAOS_REPORT")
	if file == "" {
		return
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("read the report: %v", err)
	}
	_, kept, _ := strings.Cut(string(before), chaosColumns)
	keptRows, keptBounds, _ := strings.Cut(kept, chaosBounds)
	text := chaosHeading + chaosColumns + r.among(rows, keptRows) + chaosBounds + r.among(bounds, keptBounds)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Errorf("write the report: %v", err)
	}
}

// lines returns the rows of the table, and for each case with a bound on duplicates where that is from.
func (r *chaosReport) lines() (rows, bounds []string) {
	for _, row := range r.rows {
		rows = append(rows, row.String()+"\n")
		line := fmt.Sprintf("- %s: %s\n", row.name, strings.Join(row.how, "; "))
		if len(row.how) > 0 && !slices.Contains(bounds, line) {
			bounds = append(bounds, line)
		}
	}
	return rows, bounds
}

// among returns the lines with those before of cases that did not run, sorted by case.
func (r *chaosReport) among(lines []string, before string) string {
	missing := map[string]bool{}
	for _, c := range chaosCases() {
		missing[c.name] = !slices.ContainsFunc(r.rows, func(row chaosRow) bool { return row.name == c.name })
	}
	lines = slices.Clone(lines)
	for line := range strings.Lines(before) {
		if missing[caseOf(line)] {
			lines = append(lines, line)
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return strings.Compare(caseOf(a), caseOf(b)) })
	return strings.Join(lines, "")
}

// caseOf is the case that a line of the report is about.
func caseOf(line string) string {
	name := strings.TrimLeft(line, "|- ")
	return name[:max(0, strings.IndexAny(name, " :\n"))]
}

func TestChaosReportKeepsOtherRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "chaos.md")
	t.Setenv("CHAOS_REPORT", file)
	first, second := chaosCases()[0].name, chaosCases()[1].name
	const gone = "| no-case-any-more | 1 | 0 | 0 | 0 | 0 | - | - |\n"
	if err := os.WriteFile(file, []byte("# Old\n"+chaosColumns+gone+chaosBounds+"- no-case-any-more: by chance\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, rows := range [][]chaosRow{
		{{name: second, jobs: 1, failed: true, how: []string{"before"}}, {name: first, jobs: 2, how: []string{"kept"}}},
		{{name: second, jobs: 3}},
	} {
		(&chaosReport{rows: rows}).publish(t)
	}
	got, err := os.ReadFile(file)
	want := chaosHeading + chaosColumns + fmt.Sprintf("| %s | 2 | 0 | 0 | 0 | 0 | 0.0 %% | 0.00 |\n| %s | 3 | 0 | 0 | 0 | 0 | 0.0 %% | 0.00 |\n",
		first, second) + chaosBounds + "- " + first + ": kept\n"
	if err != nil || string(got) != want {
		t.Errorf("the report is\n%s\nwant\n%s", got, want)
	}
}
