package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) deadReplay() *cobra.Command {
	var filters deadFilters
	var rate string
	var opts deadletter.ReplayOptions
	cmd := c.plain("replay", "Publish dead letters as jobs again, each once; they stay listed", func(ctx context.Context) error {
		if err := replayOptions(&opts, &filters, rate); err != nil {
			return err
		}
		if c.server.address != "" {
			return c.replayDeadOver(ctx, &opts, rate)
		}
		if err := c.noToken(); err != nil {
			return err
		}
		return c.replayDead(ctx, opts)
	})
	cmd.Example = "  pacer dead replay --campaign spring --dry-run\n  pacer dead replay --campaign spring --rate 500"
	filterFlags(cmd, &filters)
	f := cmd.Flags()
	f.IntVar(&opts.Limit, "limit", 0, "replay at most so many; 0 for all")
	f.BoolVar(&opts.DryRun, "dry-run", false, "only say what would be replayed")
	f.StringVar(&rate, "rate", "", "rate of the replay, evenly spaced, such as 500, 150/m or 1/h; as fast as Kafka accepts if not given, over --server 100")
	f.StringVar(&opts.ToTopic, "to-topic", "", "ingress topic; the one that each job came from if not given")
	f.BoolVar(&opts.Again, "again", false, "those that have been replayed before, too")
	f.BoolVar(&opts.DropExpiry, "drop-expiry", false, "those that have expired, too, without their expiry")
	return c.withServer(cmd)
}

// replayOptions sets the options of the remaining flags.
func replayOptions(o *deadletter.ReplayOptions, filters *deadFilters, rate string) (err error) {
	if o.Filter, err = filters.filter(time.Now(), o.Limit); err != nil || rate == "" {
		return err
	}
	o.Rate, err = parsePublishRate(rate)
	return err
}

// parsePublishRate reads the flag --rate of the commands that publish.
func parsePublishRate(text string) (delivery.Rate, error) {
	micros, period, err := notation.ParseRate(text)
	if err != nil {
		return delivery.Rate{}, config.Usagef("--rate: %w", err)
	}
	if micros == 0 {
		return delivery.Rate{}, config.Usagef("--rate %s would publish nothing; give a number above 0", text)
	}
	rate, err := delivery.NewRate(micros, period)
	if err != nil {
		return delivery.Rate{}, config.Usagef("--rate: %w", err)
	}
	return rate, nil
}

// replayDead is `pacer dead replay`: matching dead letters become jobs again.
func (c *cli) replayDead(ctx context.Context, opts deadletter.ReplayOptions) error {
	s, err := c.services(config.NeedKafka)
	if err != nil {
		return err
	}
	defer s.Close()
	opts.Topics, opts.Ingress = s.DeadTopics(), s.Topics.Ingress
	if t := opts.ToTopic; t != "" && !slices.Contains(opts.Ingress, t) {
		return config.Usagef("--to-topic %s is not among kafka.topics, so no daemon would read it; add it there", t)
	}
	if !opts.DryRun {
		held, release, err := s.HoldReplays(ctx)
		switch {
		case err == nil:
			defer release()
			ctx = held
		case errors.Is(err, catalog.ErrUnreachable): // the letters are in Kafka, and who types this may know that nobody else does
			s.Log.Warn("nothing keeps others from replaying the same letters at the same time", "error", err)
		default:
			return fmt.Errorf("replay: %w", err)
		}
	}
	began := time.Now()
	report, err := c.replayWithBar(ctx, opts)
	if err != nil {
		if errors.Is(context.Cause(ctx), catalog.ErrLost) {
			err = catalog.ErrLost
		}
		if err = replayError(ctx, opts.Again, &report, app.BrokersFault(err)); report.Replayed == 0 {
			return err // there is nothing to report, and what matches is not known
		}
	} else {
		err = oversizeError(&report)
	}
	return cmp.Or(err, c.print(replaySummary(opts.DryRun, &report), func(p *printer) {
		printReplay(p, opts.DryRun, &report, time.Since(began))
	}))
}

// replayWithBar replays; on a terminal it first counts the letters, so that the bar has an end.
func (c *cli) replayWithBar(ctx context.Context, opts deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
	if !isTerminal(c.Stderr) || opts.DryRun {
		return deadletter.Replay(ctx, opts)
	}
	dry := opts
	dry.DryRun = true
	expected, err := deadletter.Replay(ctx, dry)
	if err != nil || expected.Replayed == 0 {
		return expected, err
	}
	bar := c.newBar(ctx, "replaying", int64(expected.Replayed))
	shown := 0
	opts.Progress = func(replayed int) {
		bar.add(replayed - shown)
		shown = replayed
	}
	report, err := deadletter.Replay(ctx, opts)
	bar.close()
	return report, err
}

// replayError says how far a failed replay came, and how to continue.
func replayError(ctx context.Context, again bool, report *deadletter.ReplayReport, err error) error {
	if report.Replayed == 0 && report.Doubtful == 0 {
		if ctx.Err() != nil {
			return errors.New("replay: interrupted before anything was replayed")
		}
		return err
	}
	goOn := "run the same command again to go on; it leaves out what was replayed"
	if again {
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

// oversizeError names the letters that a topic did not accept; nil if there are none.
func oversizeError(report *deadletter.ReplayReport) error {
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

// replayedGroup is the number of replayed letters of one campaign with one reason.
type replayedGroup struct {
	deadletter.Group
	Replayed int `json:"replayed"`
}

func replayedGroups(report *deadletter.ReplayReport) []replayedGroup {
	list := make([]replayedGroup, 0, len(report.Groups))
	for _, group := range slices.SortedFunc(maps.Keys(report.Groups), deadletter.Group.Compare) {
		list = append(list, replayedGroup{group, report.Groups[group]})
	}
	return list
}

// replaySummary is what `dead replay --json` prints.
func replaySummary(dryRun bool, report *deadletter.ReplayReport) map[string]any {
	return map[string]any{
		"dry_run": dryRun, "matched": report.Matched, "more": report.More, "replayed": report.Replayed, "replayed_before": report.Before,
		"truncated": report.Truncated, "expired": report.Expired, "topics": report.Topics, "groups": replayedGroups(report),
		// An empty list is [], not null.
		"oversize": report.Oversize, "oversize_letters": append([]deadletter.OversizeLetter{}, report.Oversized...),
	}
}

func printReplay(p *printer, dryRun bool, report *deadletter.ReplayReport, took time.Duration) {
	verb := "replayed in " + took.Round(time.Millisecond).String()
	if dryRun {
		verb = "would be replayed"
	}
	for _, g := range replayedGroups(report) {
		p.line("  %d  %s  %s", g.Replayed, campaignField(g.Campaign), field(string(g.Reason)))
	}
	if topics := slices.Sorted(maps.Keys(report.Topics)); len(topics) > 1 {
		for _, t := range topics {
			p.line("  %d  to %s", report.Topics[t], t)
		}
	}
	atLeast := ""
	if report.More {
		atLeast = "at least "
	}
	match := counted(report.Matched, "dead letter") + " match"
	if report.Matched == 1 {
		match += "es"
	}
	p.line("%s%s, %d %s", atLeast, match, report.Replayed, verb)
	for _, left := range []struct {
		letters int
		why     string
	}{
		{report.Before, "replayed before; --again sends them once more"},
		{report.Truncated, "their payload could not be read"},
		{report.Oversize, "larger than their topic takes"},
		{report.Expired, "they have expired, by pacer-expires-at or job_ttl; --drop-expiry sends them all the same"},
	} {
		if left.letters > 0 {
			p.line("%d left out: %s", left.letters, left.why)
		}
	}
}
