package command

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

const (
	checkTimeout = 10 * time.Second
	// drainTimeout is the time for sends in flight at a rebalance.
	drainTimeout = 3 * time.Second
)

func (c *cli) check() *cobra.Command {
	var ready bool
	cmd := c.plain("check", "Check the configuration and every connection, one line each", func(ctx context.Context) error {
		if ready {
			return c.checkReady(ctx)
		}
		return c.checkAll(ctx)
	})
	cmd.Flags().BoolVar(&ready, "ready", false, "only ask the daemon on this machine whether it is ready; cheap, for health checks")
	return cmd
}

// checkAll is `pacer check`: it checks the configuration and every connection, one line each. The error is ErrNotOK if
// one failed.
func (c *cli) checkAll(ctx context.Context) error {
	s, err := c.services(config.NeedTopics, config.NeedRedis, config.NeedPostgres, config.NeedSinks)
	if err != nil {
		return err
	}
	defer s.Close()
	out := c.newChecks()
	out.say("configuration", nil)
	out.dedupe(&s.Config.Dedupe)
	out.run(ctx, "postgres", func(ctx context.Context) error { return checkPostgres(ctx, s) })
	out.run(ctx, "redis", func(ctx context.Context) error { return checkRedis(ctx, s) })
	out.kafka(ctx, s)
	out.sinks(ctx, s)
	return out.verdict()
}

// checkReady is `pacer check --ready`: one request to the daemon of this configuration on this machine, and none to
// the services behind it. It serves as the health check of a container that contains no other program for it.
func (c *cli) checkReady(ctx context.Context) error {
	cfg, _, err := c.load()
	if err != nil {
		return err
	}
	if cfg.HTTP.Listen == "" {
		return config.Usagef("http.listen: off, so there is nothing to ask; set an address, or leave --ready out")
	}
	out := c.newChecks()
	out.say("daemon", console.AskReady(ctx, cfg.HTTP.Listen))
	return out.verdict()
}

// checks prints one line for each check as it is made, or all of them as JSON at the end.
type checks struct {
	cli    *cli
	p      *printer
	report checkReport
}

// checkReport is the JSON output of `check`.
type checkReport struct {
	OK     bool          `json:"ok"` // no check failed
	Checks []checkResult `json:"checks"`
}

type checkResult struct {
	Check  string `json:"check"`
	Result string `json:"result"`
	Detail string `json:"detail,omitempty"`
}

// Results of a check.
const (
	checkOK     = "ok"
	checkNote   = "note" // it works, and should be different
	checkFailed = "failed"
)

func (c *cli) newChecks() *checks {
	return &checks{cli: c, p: &printer{w: c.Stdout}, report: checkReport{OK: true}}
}

// verdict prints the report if it is to be JSON, and returns ErrNotOK if a check failed.
func (c *checks) verdict() error {
	if c.cli.json {
		c.p.err = writeJSON(c.cli.Stdout, c.report)
	}
	if c.p.err == nil && !c.report.OK {
		return ErrNotOK
	}
	return c.p.err
}

// say reports one check; it failed if err is not nil.
func (c *checks) say(name string, err error) {
	if err == nil {
		c.add(checkResult{name, checkOK, ""})
		return
	}
	c.report.OK = false
	c.add(checkResult{name, checkFailed, oneLine(err.Error())})
}

func (c *checks) add(r checkResult) {
	c.report.Checks = append(c.report.Checks, r)
	if c.cli.json {
		return
	}
	line := fmt.Sprintf("%-4s  %s", map[bool]string{false: r.Result, true: "FAIL"}[r.Result == checkFailed], r.Check)
	if r.Detail != "" {
		line += ": " + r.Detail
	}
	c.p.line("%s", line)
}

func (c *checks) run(ctx context.Context, name string, check func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c.say(name, check(ctx))
}

func checkPostgres(ctx context.Context, s *app.Services) error {
	m, err := catalog.NewMigrator(s.DSN())
	if err != nil {
		return err
	}
	current, newest, err := m.SchemaVersion(ctx)
	switch {
	case err != nil:
		return err
	case current < newest:
		return fmt.Errorf("the schema is at version %d of %d; run pacer migrate up", current, newest)
	}
	return nil
}

func checkRedis(ctx context.Context, s *app.Services) error {
	shards, err := s.Shards()
	if err != nil {
		return err
	}
	defer func() { _ = shards.Close() }() // nothing is written on closing
	if err := shards.Ping(ctx); err != nil {
		return fmt.Errorf("redis.addrs: %w", err)
	}
	return nil
}

// dedupe prints whether delivered jobs are remembered.
func (c *checks) dedupe(d *config.Dedupe) {
	if d.TTL == 0 {
		c.add(checkResult{"dedupe", checkOK, "off, so two records with one id are two jobs; dedupe.ttl switches it on"})
		return
	}
	c.add(checkResult{"dedupe", checkOK, fmt.Sprintf("a job delivered is not sent again under its id for %s; policy %s",
		notation.FormatSpan(d.TTL), d.OnStoreFailure)})
}

func (c *checks) kafka(ctx context.Context, s *app.Services) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	problems, err := requeue.CheckTopics(ctx, s.Kafka, s.Topics)
	if err != nil {
		c.say("kafka", fmt.Errorf("kafka.brokers: %w", err))
		return
	}
	c.say("kafka", nil)
	for _, p := range problems {
		c.say("topics", errors.New(p))
	}
	if len(problems) == 0 {
		c.say("topics", nil)
	}
}

func (c *checks) sinks(ctx context.Context, s *app.Services) {
	for _, name := range slices.Sorted(maps.Keys(s.Config.Sinks)) {
		c.run(ctx, "sink "+name, func(ctx context.Context) error {
			entry, err := sink.Open(s.Config.Sinks[name], sink.Host{Version: app.Version, Logger: s.Log})
			if err != nil {
				return err // names the key
			}
			if reachable, ok := entry.Sink.(interface {
				Check(ctx context.Context) error
			}); ok {
				return reachable.Check(ctx)
			}
			return nil
		})
		if h, ok := s.Config.Sinks[name].(*sinkhttp.Config); ok && h.Timeout > drainTimeout {
			c.add(checkResult{"sinks." + name + ".timeout", checkNote, fmt.Sprintf(
				"%s is above the %s that sends have at a rebalance; those cut off may be sent twice", h.Timeout, drainTimeout)})
		}
	}
}
