package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/requeue"
)

func (c *cli) migrate() *cobra.Command {
	return group("migrate", "Schema and topics",
		c.plain("up", "Create or update the schema and pacer's own topics; running it again changes nothing", c.migrateUp),
		c.plain("status", "Show the schema and the topics; exit code 1 while something is missing", c.migrateStatus))
}

// migrateUp is `pacer migrate up`: the schema first, then the topics. Running it again changes nothing.
func (c *cli) migrateUp(ctx context.Context) error {
	s, migrator, err := c.migrator(config.NeedKafka, config.NeedPostgres)
	if err != nil {
		return err
	}
	defer s.Close()
	done := migrationDone{Applied: []string{}}
	p := &printer{w: c.Stdout}
	if c.json {
		p.w = io.Discard // printed at the end
	}
	applied, err := migrator.Up(ctx)
	for _, m := range applied {
		done.Applied = append(done.Applied, m.Name)
		p.line("applied %s", m.Name)
	}
	if err != nil {
		return err
	}
	if err := tellShards(ctx, s); err != nil {
		return err
	}
	if err := forgetPositions(ctx, s); err != nil {
		return err
	}
	changes, err := requeue.EnsureTopics(ctx, s.Kafka, s.Topics, func(err error) {
		c.warn("the new topics are created and have no leaders yet, as on a broker that has just started; waiting up to two minutes (%v)", err)
	})
	for _, change := range changes {
		p.line("%s", change)
	}
	if err != nil {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	if len(applied)+len(changes) == 0 {
		p.line("nothing to do: schema and topics are up to date")
	}
	if c.json {
		done.Topics = changes
		return writeJSON(c.Stdout, done)
	}
	return p.err
}

// migrationDone is the JSON output of `pacer migrate up`.
type migrationDone struct {
	Applied []string `json:"applied"`          // files
	Topics  []string `json:"topics,omitempty"` // a line for each change
}

// migrator makes a Migrator, and connections to the other services that the command needs.
func (c *cli) migrator(needs ...config.Section) (*app.Services, *catalog.Migrator, error) {
	s, err := c.services(needs...)
	if err != nil {
		return nil, nil, err
	}
	m, err := catalog.NewMigrator(s.DSN())
	return s, m, err
}

// tellShards writes the number of shards, among which new quotas are spread, to the catalog.
func tellShards(ctx context.Context, s *app.Services) error {
	if len(s.Config.Redis.Addrs) == 0 {
		return nil
	}
	shards, err := s.Shards()
	if err != nil {
		return err
	}
	defer func() { _ = shards.Close() }() // it has not been used
	admin, err := openAdmin(s.Config)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.SetShards(ctx, shards.Count())
}

// forgetPositions deletes the stored positions of topics that do not exist: they would be taken for positions of the
// topics that are created now, if the brokers know no ids of topics.
func forgetPositions(ctx context.Context, s *app.Services) error {
	topics, err := requeue.ListTopics(ctx, s.Kafka, s.Topics)
	if err != nil {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	var missing []string
	for _, t := range topics {
		if t.Owned && !t.Exists {
			missing = append(missing, t.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	cluster, err := s.Kafka.Cluster(ctx)
	if err != nil {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	admin, err := openAdmin(s.Config)
	if err != nil {
		return err
	}
	defer admin.Close()
	return admin.ForgetPositions(ctx, cluster, missing)
}

// migrationStatus is the JSON output of `pacer migrate status`.
type migrationStatus struct {
	Schema []catalog.Migration   `json:"schema"`
	Topics []requeue.TopicStatus `json:"topics"`
}

// migrateStatus is `pacer migrate status`. The error is ErrNotOK while something is missing.
func (c *cli) migrateStatus(ctx context.Context) error {
	s, migrator, err := c.migrator(config.NeedKafka, config.NeedPostgres)
	if err != nil {
		return err
	}
	defer s.Close()
	var status migrationStatus
	if status.Schema, err = migrator.Status(ctx); err != nil {
		return err
	}
	if status.Topics, err = requeue.ListTopics(ctx, s.Kafka, s.Topics); err != nil {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	err = c.printTable(status, status.print)
	if err == nil && (status.pending() || status.lacksIngress()) {
		err = ErrNotOK
	}
	return err
}

func (s *migrationStatus) print(p *printer) {
	for _, m := range s.Schema {
		state := "pending"
		if m.Applied {
			state = "applied " + m.AppliedAt.UTC().Format(time.RFC3339)
		}
		p.line("schema\t%s\t%s", m.Name, state)
	}
	for _, t := range s.Topics {
		switch {
		case t.Exists && t.Retention < 0:
			p.line("topic\t%s\t%d partitions, %d replicas, kept for ever", t.Name, t.Partitions, t.Replicas)
		case t.Exists:
			p.line("topic\t%s\t%d partitions, %d replicas, kept for %s", t.Name, t.Partitions, t.Replicas,
				notation.FormatSpan(t.Retention))
		case t.Owned:
			p.line("topic\t%s\tmissing; run: pacer migrate up", t.Name)
		default:
			p.line("topic\t%s\tmissing; pacer does not create ingress topics", t.Name)
		}
	}
	var remedies []string
	if s.pending() {
		remedies = append(remedies, "run: pacer migrate up")
	}
	if s.lacksIngress() {
		remedies = append(remedies, "create the ingress topics, which pacer never does")
	}
	if len(remedies) > 0 {
		p.line("")
		p.line("something is missing; %s", strings.Join(remedies, ", and "))
	}
}

// pending reports whether `pacer migrate up` has something to do.
func (s *migrationStatus) pending() bool {
	return slices.ContainsFunc(s.Schema, func(m catalog.Migration) bool { return !m.Applied }) ||
		slices.ContainsFunc(s.Topics, func(t requeue.TopicStatus) bool { return !t.Exists && t.Owned })
}

func (s *migrationStatus) lacksIngress() bool {
	return slices.ContainsFunc(s.Topics, func(t requeue.TopicStatus) bool { return !t.Exists && !t.Owned })
}
