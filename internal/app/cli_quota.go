package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
)

// QuotaFlags are the flags of `quota set`; nil where not given.
type QuotaFlags struct {
	Windows        *[]string // each one or several, as in 300/1m,15750/1h
	OnStoreFailure *string
	Spend          *string
}

func (f *QuotaFlags) change() (catalog.QuotaChange, error) {
	c := catalog.QuotaChange{OnStoreFailure: f.OnStoreFailure, Spend: f.Spend}
	if f.Windows != nil {
		windows, err := catalog.ParseWindows(strings.Join(*f.Windows, ","))
		if err != nil {
			return c, usagef("--windows: %w", err)
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
		p.line("ID\tWINDOWS\tON STORE FAILURE\tCAMPAIGNS")
		for i := range quotas {
			q := &quotas[i]
			p.line("%s\t%s\t%s\t%s", q.ID, orDash(spellWindows(q)), q.OnStoreFailure, orDash(strings.Join(q.Campaigns, ",")))
		}
	})
}

// QuotaShow is `pacer quota show`.
func QuotaShow(ctx context.Context, in Invocation, id string) error {
	admin, err := in.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	q, err := admin.GetQuota(ctx, id)
	if err != nil {
		return err
	}
	return in.showQuota(&q)
}

// QuotaSet is `pacer quota set`: it creates the quota or changes it.
func QuotaSet(ctx context.Context, in Invocation, id string, flags *QuotaFlags) error {
	if *flags == (QuotaFlags{}) {
		return usagef("quota set %s: nothing to set; give its windows, such as --windows 300/1m,15750/1h", id)
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
	return in.showQuota(&q)
}

// supported refuses what the tables have room for and the daemons do not do yet. Taken in silence it would hold every
// campaign of the quota, or, for a policy on failures, not be followed.
func supported(id string, c *catalog.QuotaChange) error {
	if p := c.OnStoreFailure; p != nil && (*p == "local-share" || *p == "open") {
		return usagef("--on-store-failure %s is not available yet; use closed", *p)
	}
	if c.Spend != nil && *c.Spend == "even" {
		return usagef("--spend %s is not available yet; use greedy", *c.Spend)
	}
	if c.Windows == nil {
		return nil
	}
	if err := limits.Validate(&delivery.Quota{ID: id, Windows: *c.Windows}); errors.Is(err, limits.ErrUnsupported) {
		return usagef("--windows: %w", err)
	}
	return nil
}

func (in Invocation) showQuota(q *catalog.QuotaRow) error {
	if in.JSON {
		return writeJSON(in.Stdout, q)
	}
	return writeTable(in.Stdout, func(p *printer) {
		p.line("id\t%s", q.ID)
		p.line("windows\t%s", orDash(spellWindows(q)))
		p.line("on store failure\t%s", q.OnStoreFailure)
		p.line("mode\t%s", q.Mode)
		p.line("spend\t%s", q.Spend)
		p.line("campaigns\t%s", orDash(strings.Join(q.Campaigns, ", ")))
	})
}

// spellWindows spells the windows as `quota set` reads them.
func spellWindows(q *catalog.QuotaRow) string {
	words := make([]string, 0, len(q.Windows))
	for _, w := range q.Windows {
		word := fmt.Sprintf("%d/%s", w.MaxUnits, w.Span)
		if w.Algorithm != "sliding" { // the default, which need not be said
			word += ":" + w.Algorithm
		}
		words = append(words, word)
	}
	return strings.Join(words, ",")
}
