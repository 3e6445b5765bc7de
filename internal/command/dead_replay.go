package command

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) deadReplay() *cobra.Command {
	var filters deadFilters
	request := replayRequest{}
	cmd := c.plain("replay", "Publish dead letters as jobs again, each once; they stay listed", func(ctx context.Context) error {
		return c.replayDead(ctx, &filters, request)
	})
	cmd.Example = "  pacer dead replay --campaign spring --dry-run\n  pacer dead replay --campaign spring --rate 500"
	filterFlags(cmd, &filters)
	f := cmd.Flags()
	f.IntVar(&request.Limit, "limit", 0, fmt.Sprintf("replay at most so many; %d if not given, which is the most", replay.MaxLetters))
	f.BoolVar(&request.DryRun, "dry-run", false, "only say what would be replayed")
	f.StringVar(&request.Rate, "rate", "1000", "rate of the replay, evenly spaced, such as 500, 150/m or 1/h")
	f.StringVar(&request.ToTopic, "to-topic", "", "ingress topic; the one that each job came from if not given")
	f.BoolVar(&request.Again, "again", false, "those that have been replayed before, too")
	f.BoolVar(&request.DropExpiry, "drop-expiry", false, "those that have expired, too, without their expiry")
	return c.withServer(cmd, config.NeedKafka)
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

const (
	// askReplayFirst and askReplayMost are between two looks at how far a replay is: those of a few letters are over at once.
	askReplayFirst, askReplayMost = 20 * time.Millisecond, time.Second
	// stopReplayWithin bounds how long stopping a replay may take when the command is interrupted.
	stopReplayWithin = 10 * time.Second
)

// replayRequest says which letters are to be replayed.
type replayRequest struct {
	deadletter.Filter
	DropExpiry bool   `json:"drop_expiry,omitempty"`
	Again      bool   `json:"again,omitempty"`
	ToTopic    string `json:"to_topic,omitempty"`
	DryRun     bool   `json:"dry_run,omitempty"`
	Rate       string `json:"rate,omitempty"`
	Limit      int    `json:"limit"`
}

// replayDead is `pacer dead replay`: matching dead letters become jobs again.
func (c *cli) replayDead(ctx context.Context, filters *deadFilters, request replayRequest) error {
	var err error
	if request.Filter, err = filters.filter(time.Now(), request.Limit); err != nil {
		return err
	}
	if _, err := parsePublishRate(request.Rate); err != nil {
		return err
	}
	if request.Limit > replay.MaxLetters {
		return config.Usagef("--limit %d is above %d, the most that one replay takes", request.Limit, replay.MaxLetters)
	}
	asked := request.Limit
	request.Limit = cmp.Or(asked, replay.MaxLetters)
	began := time.Now()
	var begun struct {
		Outcome deadletter.ReplayReport
		Job     replay.Job
	}
	if err := c.call(ctx, http.MethodPost, "/replays", nil, request, &begun); err != nil {
		return err
	}
	report := &begun.Outcome
	if request.DryRun {
		report.Replayed = min(report.Replayed, request.Limit)
	} else {
		err = c.followReplay(ctx, &begun.Job, asked)
		if report = &begun.Job.Outcome; err != nil && report.Replayed == 0 {
			return err // there is nothing to report, and what matches is not known
		}
	}
	return cmp.Or(err, oversizeError(report), c.print(replaySummary(request.DryRun, report), func(p *printer) {
		printReplay(p, request.DryRun, report, time.Since(began))
	}))
}

// followReplay waits for the end of a replay of at most limit letters, 0 for all. It is stopped when ctx ends.
func (c *cli) followReplay(ctx context.Context, job *replay.Job, limit int) error {
	path := pathOf("replays", job.ID)
	bar := c.newBar(ctx, "replaying", int64(limit))
	defer bar.close()
	asking := context.WithoutCancel(ctx)
	interrupted := ctx.Done()
	for wait := askReplayFirst; job.State == replay.Running; wait = min(2*wait, askReplayMost) {
		select {
		case <-time.After(wait):
		case <-interrupted:
			interrupted, wait = nil, askReplayFirst
			stopping, cancel := context.WithTimeout(asking, stopReplayWithin)
			defer cancel()
			if asking = stopping; c.call(asking, http.MethodPost, path+"/stop", nil, struct{}{}, nil) != nil {
				return fmt.Errorf("replay: interrupted after %d dead letters, and it goes on at the console", job.Outcome.Replayed)
			}
		}
		if err := c.get(asking, path, nil, job); err != nil {
			return fmt.Errorf("replay %s goes on, but how far it is cannot be asked: %w", job.ID, err)
		}
		bar.set(int64(job.Outcome.Replayed))
	}
	doubt := ""
	if job.Outcome.Doubtful > 0 {
		doubt = fmt.Sprintf(", and up to %d of the last batch may be replayed twice", job.Outcome.Doubtful)
	}
	goOn := "run the same command again to go on; it leaves out what was replayed"
	if job.Again {
		goOn = "to go on, run the same command without --again, or with --since"
	}
	why := cmp.Or(job.Error, "interrupted")
	switch {
	case job.State == replay.Done:
		return nil
	case job.Outcome.Replayed == 0 && doubt == "":
		return fmt.Errorf("replay: %s; nothing was replayed", why)
	}
	return fmt.Errorf("replay: %s after %d dead letters%s; %s", why, job.Outcome.Replayed, doubt, goOn)
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

// replaySummary is what `dead replay --json` prints.
func replaySummary(dryRun bool, report *deadletter.ReplayReport) map[string]any {
	return map[string]any{
		"dry_run": dryRun, "matched": report.Matched, "more": report.More, "replayed": report.Replayed, "replayed_before": report.Before,
		"truncated": report.Truncated, "expired": report.Expired, "topics": report.Topics,
		// An empty list is [], not null.
		"groups":   append([]deadletter.ReplayedGroup{}, report.Groups...),
		"oversize": report.Oversize, "oversize_letters": append([]deadletter.OversizeLetter{}, report.Oversized...),
	}
}

func printReplay(p *printer, dryRun bool, report *deadletter.ReplayReport, took time.Duration) {
	verb := "replayed in " + took.Round(time.Millisecond).String()
	if dryRun {
		verb = "would be replayed"
	}
	for _, g := range report.Groups {
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
