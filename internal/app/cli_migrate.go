package app

import (
	"context"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/requeue"
)

// MigrateUp is `pacer migrate up`: the schema first, then the topics. Running it again changes nothing.
func MigrateUp(ctx context.Context, in Invocation) error {
	s, err := in.services(NeedKafka, NeedPostgres)
	if err != nil {
		return err
	}
	defer s.close()
	migrator, err := catalog.NewMigrator(s.dsn)
	if err != nil {
		return err
	}
	p := &printer{w: in.Stdout}
	applied, err := migrator.Up(ctx)
	for _, m := range applied {
		p.line("applied %s", m.Name)
	}
	if err != nil {
		return err
	}
	if err := s.tellShards(ctx); err != nil {
		return err
	}
	changes, err := requeue.EnsureTopics(ctx, s.kafka, s.topics)
	for _, change := range changes {
		p.line("%s", change)
	}
	if err != nil {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	if len(applied)+len(changes) == 0 {
		p.line("nothing to do: schema and topics are up to date")
	}
	return p.err
}

// tellShards lets the catalog know among how many shards of the store new quotas are to be spread.
func (s *services) tellShards(ctx context.Context) error {
	if len(s.config.Redis.Addrs) == 0 {
		return nil
	}
	shards, err := s.shards()
	if err != nil {
		return err
	}
	defer func() { _ = shards.Close() }() // it has not been used
	admin, err := catalog.NewAdmin(s.dsn)
	if err != nil {
		return UsageError{err}
	}
	defer admin.Close()
	return admin.SetShards(ctx, shards.Count())
}

// MigrateDown is `pacer migrate down`: the newest step of the schema is undone. Topics hold jobs and stay.
func MigrateDown(ctx context.Context, in Invocation) error {
	s, err := in.services(NeedPostgres)
	if err != nil {
		return err
	}
	defer s.close()
	migrator, err := catalog.NewMigrator(s.dsn)
	if err != nil {
		return err
	}
	undone, err := migrator.Down(ctx)
	if err != nil {
		return err
	}
	p := &printer{w: in.Stdout}
	if undone == nil {
		p.line("nothing to undo")
	} else {
		p.line("undid %s; topics are left as they are, since they hold jobs", undone.Name)
	}
	return p.err
}

// migrateStatus is what `pacer migrate status --json` prints.
type migrateStatus struct {
	Schema []catalog.Migration   `json:"schema"`
	Topics []requeue.TopicStatus `json:"topics"`
}

// MigrateStatus is `pacer migrate status`. It is ErrNotOK while something is missing.
func MigrateStatus(ctx context.Context, in Invocation) error {
	s, err := in.services(NeedKafka, NeedPostgres)
	if err != nil {
		return err
	}
	defer s.close()
	migrator, err := catalog.NewMigrator(s.dsn)
	if err != nil {
		return err
	}
	var status migrateStatus
	if status.Schema, err = migrator.Status(ctx); err != nil {
		return err
	}
	if status.Topics, err = requeue.ListTopics(ctx, s.kafka, s.topics); err != nil {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	if in.JSON {
		err = writeJSON(in.Stdout, status)
	} else {
		err = writeTable(in.Stdout, func(p *printer) { status.print(p) })
	}
	if err == nil && status.pending() {
		err = ErrNotOK
	}
	return err
}

func (s *migrateStatus) print(p *printer) {
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
				catalog.FormatSpan(t.Retention))
		case t.Owned:
			p.line("topic\t%s\tmissing; run: pacer migrate up", t.Name)
		default:
			p.line("topic\t%s\tmissing; pacer does not create ingress topics", t.Name)
		}
	}
	if s.pending() {
		p.line("")
		p.line("something is missing; run: pacer migrate up")
	}
}

func (s *migrateStatus) pending() bool {
	for _, m := range s.Schema {
		if !m.Applied {
			return true
		}
	}
	for _, t := range s.Topics {
		if !t.Exists && t.Owned {
			return true
		}
	}
	return false
}
