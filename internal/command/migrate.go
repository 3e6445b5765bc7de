package command

import (
	"cmp"
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
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/requeue"
)

func (c *cli) migrate() *cobra.Command {
	var cluster string
	up := c.plain("up", "Create or update the schema and pacer's own topics; running it again changes nothing", func(ctx context.Context) error {
		return c.migrateUp(ctx, cluster)
	})
	up.Flags().StringVar(&cluster, "cluster", "", "id of the Kafka cluster to use from now on, instead of the one used before; stop all daemons first")
	return group("migrate", "Schema and topics", up,
		c.migrateWipeCommand(),
		c.migrateCatchUpCommand(),
		c.plain("status", "Show the schema and the topics; exit code 1 while something is missing", c.migrateStatus))
}

// migrateUp is `pacer migrate up`: the schema first, then the topics. Running it again changes nothing.
func (c *cli) migrateUp(ctx context.Context, cluster string) error {
	s, migrator, err := c.migrator(ctx, cluster, config.NeedKafka, config.NeedPostgres)
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
	found, known := s.Installation(), s.Catalogued().Installation
	if found.Cluster, err = s.Kafka.Cluster(ctx); err != nil {
		return app.BrokersFault(err)
	}
	found.Shards = cmp.Or(found.Shards, known.Shards)
	if found != known || cluster != "" {
		if why := known.Other(found); why != "" {
			c.warn("%s", why)
		}
		if err := migrator.Install(ctx, found); err != nil {
			return err
		}
		p.line("set up for the Kafka cluster %s, consumer group %s and topics %s*", found.Cluster, found.Group, found.Prefix)
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
	if len(applied)+len(changes) == 0 && found == known {
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

// migrator makes a Migrator, and connections to the other services that the command needs: to this cluster of Kafka, or else the one
// that is stored.
func (c *cli) migrator(ctx context.Context, cluster string, needs ...config.Section) (*app.Services, *catalog.Migrator, error) {
	s, err := c.services(needs...)
	if err != nil {
		return nil, nil, err
	}
	found, err := s.CheckCatalog(ctx)
	if err != nil {
		return nil, nil, err
	}
	found.Cluster = cmp.Or(cluster, found.Cluster)
	s.Catalogued = func() *delivery.Snapshot { return &delivery.Snapshot{Installation: found.Installation} }
	if s.Kafka != nil {
		s.Kafka.Strangers(ctx) // they are passed over then
	}
	m, err := catalog.NewMigrator(s.DSN())
	return s, m, err
}

func (c *cli) migrateWipeCommand() *cobra.Command {
	var yes bool
	cmd := c.plain("wipe", "Remove the schema and pacer's own topics, with all that is in them", func(ctx context.Context) error {
		return c.migrateWipe(ctx, yes)
	})
	cmd.Long = `Removes the schema pacer of PostgreSQL and the topics that pacer made: campaigns, quotas, their history, and the jobs that wait in lanes
and timers. Ingress topics and the offsets of the group stay, so jobs that were read are not sent again. Rights that were granted on the schema
go with it.

Keys of Redis stay: what was used of a quota still counts if a quota with the same id is created again.

Stop all daemons first. The command is refused while one runs.`
	yesFlag(cmd, &yes)
	return cmd
}

// migrationWiped is the JSON output of `pacer migrate wipe`.
type migrationWiped struct {
	Schema bool     `json:"schema"` // there was one
	Topics []string `json:"topics"`
}

// migrateWipe is `pacer migrate wipe`: it removes what `pacer migrate up` makes.
func (c *cli) migrateWipe(ctx context.Context, yes bool) error {
	s, migrator, err := c.migrator(ctx, "", config.NeedKafka, config.NeedPostgres)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := refuseWhileRunning(ctx, s, migrator); err != nil {
		return err
	}
	if err := c.confirm(ctx, yes, "remove the schema pacer, pacer's own topics and the jobs that wait in them"); err != nil {
		return err
	}
	done := migrationWiped{Topics: []string{}}
	topics, err := requeue.RemoveTopics(ctx, s.Kafka, s.Topics)
	if err != nil {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	done.Topics = append(done.Topics, topics...)
	if done.Schema, err = migrator.Wipe(ctx); err != nil {
		return err
	}
	return c.print(done, func(p *printer) {
		for _, name := range done.Topics {
			p.line("removed topic %s", name)
		}
		if done.Schema {
			p.line("removed the schema pacer")
		}
		if len(done.Topics) == 0 && !done.Schema {
			p.line("nothing to remove")
		}
	})
}

// refuseWhileRunning returns an error while daemons run: they would go on with what is removed.
func refuseWhileRunning(ctx context.Context, s *app.Services, migrator *catalog.Migrator) error {
	sessions, err := migrator.Sessions(ctx)
	if err != nil {
		return err
	}
	members, _, err := s.Kafka.Members(ctx, s.Config.Kafka.Group)
	if err != nil {
		return app.BrokersFault(err)
	}
	if sessions > 0 || members > 0 {
		return fmt.Errorf("daemons are running: group %s has %d members, and the database %d sessions of daemons; stop them and run this again",
			s.Config.Kafka.Group, members, sessions)
	}
	return nil
}

func (c *cli) migrateCatchUpCommand() *cobra.Command {
	cmd := c.plain("catch-up", "After a restore of the database from a backup: have its campaigns and quotas act again", c.migrateCatchUp)
	cmd.Long = `Gives every campaign, quota and destination a revision above all that were given out before. Run it after the database was brought back
from a backup: daemons and Redis take over the highest revision, so without it they go on with campaigns as they were before the restore,
and grant nothing of quotas that had changed. Daemons may run meanwhile. Running it again does no harm.`
	return cmd
}

// migrateCatchUp is `pacer migrate catch-up`.
func (c *cli) migrateCatchUp(ctx context.Context) error {
	s, migrator, err := c.migrator(ctx, "", config.NeedPostgres)
	if err != nil {
		return err
	}
	defer s.Close()
	rows, err := migrator.CatchUp(ctx)
	if err != nil {
		return err
	}
	return c.print(map[string]int64{"rows": rows}, func(p *printer) {
		p.line("%d campaigns, quotas and destinations have new revisions; compare rates, quotas and states with what they should be", rows)
	})
}

// migrationStatus is the JSON output of `pacer migrate status`.
type migrationStatus struct {
	Schema []catalog.Migration   `json:"schema"`
	Topics []requeue.TopicStatus `json:"topics"`
}

// migrateStatus is `pacer migrate status`. The error is ErrNotOK while something is missing.
func (c *cli) migrateStatus(ctx context.Context) error {
	s, migrator, err := c.migrator(ctx, "", config.NeedKafka, config.NeedPostgres)
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
