package page

import (
	"cmp"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// preview is what a change of a quota would mean.
type preview struct {
	Rows      []previewRow
	Tightest  string  // span of the window that allows least; "" where none binds, or it is not comparable with rates
	Allows    float64 // units per second that it allows on average
	Campaigns int
	Want      float64 // units per second that the schedules of its campaigns allow now
}

// previewRow is one window. Now or Then is nil where there is none.
type previewRow struct {
	Span            string
	Now, Then, Used *int64
	PerSecond       float64 // what it would allow on average
	Over            bool    // it would be used up at once
}

// previewOf compares the windows that a quota would have with those that it has, and with the demand of its campaigns.
func previewOf(state *view.State, now *catalog.QuotaRow, change *catalog.QuotaChange) (*preview, error) {
	windows, err := notation.ParseWindows(strings.Join(*cmp.Or(change.Windows, &now.Windows), ","))
	if err != nil {
		return nil, catalog.Fault(catalog.ErrInvalid, "windows: %s", err)
	}
	p := &preview{}
	var before []view.Window
	if q := state.Quota(now.ID); q != nil {
		before = slices.Clone(q.Windows)
	}
	binds := *cmp.Or(change.Mode, &now.Mode) != delivery.ModeShadow
	// Bytes, and what each value of a key may have, are not comparable with rates.
	rates := binds && *cmp.Or(change.Unit, &now.Unit) != delivery.UnitBytes && now.Per == ""
	for _, w := range windows {
		row := previewRow{Span: notation.FormatSpan(w.Span), Then: &w.Limit, PerSecond: float64(w.Limit) / max(w.Span.Seconds(), 1e-3)}
		if i := slices.IndexFunc(before, func(b view.Window) bool { return b.Span == row.Span }); i >= 0 {
			row.now(&before[i])
			row.Over = binds && row.Used != nil && *row.Used >= w.Limit
			before = slices.Delete(before, i, i+1)
		}
		if rates && (p.Tightest == "" || row.PerSecond < p.Allows) {
			p.Tightest, p.Allows = row.Span, row.PerSecond
		}
		p.Rows = append(p.Rows, row)
	}
	for i := range before {
		row := previewRow{Span: before[i].Span}
		row.now(&before[i])
		p.Rows = append(p.Rows, row)
	}
	for _, c := range state.Campaigns {
		if slices.Contains(c.Quotas, now.ID) {
			p.Campaigns++
			p.Want += c.Allowed
		}
	}
	return p, nil
}

// now enters what the window is now.
func (r *previewRow) now(w *view.Window) {
	if r.Now = new(w.Limit); w.Remaining != nil {
		r.Used = new(w.Used())
	}
}
