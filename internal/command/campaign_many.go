package command

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// manyCampaigns are those that flags select instead of an id, and that have the status from.
type manyCampaigns struct {
	all          bool
	match, quota string
	yes          bool
	from         delivery.Status
}

// chosen reports whether the flags select campaigns.
func (m *manyCampaigns) chosen() bool { return m.all || m.match != "" || m.quota != "" }

// ofMany lets a command of one campaign do the same with many.
func (c *cli) ofMany(cmd *cobra.Command, m *manyCampaigns, one func(ctx context.Context, id string) error, many func(ctx context.Context) error) *cobra.Command {
	f := cmd.Flags()
	f.BoolVar(&m.all, "all", false, "all campaigns that are "+string(m.from)+", instead of ID")
	f.StringVar(&m.match, "match", "", "those of them whose ids contain this")
	f.StringVar(&m.quota, "of-quota", "", "those of them that this quota limits")
	f.BoolVar(&m.yes, "yes", false, "do not ask before changing many")
	cmd.Use = strings.Replace(cmd.Use, "ID", "ID|--all|--match TEXT|--of-quota ID", 1)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case !m.chosen():
			return oneID(cmd, args)
		case len(args) > 0:
			return fmt.Errorf("%s: give an id, or --all, --match or --of-quota, not both", cmd.CommandPath())
		case m.all && (m.match != "" || m.quota != ""):
			return fmt.Errorf("%s: --all is all of them; leave it out for those that --match or --of-quota selects", cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if m.chosen() {
			return many(cmd.Context())
		}
		return one(cmd.Context(), args[0])
	}
	return cmd
}

// bulkStore changes many campaigns.
type bulkStore interface {
	// countMany returns how many campaigns are selected, and changeMany changes those if they are still so many.
	countMany(ctx context.Context, m *manyCampaigns) (int, error)
	changeMany(ctx context.Context, m *manyCampaigns, expect int, change *view.Bulk) (changed int, err error)
}

// changeMany counts the campaigns that flags select, asks, and changes them.
func (c *cli) changeMany(ctx context.Context, m *manyCampaigns, change *view.Bulk) error {
	if change.Until != "" { // before anything is asked
		if _, err := notation.ParseUntil(change.Until, time.Now()); err != nil {
			return config.Usagef("--until: %w", err)
		}
	}
	store := bulkStore(database{c})
	err := c.noToken()
	if c.server.address != "" {
		store, err = c.remote()
	}
	if err != nil {
		return err
	}
	matched, err := store.countMany(ctx, m)
	if err != nil {
		return err
	}
	changed := 0
	if matched > 0 {
		if err := c.confirmMany(ctx, m.yes, fmt.Sprintf("%s %d campaigns", change.Action, matched)); err != nil {
			return err
		}
		if changed, err = store.changeMany(ctx, m, matched, change); err != nil {
			return err
		}
	}
	return c.print(map[string]int{"matched": matched, "changed": changed}, func(p *printer) {
		p.line("%sd %d of %d campaigns that match and are %s", change.Action, changed, matched, m.from)
	})
}

// confirmMany asks before many campaigns are changed. What a pause and a resume do can be undone, but not which campaigns they did it to.
func (c *cli) confirmMany(ctx context.Context, yes bool, what string) error {
	if yes {
		return nil
	}
	if f, ok := c.Stdin.(interface{ Fd() uintptr }); !ok || !term.IsTerminal(int(f.Fd())) {
		return config.Usagef("give --yes to %s: there is no terminal to ask on", what)
	}
	return confirmOn(ctx, c.Stdin, c.Stderr, what)
}

// manyIDs returns the ids of the campaigns that are selected.
func (d database) manyIDs(ctx context.Context, m *manyCampaigns) (ids []string, err error) {
	rows, err := ask(d.c, func(a *catalog.Admin) ([]catalog.CampaignRow, error) { return a.ListCampaigns(ctx) })
	for i := range rows {
		row := &rows[i]
		if row.Status == m.from && strings.Contains(row.ID, m.match) && (m.quota == "" || slices.Contains(row.Quotas, m.quota)) {
			ids = append(ids, row.ID)
		}
	}
	return ids, err
}

func (d database) countMany(ctx context.Context, m *manyCampaigns) (int, error) {
	ids, err := d.manyIDs(ctx, m)
	return len(ids), err
}

func (d database) changeMany(ctx context.Context, m *manyCampaigns, expect int, b *view.Bulk) (int, error) {
	ids, err := d.manyIDs(ctx, m)
	if err != nil {
		return 0, err
	}
	if len(ids) != expect {
		return 0, fmt.Errorf("%d campaigns match, not %d as before; look again, nothing was changed", len(ids), expect)
	}
	change := catalog.BulkChange{Status: delivery.StatusActive}
	if m.from == delivery.StatusActive {
		change.Status = delivery.StatusPaused
	}
	if b.Until != "" {
		if change.PausedUntil, err = notation.ParseUntil(b.Until, time.Now()); err != nil {
			return 0, config.Usagef("--until: %w", err)
		}
	}
	return ask(d.c, func(a *catalog.Admin) (int, error) { return a.ChangeCampaigns(ctx, ids, change) })
}

func (r *remote) countMany(ctx context.Context, m *manyCampaigns) (int, error) {
	var page struct {
		Total int `json:"total"`
	}
	query := url.Values{"state": {string(m.from)}, "limit": {"1"}}
	for name, value := range map[string]string{"q": m.match, "quota": m.quota} {
		if value != "" {
			query.Set(name, value)
		}
	}
	err := r.get(ctx, "/campaigns", query, &page)
	return page.Total, err
}

func (r *remote) changeMany(ctx context.Context, m *manyCampaigns, expect int, change *view.Bulk) (int, error) {
	var done struct {
		Changed int `json:"changed"`
	}
	err := r.call(ctx, http.MethodPost, "/bulk-changes", nil, struct {
		*view.Bulk
		Filter map[string]string `json:"filter"`
		Expect int               `json:"expect"`
	}{change, map[string]string{"q": m.match, "state": string(m.from), "quota": m.quota}, expect}, &done)
	return done.Changed, err
}
