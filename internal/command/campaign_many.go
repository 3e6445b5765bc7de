package command

import (
	"context"
	"fmt"
	"maps"
	"net/http"
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

// manyCampaigns are those that flags select instead of an id, and that have the status from; "" for any.
type manyCampaigns struct {
	all                bool
	match, quota, sink string
	yes                bool
	from               delivery.Status
}

// chosen reports whether the flags select campaigns.
func (m *manyCampaigns) chosen() bool { return m.all || m.match != "" || m.quota != "" || m.sink != "" }

// which returns words for the status that they must have.
func (m *manyCampaigns) which() string {
	if m.from == "" {
		return ""
	}
	return " that are " + string(m.from)
}

// ofMany lets a command of one campaign do the same with many.
func (c *cli) ofMany(cmd *cobra.Command, m *manyCampaigns, many func(ctx context.Context) error) *cobra.Command {
	f, oneID, one := cmd.Flags(), cmd.Args, cmd.RunE
	f.BoolVar(&m.all, "all", false, "all campaigns"+m.which()+", instead of ID")
	f.StringVar(&m.match, "match", "", "those of them whose ids contain this")
	f.StringVar(&m.quota, "of-quota", "", "those of them that this quota limits")
	f.StringVar(&m.sink, "of-sink", "", "those of them that this sink serves")
	f.BoolVar(&m.yes, "yes", false, "do not ask before changing many, or what cannot be undone")
	cmd.Use = strings.Replace(cmd.Use, "ID", "ID|--all|--match TEXT|--of-quota ID|--of-sink NAME", 1)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		switch {
		case !m.chosen():
			return oneID(cmd, args)
		case len(args) > 0:
			return fmt.Errorf("%s: give an id, or --all, --match, --of-quota or --of-sink, not both", cmd.CommandPath())
		case m.all && (m.match != "" || m.quota != "" || m.sink != ""):
			return fmt.Errorf("%s: --all is all of them; leave it out for those that --match, --of-quota or --of-sink selects", cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if m.chosen() {
			return many(cmd.Context())
		}
		return one(cmd, args)
	}
	return cmd
}

// manyChange is a change of many campaigns, and why it is made.
type manyChange struct {
	catalog.BulkChange
	Reason string `json:"reason,omitempty"`
}

// words returns the question before the change and the words after it.
func (c *manyChange) words(matched int) (asks, done string) {
	switch c.Action {
	case "rate":
		return fmt.Sprintf("set the rates of %d campaigns to %s", matched, c.Rate), "set the rates of"
	case "percent":
		return fmt.Sprintf("set the rates of %d campaigns to %g %% of what they are", matched, c.Percent), "set the rates of"
	}
	return fmt.Sprintf("%s %d campaigns", c.Action, matched), c.Action + "d"
}

// changeMany counts the campaigns that flags select, asks, and changes them.
func (c *cli) changeMany(ctx context.Context, m *manyCampaigns, change *manyChange) error {
	if err := checkReason(change.Reason); err != nil {
		return err
	}
	if err := checkUntil(change.Until); err != nil {
		return err
	}
	filter := map[string]string{"state": string(m.from), "q": m.match, "quota": m.quota, "sink": m.sink}
	maps.DeleteFunc(filter, func(_, value string) bool { return value == "" })
	query := url.Values{"limit": {"1"}}
	for name, value := range filter {
		query.Set(name, value)
	}
	var page struct {
		Total int `json:"total"`
	}
	if err := c.get(ctx, "/campaigns", query, &page); err != nil {
		return err
	}
	matched := page.Total
	var made struct {
		Changed int `json:"changed"`
	}
	asks, done := change.words(matched)
	if matched > 0 {
		if err := c.confirm(ctx, m.yes, asks); err != nil {
			return err
		}
		if err := c.call(ctx, http.MethodPost, bulkPath, nil, struct {
			*manyChange
			Filter map[string]string `json:"filter"`
			Expect int               `json:"expect"`
		}{change, filter, matched}, &made); err != nil {
			return err
		}
	}
	return c.print(map[string]int{"matched": matched, "changed": made.Changed}, func(p *printer) {
		if m.from == "" {
			p.line("%s %d of %d campaigns that match; those that are over stay as they are", done, made.Changed, matched)
			return
		}
		p.line("%s %d of %d campaigns that match and are %s", done, made.Changed, matched, m.from)
	})
}

// setMany sets the rates of many campaigns. The rest of what may be set differs from one to the other.
func (c *cli) setMany(ctx context.Context, m *manyCampaigns, change view.Values, status string, bulk manyChange, percent bool) error {
	rate, given := change["rate"].(string)
	if delete(change, "rate"); len(change) > 0 || status != "" {
		return config.Usagef("only --rate or --percent can be set of many campaigns; give an id for the rest")
	}
	if given == percent {
		return config.Usagef("give --rate or --percent, one of them")
	}
	if bulk.Action = "percent"; given {
		bulk.Action, bulk.Rate = "rate", rate
	} else if !(bulk.Percent > 0 && bulk.Percent <= 10_000) { // NaN neither
		return config.Usagef("--percent %g must be above 0 and at most 10000", bulk.Percent)
	}
	return c.changeMany(ctx, m, &bulk)
}

// reasonFlag adds the flag of why something is changed.
func reasonFlag(cmd *cobra.Command, reason *string) {
	cmd.Flags().StringVar(reason, "reason", "", "why, for pacer.campaign_changes")
}

func checkReason(reason string) error {
	if err := view.CheckReason("--reason", reason); err != nil {
		return config.Usagef("%w", err)
	}
	return nil
}

func checkUntil(until string) error {
	if until == "" {
		return nil
	}
	if _, err := notation.ParseUntil(until, time.Now()); err != nil {
		return config.Usagef("--until: %w", err)
	}
	return nil
}
