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

// sinksRow is the result of one kind of sink.
type sinksRow struct {
	name             string
	jobs, taken      int
	lost, duplicates int
	unheard          int // answers that may not have arrived
	unexplained      int // jobs that were taken again although theirs did
	dead, rejected   int
	over             float64 // requests beyond the rate, in the worst stretch
	bystander        float64 // the part of its rate
	took             time.Duration
	failed           bool
}

// String is the row of the table.
func (r sinksRow) String() string {
	name := r.name
	if r.failed {
		name += " (FAILED)"
	}
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %s | %.1f %% | %.0f |", name, r.jobs, r.lost, r.duplicates, r.unheard, r.dead,
		r.rejected, strings.TrimSuffix(fmt.Sprintf("%.1f", r.over), ".0"), math.Floor(1000*r.bystander)/10, r.took.Seconds())
}

// sinksReport collects rows, also of runs at the same time.
type sinksReport struct {
	mu   sync.Mutex // guards rows
	rows []sinksRow
}

func (r *sinksReport) add(rows ...sinksRow) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows = append(r.rows, rows...)
}

const (
	sinksHeading = "# Sinks under faults\n\n" +
		"What becomes of jobs whose destinations misbehave: `make sinks` (`SINK=name` for one). Each sink gets 20,000 jobs of four\n" +
		"campaigns at 125/s each from a real Kafka, over three daemons, and its stand-in speaks its protocol over TLS. A short form, all\n" +
		"sinks beside each other, is part of `make test`.\n\n" +
		"At random, and as far as the protocol can say it: 5 % of the jobs fail at first; 1 % each are throttled at first for the sink, the\n" +
		"destination, the campaign, the recipient; 1 % are for a recipient who is gone, 1 % are refused for good, and 0.1 % fail always.\n" +
		"0.2 % each are taken without an answer, and with a reset of the connection; at 0.5 % each, a GOAWAY comes before the job, and with\n" +
		"the answer; of 1 % the stream is refused. Where an answer is one for several jobs (kafka), a fifth of these. When a fifth of the jobs is done, the credential is not accepted for five seconds; when\n" +
		"half are done, the destination answers nothing for a second, though it takes half of what comes. A job of steps (a lookup, a step\n" +
		"to be made once, a poll, a last step) and of smev (a look, a send, polls for the response) meets its fault at one of its requests, and\n" +
		"is taken with the last; no order may be made twice, and no request registered twice.\n\n" +
		"- **lost**: jobs that were neither taken nor ended in another way. Must be 0.\n" +
		"- **duplicates**: jobs that were taken again. Must not be more, for any job, than its answers that may not have arrived:\n" +
		"  those that were not given, came after half a second, or were written in the last second of a connection that was reset.\n" +
		"- **unheard**: these answers, of all jobs.\n" +
		"- **dead**: dead letters. Must be exactly the jobs that are refused for good or fail always, with that reason.\n" +
		"- **rejected**: jobs that ended so. Must be exactly those whose recipient is gone, and every job must have exactly one result.\n" +
		"- **over**: requests beyond a campaign's rate in the worst stretch of any length, with a tolerance of 20 ms for its\n" +
		"  slots and 250 ms for a new connection; of sinks in which jobs wait for a stream, a batch or a free connection (apns, kafka,\n" +
		"  smtp), of 2 s more, the longest such wait. Must be 0.\n" +
		"- **bystander**: a campaign with another sink, at 20/s: the part of its rate at which it was sent. Must be 99 %.\n" +
		"- **seconds**: from the first job to the last, of which most are waits that the destinations asked for.\n\n"
	sinksColumns = "| sink | jobs | lost | duplicates | unheard | dead | rejected | over | bystander | seconds |\n" +
		"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
)

// publish logs the table, and writes it to the file that SINKS_REPORT names, if set. Sinks that did not run keep the rows
// that they have there.
func (r *sinksReport) publish(t *testing.T) {
	lines := map[string]string{}
	for _, row := range r.rows {
		lines[row.name] = row.String() + "\n"
	}
	file := os.Getenv("SINKS_REPORT")
	before, _ := os.ReadFile(file) // there is none at first
	_, kept, _ := strings.Cut(string(before), sinksColumns)
	for line := range strings.Lines(kept) {
		name := caseOf(line)
		known := slices.ContainsFunc(sinkKinds, func(k sinkKind) bool { return k.name == name })
		if _, ran := lines[name]; known && !ran {
			lines[name] = line
		}
	}
	var table strings.Builder
	for _, k := range sinkKinds {
		table.WriteString(lines[k.name])
	}
	fmt.Print("\n", sinksColumns, table.String())
	if file == "" {
		return
	}
	if err := os.WriteFile(file, []byte(sinksHeading+sinksColumns+table.String()), 0o644); err != nil {
		t.Errorf("write the report: %v", err)
	}
}

func TestSinksReportKeepsOtherRows(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sinks.md")
	t.Setenv("SINKS_REPORT", file)
	first, second := sinkKinds[0].name, sinkKinds[1].name
	if err := os.WriteFile(file, []byte("# Old\n"+sinksColumns+"| no-sink-any-more | 1 |\n| "+second+" | 7 |\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	(&sinksReport{rows: []sinksRow{{name: first, jobs: 3, over: 1.5, failed: true}}}).publish(t)
	got, err := os.ReadFile(file)
	want := sinksHeading + sinksColumns + "| " + first + " (FAILED) | 3 | 0 | 0 | 0 | 0 | 0 | 1.5 | 0.0 % | 0 |\n| " + second + " | 7 |\n"
	if err != nil || string(got) != want {
		t.Errorf("the report is\n%s\nwant\n%s", got, want)
	}
}
