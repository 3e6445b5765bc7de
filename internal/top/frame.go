package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Frame is the state of a daemon for display. Rates are per second over the time between two samples, nil if there is
// only one; values that the daemon does not report are nil.
type Frame struct {
	At      time.Time `json:"at"`
	Address string    `json:"address"`
	Version string    `json:"version"`
	Ready   bool      `json:"ready"`
	Reason  string    `json:"reason,omitempty"` // why the daemon is not ready

	Total     Row         `json:"total"`     // of all campaigns that match the filter
	Campaigns []Row       `json:"campaigns"` // the first of them
	More      int         `json:"more"`      // campaigns that match and are not listed
	Quotas    []QuotaRow  `json:"quotas"`    // those with the least left first
	Sinks     []SinkRow   `json:"sinks"`
	Daemon    DaemonState `json:"daemon"`
	Fleet     *Fleet      `json:"fleet,omitempty"` // of all daemons; then daemon is not known
}

// Row is one campaign.
type Row struct {
	Campaign string   `json:"campaign,omitempty"`
	SendRate *float64 `json:"send_rate"`
	Sent     *float64 `json:"sent_per_second"`
	Backlog  *float64 `json:"backlog"`
	ETA      *float64 `json:"eta_seconds"`
	Lanes    *float64 `json:"lanes,omitempty"` // in which its backlog waits; of all daemons only
	Requeued *float64 `json:"requeued_per_second"`
	Retried  *float64 `json:"retried_per_second"`
	Dead     *float64 `json:"dead_per_second"`
	Total    float64  `json:"delivered"`
}

// QuotaRow is one window of a quota.
type QuotaRow struct {
	Quota     string   `json:"quota"`
	Window    string   `json:"window"`
	Remaining *float64 `json:"remaining"`
	Limit     *float64 `json:"limit"`
	Denied    *float64 `json:"denied_per_second"`
}

// SinkRow is one sink.
type SinkRow struct {
	Sink     string  `json:"sink"`
	InFlight float64 `json:"in_flight"`
}

// DaemonState is the state of the daemon as a whole.
type DaemonState struct {
	Queued      float64  `json:"queued"`                    // jobs in memory
	LatenessP99 *float64 `json:"slot_lateness_p99_seconds"` // between the samples, or since the start
	Forfeited   *float64 `json:"slots_forfeited_per_second"`
	Quantum     float64  `json:"quantum_seconds"`
	ReadFactor  float64  `json:"lane_read_factor"`
	Stalled     float64  `json:"partitions_stalled"`
}

// Order is the order of the campaigns.
type Order string

// The orders. Ties are broken by name.
const (
	BySent    Order = "sent"    // the fastest first
	ByRate    Order = "rate"    // the highest send_rate first
	ByBacklog Order = "backlog" // the longest first
	ByETA     Order = "eta"     // the latest first
	ByDead    Order = "dead"    // the most dead letters per second first
	ByName    Order = "name"
)

// Orders lists all orders.
var Orders = []Order{BySent, ByRate, ByBacklog, ByETA, ByDead, ByName}

// Query selects what to show.
type Query struct {
	Sort   Order
	Filter string // part of a campaign's id; "" for all
	Limit  int    // of campaigns
}

// ParseOrder parses an Order.
func ParseOrder(s string) (Order, error) {
	if slices.Contains(Orders, Order(s)) {
		return Order(s), nil
	}
	return "", fmt.Errorf("%q is no order; use one of %s", s, strings.Join(OrderNames(), ", "))
}

// OrderNames returns the names of all orders.
func OrderNames() []string {
	names := make([]string, 0, len(Orders))
	for _, o := range Orders {
		names = append(names, string(o))
	}
	return names
}

// Show makes the frame of the sample now; before is an earlier sample of the same daemon, or nil.
func Show(before, now *Sample, q Query) Frame {
	f := Frame{At: now.At, Version: now.Version, Campaigns: []Row{}, Quotas: []QuotaRow{}, Sinks: []SinkRow{}, Fleet: now.Fleet}
	d := newDelta(before, now)
	rows := make([]Row, 0, len(now.Campaigns))
	for id, c := range now.Campaigns {
		if strings.Contains(id, q.Filter) && !c.idle() {
			rows = append(rows, d.row(id, c))
		}
	}
	for i := range rows {
		f.Total.add(&rows[i])
	}
	slices.SortFunc(rows, q.Sort.compare)
	f.Campaigns = append(f.Campaigns, rows[:min(q.Limit, len(rows))]...)
	f.More = len(rows) - len(f.Campaigns)
	for w, quota := range now.Quotas {
		f.Quotas = append(f.Quotas, d.quota(w, quota))
	}
	sortQuotas(f.Quotas)
	for name, n := range now.Sinks {
		f.Sinks = append(f.Sinks, SinkRow{name, n})
	}
	slices.SortFunc(f.Sinks, func(a, b SinkRow) int { return cmp.Compare(a.Sink, b.Sink) })
	if now.Fleet != nil {
		f.Daemon.Queued, f.Daemon.Stalled = now.Queued, now.Stalled
		return f
	}
	f.Daemon = DaemonState{
		Queued: now.Queued, LatenessP99: d.lateness(0.99), Quantum: now.Quantum, ReadFactor: now.ReadFactor, Stalled: now.Stalled,
		Forfeited: d.rate(func(s *Sample) float64 { return s.Forfeited }),
	}
	return f
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
			cmp.Compare(known0(a.Limit), known0(b.Limit)), cmp.Compare(a.Window, b.Window))
	})
}

// compare orders two rows; unknown values come last.
func (o Order) compare(a, b Row) int {
	key := func(r *Row) float64 {
		switch o {
		case ByRate:
			return known0(r.SendRate)
		case ByBacklog:
			return known0(r.Backlog)
		case ByETA:
			return known0(r.ETA)
		case ByDead:
			return known0(r.Dead)
		case ByName:
			return 0
		}
		if r.Sent == nil { // one sample only: compare the totals
			return r.Total
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
	if r.Remaining == nil || r.Limit == nil || *r.Limit <= 0 {
		return math.Inf(1)
	}
	return *r.Remaining / *r.Limit
}

// add adds a campaign to the total. The ETA of the total is the latest one.
func (r *Row) add(o *Row) {
	sum := func(to **float64, v *float64, combine func(a, b float64) float64) {
		switch {
		case v == nil:
		case *to == nil:
			n := *v
			*to = &n
		default:
			**to = combine(**to, *v)
		}
	}
	plus := func(a, b float64) float64 { return a + b }
	sum(&r.SendRate, o.SendRate, plus)
	sum(&r.Sent, o.Sent, plus)
	sum(&r.Backlog, o.Backlog, plus)
	sum(&r.ETA, o.ETA, math.Max)
	sum(&r.Requeued, o.Requeued, plus)
	sum(&r.Retried, o.Retried, plus)
	sum(&r.Dead, o.Dead, plus)
	r.Total += o.Total
}
