package command

import (
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
	UsedBy []campaignView `json:"used_by"`
}

// windowView is one window. Remaining and ResetAt are nil if the store does not answer.
type windowView struct {
	Span      string     `json:"span"`
	Limit     int64      `json:"limit"`
	Remaining *int64     `json:"remaining"`
	ResetAt   *time.Time `json:"reset_at"` // when the window would be full again if nothing more were sent
}

// campaignView is one of the campaigns that share the quota.
type campaignView struct {
	ID             string          `json:"id"`
	SendRate       string          `json:"send_rate"`
	Status         delivery.Status `json:"status"`
	PriorityWeight int64           `json:"priority_weight"`
}

func newQuotaView(row *catalog.QuotaRow, campaigns []catalog.CampaignRow) *quotaView {
	v := &quotaView{QuotaRow: row, State: []windowView{}, UsedBy: []campaignView{}}
	for _, w := range row.Windows {
		v.State = append(v.State, windowView{Span: w.Span, Limit: w.MaxUnits})
	}
	for i := range campaigns {
		c := &campaigns[i]
		v.UsedBy = append(v.UsedBy, campaignView{
			ID: c.ID, SendRate: c.Rate(), Status: c.Status, PriorityWeight: c.PriorityWeight,
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
	states, _, err := engine.Peek(ctx, []*delivery.Quota{quota})
	if err != nil {
		return fmt.Errorf("redis.addrs: the quota store does not answer: %w", err)
	}
	for i := range states {
		state := &states[i]
		if state.Window < 0 || state.Window >= len(v.State) {
			continue
		}
		resetAt := time.UnixMicro(state.ResetAt).UTC()
		v.State[state.Window].Remaining, v.State[state.Window].ResetAt = &state.Remaining, &resetAt
	}
	return nil
}

func (v *quotaView) print(p *printer) {
	printQuota(p, v.QuotaRow)
	if len(v.State) > 0 {
		p.line("")
		p.line("WINDOW\tLIMIT\tREMAINING\tFULL AGAIN AT")
	}
	for _, w := range v.State {
		remaining, resetAt := "-", "-"
		if w.Remaining != nil {
			remaining, resetAt = fmt.Sprint(*w.Remaining), w.ResetAt.Format(preciseTime)
		}
		p.line("%s\t%d\t%s\t%s", w.Span, w.Limit, remaining, resetAt)
	}
	if v.Note != "" {
		p.line("what remains is not known: %s", v.Note)
	}
	if len(v.UsedBy) > 0 {
		p.line("")
		p.line("CAMPAIGN\tRATE\tSTATUS\tPRIORITY WEIGHT")
	}
	for _, c := range v.UsedBy {
		p.line("%s\t%s\t%s\t%d", c.ID, c.SendRate, c.Status, c.PriorityWeight)
	}
}

// preciseTime is RFC 3339 with milliseconds: windows may be short.
const preciseTime = "2006-01-02T15:04:05.000Z07:00"
