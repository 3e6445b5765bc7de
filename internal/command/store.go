package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
)

// campaignStore is where commands read and change campaigns: the database, or the API of a console.
type campaignStore interface {
	campaignReader
	campaignChanger
}

type campaignReader interface {
	list(ctx context.Context) ([]campaignRow, error)
	show(ctx context.Context, id string) (campaignRow, error)
	// explain returns what holds a campaign, without the sentence.
	explain(ctx context.Context, id string) (explanation, error)
}

type campaignChanger interface {
	// change makes a change, and returns the campaign as it is then, with what its row says of its being held.
	change(ctx context.Context, id string, change campaignEdit) (campaignRow, error)
	// remove deletes a campaign, and returns what it was.
	remove(ctx context.Context, id string) (catalog.CampaignRow, error)
}

// quotaStore is where commands read and change quotas.
type quotaStore interface {
	quotaReader
	quotaChanger
}

type quotaReader interface {
	listQuotas(ctx context.Context) ([]catalog.QuotaRow, error)
	showQuota(ctx context.Context, id string) (*quotaView, error)
	quotaUsage(ctx context.Context, id string, last, step time.Duration) (quotaUsage, error)
}

type quotaChanger interface {
	// changeQuota makes a change, and returns the quota as it is then.
	changeQuota(ctx context.Context, id string, change *catalog.QuotaChange) (catalog.QuotaRow, error)
	// deleteQuota returns what the quota was.
	deleteQuota(ctx context.Context, id string, unlink bool) (catalog.QuotaRow, error)
	adjustQuota(ctx context.Context, a app.QuotaAdjustment) (view.Adjusted, error)
}

// campaignEdit is what a command changes of a campaign.
type campaignEdit struct {
	create bool
	status delivery.Status // "" stays; else nothing else is changed
	until  string          // of a pause: when it ends by itself, a time or a span; "" for never
	reason string
	fields catalog.CampaignChange
}

// server is the console that commands work over, instead of the database.
type server struct{ address, token string }

// withServer adds the flags that name a console.
func (c *cli) withServer(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.server.address, "server", "", "`URL` of a console to work over, such as https://pacer.example.com, instead of the database")
	cmd.Flags().StringVar(&c.server.token, "token", "", "token for --server: `file:PATH` of a file that has it")
	return cmd
}

// campaignStore returns where the campaigns are.
func (c *cli) campaignStore() (campaignStore, error) {
	if c.server.address == "" {
		return database{c}, c.noToken()
	}
	return c.remote()
}

// quotaStore returns where the quotas are.
func (c *cli) quotaStore() (quotaStore, error) {
	if c.server.address == "" {
		return database{c}, c.noToken()
	}
	return c.remote()
}

func (c *cli) noToken() error {
	if c.server.token != "" {
		return config.Usagef("--token goes with --server")
	}
	return nil
}

// database is the store of those who reach it themselves.
type database struct{ c *cli }

func (d database) list(ctx context.Context) ([]campaignRow, error) {
	campaigns, o, err := overviewWith(ctx, d.c, "", func(a *catalog.Admin) ([]catalog.CampaignRow, error) { return a.ListCampaigns(ctx) })
	if err != nil {
		return nil, err
	}
	rows := make([]campaignRow, 0, len(campaigns))
	for i := range campaigns {
		a := o.of(campaigns[i].ID)
		rows = append(rows, newCampaignRow(&campaigns[i], &a))
	}
	return rows, nil
}

func (d database) show(ctx context.Context, id string) (campaignRow, error) {
	row, o, err := overviewWith(ctx, d.c, id, func(a *catalog.Admin) (catalog.CampaignRow, error) { return a.GetCampaign(ctx, id) })
	if err != nil {
		return campaignRow{}, err
	}
	a := o.of(id)
	shown := newCampaignRow(&row, &a)
	shown.Senders, shown.Failure = o.senders, o.failure(row.Sink)
	return shown, nil
}

func (d database) change(ctx context.Context, id string, e campaignEdit) (campaignRow, error) {
	ctx = because(ctx, e.reason)
	row, err := ask(d.c, func(a *catalog.Admin) (catalog.CampaignRow, error) {
		switch {
		case e.until != "":
			until, err := notation.ParseUntil(e.until, time.Now())
			if err != nil {
				return catalog.CampaignRow{}, config.Usagef("--until: %w", err)
			}
			return a.PauseUntil(ctx, id, until)
		case e.status != "":
			return a.SetStatus(ctx, id, e.status)
		case e.create:
			return a.CreateCampaign(ctx, id, e.fields)
		}
		return a.SetCampaign(ctx, id, e.fields)
	})
	if err != nil {
		return campaignRow{}, err
	}
	known := hold.Evidence{Now: time.Now(), Campaign: row.Campaign()}
	if cfg, _, err := config.LoadFor(d.c.source()); err == nil {
		known.Sink, known.SinkFault = sinkOf(cfg, row.Sink)
	}
	a := hold.Of(known)
	return newCampaignRow(&row, &a), nil
}

func (d database) remove(ctx context.Context, id string) (catalog.CampaignRow, error) {
	return ask(d.c, func(a *catalog.Admin) (catalog.CampaignRow, error) { return a.DeleteCampaign(ctx, id, nil) })
}

func (d database) listQuotas(ctx context.Context) ([]catalog.QuotaRow, error) {
	return ask(d.c, func(a *catalog.Admin) ([]catalog.QuotaRow, error) { return a.ListQuotas(ctx) })
}

func (d database) showQuota(ctx context.Context, id string) (*quotaView, error) {
	return withAdmin(d.c, func(s *app.Services, admin *catalog.Admin) (*quotaView, error) {
		row, err := admin.GetQuota(ctx, id)
		if err != nil {
			return nil, err
		}
		campaigns, err := admin.CampaignsOf(ctx, id)
		if err != nil {
			return nil, err
		}
		shown := newQuotaView(&row, campaigns)
		if err := peek(ctx, s, shown); err != nil {
			shown.Note = err.Error()
		}
		if len(campaigns) == 0 {
			return shown, nil
		}
		o, err := newOverview(ctx, s, admin, "")
		if err != nil {
			return nil, err
		}
		for i := range shown.UsedBy {
			c := &shown.UsedBy[i]
			a := o.of(c.ID)
			c.Hold = newHeldView(&a)
			if o.board != nil {
				c.Waiting = &a.Waiting
			}
		}
		return shown, nil
	})
}

func (d database) changeQuota(ctx context.Context, id string, change *catalog.QuotaChange) (catalog.QuotaRow, error) {
	return ask(d.c, func(a *catalog.Admin) (catalog.QuotaRow, error) { return a.SetQuota(ctx, id, *change) })
}

func (d database) deleteQuota(ctx context.Context, id string, unlink bool) (catalog.QuotaRow, error) {
	return ask(d.c, func(a *catalog.Admin) (catalog.QuotaRow, error) { return a.DeleteQuota(ctx, id, unlink, nil) })
}

// adjustQuota corrects a count in the store, and records it.
func (d database) adjustQuota(ctx context.Context, a app.QuotaAdjustment) (view.Adjusted, error) {
	return withAdmin(d.c, func(s *app.Services, admin *catalog.Admin) (view.Adjusted, error) {
		engine, shards, err := openLimits(s)
		if err != nil {
			return view.Adjusted{}, err
		}
		defer func() { _ = shards.Close() }() // nothing is written on closing
		return app.AdjustQuota(ctx, admin, engine, a)
	}, config.NeedRedis)
}

func (d database) quotaUsage(ctx context.Context, id string, last, step time.Duration) (quotaUsage, error) {
	return ask(d.c, func(a *catalog.Admin) (quotaUsage, error) {
		now := time.Now()
		steps, err := a.UsageHistory(ctx, id, now.Add(-last), now, step)
		if err != nil {
			return quotaUsage{}, err
		}
		row, err := a.GetQuota(ctx, id)
		return quotaUsage{Quota: id, Step: notation.FormatSpan(step), Steps: steps, Note: usageNote(&row)}, err
	})
}
