package test

import (
	"fmt"
	"math"
	"strings"
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
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %d | %s | %.1f %% | %.0f |\n", name, r.jobs, r.lost, r.duplicates, r.unheard, r.dead,
		r.rejected, strings.TrimSuffix(fmt.Sprintf("%.1f", r.over), ".0"), math.Floor(1000*r.bystander)/10, r.took.Seconds())
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

// newSinksReport is the table of all kinds of sinks.
func newSinksReport() *report {
	var names []string
	for _, k := range sinkKinds {
		names = append(names, k.name)
	}
	return &report{heading: sinksHeading, columns: sinksColumns, names: names}
}
