package command

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
)

func (r *remote) list(ctx context.Context) (rows []campaignRow, err error) {
	rows = []campaignRow{}
	err = r.eachCampaign(ctx, url.Values{}, func(c *view.Campaign) { rows = append(rows, shownCampaign(c)) })
	return rows, err
}

// eachCampaign asks for all campaigns, page by page.
func (r *remote) eachCampaign(ctx context.Context, query url.Values, do func(*view.Campaign)) error {
	query.Set("limit", strconv.Itoa(remotePage))
	for {
		var page struct {
			Campaigns []*view.Campaign `json:"campaigns"`
			Next      string           `json:"next"`
		}
		if err := r.get(ctx, "/campaigns", query, &page); err != nil {
			return err
		}
		for _, c := range page.Campaigns {
			do(c)
		}
		if page.Next == "" || len(page.Campaigns) == 0 {
			return nil
		}
		query.Set("after", page.Next)
	}
}

func (r *remote) show(ctx context.Context, id string) (campaignRow, error) {
	var c view.Campaign
	if err := r.get(ctx, "/campaigns/"+url.PathEscape(id), nil, &c); err != nil {
		return campaignRow{}, err
	}
	return shownCampaign(&c), nil
}

func (r *remote) change(ctx context.Context, id string, e campaignEdit) (campaignRow, error) {
	if e.fields.Status != nil {
		return campaignRow{}, config.Usagef("--status does not work over --server; use pacer campaign pause, resume or cancel")
	}
	type whole struct {
		ID string `json:"id,omitempty"`
		*view.Edit
		Reason string `json:"reason,omitempty"`
	}
	method, path, body := http.MethodPatch, "/campaigns/"+url.PathEscape(id), any(whole{"", editOf(&e.fields), e.reason})
	switch {
	case e.status != "":
		verb := map[delivery.Status]string{delivery.StatusPaused: "pause", delivery.StatusActive: "resume", delivery.StatusCancelled: "cancel"}[e.status]
		said := map[string]string{}
		for name, text := range map[string]string{"until": e.until, "reason": e.reason} {
			if text != "" {
				said[name] = text
			}
		}
		method, path, body = http.MethodPost, path+"/"+verb, said
	case e.create:
		method, path, body = http.MethodPost, "/campaigns", whole{id, editOf(&e.fields), e.reason}
	}
	var s view.Settings
	if err := r.call(ctx, method, path, nil, body, &s); err != nil {
		return campaignRow{}, err
	}
	row := settledRow(&s)
	a := hold.Of(hold.Evidence{Now: time.Now(), Campaign: row.Campaign(), Sink: row.Sink})
	shown := newCampaignRow(row, &a)
	if now, err := r.show(ctx, id); err == nil { // what became of its jobs; one that is new is not known yet
		row.Progress, row.Lanes, row.Lane, row.UpdatedAt = now.Progress, now.Lanes, now.Lane, now.UpdatedAt
	}
	return shown, nil
}

// editOf writes a change as the API takes it.
func editOf(c *catalog.CampaignChange) *view.Edit {
	e := &view.Edit{
		Rate: c.Rate, Sink: c.Sink, Quotas: c.Quotas, PriorityWeight: c.PriorityWeight, Burst: c.Burst, MaxInFlight: c.MaxInFlight,
		Overflow: (*string)(c.Overflow), TimeZone: c.TimeZone, ExpectedTotal: c.ExpectedTotal,
	}
	at := func(t *time.Time) *string {
		if t == nil {
			return nil
		}
		text := ""
		if !t.IsZero() {
			text = t.UTC().Format(time.RFC3339)
		}
		return &text
	}
	e.StartsAt, e.EndsAt = at(c.StartsAt), at(c.EndsAt)
	if c.ActiveHours != nil {
		text := ""
		if len(*c.ActiveHours) > 0 {
			text = notation.FormatHours(*c.ActiveHours)
		}
		e.ActiveHours = &text
	}
	if c.Ramp != nil {
		text := ""
		if len(*c.Ramp) > 0 {
			text = notation.FormatRamp(*c.Ramp)
		}
		e.Ramp = &text
	}
	if c.JobTTL != nil {
		text := notation.FormatSpan(*c.JobTTL)
		e.JobTTL = &text
	}
	return e
}

// settledRow reads a campaign after a change.
func settledRow(s *view.Settings) *catalog.CampaignRow {
	row := &catalog.CampaignRow{
		ID: s.ID, Burst: s.Burst, Status: delivery.Status(s.Status), Sink: s.Sink, PriorityWeight: s.PriorityWeight, MaxInFlight: s.MaxInFlight,
		Overflow: delivery.Overflow(s.Overflow), TimeZone: s.TimeZone, JobTTL: s.JobTTL, Quotas: s.Quotas, Revision: s.Revision, RampSince: s.RampSince,
		PausedUntil: parsedInstant(s.PausedUntil), StartsAt: parsedInstant(s.StartsAt), EndsAt: parsedInstant(s.EndsAt), UpdatedAt: time.Now(),
	}
	row.SendRate, row.SendPer = splitRate(s.Rate)
	row.ActiveHours, _ = notation.ParseHours(orNone(s.ActiveHours)) // a console has written them
	row.Ramp, _ = notation.ParseRamp(orNone(s.Ramp))
	if s.ExpectedTotal > 0 {
		row.ExpectedTotal = &s.ExpectedTotal
	}
	return row
}

// shownCampaign reads a campaign that a console shows.
func shownCampaign(c *view.Campaign) campaignRow {
	row := settledRow(&view.Settings{
		ID: c.ID, Revision: c.Revision, Status: c.Status, Rate: c.Rate, Sink: c.Sink, Quotas: c.Quotas, PriorityWeight: c.PriorityWeight, Burst: c.Burst,
		MaxInFlight: int64(c.MaxInFlight), Overflow: c.Overflow, PausedUntil: view.Instant(c.PausedUntil), StartsAt: view.Instant(c.StartsAt), EndsAt: view.Instant(c.EndsAt),
		ActiveHours: c.ActiveHours, TimeZone: c.TimeZone, Ramp: c.Ramp, JobTTL: c.JobTTL, ExpectedTotal: c.ExpectedTotal, RampSince: c.RampSince,
	})
	row.Lanes = c.Lanes
	if len(c.Lanes) > 0 {
		row.Lane = &c.Lanes[0]
	}
	row.UpdatedAt = time.Time{}
	if c.UpdatedAt != nil {
		row.UpdatedAt = *c.UpdatedAt
	}
	if p := c.Progress; p != nil {
		row.Progress = catalog.CampaignProgress{
			Delivered: p.Delivered, Dead: p.Dead, Expired: p.Expired, Cancelled: p.Cancelled, Rejected: p.Rejected, DoneAt: p.DoneAt, Percent: p.Percent,
		}
		if p.DoneAt != nil {
			eta := max(0, time.Until(*p.DoneAt).Seconds())
			row.Progress.ETASeconds = &eta
		}
	}
	if c.Backlog != nil {
		row.Progress.Backlog = *c.Backlog
	}
	shown := campaignRow{CampaignRow: row, Senders: c.Senders, Failure: c.LastFailure}
	if h := c.Held; h != nil {
		shown.Hold = &heldView{Cause: hold.Cause(h.Cause), Why: h.Why, Since: h.Since, Until: h.Until, Remedy: h.Remedy}
	}
	return shown
}

// splitRate reads 150/1m as units and a period.
func splitRate(rate string) (units, per string) {
	units, per, found := strings.Cut(rate, "/")
	if !found {
		per = "1s"
	}
	return units, per
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func parsedInstant(text string) *time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return nil // there is none
	}
	return &at
}

func (r *remote) listQuotas(ctx context.Context) (rows []catalog.QuotaRow, err error) {
	rows = []catalog.QuotaRow{}
	err = r.eachQuota(ctx, func(q *view.Quota) { rows = append(rows, *shownQuota(q)) })
	return rows, err
}

// eachQuota asks for all quotas, page by page.
func (r *remote) eachQuota(ctx context.Context, do func(*view.Quota)) error {
	query := url.Values{"limit": {strconv.Itoa(remotePage)}}
	for {
		var page struct {
			Quotas []*view.Quota `json:"quotas"`
			Next   string        `json:"next"`
		}
		if err := r.get(ctx, "/quotas", query, &page); err != nil {
			return err
		}
		for _, q := range page.Quotas {
			do(q)
		}
		if page.Next == "" || len(page.Quotas) == 0 {
			return nil
		}
		query.Set("after", page.Next)
	}
}

func (r *remote) showQuota(ctx context.Context, id string) (*quotaView, error) {
	var q view.Quota
	if err := r.get(ctx, "/quotas/"+url.PathEscape(id), nil, &q); err != nil {
		return nil, err
	}
	var campaigns []catalog.CampaignRow
	var used []campaignView
	if err := r.eachCampaign(ctx, url.Values{"quota": {id}}, func(c *view.Campaign) {
		shown := shownCampaign(c)
		campaigns, used = append(campaigns, *shown.CampaignRow), append(used, campaignView{Waiting: c.Backlog, Hold: shown.Hold})
	}); err != nil {
		return nil, err
	}
	v := newQuotaView(shownQuota(&q), campaigns)
	for i := range used {
		v.UsedBy[i].Waiting, v.UsedBy[i].Hold = used[i].Waiting, used[i].Hold
	}
	for i, w := range q.Windows {
		v.State[i].Remaining, v.State[i].ResetAt, v.State[i].NextAt = w.Remaining, w.FullAt, w.FreeAt
		if w.Remaining == nil {
			v.Note = "the console does not know it"
		}
	}
	return v, nil
}

// shownQuota reads a quota that a console shows. When it was changed is not known.
func shownQuota(q *view.Quota) *catalog.QuotaRow {
	row := &catalog.QuotaRow{
		ID: q.ID, Windows: []catalog.WindowRow{}, OnStoreFailure: q.OnStoreFailure, Mode: q.Mode, Spend: q.Spend, Rollout: q.Rollout, Unit: q.Unit,
		Shard: q.Shard, Campaigns: q.Campaigns, Revision: q.Revision,
	}
	for _, w := range q.Windows {
		row.Windows = append(row.Windows, catalog.WindowRow{Span: w.Span, MaxUnits: w.Limit, Algorithm: w.Algorithm, Anchor: w.Anchor})
	}
	return row
}
