package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
)

// QuotaFlags are the flags of `quota set`; nil where not given.
type QuotaFlags struct {
	Windows        *[]string // each one or several, as in 300/1m,15750/1h
	OnStoreFailure *string
	Mode           *string
	Spend          *string
	Rollout        *int64
	Unit           *string
}

func (f *QuotaFlags) change() (catalog.QuotaChange, error) {
	c := catalog.QuotaChange{
		OnStoreFailure: f.OnStoreFailure, Mode: f.Mode, Spend: f.Spend, Rollout: f.Rollout, Unit: f.Unit,
	}
	if f.Windows != nil {
		windows, err := catalog.ParseWindows(strings.Join(*f.Windows, ","))
		if err != nil {
			return c, usagef("--window: %w", err)
		}
		c.Windows = &windows
	}
	return c, nil
}

// QuotaList is `pacer quota list`.
func QuotaList(ctx context.Context, in Invocation) error {
	admin, err := in.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	quotas, err := admin.ListQuotas(ctx)
	if err != nil {
		return err
	}
	if in.JSON {
		return writeJSON(in.Stdout, quotas)
	}
	return writeTable(in.Stdout, func(p *printer) {
		p.line("ID\tWINDOWS\tMODE\tON STORE FAILURE\tCAMPAIGNS")
		for i := range quotas {
			q := &quotas[i]
			p.line("%s\t%s\t%s\t%s\t%s", q.ID, orDash(spellWindows(q)), spellMode(q), q.OnStoreFailure,
				orDash(strings.Join(q.Campaigns, ",")))
		}
	})
}

// spellMode says how the quota binds: its mode and what else is not as usual.
func spellMode(q *catalog.QuotaRow) string {
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
	return strings.Join(words, ",")
}

// QuotaShow is `pacer quota show`.
func QuotaShow(ctx context.Context, in Invocation, id string) error {
	s, err := in.services(NeedPostgres)
	if err != nil {
		return err
	}
	defer s.close()
	admin, err := catalog.NewAdmin(s.dsn)
	if err != nil {
		return UsageError{err}
	}
	defer admin.Close()
	row, err := admin.GetQuota(ctx, id)
	if err != nil {
		return err
	}
	campaigns, err := admin.CampaignsOf(ctx, id)
	if err != nil {
		return err
	}
	view := newQuotaView(&row, campaigns)
	if err := s.peek(ctx, view); err != nil {
		view.Note = err.Error()
	}
	if in.JSON {
		return writeJSON(in.Stdout, view)
	}
	return writeTable(in.Stdout, view.print)
}

// QuotaSet is `pacer quota set`: it creates the quota or changes it.
func QuotaSet(ctx context.Context, in Invocation, id string, flags *QuotaFlags) error {
	if *flags == (QuotaFlags{}) {
		return usagef("quota set %s: nothing to set; give its windows, such as --window 300/1m --window 15750/1h", id)
	}
	change, err := flags.change()
	if err != nil {
		return err
	}
	if err := supported(id, &change); err != nil {
		return err
	}
	admin, err := in.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	q, err := admin.SetQuota(ctx, id, change)
	if err != nil {
		return err
	}
	if in.JSON {
		return writeJSON(in.Stdout, q)
	}
	return writeTable(in.Stdout, func(p *printer) { printQuota(p, &q) })
}

// supported refuses what the daemons could not keep, as far as the change alone tells. Taken in silence it would hold
// every campaign of the quota.
func supported(id string, c *catalog.QuotaChange) error {
	q := &delivery.Quota{ID: id}
	for _, word := range []struct {
		from *string
		to   *string
	}{{c.OnStoreFailure, &q.OnStoreFailure}, {c.Mode, &q.Mode}, {c.Spend, &q.Spend}} {
		if word.from != nil {
			*word.to = *word.from
		}
	}
	if c.Windows != nil {
		q.Windows = *c.Windows
	}
	if err := limits.Validate(q); err != nil {
		return UsageError{err}
	}
	return nil
}

// printQuota prints what the catalog says of a quota.
func printQuota(p *printer, q *catalog.QuotaRow) {
	p.line("id\t%s", q.ID)
	p.line("windows\t%s", orDash(spellWindows(q)))
	p.line("on store failure\t%s", q.OnStoreFailure)
	p.line("mode\t%s", q.Mode)
	p.line("spend\t%s", q.Spend)
	p.line("rollout\t%d%%", q.Rollout)
	p.line("unit\t%s", q.Unit)
	p.line("shard\t%d", q.Shard)
	p.line("campaigns\t%s", orDash(strings.Join(q.Campaigns, ", ")))
	p.line("updated at\t%s", q.UpdatedAt.UTC().Format(time.RFC3339))
}

// spellWindows spells the windows as `quota set` reads them.
func spellWindows(q *catalog.QuotaRow) string {
	words := make([]string, 0, len(q.Windows))
	for _, w := range q.Windows {
		words = append(words, w.String())
	}
	return strings.Join(words, ",")
}
