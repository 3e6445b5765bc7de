package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// quotaShown is the output of `quota show`: the quota and its campaigns, as the API shows them.
type quotaShown struct {
	*view.Quota
	UsedBy []quotaUser `json:"used_by"`

	keys []delivery.KeyWaits
}

type quotaUser struct {
	*view.Campaign
	Covered bool `json:"covered"` // the quota is rolled out to it
}

func (c *cli) showQuota(ctx context.Context, id string) error {
	v := &quotaShown{Quota: &view.Quota{}, UsedBy: []quotaUser{}}
	if err := c.get(ctx, quotaPath(id), nil, v.Quota); err != nil {
		return err
	}
	if v.Keys != nil {
		v.keys = []delivery.KeyWaits{*v.Keys}
		if err := c.busyKeys(ctx, v.keys); err != nil {
			return err
		}
	}
	rolled := delivery.Quota{ID: v.ID, Exempt: 100 - v.Rollout}
	if err := pages(ctx, c, "campaigns", url.Values{"quota": {id}}, func(one *view.Campaign) {
		v.UsedBy = append(v.UsedBy, quotaUser{one, rolled.Covers(one.ID)})
	}); err != nil {
		return err
	}
	return c.printTable(v, v.print)
}

func (v *quotaShown) print(p *printer) {
	printQuota(p, settingsOf(v.Quota))
	if v.Rollout < 100 {
		covered := 0
		for _, c := range v.UsedBy {
			if c.Covered {
				covered++
			}
		}
		p.line("covers\t%d of %d campaigns", covered, len(v.UsedBy))
	}
	showKeys(p, v.keys)
	if len(v.Windows) > 0 {
		p.line("")
		p.line("WINDOW\tLIMIT\tREMAINING\tNEXT UNIT AT\tFULL AGAIN AT")
	}
	for _, w := range v.Windows {
		remaining, next, resetAt := "-", "-", "-"
		if w.Remaining != nil {
			remaining, resetAt = fmt.Sprint(*w.Remaining), "now"
		}
		if w.FullAt != nil {
			resetAt = w.FullAt.Format(preciseTime)
		}
		switch {
		case w.FreeAt != nil:
			next = w.FreeAt.Format(preciseTime)
		case w.Remaining != nil && *w.Remaining > 0:
			next = "now"
		case w.Remaining != nil:
			next = "never" // the limit is 0
		}
		p.line("%s\t%d\t%s\t%s\t%s", w.Span, w.Limit, remaining, next, resetAt)
	}
	if v.Unknown != "" {
		p.line("what remains is not known: %s", v.Unknown)
	}
	if len(v.UsedBy) > 0 {
		p.line("")
		p.line("CAMPAIGN\tRATE\tSTATUS\tPRIORITY WEIGHT\tCOVERED\tWAITING\tHELD BY\tHELD SINCE")
	}
	for _, c := range v.UsedBy {
		waiting, by, since := "-", "-", "-"
		if c.Backlog != nil {
			waiting = fmt.Sprint(*c.Backlog)
		}
		if c.Held != nil {
			by, since = c.Held.Cause, instant(c.Held.Since, time.RFC3339)
		}
		p.line("%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s", c.ID, c.Rate, c.Status, c.PriorityWeight,
			map[bool]string{true: "yes", false: "no"}[c.Covered], waiting, by, since)
	}
}

// preciseTime is RFC 3339 with milliseconds: windows may be short.
const preciseTime = "2006-01-02T15:04:05.000Z07:00"

// busyKeys asks for the keys that keep most jobs waiting. Only operators are told.
func (c *cli) busyKeys(ctx context.Context, waits []delivery.KeyWaits) error {
	for i := range waits {
		var found struct{ Keys []delivery.KeyJobs }
		err := c.get(ctx, quotaPath(waits[i].Quota)+"/keys", nil, &found)
		var refused *refusal
		if errors.As(err, &refused) && (refused.status == http.StatusUnauthorized || refused.status == http.StatusForbidden) {
			return nil
		} else if err != nil {
			return err
		}
		waits[i].Busiest = found.Keys
	}
	return nil
}

// showKeys prints how keyed quotas let jobs wait, a line each.
func showKeys(p *printer, waits []delivery.KeyWaits) {
	for _, w := range waits {
		words := make([]string, len(w.Busiest))
		for i, k := range w.Busiest {
			words[i] = fmt.Sprintf("%s (%d)", k.Key, k.Jobs)
		}
		p.line("waiting for keys\t%s by quota %s; most often lately: %s", counted(w.Waiting, "job"), w.Quota, cmp.Or(strings.Join(words, ", "), "-"))
	}
}
