package command

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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
	Topic      string               `json:"topic,omitempty"`
	Lane       *int                 `json:"lane,omitempty"` // the first of them
	Lanes      []int                `json:"lanes,omitempty"`
	Campaign   string               `json:"campaign"`
	Published  int64                `json:"published"` // by this call
	File       string               `json:"file,omitempty"`
	Jobs       *int64               `json:"jobs,omitempty"`             // in the file; nil: not known
	Before     int64                `json:"published_before,omitempty"` // by earlier calls, which were stopped
	Complete   bool                 `json:"complete"`
	Checkpoint string               `json:"checkpoint,omitempty"`
	DryRun     bool                 `json:"dry_run"`
	Bad        int64                `json:"bad_lines"`
	BadLines   []*jobfile.LineError `json:"first_bad_lines,omitempty"`
	Seconds    float64              `json:"seconds"`
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
		found, err := p.source.Check(ctx, r)
		if err != nil {
			return err
		}
		return p.checked(found, 0)
	}
	to, err := publishTo(ctx, p.services, p.flags)
	if err != nil {
		return err
	}
	run := strings.ToLower(rand.Text()[:12]) // distinguishes the jobs of one call from those of all others
	p.source.Prefix = run
	jobs := p.source.Jobs(r)
	if p.flags.File == "" {
		jobs = p.numbered(ctx, run)
	}
	producer := broker.NewProducer(broker.ProducerOptions{Client: p.services.Kafka, Compress: p.flags.Direct})
	bar := p.newBar(ctx, "publishing", p.flags.Count)
	acked, err := to.publish(ctx, producer, jobs, bar.add)
	bar.close()
	if err != nil {
		err = fmt.Errorf("%w (%s published)", publishFault(ctx, err), counted(acked, "job"))
	}
	v := to.summary(acked)
	v.Complete = err == nil
	return p.finish(v, err, p.published(acked, to))
}

func (p *publishing) published(jobs int64, to publishTarget) string {
	return fmt.Sprintf("published %s of campaign %s to %s in %s", counted(jobs, "job"), p.flags.Campaign, to, time.Since(p.began).Round(time.Millisecond))
}

// skip leaves out the first jobs.
func skip(jobs iter.Seq2[delivery.Record, error], n int64) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		left := n
		for job, err := range jobs {
			if left--; left >= 0 && err == nil {
				continue
			}
			if !yield(job, err) || err != nil {
				return
			}
		}
	}
}

// file publishes a file: all of it is checked, and then published from where the checkpoint says.
func (p *publishing) file(ctx context.Context, file *os.File, size int64) error {
	bar := p.newByteBar(ctx, "checking", size)
	found, err := p.source.Check(ctx, bar.reader(file))
	bar.close()
	if err != nil {
		return fmt.Errorf("check %s: %w", p.flags.File, err)
	}
	path := p.checkpointPath()
	now := &jobfile.Checkpoint{}
	if path != "" {
		if now, err = jobfile.ReadCheckpoint(path, p.source.Key(found.Hash)); err != nil {
			return err
		}
	}
	if found.Bad > 0 || p.flags.DryRun {
		return p.checked(found, now.Jobs)
	}
	return p.rest(ctx, file, now, found)
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
func (p *publishing) checked(found *jobfile.Findings, before int64) error {
	v := &publishSummary{Jobs: &found.Jobs, Before: before, Bad: found.Bad, BadLines: found.First}
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
	text := fmt.Sprintf("%s of campaign %s would be published; no line is wrong", counted(found.Jobs-before, "job"), p.flags.Campaign)
	if before > 0 {
		text += fmt.Sprintf("; %d were published before", before)
	}
	return p.finish(v, err, text)
}

// rest publishes the jobs of a file that were not published before, and notes in the checkpoint how far it came.
func (p *publishing) rest(ctx context.Context, file *os.File, now *jobfile.Checkpoint, found *jobfile.Findings) error {
	to, err := publishTo(ctx, p.services, p.flags)
	if err != nil {
		return err
	}
	path, before := p.checkpointPath(), now.Jobs
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
	bar := p.newBar(ctx, "publishing", found.Jobs-before)
	producer := broker.NewProducer(broker.ProducerOptions{Client: p.services.Kafka, Compress: p.flags.Direct, Round: func(acked int64) error {
		now.Jobs = before + acked // the first ones
		bar.set(acked)
		return save()
	}})
	p.source.Prefix = found.Hash[:idDigits]
	hash := sha256.New()
	acked, err := to.publish(ctx, producer, skip(p.source.Jobs(io.TeeReader(file, hash)), before), nil)
	bar.close()
	if err == nil && hex.EncodeToString(hash.Sum(nil)) != found.Hash {
		err = errors.New("the file was changed while it was published")
	}
	v := to.summary(acked)
	v.Jobs, v.Before, v.Complete, v.Checkpoint = &found.Jobs, before, err == nil, path
	text := p.published(acked, to)
	if before > 0 {
		text += fmt.Sprintf("; %d were published before", before)
	}
	if err != nil {
		return p.finish(v, p.stopped(ctx, err, acked, now, found), "")
	}
	if path != "" {
		err = os.Remove(path)
	}
	return p.finish(v, err, text)
}

// stopped says how far a call came that did not come to the end, and how to go on.
func (p *publishing) stopped(ctx context.Context, err error, acked int64, now *jobfile.Checkpoint, found *jobfile.Findings) error {
	goOn := fmt.Sprintf("the same command goes on behind the first %s", counted(now.Jobs, "job"))
	if p.checkpointPath() == "" {
		goOn = "the same command begins at the first job, with the same ids"
	}
	return fmt.Errorf("%w (%d of %d jobs were published by this call; %s)", publishFault(ctx, err), acked, found.Jobs, goOn)
}

// publishFault says why jobs were not published: the caller has ended ctx, or err.
func publishFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("publish: interrupted")
	}
	return app.BrokersFault(err)
}
