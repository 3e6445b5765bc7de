package command

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// quotaView is the output of `quota show`: the quota, the state of its windows and its campaigns.
type quotaView struct {
	*catalog.QuotaRow
	State  []windowView   `json:"state"`
	Note   string         `json:"note,omitempty"` // why the state lacks counts
	UsedBy []campaignView `json:"used_by"`
}

// windowView is one window. Remaining and ResetAt are nil if the store does not answer.
type windowView struct {
	Span      string     `json:"span"`
	Limit     int64      `json:"limit"`
	Remaining *int64     `json:"remaining"`
	ResetAt   *time.Time `json:"reset_at"` // when the window would be full again if nothing more were sent
	NextAt    *time.Time `json:"next_at"`  // where nothing remains, when the next unit will; nil: something does, or never
}

// campaignView is one of the campaigns that share the quota.
type campaignView struct {
	ID             string          `json:"id"`
	SendRate       string          `json:"send_rate"`
	Status         delivery.Status `json:"status"`
	PriorityWeight int64           `json:"priority_weight"`
	Covered        bool            `json:"covered"`           // the quota is rolled out to it
	Waiting        *int64          `json:"waiting,omitempty"` // jobs; nil if not known
	Hold           *view.Held      `json:"hold,omitempty"`
}

func (c *cli) showQuota(ctx context.Context, id string) error {
	api, err := c.client(config.NeedPostgres)
	if err != nil {
		return err
	}
	var q view.Quota
	if err := api.get(ctx, quotaPath(id), nil, &q); err != nil {
		return err
	}
	v := &quotaView{QuotaRow: quotaRow(&q), State: []windowView{}, Note: q.Unknown, UsedBy: []campaignView{}}
	for _, w := range q.Windows {
		v.State = append(v.State, windowView{Span: w.Span, Limit: w.Limit, Remaining: w.Remaining, ResetAt: w.FullAt, NextAt: w.FreeAt})
	}
	rolled := delivery.Quota{ID: q.ID, Exempt: 100 - q.Rollout}
	if err := pages(ctx, api, "campaigns", url.Values{"quota": {id}}, func(one *view.Campaign) {
		v.UsedBy = append(v.UsedBy, campaignView{
			ID: one.ID, SendRate: one.Rate, Status: delivery.Status(one.Status), PriorityWeight: one.PriorityWeight, Covered: rolled.Covers(one.ID),
			Waiting: one.Backlog, Hold: one.Held,
		})
	}); err != nil {
		return err
	}
	return c.printTable(v, v.print)
}

func (v *quotaView) print(p *printer) {
	printQuota(p, v.QuotaRow)
	if v.Rollout < 100 {
		covered := 0
		for _, c := range v.UsedBy {
			if c.Covered {
				covered++
			}
		}
		p.line("covers\t%d of %d campaigns", covered, len(v.UsedBy))
	}
	if len(v.State) > 0 {
		p.line("")
		p.line("WINDOW\tLIMIT\tREMAINING\tNEXT UNIT AT\tFULL AGAIN AT")
	}
	for _, w := range v.State {
		remaining, next, resetAt := "-", "-", "-"
		if w.Remaining != nil {
			remaining, resetAt = fmt.Sprint(*w.Remaining), "now"
		}
		if w.ResetAt != nil {
			resetAt = w.ResetAt.Format(preciseTime)
		}
		switch {
		case w.NextAt != nil:
			next = w.NextAt.Format(preciseTime)
		case w.Remaining != nil && *w.Remaining > 0:
			next = "now"
		case w.Remaining != nil:
			next = "never" // the limit is 0
		}
		p.line("%s\t%d\t%s\t%s\t%s", w.Span, w.Limit, remaining, next, resetAt)
	}
	if v.Note != "" {
		p.line("what remains is not known: %s", v.Note)
	}
	if len(v.UsedBy) > 0 {
		p.line("")
		p.line("CAMPAIGN\tRATE\tSTATUS\tPRIORITY WEIGHT\tCOVERED\tWAITING\tHELD BY\tHELD SINCE")
	}
	for _, c := range v.UsedBy {
		waiting, by, since := "-", "-", "-"
		if c.Waiting != nil {
			waiting = fmt.Sprint(*c.Waiting)
		}
		if c.Hold != nil {
			by = c.Hold.Cause
			if c.Hold.Since != nil {
				since = instant(c.Hold.Since, time.RFC3339)
			}
		}
		p.line("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s", c.ID, c.SendRate, c.Status, c.PriorityWeight,
			map[bool]string{true: "yes", false: "no"}[c.Covered], waiting, by, since)
	}
}

// preciseTime is RFC 3339 with milliseconds: windows may be short.
const preciseTime = "2006-01-02T15:04:05.000Z07:00"
