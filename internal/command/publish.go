package command

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
)

const (
	// maxLine bounds a line of `publish`, in bytes, and so the memory for a file of one line.
	maxLine = 1 << 20
	// maxCount bounds --count; a larger number is taken for a typing error.
	maxCount = 1_000_000_000
)

func (c *cli) publish() *cobra.Command {
	var flags publishFlags
	cmd := &cobra.Command{
		Use: "publish", Short: "Publish jobs: one per line of a file, or a number of test jobs", Args: noArgs,
		Example: "  pacer publish --campaign spring --file jobs.jsonl\n  pacer publish --campaign spring --count 1000\n" +
			"  pacer publish --campaign spring --file jobs.jsonl --direct",
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.CountSet = cmd.Flags().Changed("count")
			return c.publishJobs(cmd.Context(), &flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.Campaign, "campaign", "", "campaign of the jobs")
	f.StringVar(&flags.Topic, "topic", "", "ingress topic; the first configured one if not given")
	f.BoolVar(&flags.Direct, "direct", false, "write into the campaign's lane instead, which saves a hop for a backlog")
	f.StringVar(&flags.File, "file", "", "one job per line, empty lines are skipped; - for stdin")
	f.Int64Var(&flags.Count, "count", 0, "publish this many jobs {\"n\":1}, {\"n\":2}, …")
	return c.withJSON(cmd)
}

// publishFlags are the flags of `publish`.
type publishFlags struct {
	Campaign string
	Topic    string // "" = the first ingress topic
	Direct   bool   // into the campaign's lane instead
	File     string // a file, "-" for stdin
	Count    int64  // or the number of test jobs
	CountSet bool
}

func (f *publishFlags) validate() error {
	switch {
	case f.Campaign == "":
		return config.Usagef("--campaign is required: whose jobs are these?")
	case !delivery.ValidID(f.Campaign):
		return config.Usagef("--campaign must be 1 to %d printable ASCII characters without spaces", delivery.MaxIDLength)
	case f.File == "" && !f.CountSet:
		return config.Usagef("what is to be published? give --file FILE (- for stdin), one job a line, or --count N")
	case f.Direct && f.Topic != "":
		return config.Usagef("--topic and --direct exclude each other: --direct writes into the topic of lanes")
	case f.File != "" && f.CountSet:
		return config.Usagef("--file and --count exclude each other; give one of them")
	case f.CountSet && (f.Count < 1 || f.Count > maxCount):
		return config.Usagef("--count %d must lie between 1 and %d", f.Count, maxCount)
	}
	return nil
}

// publishJobs writes jobs to an ingress topic, round-robin over its partitions, or directly to the campaign's lane.
func (c *cli) publishJobs(ctx context.Context, flags *publishFlags) error {
	if err := flags.validate(); err != nil {
		return err
	}
	needs := []config.Section{config.NeedKafka}
	if flags.Direct {
		needs = append(needs, config.NeedPostgres)
	}
	s, err := c.services(needs...)
	if err != nil {
		return err
	}
	defer s.Close()
	c.warnUnknown(ctx, s.Config, flags.Campaign)
	to, err := publishTo(ctx, s, flags)
	if err != nil {
		return err
	}
	payloads, done, err := flags.payloads(c.Stdin)
	if err != nil {
		return err
	}
	defer done()
	producer := broker.NewProducer(broker.ProducerOptions{Client: s.Kafka, Compress: flags.Direct})
	run := strings.ToLower(rand.Text()[:12]) // distinguishes the jobs of one call from those of all others
	bar := c.newBar(ctx, "publishing", flags.Count)
	started := time.Now()
	acked, err := to.publish(ctx, producer, jobsOf(flags.Campaign, run, payloads), bar.add)
	bar.close()
	if err != nil {
		return fmt.Errorf("%w (%d jobs were published)", app.BrokersFault(err), acked)
	}
	return c.print(to.report(flags.Campaign, acked), func(p *printer) {
		p.line("published %d jobs of campaign %s to %s in %s", acked, flags.Campaign, to,
			time.Since(started).Round(time.Millisecond))
	})
}

// payloads returns the payloads to publish; done closes the file.
func (f *publishFlags) payloads(stdin io.Reader) (payloads iter.Seq2[[]byte, error], done func(), err error) {
	nothing := func() {}
	switch f.File {
	case "":
		return numbered(f.Count), nothing, nil
	case "-":
		return lines(stdin), nothing, nil
	}
	file, err := os.Open(f.File)
	if err != nil {
		var path *os.PathError
		if errors.As(err, &path) {
			err = path.Err
		}
		return nil, nil, config.Usagef("--file %s: %w", f.File, err)
	}
	return lines(file), func() { _ = file.Close() }, nil // it was only read
}

// numbered yields n payloads.
func numbered(n int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for i := int64(1); i <= n; i++ {
			if !yield([]byte(`{"n":`+strconv.FormatInt(i, 10)+`}`), nil) {
				return
			}
		}
	}
}

// lines yields one payload per line, without its end; empty lines are skipped. A line that is too long ends the
// sequence with an error that gives its number.
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

// jobsOf turns payloads into records. Each job gets an id of its own, so that a record written twice can be told from
// two jobs.
func jobsOf(campaign, run string, payloads iter.Seq2[[]byte, error]) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		n := 0
		for payload, err := range payloads {
			if err != nil {
				yield(delivery.Record{}, err)
				return
			}
			n++
			if !yield(record.New(campaign, run+"-"+strconv.Itoa(n), payload), nil) {
				return
			}
		}
	}
}

// jobBar is a progress bar on a terminal, and nothing elsewhere.
type jobBar struct {
	progress *mpb.Progress
	bar      *mpb.Bar
}

// newBar makes a progress bar for a number of jobs; 0 if the number is unknown.
func (c *cli) newBar(ctx context.Context, doing string, total int64) *jobBar {
	if !isTerminal(c.Stderr) {
		return &jobBar{}
	}
	progress := mpb.NewWithContext(ctx, mpb.WithOutput(c.Stderr), mpb.WithWidth(50))
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
	b.bar.SetTotal(-1, true) // without a known total, the current number is the total
	b.bar.Abort(false)       // with a total that was not reached, the bar stays as it is
	b.progress.Wait()
}
