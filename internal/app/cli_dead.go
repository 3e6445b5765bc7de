package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// DeadFilters select dead letters; empty fields select all. Since and Until are RFC 3339 or an age, such as 2h.
type DeadFilters struct {
	Campaign, Reason, JobID, Since, Until string
}

// DeadListFlags are the flags of `dead list`.
type DeadListFlags struct {
	DeadFilters
	Limit int
	Count bool // only the counts
}

func (f *DeadFilters) filter(now time.Time) (requeue.DeadFilter, error) {
	filter := requeue.DeadFilter{Campaign: f.Campaign, Reason: delivery.Reason(f.Reason), JobID: f.JobID}
	if f.Reason != "" && !slices.Contains(delivery.DeadReasons, filter.Reason) {
		words := make([]string, 0, len(delivery.DeadReasons))
		for _, r := range delivery.DeadReasons {
			words = append(words, string(r))
		}
		return filter, usagef("--reason %q must be one of %s", f.Reason, strings.Join(words, ", "))
	}
	var err error
	if filter.Since, err = parseMoment("--since", f.Since, now); err != nil {
		return filter, err
	}
	if filter.Until, err = parseMoment("--until", f.Until, now); err != nil {
		return filter, err
	}
	if !filter.Until.IsZero() && !filter.Since.Before(filter.Until) {
		return filter, usagef("--since %s must lie before --until %s", f.Since, f.Until)
	}
	return filter, nil
}

// parseMoment reads an instant, or how long ago it was; zero for "".
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	age, err := catalog.ParseSpan(text)
	if err != nil {
		return time.Time{}, usagef("%s %q must be an instant such as 2026-12-01T09:00:00Z or an age such as 2h or 7d",
			flag, text)
	}
	return now.Add(-age), nil
}

func validLimit(limit int) error {
	if limit < 0 {
		return usagef("--limit %d must not be negative; 0 is all", limit)
	}
	return nil
}

// deadLetter is a dead letter as people and programs see it; its payload stays where it is.
type deadLetter struct {
	At       time.Time `json:"at"`
	Campaign string    `json:"campaign"`
	JobID    string    `json:"job_id"`
	Reason   string    `json:"reason"`
	Detail   string    `json:"detail,omitempty"`
	Attempts int       `json:"attempts"`
	Origin   string    `json:"origin,omitempty"`
	Bytes    int       `json:"bytes"`
	Replayed bool      `json:"replayed"`
	Place    string    `json:"place"` // partition/offset in the topic of the dead letters
}

func describeDead(d *requeue.DeadLetter) deadLetter {
	described := deadLetter{
		At: d.At, Campaign: d.Campaign, JobID: d.JobID, Reason: string(d.Reason), Detail: d.Detail, Attempts: d.Attempts,
		Bytes: max(len(d.Payload), d.Truncated), Replayed: d.Replayed, Place: d.Place().String(),
	}
	if d.Origin != (delivery.Origin{}) {
		described.Origin = fmt.Sprintf("%s/%d/%d", d.Origin.Topic, d.Origin.Partition, d.Origin.Offset)
	}
	return described
}

// DeadList is `pacer dead list`. It writes each dead letter as it is read, however many there are, and the counts at
// the end; as JSON the letters or, with --count, the counts.
func DeadList(ctx context.Context, in Invocation, flags *DeadListFlags) error {
	filter, err := flags.filter(time.Now())
	if err != nil {
		return err
	}
	if err := validLimit(flags.Limit); err != nil {
		return err
	}
	s, err := in.services(NeedKafka)
	if err != nil {
		return err
	}
	defer s.close()
	p := &printer{w: in.Stdout}
	counts := deadCounts{}
	n := 0
	err = requeue.ListDead(ctx, requeue.DeadOptions{
		Client: s.kafka, Prefix: s.topics.Prefix, DeadFilter: filter, Limit: flags.Limit,
		Unmarked: unmarked(in.Stderr),
	}, func(d requeue.DeadLetter) error {
		counts.add(&d)
		if flags.Count {
			return nil
		}
		n++
		return printDead(p, in.JSON, n == 1, describeDead(&d))
	})
	if err != nil {
		return fmt.Errorf("list dead letters: %w", brokersFault(err))
	}
	switch {
	case in.JSON && flags.Count:
		return writeJSON(in.Stdout, counts.sorted())
	case in.JSON && n == 0:
		p.line("[]")
	case in.JSON:
		p.line("\n]")
	case len(counts) == 0:
		p.line("no dead letters match")
	case !flags.Count:
		p.line("")
		return firstError(p.err, writeTable(in.Stdout, counts.print))
	default:
		return writeTable(in.Stdout, counts.print)
	}
	return p.err
}

// unmarked says that nobody can tell which letters have been replayed, and why.
func unmarked(stderr io.Writer) func(error) {
	return func(err error) {
		(&printer{w: stderr}).line("pacer: which letters were replayed is not shown: %v", err)
	}
}

// printDead writes one dead letter: an element of an array, or a line.
func printDead(p *printer, asJSON, first bool, d deadLetter) error {
	if !asJSON {
		mark := ""
		if d.Replayed {
			mark = "  (replayed)"
		}
		p.line("%s  %s  %s  %s  %s  attempts %d  %s  %s%s", d.At.UTC().Format(time.RFC3339), d.Place, field(d.Campaign),
			field(d.JobID), field(d.Reason), d.Attempts, field(d.Origin), visible(d.Detail), mark)
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

// maxDeadGroups bounds the counts: the campaigns of letters that could not be read are anybody's words.
const maxDeadGroups = 10_000

// deadCount counts the dead letters of one campaign with one reason.
type deadCount struct {
	Campaign string    `json:"campaign"`
	Reason   string    `json:"reason"`
	Letters  int       `json:"letters"`
	Replayed int       `json:"replayed"`
	Oldest   time.Time `json:"oldest"`
	Newest   time.Time `json:"newest"`
}

type deadCounts map[requeue.DeadGroup]*deadCount

func (c deadCounts) add(d *requeue.DeadLetter) {
	group := requeue.DeadGroup{Campaign: d.Campaign, Reason: d.Reason}
	if c[group] == nil && len(c) >= maxDeadGroups {
		group = requeue.DeadGroup{Campaign: "(others)"}
	}
	n := c[group]
	if n == nil {
		n = &deadCount{Campaign: group.Campaign, Reason: string(group.Reason), Oldest: d.At, Newest: d.At}
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

// sorted lists the counts by campaign and reason.
func (c deadCounts) sorted() []*deadCount {
	list := slices.AppendSeq(make([]*deadCount, 0, len(c)), maps.Values(c))
	slices.SortFunc(list, func(a, b *deadCount) int {
		return cmp.Or(cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

func (c deadCounts) print(p *printer) {
	p.line("CAMPAIGN\tREASON\tLETTERS\tREPLAYED\tOLDEST\tNEWEST")
	letters, replayed := 0, 0
	for _, n := range c.sorted() {
		p.line("%s\t%s\t%d\t%d\t%s\t%s", field(n.Campaign), field(n.Reason), n.Letters, n.Replayed,
			n.Oldest.UTC().Format(time.RFC3339), n.Newest.UTC().Format(time.RFC3339))
		letters, replayed = letters+n.Letters, replayed+n.Replayed
	}
	p.line("all\t\t%d\t%d\t\t", letters, replayed)
}

// maxField bounds what a word from a record takes of a line.
const maxField = 256

// field is a word from a record on a line: without anything that could steer a terminal, bounded, "-" where it is
// empty.
func field(s string) string {
	if len(s) > maxField {
		s = s[:maxField] + "…"
	}
	return orDash(visible(s))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
