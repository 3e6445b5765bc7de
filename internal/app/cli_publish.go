package app

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

const (
	// maxLine bounds a line of `publish`, and with it the memory that a file of one line takes.
	maxLine = 1 << 20
	// maxCount bounds --count; more than that is a typing error.
	maxCount = 1_000_000_000
)

// PublishFlags are the flags of `publish`.
type PublishFlags struct {
	Campaign string
	Topic    string // "" = the first ingress topic
	Direct   bool   // into the campaign's lane instead
	File     string // a file, "-" for stdin
	Count    int64  // or so many numbered jobs
	CountSet bool
}

func (f *PublishFlags) validate() error {
	switch {
	case f.Campaign == "":
		return usagef("--campaign is required: whose jobs are these?")
	case !delivery.ValidID(f.Campaign):
		return usagef("--campaign must be 1 to %d printable ASCII characters without spaces", delivery.MaxIDLength)
	case f.File == "" && !f.CountSet:
		return usagef("what is to be published? give --file FILE (- for stdin), one job a line, or --count N")
	case f.Direct && f.Topic != "":
		return usagef("--topic and --direct exclude each other: --direct writes into the topic of lanes")
	case f.File != "" && f.CountSet:
		return usagef("--file and --count exclude each other; give one of them")
	case f.CountSet && (f.Count < 1 || f.Count > maxCount):
		return usagef("--count %d must lie between 1 and %d", f.Count, maxCount)
	}
	return nil
}

// Publish is `pacer publish`: jobs onto an ingress topic, round-robin over its partitions, or straight into the campaign's
// lane.
func Publish(ctx context.Context, in Invocation, flags *PublishFlags) error {
	if err := flags.validate(); err != nil {
		return err
	}
	needs := []Section{NeedKafka}
	if flags.Direct {
		needs = append(needs, NeedPostgres)
	}
	s, err := in.services(needs...)
	if err != nil {
		return err
	}
	defer s.close()
	to, err := s.publishTo(ctx, flags)
	if err != nil {
		return err
	}
	payloads, done, err := flags.payloads(in)
	if err != nil {
		return err
	}
	defer done()
	producer, err := requeue.NewProducer(requeue.ProducerOptions{Client: s.kafka})
	if err != nil {
		return err
	}
	run, err := publishID()
	if err != nil {
		return err
	}
	bar := newBar(ctx, in, "publishing", flags.Count)
	started := time.Now()
	acked, err := to.publish(ctx, producer, jobsOf(flags.Campaign, run, payloads), bar.add)
	bar.close()
	if err != nil {
		return fmt.Errorf("%w (%d jobs were published)", brokersFault(err), acked)
	}
	p := &printer{w: in.Stdout}
	if in.JSON {
		return writeJSON(in.Stdout, to.report(flags.Campaign, acked))
	}
	p.line("published %d jobs of campaign %s to %s in %s", acked, flags.Campaign, to,
		time.Since(started).Round(time.Millisecond))
	return p.err
}

// payloads is the sequence of what to publish; done closes the file.
func (f *PublishFlags) payloads(in Invocation) (payloads iter.Seq2[[]byte, error], done func(), err error) {
	nothing := func() {}
	switch f.File {
	case "":
		return numbered(f.Count), nothing, nil
	case "-":
		return lines(in.Stdin), nothing, nil
	}
	file, err := os.Open(f.File)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, nil, usagef("--file %s: %w", f.File, err)
	}
	return lines(file), func() { _ = file.Close() }, nil // it was only read
}

// numbered makes n payloads.
func numbered(n int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for i := int64(1); i <= n; i++ {
			if !yield([]byte(`{"n":`+strconv.FormatInt(i, 10)+`}`), nil) {
				return
			}
		}
	}
}

// lines reads one payload a line, without its end; empty lines are none. A line that is too long ends the sequence with
// an error that names it.
func lines(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(make([]byte, 0, 64<<10), maxLine+2) // and its line end
		n := 0
		for scanner.Scan() {
			n++
			line := scanner.Bytes()
			if len(line) == 0 {
				continue
			}
			if len(line) > maxLine {
				yield(nil, tooLong(n))
				return
			}
			if !yield(slices.Clone(line), nil) {
				return
			}
		}
		switch err := scanner.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(nil, tooLong(n+1))
		case err != nil:
			yield(nil, fmt.Errorf("line %d cannot be read: %w", n+1, err))
		}
	}
}

func tooLong(line int) error {
	return fmt.Errorf("line %d is longer than %d bytes, the most a job may have here; is there one job a line?", line, maxLine)
}

// jobsOf turns payloads into records. Each job gets an id of its own, so that one that had to be written twice can be
// told from two.
func jobsOf(campaign, run string, payloads iter.Seq2[[]byte, error]) iter.Seq2[requeue.Record, error] {
	return func(yield func(requeue.Record, error) bool) {
		n := 0
		for payload, err := range payloads {
			if err != nil {
				yield(requeue.Record{}, err)
				return
			}
			n++
			contentType := "application/octet-stream"
			if json.Valid(payload) {
				contentType = "application/json"
			}
			record := requeue.Record{Value: payload, Headers: []delivery.Header{
				{Key: delivery.HeaderCampaign, Value: []byte(campaign)},
				{Key: delivery.HeaderJobID, Value: []byte(run + "-" + strconv.Itoa(n))},
				{Key: delivery.HeaderContentType, Value: []byte(contentType)},
			}}
			if !yield(record, nil) {
				return
			}
		}
	}
}

// publishID tells the jobs of one call of `publish` from those of all others.
func publishID() (string, error) {
	var b [6]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("make job ids: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// jobBar is a progress bar on a terminal, and nothing elsewhere.
type jobBar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
}

// newBar makes a bar for what is done with so many jobs; 0 where the number is not known.
func newBar(ctx context.Context, in Invocation, doing string, total int64) *jobBar {
	if !in.Progress {
		return &jobBar{}
	}
	progress := mpb.NewWithContext(ctx, mpb.WithOutput(in.Stderr), mpb.WithWidth(50))
	return &jobBar{progress: progress, bar: progress.AddBar(total,
		mpb.PrependDecorators(decor.Name(doing+" "), decor.CurrentNoUnit("%d jobs")),
		mpb.AppendDecorators(decor.AverageSpeed(0, " %.0f/s")),
	)}
}

func (b *jobBar) add(n int) {
	if b.bar != nil {
		b.bar.IncrBy(n)
	}
}

func (b *jobBar) close() {
	if b.bar == nil {
		return
	}
	b.bar.SetTotal(-1, true) // without a known total, whatever it is at is all there was
	b.bar.Abort(false)       // with one that was not reached, it stays as it is
	b.progress.Wait()
}
