package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
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
	Note  string              `json:"note,omitempty"` // why a step may say less or more than what was sent
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
	row, err := admin.GetQuota(ctx, id)
	if err != nil {
		return err
	}
	usage.Note = usageNote(&row)
	if in.JSON {
		return writeJSON(in.Stdout, usage)
	}
	return writeTable(in.Stdout, usage.print)
}

// keptAbove is the span above which daemons keep the use of a window: shorter ones need no history to be rebuilt.
const keptAbove = 2 * time.Minute

// usageNote says how far the figures can be relied on.
func usageNote(q *catalog.QuotaRow) string {
	switch {
	case q.Mode == delivery.ModeEventual:
		return "in mode eventual the use of a quota is not kept; what was sent before the mode was set is shown"
	case q.Rollout == 0:
		return "with a rollout of 0 the use of a quota is not kept; what was sent before it was set is shown"
	case !slices.ContainsFunc(q.Windows, keepsUse):
		return "the use of a quota is kept only with a window longer than 2 minutes, and this one has none"
	default:
		return "the last two minutes may hold units that are reserved and not sent"
	}
}

func keepsUse(w catalog.WindowRow) bool {
	span, err := catalog.ParseSpan(w.Span)
	return err == nil && span > keptAbove
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
	p.line("%s", u.Note)
}
