package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
)

const (
	// remoteReplayRate is that of a replay over the API whose rate is not given.
	remoteReplayRate = "100"
	// askReplayFirst and askReplayMost are between two looks at how far a replay is: those of a few letters are over at once.
	askReplayFirst, askReplayMost = 20 * time.Millisecond, time.Second
	// stopReplayWithin bounds how long stopping a replay may take when the command is interrupted.
	stopReplayWithin = 5 * time.Second
)

// eachDead yields the letters that match, the newest first, page by page; 0 is no limit.
func (r *client) eachDead(ctx context.Context, filter deadletter.Filter, limit int, yield func(view.Letter) error) error {
	query := url.Values{"since": {time.Unix(0, 0).UTC().Format(time.RFC3339)}} // without any the last day is meant
	for name, value := range map[string]string{"campaign": filter.Campaign, "reason": string(filter.Reason), "job_id": filter.JobID} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if !filter.Since.IsZero() {
		query.Set("since", filter.Since.UTC().Format(time.RFC3339Nano))
	}
	if !filter.Until.IsZero() {
		query.Set("until", filter.Until.UTC().Format(time.RFC3339Nano))
	}
	for n := 0; ; {
		page := pageSize
		if limit > 0 {
			page = min(page, limit-n)
		}
		query.Set("limit", strconv.Itoa(page))
		var found view.Letters
		if err := r.get(ctx, "/dead-letters", query, &found); err != nil {
			return err
		}
		for i := range found.List {
			if err := yield(found.List[i]); err != nil {
				return err
			}
		}
		if n += len(found.List); found.Next == "" || limit > 0 && n >= limit {
			return nil
		}
		query.Set("after", found.Next)
	}
}

// oneDead finds a letter by its place, or else the newest one of a job.
func (r *client) oneDead(ctx context.Context, what string) (*deadWhole, error) {
	whole := &deadWhole{}
	if _, ok := view.ParsePlace(what); !ok {
		var places []string
		err := r.eachDead(ctx, deadletter.Filter{JobID: what}, 1+maxField, func(d view.Letter) error {
			places = append(places, d.Place)
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case len(places) == 0:
			return nil, fmt.Errorf("there is none of job %s; pacer dead list shows what there is", strconv.Quote(what))
		}
		what, whole.Others = places[0], places[1:]
	}
	return whole, r.get(ctx, "/dead-letters/"+what, nil, &whole.WholeLetter)
}

// remoteReplay says which letters a console is to replay.
type remoteReplay struct {
	replay.Filter
	DropExpiry bool `json:"drop_expiry,omitempty"`
}

// replayDeadOver runs `pacer dead replay --server`. The console counts the letters first, and then replays so many.
func (c *cli) replayDeadOver(ctx context.Context, opts *deadletter.ReplayOptions, rate string) error {
	if opts.ToTopic != "" || opts.Again {
		return config.Usagef("--to-topic and --again do not work over --server; leave them out, or run the command where Kafka can be reached")
	}
	r, err := c.remote()
	if err != nil {
		return err
	}
	which := remoteReplay{
		Filter:     replay.Filter{Campaign: opts.Campaign, Reason: string(opts.Reason), JobID: opts.JobID, Since: opts.Since, Until: opts.Until},
		DropExpiry: opts.DropExpiry,
	}
	began := time.Now()
	var counted struct {
		Outcome deadletter.ReplayReport `json:"outcome"`
	}
	err = r.call(ctx, http.MethodPost, "/replays", nil, struct {
		remoteReplay
		DryRun bool `json:"dry_run"`
	}{which, true}, &counted)
	if err != nil {
		return err
	}
	outcome := counted.Outcome
	if opts.Limit > 0 {
		outcome.Replayed = min(outcome.Replayed, opts.Limit)
	}
	if !opts.DryRun && outcome.Replayed > 0 {
		if outcome, err = c.runReplay(ctx, r, which, cmp.Or(rate, remoteReplayRate), outcome.Replayed); err != nil {
			return err
		}
	}
	all := &counted.Outcome // a replay itself reads no further than to its limit
	report := deadletter.ReplayReport{
		Matched: all.Matched, More: all.Replayed == replay.MaxLetters, Replayed: outcome.Replayed,
		Before: all.Before, Truncated: all.Truncated, Expired: all.Expired, Oversize: outcome.Oversize,
	}
	return c.print(replaySummary(opts.DryRun, &report), func(p *printer) { printReplay(p, opts.DryRun, &report, time.Since(began)) })
}

// runReplay starts a replay on a console and waits for its end. It is stopped when ctx ends.
func (c *cli) runReplay(ctx context.Context, r *client, which remoteReplay, rate string, limit int) (deadletter.ReplayReport, error) {
	var begun struct {
		Job replay.Job `json:"job"`
	}
	err := r.call(ctx, http.MethodPost, "/replays", nil, struct {
		remoteReplay
		Rate  string `json:"rate"`
		Limit int    `json:"limit"`
	}{which, rate, limit}, &begun)
	if err != nil {
		return deadletter.ReplayReport{}, err
	}
	job, path := begun.Job, "/replays/"+url.PathEscape(begun.Job.ID)
	bar := c.newBar(ctx, "replaying", int64(limit))
	defer bar.close()
	for wait := askReplayFirst; job.State == "running"; wait = min(2*wait, askReplayMost) {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopReplayWithin)
			defer cancel()
			if err := r.call(stop, http.MethodPost, path+"/stop", nil, struct{}{}, nil); err != nil {
				return job.Outcome, fmt.Errorf("replay: interrupted after %d dead letters, and it goes on at the console: %w", job.Outcome.Replayed, err)
			}
			return job.Outcome, fmt.Errorf("replay: interrupted after %d dead letters; run the same command again to go on; it leaves out what was replayed", job.Outcome.Replayed)
		}
		err := r.get(ctx, path, nil, &job)
		var refused *refusal
		switch {
		case ctx.Err() != nil: // it is stopped in the next turn
		case errors.As(err, &refused) && refused.status == http.StatusNotFound:
			return job.Outcome, fmt.Errorf("replay %s goes on, but --server leads to another process now, which does not know of it; name one process to follow it", job.ID)
		case err != nil:
			return job.Outcome, fmt.Errorf("replay %s goes on, but how far it is cannot be asked: %w", job.ID, err)
		}
		bar.set(int64(job.Outcome.Replayed))
	}
	if job.State != "done" {
		return job.Outcome, fmt.Errorf("replay: it has %s after %d dead letters, and %d more may have been published: %s", job.State, job.Outcome.Replayed, job.Outcome.Doubtful,
			cmp.Or(job.Error, "it was stopped at the console"))
	}
	return job.Outcome, nil
}
