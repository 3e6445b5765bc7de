package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/notation"
)

const (
	checkTimeout = 10 * time.Second
	// drainTimeout is the time for sends in flight at a rebalance.
	drainTimeout = 3 * time.Second
)

func (c *cli) check() *cobra.Command {
	var ready bool
	tries := triedDestinations
	cmd := c.plain("check", "Check the configuration and every connection, one line each", func(ctx context.Context) error {
		switch {
		case ready:
			return c.checkReady(ctx)
		case tries < 0 || tries > mostTried:
			return config.Usagef("--destinations %d is out of range; use 0 to %d", tries, mostTried)
		}
		return c.checkAll(ctx, tries)
	})
	cmd.Flags().IntVar(&tries, "destinations", tries, "how many rows of pacer.destinations to connect to, chosen at random; all are looked at")
	cmd.Flags().BoolVar(&ready, "ready", false, "only ask the daemon on this machine whether it is ready; cheap, for health checks")
	return cmd
}

// checkAll is `pacer check`: it checks the configuration and every connection, one line each. The error is ErrNotOK if
// one failed. It connects to as many destinations as tries says.
func (c *cli) checkAll(ctx context.Context, tries int) error {
	s, err := c.services(config.NeedTopics, config.NeedRedis, config.NeedPostgres, config.NeedSinks, config.NeedServer)
	if err != nil {
		return err
	}
	defer s.Close()
	out := c.newChecks(ctx)
	out.say("configuration", nil)
	out.dedupe(&s.Config.Dedupe)
	catalogued := out.postgres(ctx, s)
	out.redis(ctx, s)
	out.kafka(ctx, s)
	out.certificates(s.Certificates(), time.Now())
	tables := out.sinks(ctx, s)
	if catalogued {
		out.destinations(ctx, s, &destinationCheck{sinks: tables, most: tries})
	}
	return out.verdict()
}

// checkReady is `pacer check --ready`: one request to the daemon of this configuration on this machine, and none to
// the services behind it. It serves as the health check of a container that contains no other program for it.
func (c *cli) checkReady(ctx context.Context) error {
	cfg, _, err := c.load()
	if err != nil {
		return err
	}
	address := cfg.HTTP.Metrics()
	if address == "" {
		return config.Usagef("http.listen: off, so there is nothing to ask; set an address, or leave --ready out")
	}
	out := c.newChecks(ctx)
	out.say("daemon", console.AskReady(ctx, address))
	return out.verdict()
}

// checks prints one line for each check as it is made, or all of them as JSON at the end.
type checks struct {
	cli    *cli
	p      *printer
	ended  func() error // why the command is at its end; nil: it is not
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

func (c *cli) newChecks(ctx context.Context) *checks {
	return &checks{cli: c, p: &printer{w: c.Stdout}, ended: ctx.Err, report: checkReport{OK: true}}
}

// verdict prints the report if it is to be JSON, and returns ErrNotOK if a check failed.
func (c *checks) verdict() error {
	if err := c.ended(); err != nil {
		return err
	}
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
	c.fail(name, err.Error())
}

// fail reports a check that failed.
func (c *checks) fail(name, why string) {
	c.report.OK = false
	c.add(checkResult{name, checkFailed, oneLine(why)})
}

// note reports what works and should be different.
func (c *checks) note(name, format string, args ...any) {
	c.add(checkResult{name, checkNote, fmt.Sprintf(format, args...)})
}

func (c *checks) add(r checkResult) {
	if c.ended() != nil {
		return // it fails since the command is interrupted
	}
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

// dedupe prints whether delivered jobs are remembered.
func (c *checks) dedupe(d *config.Dedupe) {
	if d.TTL == 0 {
		c.add(checkResult{"dedupe", checkOK, "off, so two records with one id are two jobs; dedupe.ttl switches it on"})
		return
	}
	c.add(checkResult{"dedupe", checkOK, fmt.Sprintf("a job delivered is not sent again under its id for %s; policy %s",
		notation.FormatSpan(d.TTL), d.OnStoreFailure)})
}
