package app

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// writeDemoReport writes the report for people.
func writeDemoReport(w io.Writer, r *Report) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	p := &printer{w: table}
	p.line("")
	p.line("campaign\tsend_rate\tachieved\tof allowed\tmax in 1 s\tdelivered\tqueued\trequeued\tretried\tlost\tlate p99\t")
	for i := range r.Campaigns {
		c := &r.Campaigns[i]
		p.line("%s\t%g/s\t%.1f/s\t%.1f %%\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f ms\t", c.ID, c.SendRate, c.AchievedRate,
			100*c.RateRatio, c.MaxRolling1s, c.Delivered, c.Queued, c.Requeued, c.Retried, c.Lost, c.LatenessP99MS)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	p.w = w
	p.line("")
	for _, q := range r.Quotas {
		p.line("quota %s: at most %d in any %gs; the fullest held %d", q.ID, q.Limit, q.SpanS, q.MaxRolling)
	}
	p.line("redis: %d round trips, %.3f commands per job", r.Redis.RoundTrips, r.Redis.CommandsPerJob)
	p.line("")
	for _, warning := range r.Warnings {
		p.line("note: %s", warning)
	}
	for _, problem := range r.Problems {
		p.line("FAILED: %s", problem)
	}
	if r.OK {
		p.line("ok: no job lost, no limit exceeded, counted by the receiver")
	}
	p.line(`
Next, on real services:
  make up                                      start Kafka, Redis and PostgreSQL on this machine
  eval "$(scripts/services.sh env)"            tell pacer where they are
  scripts/services.sh topic pacer.jobs         a topic to publish to; pacer never makes that one
  export PACER_SINKS_NOWHERE_TYPE=discard      a sink; or one of type http, and its PACER_SINKS_<NAME>_URL
  bin/pacer migrate up                         make the tables, and pacer's own topics
  bin/pacer campaign create spring --rate 50
  bin/pacer publish --campaign spring --count 1000
  bin/pacer run                                the daemon; start several, they share the rate`)
	return p.err
}
