package delivery

import "time"

const (
	// rampBits of a revision count the steps of a ramp: 2^14 is more than MaxRampSteps.
	rampBits = 14
	// MaxRowRevision bounds the revisions of campaigns in the catalog, so that with the steps they stay below 2^53.
	MaxRowRevision = 1 << (53 - rampBits)
)

// At returns the campaign with its ramp replaced by the rate in force at now. Daemons use the revision to agree
// which rate is the newest, and a step changes the rate as a change of the row does. So the revision of the result
// is the row's, followed by 14 bits that count the steps. That FinishBy has passed is a step as well.
func (c *Campaign) At(now time.Time) *Campaign {
	at := *c
	rate, step, _ := c.RateAt(now)
	at.Rate, at.Ramp, at.FinishBy = rate, nil, time.Time{}
	at.Revision = c.Revision<<rampBits | step
	return &at
}

// RowRevision is the revision of the row of a campaign that At returned.
func (c *Campaign) RowRevision() int64 { return c.Revision >> rampBits }

// SetRevision is the revision that people see of the campaign that At returned: that of their last change.
func (c *Campaign) SetRevision() int64 { return c.RowRevision() - c.Repaced }

// RateAt is the rate in force at now, the number of steps its ramp has taken, and the time of the next one: the zero
// time if there is none. It does not report whether the campaign may send.
func (c *Campaign) RateAt(now time.Time) (rate Rate, step int64, next time.Time) {
	rate, step, next = c.ramped(now)
	switch {
	case c.FinishBy.IsZero():
	case !now.Before(c.FinishBy):
		step++
	case c.spread().below(rate):
		rate = c.spread()
	}
	return rate, step, next
}

// unspread is the rate of a campaign with a FinishBy until a daemon has computed how many jobs are left: these may come all at once.
var unspread = PerSecond(1)

// spread is the bound of the rate until FinishBy.
func (c *Campaign) spread() Rate {
	if c.FinishRate.Zero() {
		return unspread
	}
	return c.FinishRate
}

// ramped is RateAt without FinishBy.
func (c *Campaign) ramped(now time.Time) (rate Rate, step int64, next time.Time) {
	if c.Ramp == nil || c.Invalid != "" {
		return c.Rate, 0, time.Time{}
	}
	begin := c.Ramp.Since
	if c.StartsAt.After(begin) {
		begin = c.StartsAt
	}
	return c.Ramp.at(now, begin, c.Rate)
}

// Active reports whether the campaign may send at now by its hours and its start. It ignores its end and its
// status, which settle its jobs.
func (c *Campaign) Active(now time.Time) bool { return !now.Before(c.StartsAt) && c.Hours.Active(now) }

// noZone is how long a job whose zone is not known waits until it is looked at again.
const noZone = time.Hour

// ZoneOf returns the zone of the job's recipient; nil: not known.
func (c *Campaign) ZoneOf(j *Job) *time.Location {
	if j.Zone == nil {
		return c.Zone
	}
	return j.Zone
}

// Opens returns the first instant from at on when the clocks of the job's recipient are within the active hours, if those are the recipient's.
// While its zone is not known, that is when to look again.
func (c *Campaign) Opens(j *Job, at time.Time) time.Time {
	if c.Local == nil {
		return at
	}
	zone := c.ZoneOf(j)
	if zone == nil {
		return at.Add(noZone)
	}
	if hours := c.Local.In(zone); !hours.Active(at) {
		return hours.NextChange(at)
	}
	return at
}

// Ended reports whether the campaign's end has come.
func (c *Campaign) Ended(now time.Time) bool { return !c.EndsAt.IsZero() && !now.Before(c.EndsAt) }

// NextChange is the first instant after now when RateAt, Active or Ended change, or may; the zero time if they never do. Hours that open
// and close before the start change nothing.
func (c *Campaign) NextChange(now time.Time) time.Time {
	now = now.Round(0) // schedules go by the wall clock
	_, _, step := c.RateAt(now)
	return c.nextChange(now, step)
}

// nextChange is NextChange where the next step of the ramp is known, zero for none.
func (c *Campaign) nextChange(now, step time.Time) (next time.Time) {
	begun := now
	if c.StartsAt.After(begun) {
		begun = c.StartsAt
	}
	for _, at := range []time.Time{c.StartsAt, c.EndsAt, c.FinishBy, step, c.Hours.NextChange(begun)} {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
