package pacer

import (
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// tightest returns the quota and the window with the lowest limit on the weight of a job of the campaign; nil if none limits it.
func tightest(c *delivery.Campaign) (by *delivery.Quota, tight *delivery.Window) {
	for _, q := range c.Quotas {
		if !q.Strict() || !q.Covers(c.ID) {
			continue
		}
		for i := range q.Windows {
			w := &q.Windows[i]
			if w.Limit > 0 && (tight == nil || w.Limit < tight.Limit) { // a limit of 0 holds; it does not condemn
				by, tight = q, w
			}
		}
	}
	return by, tight
}

// maxUnits is the largest weight that the campaign's quota windows can ever grant.
func maxUnits(c *delivery.Campaign) int64 {
	most := int64(delivery.MaxGrant)
	if _, w := tightest(c); w != nil {
		most = min(most, w.Limit)
	}
	return most
}

// overweight says which limit the weight of a job is above.
func overweight(weight, maxWeight int64, c *delivery.Campaign) string {
	q, w := tightest(c)
	switch {
	case weight > maxWeight:
		return fmt.Sprintf("its weight %d is above max_weight %d", weight, maxWeight)
	case w != nil && weight > w.Limit:
		return fmt.Sprintf("its weight %d is above the limit %d/%s of quota %s", weight, w.Limit, notation.FormatSpan(w.Span), q.ID)
	}
	return fmt.Sprintf("its weight %d is above %d, the most that is granted at once", weight, int64(delivery.MaxGrant))
}
