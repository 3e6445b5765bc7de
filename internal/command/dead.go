package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) dead() *cobra.Command {
	return group("dead", "Dead letters: jobs that could not be delivered", c.deadList(), c.deadShow(), c.deadReplay())
}

func (c *cli) deadList() *cobra.Command {
	var filters deadFilters
	var limit int
	var count bool
	cmd := c.plain("list", "List dead letters, the newest first, and count them", func(ctx context.Context) error {
		return c.listDead(ctx, &filters, limit, count)
	})
	cmd.Example = "  pacer dead list --campaign spring --since 2h\n  pacer dead list --count"
	filterFlags(cmd, &filters)
	cmd.Flags().IntVar(&limit, "limit", 0, "list and count at most this many; 0 for all")
	cmd.Flags().BoolVar(&count, "count", false, "only the counts, by campaign and reason")
	return c.withServer(cmd, config.NeedKafka)
}

// filterFlags adds the flags that select dead letters.
func filterFlags(cmd *cobra.Command, filters *deadFilters) {
	for _, flag := range []struct {
		to          *string
		name, usage string
	}{
		{&filters.Campaign, "campaign", "only letters of this campaign; (unknown) for those without one"},
		{&filters.Reason, "reason", "only letters with this reason"},
		{&filters.JobID, "job-id", "only letters of this job"},
		{&filters.Since, "since", "only letters written at or after: an instant (2026-12-01T09:00:00Z) or an age (2h, 7d)"},
		{&filters.Until, "until", "only letters written before: an instant or an age"},
	} {
		cmd.Flags().Var(&flagValue{kind: "string", set: func(text string) error {
			if *flag.to = text; text == "" { // of a script's variable, perhaps
				return errors.New("is empty; leave it out for all")
			}
			return nil
		}}, flag.name, flag.usage)
	}
}

// deadFilters select dead letters; empty fields select all. Since and Until are RFC 3339 or an age, such as 2h.
type deadFilters struct {
	Campaign, Reason, JobID, Since, Until string
}

// filter converts the flags to a filter, and checks them and the limit.
func (f *deadFilters) filter(now time.Time, limit int) (deadletter.Filter, error) {
	filter := deadletter.Filter{Campaign: f.Campaign, Reason: delivery.Reason(f.Reason), JobID: f.JobID}
	if f.Reason != "" && !slices.Contains(delivery.DeadReasons, filter.Reason) {
		words := make([]string, 0, len(delivery.DeadReasons))
		for _, r := range delivery.DeadReasons {
			words = append(words, string(r))
		}
		return filter, config.Usagef("--reason %q must be one of %s", f.Reason, strings.Join(words, ", "))
	}
	var err error
	if filter.Since, err = parseMoment("--since", f.Since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = parseMoment("--until", f.Until, now); err != nil {
		return filter, err
	}
	if !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
		return filter, config.Usagef("--since %s must lie before --until %s", f.Since, f.Until)
	}
	if limit < 0 {
		return filter, config.Usagef("--limit %d must not be negative; 0 is all", limit)
	}
	return filter, nil
}

// parseMoment parses an instant, or an age before now; zero for "".
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	age, err := notation.ParseSpan(text)
	if err != nil {
		return time.Time{}, config.Usagef("%s %q must be an instant such as 2026-12-01T09:00:00Z or an age such as 2h or 7d",
			flag, text)
	}
	return now.Add(-age), nil
}

// listDead is `pacer dead list`. It writes each dead letter as it is read, and the counts at the end. As JSON it writes the letters or,
// with --count, the counts.
func (c *cli) listDead(ctx context.Context, filters *deadFilters, limit int, countOnly bool) error {
	filter, err := filters.filter(time.Now(), limit)
	if err != nil {
		return err
	}
	p := &printer{w: c.Stdout}
	counts := deadCounts{}
	n := 0
	err = c.eachDead(ctx, filter, limit, func(d view.Letter) error {
		counts.add(&d)
		if n++; countOnly {
			return nil
		}
		return printDead(p, c.json, n == 1, d)
	})
	if err != nil {
		return err
	}
	which := "all"
	if n > 0 && n == limit {
		which = "newest " + strconv.Itoa(n)
	}
	table := func(p *printer) { counts.print(p, which) }
	switch {
	case c.json && countOnly:
		return writeJSON(c.Stdout, counts.sorted())
	case c.json && n == 0:
		p.line("[]")
	case c.json:
		p.line("\n]")
	case len(counts) == 0:
		p.line("no dead letters match")
	case countOnly:
		p.table(table)
	default:
		p.line("")
		p.table(table)
	}
	return p.err
}

// whyDead is the detail of a dead letter, and the answer.
func whyDead(d *view.Letter) string {
	if d.Answer == "" {
		return visible(d.Detail)
	}
	return visible(d.Detail + ": " + d.Answer)
}

// printDead writes one dead letter, as an element of an array or as a line.
func printDead(p *printer, asJSON, first bool, d view.Letter) error {
	if !asJSON {
		mark := ""
		if d.Replayed {
			mark = "  (replayed)"
		}
		p.line("%s  %s  %s  %s  %s  attempts %d  %s  %s%s", d.At.UTC().Format(time.RFC3339), d.Place, campaignField(d.Campaign),
			field(d.JobID), field(d.Reason), d.Attempts, field(d.Origin), whyDead(&d), mark)
		return p.err
	}
	element, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("describe a dead letter: %w", err)
	}
	lead := ",\n  "
	if first {
		lead = "[\n  "
	}
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, "%s%s", lead, element)
	}
	return p.err
}

// maxDeadGroups bounds the number of counts: the campaigns of letters that could not be decoded are arbitrary text.
const maxDeadGroups = 10_000

// deadCount counts the dead letters of one campaign with one reason.
type deadCount struct {
	deadletter.Group
	Letters  int       `json:"letters"`
	Replayed int       `json:"replayed"`
	Oldest   time.Time `json:"oldest"`
	Newest   time.Time `json:"newest"`
}

type deadCounts map[deadletter.Group]*deadCount

func (c deadCounts) add(d *view.Letter) {
	group := deadletter.Group{Campaign: d.Campaign, Reason: delivery.Reason(d.Reason)}
	if c[group] == nil && len(c) >= maxDeadGroups {
		group = deadletter.Group{Campaign: "(others)"}
	}
	n := c[group]
	if n == nil {
		n = &deadCount{Group: group, Oldest: d.At, Newest: d.At}
		c[group] = n
	}
	n.Letters++
	if d.Replayed {
		n.Replayed++
	}
	if d.At.Before(n.Oldest) {
		n.Oldest = d.At
	}
	if d.At.After(n.Newest) {
		n.Newest = d.At
	}
}

// sorted returns the counts by campaign and reason.
func (c deadCounts) sorted() []*deadCount {
	list := make([]*deadCount, 0, len(c))
	for _, group := range slices.SortedFunc(maps.Keys(c), deadletter.Group.Compare) {
		list = append(list, c[group])
	}
	return list
}

func (c deadCounts) print(p *printer, which string) {
	p.line("CAMPAIGN\tREASON\tLETTERS\tREPLAYED\tOLDEST\tNEWEST")
	letters, replayed := 0, 0
	for _, n := range c.sorted() {
		p.line("%s\t%s\t%d\t%d\t%s\t%s", campaignField(n.Campaign), field(string(n.Reason)), n.Letters, n.Replayed,
			n.Oldest.UTC().Format(time.RFC3339), n.Newest.UTC().Format(time.RFC3339))
		letters, replayed = letters+n.Letters, replayed+n.Replayed
	}
	p.line("%s\t\t%d\t%d\t\t", which, letters, replayed)
}

// campaignField is field for the campaign of a letter, in the words of --campaign and of metrics.
func campaignField(s string) string { return field(cmp.Or(s, delivery.UnknownCampaign)) }

// maxField bounds the length of a field from a record in a line.
const maxField = 256

// field formats a field from a record for a line: without terminal control characters, bounded, "-" if empty.
func field(s string) string {
	if len(s) > maxField {
		s = s[:maxField] + "…"
	}
	return cmp.Or(visible(s), "-")
}
