package command

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// campaignStore is where commands read and change campaigns: the database, or the API of a console.
type campaignStore interface {
	list(ctx context.Context) ([]campaignRow, error)
	show(ctx context.Context, id string) (campaignRow, error)
	// change makes a change, and returns the campaign as it is then, with what its row says of its being held.
	change(ctx context.Context, id string, change campaignEdit) (campaignRow, error)
}

// quotaStore is where commands read quotas.
type quotaStore interface {
	listQuotas(ctx context.Context) ([]catalog.QuotaRow, error)
	showQuota(ctx context.Context, id string) (*quotaView, error)
}

// campaignEdit is what a command changes of a campaign.
type campaignEdit struct {
	create bool
	status delivery.Status // "" stays; else nothing else is changed
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
	campaigns, o, err := overviewWith(ctx, d.c, func(a *catalog.Admin) ([]catalog.CampaignRow, error) { return a.ListCampaigns(ctx) })
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
	row, o, err := overviewWith(ctx, d.c, func(a *catalog.Admin) (catalog.CampaignRow, error) { return a.GetCampaign(ctx, id) })
	if err != nil {
		return campaignRow{}, err
	}
	a := o.of(id)
	return newCampaignRow(&row, &a), nil
}

func (d database) change(ctx context.Context, id string, e campaignEdit) (campaignRow, error) {
	row, err := ask(d.c, func(a *catalog.Admin) (catalog.CampaignRow, error) {
		switch {
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
	if cfg, _, err := config.Load(d.c.config, d.c.configSet, d.c.Environ); err == nil {
		known.Sink, known.SinkFault = sinkOf(cfg, row.Sink)
	}
	a := hold.Of(known)
	return newCampaignRow(&row, &a), nil
}

func (d database) listQuotas(ctx context.Context) ([]catalog.QuotaRow, error) {
	return ask(d.c, func(a *catalog.Admin) ([]catalog.QuotaRow, error) { return a.ListQuotas(ctx) })
}

func (d database) showQuota(ctx context.Context, id string) (*quotaView, error) {
	s, err := d.c.services(config.NeedPostgres)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	admin, err := openAdmin(s.Config)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	row, err := admin.GetQuota(ctx, id)
	if err != nil {
		return nil, err
	}
	campaigns, err := admin.CampaignsOf(ctx, id)
	if err != nil {
		return nil, err
	}
	view := newQuotaView(&row, campaigns)
	if err := peek(ctx, s, view); err != nil {
		view.Note = err.Error()
	}
	return view, nil
}
