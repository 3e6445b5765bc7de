package command

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobfile"
)

// idDigits is how many digits of a file's hash begin the ids of its jobs.
const idDigits = 16

// publishing is one call of `publish`.
type publishing struct {
	*cli
	services *app.Services
	flags    *publishFlags
	source   *jobfile.Source
	rate     delivery.Rate // of test jobs; zero: as fast as Kafka accepts them
	began    time.Time
}

// publishSummary is what `publish --json` prints.
type publishSummary struct {
	Topic      string    `json:"topic,omitempty"`
	Lane       *int      `json:"lane,omitempty"` // the first of them
	Lanes      []int     `json:"lanes,omitempty"`
	Campaign   string    `json:"campaign"`
	Published  int64     `json:"published"` // by this call
	File       string    `json:"file,omitempty"`
	Jobs       *int64    `json:"jobs,omitempty"`             // in the file; nil: not known
	Before     int64     `json:"published_before,omitempty"` // by earlier calls, which were stopped
	Complete   bool      `json:"complete"`
	NextLine   *int64    `json:"next_line,omitempty"` // where the next call goes on
	Checkpoint string    `json:"checkpoint,omitempty"`
	DryRun     bool      `json:"dry_run"`
	Bad        int64     `json:"bad_lines"`
	BadLines   []badLine `json:"first_bad_lines,omitempty"`
	Seconds    float64   `json:"seconds"`
}

type badLine struct {
	Line    int64  `json:"line"`
	Problem string `json:"problem"`
}

// finish prints the summary and returns the error; without --json, text is printed where there is no error.
func (p *publishing) finish(v *publishSummary, err error, text string) error {
	v.Campaign, v.DryRun, v.File = p.flags.Campaign, p.flags.DryRun, p.flags.File
	v.Seconds = time.Since(p.began).Seconds()
	if err != nil && !p.json {
		return err
	}
	if printErr := p.print(v, func(out *printer) { out.line("%s", text) }); err == nil {
		return printErr
	}
	return err
}

// stream publishes what can be read only once, or test jobs.
func (p *publishing) stream(ctx context.Context, r io.Reader) error {
	if p.flags.DryRun {
		found, err := p.source.Check(ctx, r, nil)
		if err != nil {
			return err
		}
		return p.checked(found, jobfile.Position{})
	}
	to, err := publishTo(ctx, p.services, p.flags)
	if err != nil {
		return err
	}
	run := strings.ToLower(rand.Text()[:12]) // distinguishes the jobs of one call from those of all others
	p.source.Prefix = run
	jobs := p.source.Jobs(r, jobfile.Position{})
	if p.flags.File == "" {
		jobs = p.numbered(ctx, run)
	}
	producer := broker.NewProducer(broker.ProducerOptions{Client: p.services.Kafka, Compress: p.flags.Direct})
	bar := p.newBar(ctx, "publishing", p.flags.Count)
	acked, err := to.publish(ctx, producer, recordsOf(jobs, nil), bar.add)
	bar.close()
	if err != nil {
		err = fmt.Errorf("%w (%s published)", app.BrokersFault(err), counted(acked, "job"))
	}
	v := to.summary(acked)
	v.Complete = err == nil
	return p.finish(v, err, p.published(acked, to))
}

func (p *publishing) published(jobs int64, to publishTarget) string {
	return fmt.Sprintf("published %s of campaign %s to %s in %s", counted(jobs, "job"), p.flags.Campaign, to, time.Since(p.began).Round(time.Millisecond))
}

// recordsOf are the records of jobs. Where each ends is told to sent, if set, before the record is passed on.
func recordsOf(jobs iter.Seq2[jobfile.Entry, error], sent func(jobfile.Position)) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		for job, err := range jobs {
			if err == nil && sent != nil {
				sent(job.End)
			}
			if !yield(job.Record, err) || err != nil {
				return
			}
		}
	}
}

// file publishes a file: all of it is checked, and then published from where the checkpoint says.
func (p *publishing) file(ctx context.Context, file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return fileFault(p.flags.File, err)
	}
	bar := p.newByteBar(ctx, "checking", info.Size(), 0)
	found, err := p.source.Check(ctx, file, bar.add)
	bar.close()
	if err != nil {
		return fmt.Errorf("check %s: %w", p.flags.File, err)
	}
	path := p.checkpointPath()
	now := &jobfile.Checkpoint{
		SHA256: found.Hash, Campaign: p.flags.Campaign, Format: p.source.Format, Map: p.source.Map.String(),
		Headers: jobfile.HashOf(p.source.Headers),
	}
	var from jobfile.Position
	if path != "" {
		before, err := jobfile.ReadCheckpoint(path)
		if err != nil {
			return err
		}
		if from, err = now.GoOn(before, path); err != nil {
			return err
		}
	}
	if found.Bad > 0 || p.flags.DryRun {
		return p.checked(found, from)
	}
	return p.fromPosition(ctx, file, now, found, from)
}

// checkpointPath is the name of the checkpoint; "" for none.
func (p *publishing) checkpointPath() string {
	switch p.flags.Checkpoint {
	case "":
		return p.flags.File + ".checkpoint"
	case noCheckpoint:
		return ""
	}
	return p.flags.Checkpoint
}

// checked says what the check found, where nothing is published.
func (p *publishing) checked(found *jobfile.Findings, from jobfile.Position) error {
	v := &publishSummary{Jobs: &found.Jobs, Before: from.Jobs, Bad: found.Bad}
	for _, bad := range found.First {
		v.BadLines = append(v.BadLines, badLine{bad.Line, bad.Problem})
	}
	var err error
	switch {
	case found.Bad == 1:
		err = fmt.Errorf("%s: %w; nothing was published", p.flags.File, found.First[0])
	case found.Bad > 1:
		for _, bad := range found.First {
			_, _ = fmt.Fprintf(p.Stderr, "pacer: %s: %s\n", p.flags.File, oneLine(bad.Error())) // as Run does
		}
		err = fmt.Errorf("%s: %d lines are wrong, of which the first are above; nothing was published", p.flags.File, found.Bad)
	}
	text := fmt.Sprintf("%s of campaign %s would be published; no line is wrong", counted(found.Jobs-from.Jobs, "job"), p.flags.Campaign)
	if from.Jobs > 0 {
		text += fmt.Sprintf("; it would go on at line %d", from.Line+1)
	}
	return p.finish(v, err, text)
}

// fromPosition publishes the rest of a file, and notes in the checkpoint how far it came.
func (p *publishing) fromPosition(
	ctx context.Context, file *os.File, now *jobfile.Checkpoint, found *jobfile.Findings, from jobfile.Position,
) error {
	to, err := publishTo(ctx, p.services, p.flags)
	if err != nil {
		return err
	}
	path := p.checkpointPath()
	now.Position = from
	save := func() error {
		if path == "" {
			return nil
		}
		return now.Write(path)
	}
	if err := save(); err != nil { // before anything is published
		return config.Usagef("%w; name a file that can be written with --checkpoint, or none", err)
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fileFault(p.flags.File, err)
	}
	var tracker jobfile.Tracker
	bar := p.newByteBar(ctx, "publishing", found.Bytes, from.Offset)
	producer := broker.NewProducer(broker.ProducerOptions{Client: p.services.Kafka, Compress: p.flags.Direct, Round: func(acked int64) error {
		at, ok := tracker.Arrived(acked)
		if !ok {
			return nil
		}
		now.Position = at
		bar.set(at.Offset)
		return save()
	}})
	p.source.Prefix = found.Hash[:idDigits]
	acked, err := to.publish(ctx, producer, recordsOf(p.source.Jobs(file, from), tracker.Sent), nil)
	bar.close()
	if err == nil && now.Jobs != found.Jobs {
		err = errors.New("the file was changed while it was published")
	}
	v := to.summary(acked)
	v.Jobs, v.Before, v.Complete, v.Checkpoint = &found.Jobs, from.Jobs, err == nil, path
	text := p.published(acked, to)
	if from.Jobs > 0 {
		text += fmt.Sprintf("; %d were published before", from.Jobs)
	}
	if err != nil {
		line := now.Line + 1
		v.NextLine = &line
		return p.finish(v, p.stopped(ctx, err, acked, now, found), "")
	}
	if path != "" {
		err = os.Remove(path)
	}
	return p.finish(v, err, text)
}

// stopped says how far a call came that did not come to the end, and how to go on.
func (p *publishing) stopped(ctx context.Context, err error, acked int64, now *jobfile.Checkpoint, found *jobfile.Findings) error {
	if ctx.Err() != nil {
		err = errors.New("publish: interrupted")
	}
	goOn := fmt.Sprintf("the same command goes on at line %d", now.Line+1)
	if p.checkpointPath() == "" {
		goOn = "the same command begins at the first line, with the same ids"
	}
	return fmt.Errorf("%w (%d of %d jobs were published by this call; %s)", app.BrokersFault(err), acked, found.Jobs, goOn)
}
