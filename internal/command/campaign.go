package command

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

func (c *cli) campaign() *cobra.Command {
	return group("campaign", "Campaigns: who may send how fast",
		c.withServer(c.plain("list", "List all campaigns", c.listCampaigns)),
		c.withServer(c.ofID("show", "Show one campaign", c.getCampaign)),
		c.withServer(c.campaignChange("create", "Create a campaign")),
		c.withServer(c.campaignChange("set", "Change a campaign; what is not given stays")),
		c.pauseCampaign(),
		c.resumeCampaign(),
		c.cancelCampaign(),
		deletion(c, "campaign", "Delete a campaign that is cancelled or completed and has no backlog", url.Values{}, func(was *view.Campaign) string {
			return ", which had delivered " + counted(progressOf(was).Delivered, "job")
		}))
}

func (c *cli) pauseCampaign() *cobra.Command {
	var until, reason string
	many := manyCampaigns{from: delivery.StatusActive}
	one := func(ctx context.Context, id string) error { return c.switchCampaign(ctx, id, "pause", until, reason) }
	cmd := c.ofMany(c.ofID("pause", "Pause a campaign, or many: their jobs wait", one), &many, func(ctx context.Context) error {
		return c.changeMany(ctx, &many, &manyChange{catalog.BulkChange{Action: "pause", Until: until}, reason})
	})
	cmd.Example = "  pacer campaign pause spring\n  pacer campaign pause spring --until 2h\n  pacer campaign pause --of-quota provider --until 30m"
	cmd.Flags().StringVar(&until, "until", "", "`TIME` at which it goes on by itself, RFC 3339, or a span from now on such as 2h")
	reasonFlag(cmd, &reason)
	return c.withServer(cmd)
}

func (c *cli) resumeCampaign() *cobra.Command {
	var reason string
	many := manyCampaigns{from: delivery.StatusPaused}
	one := func(ctx context.Context, id string) error { return c.switchCampaign(ctx, id, "resume", "", reason) }
	cmd := c.ofMany(c.ofID("resume", "Let a campaign send again, or many that are paused; cancelled jobs stay cancelled", one), &many, func(ctx context.Context) error {
		return c.changeMany(ctx, &many, &manyChange{catalog.BulkChange{Action: "resume"}, reason})
	})
	reasonFlag(cmd, &reason)
	return c.withServer(cmd)
}

func (c *cli) cancelCampaign() *cobra.Command {
	var yes bool
	var reason string
	cmd := c.ofID("cancel", "Cancel a campaign: its jobs settle as cancelled, for good", func(ctx context.Context, id string) error {
		if err := c.confirm(ctx, yes, "cancel campaign "+id+" for good"); err != nil {
			return err
		}
		return c.switchCampaign(ctx, id, "cancel", "", reason)
	})
	yesFlag(cmd, &yes)
	reasonFlag(cmd, &reason)
	return c.withServer(cmd)
}

func (c *cli) campaignChange(name, short string) *cobra.Command {
	change := view.Values{}
	many, bulk := manyCampaigns{}, manyChange{}
	status := ""
	cmd := c.ofID(name, short, func(ctx context.Context, id string) error {
		if bulk.Percent != 0 {
			return config.Usagef("--percent is of many campaigns: give --all, --match, --of-quota or --of-sink, or for one the new --rate")
		}
		if name == "set" && len(change) == 0 && status == "" {
			return config.Usagef("campaign set %s: nothing to set; give at least one flag, such as --rate 500", id)
		}
		if name == "set" && status == string(delivery.StatusCancelled) {
			if err := c.confirm(ctx, many.yes, "cancel campaign "+id+" for good"); err != nil {
				return err
			}
		}
		return c.editCampaign(ctx, id, name == "create", change, status, bulk.Reason)
	})
	cmd.Example = "  pacer campaign " + name + " spring --rate 500\n  pacer campaign " + name + " slow --rate 150/m --quota provider\n" +
		"  pacer campaign " + name + " warm --rate 500 --ramp start=10,factor=1.5,every=1h"
	if name == "set" {
		cmd = c.ofMany(cmd, &many, func(ctx context.Context) error {
			return c.setMany(ctx, &many, change, status, bulk, cmd.Flags().Changed("percent"))
		})
		cmd.Example += "\n  pacer campaign set --of-quota provider --percent 50 --reason \"the provider is slow\""
		cmd.Flags().Float64Var(&bulk.Percent, "percent", 0, "the new rates of many campaigns, of their present ones")
	}
	reasonFlag(cmd, &bulk.Reason)
	settingFlags(cmd.Flags(), view.CampaignForm, change)
	cmd.Flags().StringVar(&status, "status", "", "active, paused, cancelled or completed")
	return cmd
}

func campaignPath(id string) string { return pathOf("campaigns", id) }

// oneCampaign returns one campaign, as the API shows it.
func (c *cli) oneCampaign(ctx context.Context, id string) (*view.Campaign, error) {
	shown := &view.Campaign{}
	return shown, c.get(ctx, campaignPath(id), nil, shown)
}

func (c *cli) listCampaigns(ctx context.Context) error {
	list := []*view.Campaign{}
	if err := pages(ctx, c, "campaigns", url.Values{}, func(one *view.Campaign) { list = append(list, one) }); err != nil {
		return err
	}
	return c.printTable(list, func(p *printer) {
		p.line("ID\tRATE\tSTATUS\tSINK\tQUOTAS\tWEIGHT\tDELIVERED\tBACKLOG\tETA\tDONE\tHELD")
		for _, one := range list {
			g, held := progressOf(one), "-"
			if one.Held != nil {
				held = one.Held.Why
			}
			p.line("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s", one.ID, one.Rate, one.Status, cmp.Or(one.SinkSet, "-"),
				cmp.Or(strings.Join(one.Quotas, ","), "-"), one.PriorityWeight, g.Delivered, g.Backlog, formatETA(one), formatPercent(g), held)
		}
	})
}

func (c *cli) getCampaign(ctx context.Context, id string) error {
	shown, err := c.oneCampaign(ctx, id)
	if err != nil {
		return err
	}
	return c.showCampaign(shown)
}

// editCampaign creates or changes a campaign, and shows what it is then.
func (c *cli) editCampaign(ctx context.Context, id string, create bool, change view.Values, status, reason string) error {
	if err := checkReason(reason); err != nil {
		return err
	}
	if change["reason"] = reason; status != "" {
		change["status"] = status
	}
	method, path := http.MethodPatch, campaignPath(id)
	if create {
		method, path, change["id"] = http.MethodPost, "/campaigns", id
	}
	if err := c.call(ctx, method, path, nil, change, nil); err != nil {
		return err
	}
	shown, err := c.oneCampaign(ctx, id)
	if err != nil {
		return fmt.Errorf("campaign %s was changed, and cannot be shown: %w; pacer campaign show %s tries again", id, err, id)
	}
	c.warnCampaign(shown)
	return c.showCampaign(shown)
}

// statusAfter is the status of a campaign after a command.
var statusAfter = map[string]string{"resume": string(delivery.StatusActive), "cancel": string(delivery.StatusCancelled)}

// switchCampaign pauses, resumes or cancels a campaign, and shows what it is then.
func (c *cli) switchCampaign(ctx context.Context, id, verb, until, reason string) error {
	if err := cmp.Or(checkReason(reason), checkUntil(until)); err != nil {
		return err
	}
	said := map[string]string{"reason": reason}
	if until != "" {
		said["until"] = until
	}
	err := c.call(ctx, http.MethodPost, campaignPath(id)+"/"+verb, nil, said, nil)
	if status := statusAfter[verb]; status != "" && refusedAs(err, "over") { // which has to be said as a change of the campaign
		err = c.call(ctx, http.MethodPatch, campaignPath(id), nil, map[string]string{"status": status, "reason": reason}, nil)
	}
	if err != nil {
		return err
	}
	return c.getCampaign(ctx, id)
}
