package catalog

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// The triggers refuse what a daemon cannot keep, but a restored dump or a disabled trigger may bring it all the
// same. So the reading side takes any row: what cannot be used holds the campaign and says why, and everything
// else loads.

// campaignRecord is a row of campaigns as the query spells it: lengths of time in microseconds, the rate as text.
type campaignRecord struct {
	id, rate, status, sink, overflow string
	revision, per, ttl, expected     int64
	burst, weight, inFlight          int64
	startsAt, endsAt, rampSince      *time.Time
	hours, ramp                      *string // JSON
	zone                             string
}

// entry turns the record into what goes into snapshots.
func (r *campaignRecord) entry() *campaignEntry {
	c := delivery.Campaign{
		ID: r.id, Revision: r.revision, Burst: r.burst, Status: delivery.Status(r.status), Sink: r.sink,
		PriorityWeight: r.weight, MaxInFlight: int(r.inFlight), Overflow: delivery.Overflow(r.overflow),
		TTL: micros(r.ttl), ExpectedTotal: r.expected, Lane: delivery.NoLane,
	}
	if r.startsAt != nil {
		c.StartsAt = *r.startsAt
	}
	if r.endsAt != nil {
		c.EndsAt = *r.endsAt
	}
	var err error
	if c.Rate, err = parseStoredRate(r.rate, micros(r.per)); err != nil {
		c.Invalid = err.Error()
	} else if c.Invalid = r.defect(); c.Invalid == "" {
		if err := r.schedule(&c); err != nil {
			c.Invalid = err.Error()
		}
	}
	return &campaignEntry{row: c}
}

// schedule gives the campaign its hours and its ramp. The error says in one line why they cannot be kept.
func (r *campaignRecord) schedule(c *delivery.Campaign) (err error) {
	if r.hours != nil {
		if c.Hours, err = parseHours(*r.hours, r.zone); err != nil {
			return err
		}
	}
	if r.ramp == nil {
		return nil
	}
	var since time.Time
	if r.rampSince != nil {
		since = *r.rampSince
	}
	c.Ramp, err = parseRamp(*r.ramp, micros(r.per), since)
	return err
}

// defect says in one line why the campaign cannot be used; "" if it can.
func (r *campaignRecord) defect() string {
	switch {
	case !delivery.ValidID(r.id):
		return "id must be 1 to 256 printable ASCII characters without spaces"
	case !validStatus(delivery.Status(r.status)):
		return fmt.Sprintf("status %q is not active, paused, cancelled or completed", r.status)
	case !validOverflow(delivery.Overflow(r.overflow)):
		return fmt.Sprintf("overflow %q is not lane or block", r.overflow)
	case r.revision < 0 || r.revision >= delivery.MaxRowRevision:
		return fmt.Sprintf("revision must lie between 0 and %d; leave it to the triggers", int64(delivery.MaxRowRevision))
	case r.burst < 0:
		return "burst must not be negative"
	case r.weight < 1:
		return "priority_weight must be at least 1"
	case r.inFlight < 0:
		return "max_in_flight must not be negative; 0 is no limit"
	case r.ttl < 0:
		return "job_ttl must not be negative; null is no limit"
	}
	return ""
}

// parseStoredRate makes a rate of a numeric, spelled in decimals, and its period.
func parseStoredRate(units string, per time.Duration) (delivery.Rate, error) {
	n, period, err := delivery.ParseRate(units + "/" + per.String())
	if err != nil {
		return delivery.Rate{}, err
	}
	return delivery.NewRate(n, period)
}

// micros is n microseconds; the queries bound n far below the overflow.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

func validStatus(s delivery.Status) bool {
	switch s {
	case delivery.StatusActive, delivery.StatusPaused, delivery.StatusCancelled, delivery.StatusCompleted:
		return true
	}
	return false
}

func validOverflow(o delivery.Overflow) bool {
	return o == delivery.OverflowLane || o == delivery.OverflowBlock
}

// windowRecord is a row of quota_windows as the query spells it; all null for a quota without windows.
type windowRecord struct {
	span, limit       *int64
	algorithm, anchor *string
}

// add puts the window into the quota.
func (r windowRecord) add(q *delivery.Quota) {
	if r.span == nil || r.limit == nil || r.algorithm == nil {
		return
	}
	w := delivery.Window{Span: micros(*r.span), Limit: *r.limit, Algorithm: *r.algorithm}
	if r.anchor != nil {
		w.Anchor = *r.anchor
	}
	q.Windows = append(q.Windows, w)
}
