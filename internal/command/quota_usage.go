package command

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) quotaUsage() *cobra.Command {
	var last, step time.Duration
	cmd := c.ofID("usage", "What was used of a quota, and what was left", func(ctx context.Context, id string) error {
		return c.showUsage(ctx, id, last, step)
	})
	cmd.Example = "  pacer quota usage provider --last 7d --step 1h"
	spanVar(cmd.Flags(), &last, "last", 7*notation.Day, "how far back, such as 36h or 7d")
	spanVar(cmd.Flags(), &step, "step", time.Hour, "time per line, in whole minutes")
	return c.withServer(cmd)
}

// quotaUsage is the JSON output of `quota usage`.
type quotaUsage struct {
	Quota string          `json:"quota"`
	Step  string          `json:"step"`
	Steps []catalog.Usage `json:"steps"`
	Note  string          `json:"note,omitempty"` // why a step may show less or more than what was sent
}

// showUsage prints the usage of a quota, step by step, and the remaining units of its windows.
func (c *cli) showUsage(ctx context.Context, id string, last, step time.Duration) error {
	usage := quotaUsage{Quota: id, Step: notation.FormatSpan(step)}
	var found struct{ Usage []catalog.Usage }
	if err := c.get(ctx, quotaPath(id)+"/usage", url.Values{"last": {notation.FormatSpan(last)}, "step": {usage.Step}}, &found); err != nil {
		return err
	}
	usage.Steps = found.Usage
	var q view.Quota
	if err := c.get(ctx, quotaPath(id), nil, &q); err != nil {
		return err
	}
	usage.Note = usageNote(&q)
	return c.printTable(usage, usage.print)
}

// keptAbove is the span above which daemons store the usage of a window: shorter windows need no history to be
// restored.
const keptAbove = 2 * time.Minute

// usageNote says how reliable the figures are.
func usageNote(q *view.Quota) string {
	switch {
	case q.Mode == delivery.ModeEventual:
		return "in mode eventual the use of a quota is not kept; what was sent before the mode was set is shown"
	case q.Rollout == 0:
		return "with a rollout of 0 the use of a quota is not kept; what was sent before it was set is shown"
	case !slices.ContainsFunc(q.Windows, func(w view.Window) bool { return w.Seconds > keptAbove.Seconds() }):
		return "the use of a quota is kept only with a window longer than 2 minutes, and this one has none"
	default:
		return "the ledger leaves too little where quota adjust has added units, which count in all windows here, or taken some away, which still count: " +
			"pacer quota show has what is left; what is older than a day is kept by the hour"
	}
}

// print leaves out the time before the first use.
func (u *quotaUsage) print(p *printer) {
	first := slices.IndexFunc(u.Steps, func(s catalog.Usage) bool { return s.Units > 0 })
	if first < 0 {
		if len(u.Steps) > 0 {
			p.line("no use of quota %s is known since %s", u.Quota, u.Steps[0].Start.Format(time.RFC3339))
		}
		p.line("%s", u.Note)
		return
	}
	heads := []string{"FROM", "UNITS"}
	if len(u.Steps) > 0 {
		for _, w := range u.Steps[0].Remaining {
			heads = append(heads, fmt.Sprintf("LEDGER LEAVES OF %d/%s", w.Limit, w.Span))
		}
	}
	p.line("%s", strings.Join(heads, "\t"))
	for _, s := range u.Steps[first:] {
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
