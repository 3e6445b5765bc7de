package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
)

// QuotaUsageFlags are the flags of `quota usage`.
type QuotaUsageFlags struct {
	Last string // how far back, such as 7d
	Step string // of time per line, such as 1h
}

// quotaUsage is what `quota usage --json` prints.
type quotaUsage struct {
	Quota string              `json:"quota"`
	Step  string              `json:"step"`
	Steps []catalog.UsageStep `json:"steps"`
}

// QuotaUsage is `pacer quota usage`: what was used of a quota, step by step, and what was left of its windows.
func QuotaUsage(ctx context.Context, in Invocation, id string, flags *QuotaUsageFlags) error {
	last, err := catalog.ParseSpan(flags.Last)
	if err != nil {
		return usagef("--last: %w", err)
	}
	step, err := catalog.ParseSpan(flags.Step)
	if err != nil {
		return usagef("--step: %w", err)
	}
	admin, err := in.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	now := time.Now()
	usage := quotaUsage{Quota: id, Step: catalog.FormatSpan(step)}
	if usage.Steps, err = admin.UsageHistory(ctx, id, now.Add(-last), now, step); err != nil {
		return err
	}
	if in.JSON {
		return writeJSON(in.Stdout, usage)
	}
	return writeTable(in.Stdout, usage.print)
}

func (u *quotaUsage) print(p *printer) {
	heads := []string{"FROM", "UNITS"}
	if len(u.Steps) > 0 {
		for _, w := range u.Steps[0].Remaining {
			heads = append(heads, fmt.Sprintf("LEFT OF %d/%s", w.Limit, w.Span))
		}
	}
	p.line("%s", strings.Join(heads, "\t"))
	for _, s := range u.Steps {
		cells := []string{s.Start.Format(time.RFC3339), fmt.Sprint(s.Units)}
		for _, w := range s.Remaining {
			if w.Units == nil {
				cells = append(cells, "-")
			} else {
				cells = append(cells, fmt.Sprint(*w.Units))
			}
		}
		p.line("%s", strings.Join(cells, "\t"))
	}
}
