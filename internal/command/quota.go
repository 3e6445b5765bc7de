package command

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) quota() *cobra.Command {
	return group("quota", "Quotas: limits shared by campaigns",
		c.withServer(c.plain("list", "List all quotas", c.listQuotas)),
		c.withServer(c.ofID("show", "Show one quota, what is left of its windows and who uses it", c.showQuota)),
		c.quotaSet(), c.quotaAdjust(), c.quotaDelete(), c.quotaUsage())
}

func (c *cli) quotaSet() *cobra.Command {
	change, key, with := view.Values{}, "", ""
	var cmd *cobra.Command
	cmd = c.ofID("set", "Create a quota or change it; what is not given stays", func(ctx context.Context, id string) error {
		if cmd.Flags().Changed("key") {
			delete(change, "per") // of which it is a value
			if _, given := change["windows"]; key == "" || !given || len(change) > 1 || with != "" {
				return config.Usagef("--key sets the windows of one value alone: give the value, its --window, and nothing else")
			}
			return c.changeKey(ctx, id, key, change)
		}
		if with != "" {
			change["with"] = with
		}
		return c.changeQuota(ctx, id, change)
	})
	cmd.Example = `  pacer quota set provider --window 300/1m --window 15750/1h
  pacer quota set provider --window 300000/1d:fixed:day@Europe/Moscow --mode shadow
  pacer quota set chat --per chat --window 1/1s,20/1m
  pacer quota set cap --per recipient --window 3/1d --max-wait 0
  pacer quota set hook --per destination --key shop-7 --window 50/1s`
	f := cmd.Flags()
	settingFlags(f, view.QuotaForm, change)
	f.StringVar(&key, "key", "", "of a keyed quota: set the windows of this `VALUE` alone; \"\" as window: those of the quota")
	f.StringVar(&with, "with", "", "create it in the shard of this `QUOTA`, so that campaigns can have both")
	return c.withServer(cmd)
}

func (c *cli) listQuotas(ctx context.Context) error {
	quotas := []*view.Quota{}
	if err := pages(ctx, c, "quotas", url.Values{}, func(q *view.Quota) { quotas = append(quotas, q) }); err != nil {
		return err
	}
	return c.printTable(quotas, func(p *printer) {
		p.line("ID\tWINDOWS\tMODE\tON STORE FAILURE\tCAMPAIGNS")
		for _, q := range quotas {
			p.line("%s\t%s\t%s\t%s\t%s", q.ID, cmp.Or(strings.Join(settingsOf(q).Windows, ","), "-"), spellMode(q), q.OnStoreFailure,
				cmp.Or(strings.Join(q.Campaigns, ","), "-"))
		}
	})
}

// settingsOf returns what is set of a quota.
func settingsOf(q *view.Quota) *catalog.QuotaRow {
	s := &catalog.QuotaRow{
		ID: q.ID, OnStoreFailure: q.OnStoreFailure, Mode: q.Mode, Spend: q.Spend, Rollout: q.Rollout, Unit: q.Unit, Keying: q.Keying, Shard: q.Shard,
		CampaignIDs: q.Campaigns, UpdatedAt: q.UpdatedAt,
	}
	for _, w := range q.Windows {
		span, _ := notation.ParseSpan(w.Span) // the API has formatted it
		s.Windows = append(s.Windows, notation.FormatWindow(delivery.Window{Span: span, Limit: w.Limit, Algorithm: w.Algorithm, Anchor: w.Anchor}))
	}
	return s
}

func quotaPath(id string) string { return pathOf("quotas", id) }

// spellMode describes how the quota limits: its mode and all settings that are not the default.
func spellMode(q *view.Quota) string {
	words := []string{q.Mode}
	if q.Rollout != 100 {
		words = append(words, fmt.Sprintf("%d%%", q.Rollout))
	}
	if q.Spend != delivery.SpendGreedy {
		words = append(words, q.Spend)
	}
	if q.Unit != delivery.UnitUnits {
		words = append(words, q.Unit)
	}
	if q.Per != "" {
		words = append(words, "per "+q.Per)
	}
	return strings.Join(words, ",")
}

// printQuota prints what is set of a quota.
func printQuota(p *printer, q *catalog.QuotaRow) {
	p.line("id\t%s", q.ID)
	p.line("windows\t%s", cmp.Or(strings.Join(q.Windows, ","), "-"))
	p.line("on store failure\t%s", q.OnStoreFailure)
	p.line("mode\t%s", q.Mode)
	p.line("spend\t%s", q.Spend)
	p.line("rollout\t%d%%", q.Rollout)
	p.line("unit\t%s", q.Unit)
	if q.Per != "" {
		p.line("per\t%s", q.Per)
		wait := "as long as the job may"
		if q.MaxWait != nil {
			wait = *q.MaxWait
		}
		p.line("max wait\t%s", wait)
		p.line("keyless\t%s", q.Keyless)
		p.line("count\t%s", q.Count)
	}
	p.line("shard\t%d", q.Shard)
	p.line("campaigns\t%s", cmp.Or(strings.Join(q.CampaignIDs, ", "), "-"))
	p.line("updated at\t%s", instant(q.UpdatedAt, time.RFC3339))
}
