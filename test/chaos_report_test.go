package test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// chaosRow is the result of one case.
type chaosRow struct {
	name                   string
	jobs, lost, duplicates int
	inFlight               int    // the bound on duplicates
	how                    string // where the bound is from, letters of chaosHeading
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
	return fmt.Sprintf("| %s | %d | %d | %d | %s | %d | %s | %s |\n", name, r.jobs, r.lost, r.duplicates, strings.TrimSpace(fmt.Sprint(r.inFlight, " ", r.how)),
		r.over, bystander, recovery)
}

const chaosHeading = `# Chaos

` + "`make chaos`" + ` breaks one thing after the other under load (` + "`CASE=name`" + ` for one case, ` + "`ROUNDS=n`" + ` for several rounds, and
` + "`CASE=random-faults LASTS=1h`" + ` for faults of all kinds, one after the other). Daemons are processes, Kafka, Redis and PostgreSQL are real
servers, and proxies disturb the network. Faults come at random instants. The receivers and the broker count the jobs. A short form is part of ` + "`make test`" + `.

| column | counts | must be |
| --- | --- | --- |
| lost | published jobs that were not accepted, are not dead letters, and do not wait in the broker | 0 |
| duplicates | requests that were accepted for a job that had been accepted before | at most the jobs in flight |
| in flight | jobs in flight at the fault: a, requests that are open or came less than 0.3 s before; b, what arrives while nothing can be committed; c, by configuration: relayed batches, commits that take half a second, positions kept every 5 s | |
| over-limit | requests that begin a second with more than send_rate * 1.02 + 1, or a quota window, also of a key, with more than its limit; stalls of the machine are subtracted | 0 |
| bystander | the part of its rate that a campaign with its own lane, sink and receiver gets, at 10/s | 99 %, less one job |
| recovery | seconds from the end of the damage to the first accepted job | |

The bystander's share leaves out these times:

- a shared service or every daemon is down, and up to 15 s after Kafka or the last daemon, 5 s after Redis;
- 3 s after a daemon starts or stops in order, 2 s after Redis has lost its data;
- stalls of the machine.

A case also fails if

- a request carries the campaign or the payload of another job;
- a campaign with waiting jobs gets no request for 40 s, and neither a warning nor ` + "`pacer explain`" + ` says why;
- the log line or the metric of its fault is missing (` + "`telling`" + ` in test/chaos_*_test.go).

Unread jobs in a deleted topic, or in the lost end of a log, are lost by definition. Jobs in the old lanes count until their deletion.

`

const chaosColumns = "| case | jobs | lost | duplicates | in flight | over-limit | bystander | recovery |\n" +
	"| --- | --- | --- | --- | --- | --- | --- | --- |\n"

// newChaosReport is the table of all cases, sorted.
func newChaosReport() *report {
	var names []string
	for _, c := range chaosCases() {
		names = append(names, c.name)
	}
	slices.Sort(names)
	return &report{heading: chaosHeading, columns: chaosColumns, names: names}
}
