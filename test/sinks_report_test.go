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
	unheard          int            // answers that may not have arrived
	unexplained      map[int64]bool // when requests took jobs again whose answers did arrive
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
		"`make sinks` measures what becomes of jobs whose destinations misbehave (`SINK=name` for one). Each sink gets 20,000 jobs from Kafka: four campaigns at 125/s,\n" +
		"three daemons. Its stand-in speaks the real protocol over TLS. `make test` runs a short form.\n\n" +
		"| jobs | fault, where the protocol has it; for kafka a fifth of these |\n" +
		"| --- | --- |\n" +
		"| 5 % | fail at first |\n" +
		"| 1 % each | throttled at first: for the sink, the destination, the campaign, the recipient |\n" +
		"| 1 % each | the recipient is gone; refused for good |\n" +
		"| 0.1 % | fail always |\n" +
		"| 0.2 % each | accepted without an answer; accepted, then the connection is reset |\n" +
		"| 0.5 % each | GOAWAY before the job; GOAWAY with the answer |\n" +
		"| 1 % | the stream is refused |\n\n" +
		"After a fifth of the jobs, the credential is refused for five seconds. After half of them, the destination does not answer for a second, but accepts half of the\n" +
		"jobs. Jobs of steps and smev meet their fault at one of their requests. Steps marked `once` must not be made twice, and requests not registered twice.\n\n" +
		"| column | is | must be |\n" +
		"| --- | --- | --- |\n" +
		"| lost | jobs neither accepted nor ended otherwise | 0 |\n" +
		"| duplicates | jobs accepted again | at most the unheard answers of each job |\n" +
		"| unheard | answers not given, given after 0.5 s, or written in the last second of a connection that was reset | |\n" +
		"| dead | dead letters | the jobs that are refused for good or fail always, with that reason |\n" +
		"| rejected | rejected jobs | the jobs whose recipient is gone; every job has one result |\n" +
		"| over | requests beyond a campaign's rate in the worst stretch. Tolerance: 20 ms, 250 ms for a new connection, 2 s more for apns, kafka and smtp | 0 |\n" +
		"| bystander | achieved share of the rate of a campaign with another sink, at 20/s | 99 % |\n" +
		"| seconds | from the first job to the last; mostly waits that the destinations asked for | |\n\n"
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
	noError(t, os.WriteFile(file, []byte("# Old\n"+sinksColumns+"| no-sink-any-more | 1 |\n| "+second+" | 7 |\n"), 0o600))
	(&sinksReport{rows: []sinksRow{{name: first, jobs: 3, over: 1.5, failed: true}}}).publish(t)
	got, err := os.ReadFile(file)
	want := sinksHeading + sinksColumns + "| " + first + " (FAILED) | 3 | 0 | 0 | 0 | 0 | 0 | 1.5 | 0.0 % | 0 |\n| " + second + " | 7 |\n"
	if err != nil || string(got) != want {
		t.Errorf("the report is\n%s\nwant\n%s", got, want)
	}
}
