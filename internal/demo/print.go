package demo

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
)

// Text returns the report as text.
func (r *Report) Text() string {
	var text strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&text, format+"\n", args...) }
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "\n"+
		"campaign\tsend_rate\tachieved\tof allowed\tmax in 1 s\tdelivered\tqueued\trequeued\tretried\tlost\tlate p99\t")
	for i := range r.Campaigns {
		c := &r.Campaigns[i]
		fmt.Fprintf(table, "%s\t%g/s\t%.1f/s\t%.1f %%\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f ms\t\n", c.ID, c.SendRate, c.AchievedRate,
			100*c.RateRatio, c.MaxRolling1s, c.Delivered, c.Queued, c.Requeued, c.Retried, c.Lost, c.LatenessP99MS)
	}
	_ = table.Flush() // writes to memory
	line("")
	for _, q := range r.Quotas {
		line("quota %s: at most %d in any %gs; the fullest held %d", q.ID, q.Limit, q.SpanS, q.MaxRolling)
	}
	if slices.ContainsFunc(r.Campaigns, func(c CampaignReport) bool { return c.RateRatio >= 1.0005 }) { // as it is printed
		line("above 100 %% of allowed: that counts quotas by their average, and a window that is unused may be spent at once;")
		line("what a quota promises is the most in any window")
	}
	line("redis: %d round trips, %.3f commands per job", r.Redis.RoundTrips, r.Redis.CommandsPerJob)
	line("")
	for _, warning := range r.Warnings {
		line("note: %s", warning)
	}
	for _, problem := range r.Problems {
		line("FAILED: %s", problem)
	}
	if r.OK {
		line("ok: no job lost, no limit exceeded, counted by the receiver")
	}
	line(`
Next, on real services:
  make up                                      start Kafka, Redis and PostgreSQL on this machine
  eval "$(scripts/services.sh env)"            tell pacer where they are
  scripts/services.sh topic pacer.jobs         a topic to publish to; pacer never makes that one
  export PACER_SINKS_NOWHERE_TYPE=discard      a sink; or one of type http, and its PACER_SINKS_<NAME>_URL
  bin/pacer migrate up                         make the tables, and pacer's own topics
  bin/pacer campaign create spring --rate 50
  bin/pacer publish --campaign spring --count 1000
  bin/pacer run                                the daemon; start several, they share the rate`)
	return text.String()
}
