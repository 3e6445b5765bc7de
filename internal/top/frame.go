// Package top shows an installation to operators, again and again: the rate of each campaign, what waits, and what is left of the quotas.
package top

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Frame is the state of an installation for display. Unknown values are nil.
type Frame struct {
	At      time.Time `json:"at"`
	Address string    `json:"address,omitempty"` // of the console that says so
	Version string    `json:"version"`
	Ready   bool      `json:"ready"`
	Reason  string    `json:"reason,omitempty"` // what is wrong

	Total     Row        `json:"total"`     // of all campaigns that were asked for
	Campaigns []Row      `json:"campaigns"` // the first of them
	More      int        `json:"more"`      // campaigns that are not listed
	Quotas    []QuotaRow `json:"quotas"`    // those with the least left first
	Sinks     []SinkRow  `json:"sinks"`
	Fleet     Fleet      `json:"fleet"`
}

// Fleet is the state of all daemons.
type Fleet struct {
	Running         int    `json:"daemons_running"`
	Ready           int    `json:"daemons_ready"`
	Queued          int64  `json:"queued"`             // jobs in memory
	Stalled         int    `json:"partitions_stalled"` // that make no progress though they could
	LateCapacity    *int64 `json:"late_capacity"`      // jobs
	LateDestination *int64 `json:"late_destination"`   // jobs

	// Of the last minute; nil: no daemon tells it, or none has used a slot.
	Forfeited   *float64 `json:"slots_forfeited_per_second"`
	LatenessP99 *float64 `json:"slot_lateness_p99_seconds"` // of the daemon that is latest
}

// Row is one campaign.
type Row struct {
	Campaign string   `json:"campaign,omitempty"`
	SendRate *float64 `json:"send_rate"`
	Sent     *float64 `json:"sent_per_second"`
	Backlog  *int64   `json:"backlog"`
	ETA      *float64 `json:"eta_seconds"`
	Lanes    int      `json:"lanes"`           // in which its backlog waits
	Dead     *float64 `json:"dead_per_second"` // between two frames
	Total    int64    `json:"delivered"`

	DeadTotal int64 `json:"-"`
}

// QuotaRow is one window of a quota.
type QuotaRow struct {
	Quota     string `json:"quota"`
	Window    string `json:"window"`
	Remaining *int64 `json:"remaining"`
	Limit     int64  `json:"limit"`
}

// SinkRow is one sink.
type SinkRow struct {
	Sink     string `json:"sink"`
	InFlight int64  `json:"in_flight"`
}

// The orders of the campaigns. Ties are broken by name.
const (
	BySent    = "sent"    // the fastest first
	ByRate    = "rate"    // the highest send_rate first
	ByBacklog = "backlog" // the longest first
	ByETA     = "eta"     // the latest first
	ByDead    = "dead"    // the most dead letters per second first
	ByName    = "name"
)

// Orders lists all orders.
var Orders = []string{BySent, ByRate, ByBacklog, ByETA, ByDead, ByName}

// Query selects what to show.
type Query struct {
	Sort   string // one of Orders
	Filter string // part of a campaign's id; "" for all
	Limit  int    // of campaigns
}

// Arrange returns the frame as the query asks for it. before is an earlier one, or nil; both have all campaigns.
func (f *Frame) Arrange(before *Frame, q Query) Frame {
	shown := *f
	rows := slices.Clone(f.Campaigns)
	if before != nil && f.At.After(before.At) {
		was := map[string]int64{}
		for i := range before.Campaigns {
			was[before.Campaigns[i].Campaign] = before.Campaigns[i].DeadTotal
		}
		seconds := f.At.Sub(before.At).Seconds()
		for i := range rows {
			if n, known := was[rows[i].Campaign]; known {
				dead := max(0, float64(rows[i].DeadTotal-n)/seconds)
				rows[i].Dead = &dead
			}
		}
	}
	for i := range rows {
		shown.Total.add(&rows[i])
	}
	slices.SortFunc(rows, q.compare)
	shown.Campaigns = append([]Row{}, rows[:min(q.Limit, len(rows))]...)
	shown.More = len(rows) - len(shown.Campaigns)
	shown.Quotas = append([]QuotaRow{}, f.Quotas...)
	sortQuotas(shown.Quotas)
	shown.Sinks = append([]SinkRow{}, f.Sinks...)
	slices.SortFunc(shown.Sinks, func(a, b SinkRow) int { return cmp.Compare(a.Sink, b.Sink) })
	return shown
}

// sortQuotas sorts the quotas by what is left in their tightest window, rounded to a tenth so that they do not change
// places all the time, and keeps the windows of each together.
func sortQuotas(rows []QuotaRow) {
	least := map[string]float64{}
	for _, r := range rows {
		tenths := math.Floor(10 * r.left())
		if n, known := least[r.Quota]; !known || tenths < n {
			least[r.Quota] = tenths
		}
	}
	slices.SortFunc(rows, func(a, b QuotaRow) int {
		return cmp.Or(cmp.Compare(least[a.Quota], least[b.Quota]), cmp.Compare(a.Quota, b.Quota),
			cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Window, b.Window))
	})
}

// compare orders two rows; unknown values come last.
func (q Query) compare(a, b Row) int {
	key := func(r *Row) float64 {
		switch q.Sort {
		case ByRate:
			return known0(r.SendRate)
		case ByBacklog:
			return known0(count(r.Backlog))
		case ByETA:
			return known0(r.ETA)
		case ByDead:
			return known0(r.Dead)
		case ByName:
			return 0
		}
		if r.Sent == nil { // not known yet: compare the totals
			return float64(r.Total)
		}
		return *r.Sent
	}
	return cmp.Or(cmp.Compare(key(&b), key(&a)), cmp.Compare(a.Campaign, b.Campaign))
}

func known0(v *float64) float64 {
	if v == nil {
		return math.Inf(-1)
	}
	return *v
}

// left returns the part of the window that remains; windows without counts come last.
func (r QuotaRow) left() float64 {
	if r.Remaining == nil || r.Limit <= 0 {
		return math.Inf(1)
	}
	return float64(*r.Remaining) / float64(r.Limit)
}

// add adds a campaign to the total. The ETA of the total is the latest one.
func (r *Row) add(o *Row) {
	combine(&r.SendRate, o.SendRate, plus)
	combine(&r.Sent, o.Sent, plus)
	combine(&r.Backlog, o.Backlog, plus)
	combine(&r.ETA, o.ETA, math.Max)
	combine(&r.Dead, o.Dead, plus)
	r.Total += o.Total
}

func plus[N int64 | float64](a, b N) N { return a + b }

// combine makes *to what is known of both.
func combine[N int64 | float64](to **N, v *N, of func(a, b N) N) {
	switch {
	case v == nil:
	case *to == nil:
		*to = new(*v)
	default:
		**to = of(**to, *v)
	}
}
