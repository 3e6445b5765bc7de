package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// DeadFlags are the flags of `dead list` and `dead replay`.
type DeadFlags struct {
	Campaign   string
	Reason     string
	Limit      int
	DryRun     bool
	DropExpiry bool
}

func (f *DeadFlags) filter() (requeue.DeadFilter, error) {
	filter := requeue.DeadFilter{Campaign: f.Campaign, Reason: delivery.Reason(f.Reason)}
	if f.Reason != "" && !slices.Contains(delivery.DeadReasons, filter.Reason) {
		words := make([]string, 0, len(delivery.DeadReasons))
		for _, r := range delivery.DeadReasons {
			words = append(words, string(r))
		}
		return filter, usagef("--reason %q must be one of %s", f.Reason, strings.Join(words, ", "))
	}
	if f.Limit < 0 {
		return filter, usagef("--limit %d must not be negative; 0 is all", f.Limit)
	}
	return filter, nil
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
	Place    string    `json:"place"` // partition/offset in the topic of the dead letters
}

func describeDead(d *requeue.DeadLetter) deadLetter {
	described := deadLetter{
		At: d.At, Campaign: d.Campaign, JobID: d.JobID, Reason: string(d.Reason), Detail: d.Detail, Attempts: d.Attempts,
		Bytes: max(len(d.Payload), d.Truncated), Place: fmt.Sprintf("%d/%d", d.Partition, d.Offset),
	}
	if d.Origin != (delivery.Origin{}) {
		described.Origin = fmt.Sprintf("%s/%d/%d", d.Origin.Topic, d.Origin.Partition, d.Origin.Offset)
	}
	return described
}

// DeadList is `pacer dead list`. It writes each dead letter as it is read, however many there are.
func DeadList(ctx context.Context, in Invocation, flags *DeadFlags) error {
	filter, err := flags.filter()
	if err != nil {
		return err
	}
	s, err := in.services(NeedKafka)
	if err != nil {
		return err
	}
	defer s.close()
	p := &printer{w: in.Stdout}
	n := 0
	err = requeue.ListDead(ctx, requeue.DeadOptions{
		Client: s.kafka, Prefix: s.topics.Prefix, DeadFilter: filter, Limit: flags.Limit,
	}, func(d requeue.DeadLetter) error {
		n++
		return printDead(p, in.JSON, n == 1, describeDead(&d))
	})
	if err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	switch {
	case in.JSON && n == 0:
		p.line("[]")
	case in.JSON:
		p.line("\n]")
	case n == 0:
		p.line("no dead letters match")
	}
	return p.err
}

// printDead writes one dead letter: an element of an array, or a line.
func printDead(p *printer, asJSON, first bool, d deadLetter) error {
	if !asJSON {
		p.line("%s  %s  %s  %s  attempts %d  %s  %s", d.At.UTC().Format(time.RFC3339), orDash(d.Campaign), orDash(d.JobID),
			d.Reason, d.Attempts, orDash(d.Origin), d.Detail)
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

// DeadReplay is `pacer dead replay`: matching dead letters become jobs again.
func DeadReplay(ctx context.Context, in Invocation, flags *DeadFlags) error {
	filter, err := flags.filter()
	if err != nil {
		return err
	}
	s, err := in.services(NeedKafka)
	if err != nil {
		return err
	}
	defer s.close()
	report, err := requeue.Replay(ctx, requeue.ReplayOptions{
		Client: s.kafka, Prefix: s.topics.Prefix, Ingress: s.topics.Ingress, DeadFilter: filter, Limit: flags.Limit,
		DryRun: flags.DryRun, DropExpiry: flags.DropExpiry,
	})
	if in.JSON {
		return firstError(err, writeJSON(in.Stdout, map[string]any{
			"dry_run": flags.DryRun, "matched": report.Matched, "replayed": report.Replayed, "truncated": report.Truncated,
			"expired": report.Expired, "topics": report.Topics,
		}))
	}
	p := &printer{w: in.Stdout}
	verb := "replayed"
	if flags.DryRun {
		verb = "would be replayed"
	}
	p.line("%d dead letters match, %d %s", report.Matched, report.Replayed, verb)
	if report.Truncated > 0 {
		p.line("%d left out: only the beginning of their payload was kept", report.Truncated)
	}
	if report.Expired > 0 {
		p.line("%d left out: their expiry has passed; --drop-expiry sends them all the same", report.Expired)
	}
	return firstError(err, p.err)
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
