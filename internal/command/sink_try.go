package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// trial is what `sink test` is asked for.
type trial struct {
	sink, payload, campaign, id, key string
	headers                          []string
	destination                      string // of the job; "" for none
}

func (c *cli) sinkTest() *cobra.Command {
	var t trial
	cmd := c.ofSink("test", "Send one job through a sink, and show the request and the answer without secrets", func(ctx context.Context, name string) error {
		t.sink = name
		return c.testSink(ctx, &t)
	})
	cmd.Long = `Sends one job through a sink of the configuration, as the daemon would: a real request, which the destination processes.
Without --destination it needs no Kafka, Redis or PostgreSQL. No campaign's rate or quota applies. Prints the request and the answer without secrets,
and what the answer means. Exit code 0: delivered, or taken where a response follows; 2: the sink's configuration or credentials are wrong; 1: anything else.`
	cmd.Example = `  pacer sink test receiver --payload '{"to":"ann"}' --header tenant=blue --header content-type=application/json
  pacer sink test shops --destination shop-7 --payload '{"order": 42}'`
	f := cmd.Flags()
	f.StringVar(&t.destination, "destination", "", "destination of the job, which is read from PostgreSQL; also one that is disabled")
	f.StringVar(&t.payload, "payload", "", "payload of the job")
	f.StringArrayVar(&t.headers, "header", nil, "header of the job's record, as name=value; may be given several times")
	f.StringVar(&t.campaign, "campaign", "test", "campaign of the job")
	f.StringVar(&t.id, "id", "", "id of the job (default test- and the time)")
	f.StringVar(&t.key, "key", "", "key of the job's record")
	return cmd
}

// job makes the job.
func (t *trial) job(now time.Time) (*delivery.Job, error) {
	if t.id == "" {
		t.id = "test-" + strconv.FormatInt(now.UnixMicro(), 10)
	}
	if !delivery.ValidID(t.id) {
		return nil, config.Usagef("--id %s", delivery.IDRule)
	}
	if !delivery.ValidCampaign(t.campaign) {
		return nil, config.Usagef("--campaign %s, and not %s", delivery.IDRule, delivery.UnknownCampaign)
	}
	j := &delivery.Job{ID: t.id, Campaign: t.campaign, Weight: 1, Payload: []byte(t.payload), Meta: delivery.Meta{Key: []byte(t.key)}}
	j.ContentType, j.Destination = "application/octet-stream", t.destination
	for _, h := range t.headers {
		name, value, ok := strings.Cut(h, "=")
		switch {
		case !ok || name == "":
			return nil, config.Usagef("--header: %q is not of the form name=value", h)
		case strings.HasPrefix(name, delivery.HeaderPrefix):
			return nil, config.Usagef("--header: %s is pacer's own; use --campaign or --id", name)
		case name == delivery.HeaderContentType:
			j.ContentType = value
		case name == delivery.HeaderTraceParent:
			j.TraceParent = value
		default:
			j.Headers = append(j.Headers, delivery.Header{Key: name, Value: []byte(value)})
		}
	}
	return j, nil
}

func (c *cli) testSink(ctx context.Context, t *trial) error {
	cfg, log, err := c.load(config.NeedSink(t.sink))
	if err != nil {
		return err
	}
	if _, ok := cfg.Sinks[t.sink]; !ok {
		return noSink(t.sink, slices.Sorted(maps.Keys(cfg.Sinks)))
	}
	job, err := t.job(time.Now())
	if err != nil {
		return err
	}
	var row *delivery.Destination
	if t.destination != "" {
		if row, err = c.destinationRow(ctx, t.destination); err != nil {
			return err
		}
	}
	v, err := app.TrySink(ctx, cfg, log, t.sink, job, row)
	if err != nil {
		return err
	}
	if err := c.print(v, func(p *printer) { showTested(p, v) }); err != nil {
		return err
	}
	switch v.Class {
	case delivery.Delivered.String(), delivery.Pending.String(): // what is pending was taken
		return nil
	case delivery.Misconfigured.String():
		return config.Usagef("sinks.%s: %s", t.sink, v.Detail)
	}
	return ErrNotOK
}

// destinationRow reads a destination with all that it has, which the API does not show.
func (c *cli) destinationRow(ctx context.Context, id string) (*delivery.Destination, error) {
	cfg, _, err := c.load(config.NeedPostgres)
	if err != nil {
		return nil, err
	}
	admin, err := openAdmin(cfg)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	row, err := admin.GetDestination(ctx, id)
	if err != nil {
		return nil, err
	}
	d := row.Destination()
	d.DisabledAt = 0 // to find out whether it may be enabled
	return d, nil
}

// showTested prints the outcome of a test.
func showTested(p *printer, v *view.Tested) {
	block := func(title, text string) {
		if text == "" {
			return
		}
		p.line("%s", title)
		for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
			p.line("  %s", visible(line))
		}
		p.line("")
	}
	block("request", v.Request)
	block("answer", v.Answer)
	line := fmt.Sprintf("%s in %.0f ms", v.Class, v.Took)
	for _, part := range []struct{ name, value string }{
		{"about the", v.Scope}, {"code", v.ProviderCode}, {"message id", v.ProviderMessageID},
	} {
		if part.value != "" {
			line += ", " + part.name + " " + visible(part.value)
		}
	}
	switch {
	case v.Class == delivery.Pending.String():
		line += fmt.Sprintf(": the request was taken; a daemon would ask for its response after %g s", v.RetryAfter)
	case v.RetryAfter > 0:
		line += fmt.Sprintf(", asks to wait %g s", v.RetryAfter)
	}
	if v.Detail != "" {
		line += ": " + visible(v.Detail)
	}
	p.line("%s", line)
}
