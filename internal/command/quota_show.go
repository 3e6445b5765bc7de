package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
)

// peekTimeout bounds the wait for the counts of a quota; the rest is shown without them too.
const peekTimeout = time.Second

// quotaView is the output of `quota show`: the quota, the state of its windows and its campaigns.
type quotaView struct {
	*catalog.QuotaRow
	State  []windowView   `json:"state"`
	Note   string         `json:"note,omitempty"` // why the state lacks counts
	Claims []claimView    `json:"claims"`
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

// claimView is units that are kept for a campaign which was refused some, or for many that wait on a daemon.
type claimView struct {
	Campaign string    `json:"campaign"`
	Daemon   string    `json:"daemon,omitempty"` // in place of campaigns
	Units    int64     `json:"units"`
	AskedAt  time.Time `json:"asked_at"`
	DueAt    time.Time `json:"due_at"` // when it asks again at the latest
}

// campaignView is one of the campaigns that share the quota.
type campaignView struct {
	ID             string          `json:"id"`
	SendRate       string          `json:"send_rate"`
	Status         delivery.Status `json:"status"`
	PriorityWeight int64           `json:"priority_weight"`
	Covered        bool            `json:"covered"`           // the quota is rolled out to it
	Waiting        *int64          `json:"waiting,omitempty"` // jobs; nil if not known
	Hold           *heldView       `json:"hold,omitempty"`
}

func newQuotaView(row *catalog.QuotaRow, campaigns []catalog.CampaignRow) *quotaView {
	v := &quotaView{QuotaRow: row, State: []windowView{}, Claims: []claimView{}, UsedBy: []campaignView{}}
	for _, w := range row.Windows {
		v.State = append(v.State, windowView{Span: w.Span, Limit: w.MaxUnits})
	}
	rolled := delivery.Quota{ID: row.ID, Exempt: 100 - row.Rollout}
	for i := range campaigns {
		c := &campaigns[i]
		v.UsedBy = append(v.UsedBy, campaignView{
			ID: c.ID, SendRate: c.Rate(), Status: c.Status, PriorityWeight: c.PriorityWeight, Covered: rolled.Covers(c.ID),
		})
	}
	return v
}

// peek reads the state of the quota's windows from the store.
func peek(ctx context.Context, s *app.Services, v *quotaView) error {
	switch {
	case len(v.State) == 0:
		return nil
	case v.Mode == delivery.ModeEventual:
		return errors.New("in mode eventual the daemons count by themselves")
	case len(s.Config.Redis.Addrs) == 0:
		return errors.New("redis.addrs is not set; set it to see what is left")
	}
	quota, err := v.Quota()
	if err != nil {
		return err
	}
	engine, shards, err := openLimits(s)
	if err != nil {
		return err
	}
	defer func() { _ = shards.Close() }() // nothing is written on closing
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	states, err := engine.Peek(ctx, []*delivery.Quota{quota})
	if err != nil {
		return fmt.Errorf("redis.addrs: the quota store does not answer: %w", err)
	}
	claims, err := engine.Claims(ctx, quota)
	if err != nil {
		return fmt.Errorf("redis.addrs: the quota store does not answer: %w", err)
	}
	for _, one := range claims {
		v.Claims = append(v.Claims, claimView{Campaign: one.Campaign, Daemon: one.Daemon, Units: one.Units, AskedAt: one.Asked, DueAt: one.Due})
	}
	for i := range states {
		state := &states[i]
		if state.Window < 0 || state.Window >= len(v.State) {
			continue
		}
		resetAt := time.UnixMicro(state.ResetAt).UTC()
		v.State[state.Window].Remaining, v.State[state.Window].ResetAt = &state.Remaining, &resetAt
		if state.FreeAt > 0 {
			next := time.UnixMicro(state.FreeAt).UTC()
			v.State[state.Window].NextAt = &next
		}
	}
	return nil
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
	if len(v.Claims) > 0 {
		p.line("")
		p.line("UNITS ARE KEPT FOR\tUNITS\tASKED AT\tASKS AGAIN BY")
	}
	for _, one := range v.Claims {
		p.line("%s\t%d\t%s\t%s", cmp.Or(one.Campaign, "several on daemon "+one.Daemon), one.Units, one.AskedAt.Format(preciseTime), one.DueAt.Format(preciseTime))
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
			by = string(c.Hold.Cause)
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
