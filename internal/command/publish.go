package command

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/jobfile"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

// maxCount bounds --count; a larger number is taken for a typing error.
const maxCount = 1_000_000_000

func (c *cli) publish() *cobra.Command {
	var flags publishFlags
	cmd := &cobra.Command{
		Use: "publish", Short: "Publish jobs: those of a file, or a number of test jobs", Args: noArgs,
		Long: `Publishes the jobs of a file: JSON lines, other lines, or CSV. The whole file is checked first, and nothing is published
while a line of it is wrong. A job without an id in the file gets one from the content of the file and the number of its
line, so that a file that is published again has the same ids. How far a file was published is noted in a checkpoint,
which is removed at the end: after a stop, the same command goes on there.`,
		Example: "  pacer publish --campaign spring --file jobs.jsonl\n" +
			"  pacer publish --campaign hooks --file jobs.csv --map destination=shop,header.tenant=tenant --header content-type=text/plain\n" +
			"  pacer publish --campaign spring --file jobs.jsonl --map id=key,payload=body\n" +
			"  pacer publish --campaign spring --file jobs.csv --map id=key --dry-run\n" +
			"  pacer publish --campaign spring --file jobs.jsonl --direct\n  pacer publish --campaign spring --count 1000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.CountSet = cmd.Flags().Changed("count")
			return c.publishJobs(cmd.Context(), &flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.Campaign, "campaign", "", "campaign of the jobs")
	f.StringVar(&flags.Topic, "topic", "", "ingress topic; the first configured one if not given")
	f.BoolVar(&flags.Direct, "direct", false, "write into the campaign's lane instead, which saves a hop for a backlog")
	f.StringVar(&flags.File, "file", "", "file of the jobs; - for stdin, which is not checked first and has no checkpoint")
	f.StringVar(&flags.Format, "format", "", "of the file: lines (one job a line) or csv (the first line names the columns); csv for *.csv, else lines")
	f.StringSliceVar(&flags.Map, "map", nil,
		"which column of a CSV file, or key of a line's JSON object, is the job's "+strings.Join(jobfile.Fields, ", ")+
			", or its header NAME (header.NAME), such as id=key,payload=body,header.device-token=token; the payload is otherwise the whole line, of CSV as a JSON object")
	f.StringArrayVar(&flags.Headers, "header", nil,
		"header of every job, such as pacer-destination=shop-7 or tenant=blue; one of the file's, by --map, is stronger")
	f.StringVar(&flags.Checkpoint, "checkpoint", "", "file that notes how far the jobs were published; beside the file if not given, none for nowhere")
	f.BoolVar(&flags.DryRun, "dry-run", false, "only check the file")
	f.Int64Var(&flags.Count, "count", 0, "publish this many jobs {\"n\":1}, {\"n\":2}, …")
	f.StringVar(&flags.Rate, "rate", "", "rate of --count, evenly spaced, such as 500, 150/m or 1/h; as fast as Kafka accepts if not given")
	return c.withJSON(cmd)
}

// publishFlags are the flags of `publish`.
type publishFlags struct {
	Campaign   string
	Topic      string // "" = the first ingress topic
	Direct     bool   // into the campaign's lane instead
	File       string // a file, "-" for stdin
	Format     string
	Map        []string
	Headers    []string
	Checkpoint string // "" = beside the file
	DryRun     bool
	Count      int64 // or the number of test jobs
	CountSet   bool
	Rate       string // of the test jobs; "" = as fast as Kafka accepts them
}

// noCheckpoint is the value of --checkpoint for none.
const noCheckpoint = "none"

func (f *publishFlags) validate() error {
	switch {
	case f.Campaign == "":
		return config.Usagef("--campaign is required: whose jobs are these?")
	case !delivery.ValidCampaign(f.Campaign):
		return config.Usagef("--campaign %s, and not %s", delivery.IDRule, delivery.UnknownCampaign)
	case f.File == "" && !f.CountSet:
		return config.Usagef("what is to be published? give --file FILE (- for stdin), one job a line, or --count N")
	case f.Direct && f.Topic != "":
		return config.Usagef("--topic and --direct exclude each other: --direct writes into the topic of lanes")
	case f.File != "" && f.CountSet:
		return config.Usagef("--file and --count exclude each other; give one of them")
	case f.CountSet && (f.Count < 1 || f.Count > maxCount):
		return config.Usagef("--count %d must lie between 1 and %d", f.Count, maxCount)
	case f.CountSet && (f.Format != "" || f.Map != nil || f.Checkpoint != "" || f.DryRun):
		return config.Usagef("--format, --map, --checkpoint and --dry-run are about a file; give --file instead of --count")
	case f.Rate != "" && !f.CountSet:
		return config.Usagef("--rate goes with --count; a file is published as fast as Kafka accepts, and sent at the campaign's rate")
	case f.Format != "" && f.Format != string(jobfile.Lines) && f.Format != string(jobfile.CSV):
		return config.Usagef("--format %q must be lines or csv", f.Format)
	}
	return nil
}

// source says how to read the file.
func (f *publishFlags) source(cfg *config.Config) (*jobfile.Source, error) {
	m, err := jobfile.ParseMap(f.Map)
	if err != nil {
		return nil, config.Usagef("--map: %w", err)
	}
	headers, err := jobfile.ParseHeaders(f.Headers)
	if err != nil {
		return nil, config.Usagef("--header: %w", err)
	}
	source := &jobfile.Source{
		Campaign: f.Campaign, Format: cmp.Or(jobfile.Format(f.Format), jobfile.FormatOf(f.File)), Map: m, Headers: headers,
		Limits: record.Limits{MaxWeight: cfg.MaxWeight, MaxNotBefore: cfg.MaxNotBefore},
	}
	if problem := source.HeadersProblem(); problem != "" {
		return nil, config.Usagef("--header: %s", problem)
	}
	return source, nil
}

// needs are the settings that are required.
func (f *publishFlags) needs() []config.Section {
	if f.DryRun {
		return nil
	}
	if f.Direct {
		return []config.Section{config.NeedKafka, config.NeedPostgres}
	}
	return []config.Section{config.NeedTopics}
}

// publishJobs writes jobs to an ingress topic, round-robin over its partitions, or directly to the campaign's lane.
func (c *cli) publishJobs(ctx context.Context, flags *publishFlags) error {
	if err := flags.validate(); err != nil {
		return err
	}
	s, err := c.services(flags.needs()...)
	if err != nil {
		return err
	}
	defer s.Close()
	var rate delivery.Rate
	if flags.Rate != "" {
		if rate, err = parsePublishRate(flags.Rate); err != nil {
			return err
		}
	}
	source, err := flags.source(s.Config)
	if err != nil {
		return err
	}
	c.warnAstray(ctx, s.Config, source)
	p := &publishing{cli: c, services: s, flags: flags, source: source, rate: rate, began: time.Now()}
	if flags.File == "" || flags.File == "-" {
		return p.stream(ctx, c.Stdin)
	}
	file, err := os.Open(flags.File)
	if err != nil {
		return fileFault(flags.File, err)
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	switch {
	case err != nil:
		return fileFault(flags.File, err)
	case info.IsDir():
		return config.Usagef("--file %s is a directory", flags.File)
	case !info.Mode().IsRegular(): // it can be read once
		return p.stream(ctx, file)
	}
	return p.file(ctx, file, info.Size())
}

func fileFault(name string, err error) error {
	var path *os.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return config.Usagef("--file %s: %w", name, err)
}

// numbered yields the test jobs, at a rate or, with none, at once. Each gets an id of its own, so that a record written twice can be told from two jobs.
func (p *publishing) numbered(ctx context.Context, run string) iter.Seq2[delivery.Record, error] {
	rate := p.rate
	return func(yield func(delivery.Record, error) bool) {
		next := delivery.Slot{At: time.Now().UnixMicro()}
		for i := int64(1); i <= p.flags.Count; i++ {
			if !rate.Zero() {
				if err := retry.Sleep(ctx, time.Until(time.UnixMicro(next.Micros()))); err != nil {
					yield(delivery.Record{}, err)
					return
				}
				next = next.Advance(1, rate)
			}
			number := strconv.FormatInt(i, 10)
			r := record.New(p.flags.Campaign, run+"-"+number, []byte(`{"n":`+number+`}`))
			jobfile.Dress(&r, p.source.Headers)
			if !yield(r, nil) {
				return
			}
		}
	}
}
