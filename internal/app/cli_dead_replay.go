package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// DeadReplayFlags are the flags of `dead replay`.
type DeadReplayFlags struct {
	DeadFilters
	Limit      int
	DryRun     bool
	Again      bool
	DropExpiry bool
	Rate       string // "": as fast as Kafka takes them
	ToTopic    string // "": the one each job came from
}

// options checks the flags and makes of them what they ask for.
func (f *DeadReplayFlags) options() (o requeue.ReplayOptions, err error) {
	if o.DeadFilter, err = f.filter(time.Now()); err != nil {
		return o, err
	}
	if err = validLimit(f.Limit); err != nil {
		return o, err
	}
	if f.Rate != "" {
		micros, period, err := delivery.ParseRate(f.Rate)
		if err != nil {
			return o, usagef("--rate: %w", err)
		}
		if micros == 0 {
			return o, usagef("--rate %s would replay nothing; give a number above 0", f.Rate)
		}
		if o.Rate, err = delivery.NewRate(micros, period); err != nil {
			return o, usagef("--rate: %w", err)
		}
	}
	o.Limit, o.DryRun, o.Again, o.DropExpiry, o.ToTopic = f.Limit, f.DryRun, f.Again, f.DropExpiry, f.ToTopic
	return o, nil
}

// DeadReplay is `pacer dead replay`: matching dead letters become jobs again.
func DeadReplay(ctx context.Context, in Invocation, flags *DeadReplayFlags) error {
	opts, err := flags.options()
	if err != nil {
		return err
	}
	s, err := in.services(NeedKafka)
	if err != nil {
		return err
	}
	defer s.close()
	opts.Client, opts.Prefix, opts.Ingress = s.kafka, s.topics.Prefix, s.topics.Ingress
	if t := opts.ToTopic; t != "" && !slices.Contains(opts.Ingress, t) {
		return usagef("--to-topic %s is not among kafka.topics, so nobody would read it; add it there", t)
	}
	began := time.Now()
	report, err := replayWithBar(ctx, in, opts)
	if err != nil {
		err = replayError(ctx, flags, &report, brokersFault(err))
	} else {
		err = oversizeError(&report)
	}
	if in.JSON {
		return firstError(err, writeJSON(in.Stdout, replaySummary(flags, &report)))
	}
	p := &printer{w: in.Stdout}
	printReplay(p, flags, &report, time.Since(began))
	return firstError(err, p.err)
}

// replayWithBar replays; on a terminal it first counts, so that the bar has an end.
func replayWithBar(ctx context.Context, in Invocation, opts requeue.ReplayOptions) (requeue.ReplayReport, error) {
	if !in.Progress || opts.DryRun {
		return requeue.Replay(ctx, opts)
	}
	dry := opts
	dry.DryRun = true
	expected, err := requeue.Replay(ctx, dry)
	if err != nil || expected.Replayed == 0 {
		return expected, err
	}
	bar := newBar(ctx, in, "replaying", int64(expected.Replayed))
	shown := 0
	opts.Progress = func(replayed int) {
		bar.add(replayed - shown)
		shown = replayed
	}
	report, err := requeue.Replay(ctx, opts)
	bar.close()
	return report, err
}

// replayError says how far a replay came that did not end well, and how to go on.
func replayError(ctx context.Context, flags *DeadReplayFlags, report *requeue.ReplayReport, err error) error {
	if report.Replayed == 0 && report.Doubtful == 0 {
		if ctx.Err() != nil {
			return errors.New("replay: interrupted before anything was replayed")
		}
		return err
	}
	goOn := "run the same command again to go on; it leaves out what was replayed"
	if flags.Again {
		since := report.GoOn.UTC().Truncate(time.Millisecond)
		goOn = "to go on, run the same command with --since " + since.Format(time.RFC3339Nano)
	}
	doubt := ""
	if report.Doubtful > 0 {
		doubt = fmt.Sprintf(", and up to %d of the last batch may be replayed twice", report.Doubtful)
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return fmt.Errorf("replay: interrupted after %d dead letters%s; %s", report.Replayed, doubt, goOn)
	}
	return fmt.Errorf("%w (%d dead letters were replayed%s; %s)", err, report.Replayed, doubt, goOn)
}

// oversizeError names the letters that a topic did not take; nil where there are none.
func oversizeError(report *requeue.ReplayReport) error {
	if report.Oversize == 0 {
		return nil
	}
	named := make([]string, 0, len(report.Oversized)+1)
	for _, o := range report.Oversized {
		named = append(named, fmt.Sprintf("%s (%d bytes, for %s)", o.Place, o.Bytes, o.Topic))
	}
	if rest := report.Oversize - len(named); rest > 0 {
		named = append(named, fmt.Sprintf("and %d more", rest))
	}
	return fmt.Errorf("replay: %d left out: larger than max.message.bytes of their topic: %s; raise it and replay again",
		report.Oversize, strings.Join(named, ", "))
}

// oversizeLetter is a letter that its topic did not take.
type oversizeLetter struct {
	Place string `json:"place"`
	Topic string `json:"topic"`
	Bytes int    `json:"bytes"`
}

func oversizeLetters(report *requeue.ReplayReport) []oversizeLetter {
	list := make([]oversizeLetter, 0, len(report.Oversized))
	for _, o := range report.Oversized {
		list = append(list, oversizeLetter{Place: o.Place.String(), Topic: o.Topic, Bytes: o.Bytes})
	}
	return list
}

// replayedGroup is how many letters of one campaign with one reason were replayed.
type replayedGroup struct {
	Campaign string `json:"campaign"`
	Reason   string `json:"reason"`
	Replayed int    `json:"replayed"`
}

func replayedGroups(report *requeue.ReplayReport) []replayedGroup {
	list := make([]replayedGroup, 0, len(report.Groups))
	for group, n := range report.Groups {
		list = append(list, replayedGroup{Campaign: group.Campaign, Reason: string(group.Reason), Replayed: n})
	}
	slices.SortFunc(list, func(a, b replayedGroup) int {
		return cmp.Or(cmp.Compare(a.Campaign, b.Campaign), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// replaySummary is what `dead replay --json` prints.
func replaySummary(flags *DeadReplayFlags, report *requeue.ReplayReport) map[string]any {
	return map[string]any{
		"dry_run": flags.DryRun, "matched": report.Matched, "replayed": report.Replayed, "replayed_before": report.Before,
		"truncated": report.Truncated, "expired": report.Expired, "topics": report.Topics, "groups": replayedGroups(report),
		"oversize": report.Oversize, "oversize_letters": oversizeLetters(report),
	}
}

func printReplay(p *printer, flags *DeadReplayFlags, report *requeue.ReplayReport, took time.Duration) {
	verb := "replayed in " + took.Round(time.Millisecond).String()
	if flags.DryRun {
		verb = "would be replayed"
	}
	for _, g := range replayedGroups(report) {
		p.line("  %d  %s  %s", g.Replayed, field(g.Campaign), field(g.Reason))
	}
	if topics := slices.Sorted(maps.Keys(report.Topics)); len(topics) > 1 {
		for _, t := range topics {
			p.line("  %d  to %s", report.Topics[t], t)
		}
	}
	p.line("%d dead letters match, %d %s", report.Matched, report.Replayed, verb)
	if report.Before > 0 {
		p.line("%d left out: replayed before; --again sends them once more", report.Before)
	}
	if report.Truncated > 0 {
		p.line("%d left out: only the beginning of their payload was kept", report.Truncated)
	}
	if report.Oversize > 0 {
		p.line("%d left out: larger than their topic takes", report.Oversize)
	}
	if report.Expired > 0 {
		p.line("%d left out: their expiry has passed; --drop-expiry sends them all the same", report.Expired)
	}
}
