package limits

import (
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// Validate says whether the engine supports the quota, and if not, which field is invalid and which values are valid.
// Empty words stand for their defaults.
func Validate(q *delivery.Quota) error {
	full := model.WithDefaults(*q)
	err := validID(q.ID)
	if err == nil {
		err = model.CheckQuota(&full)
	}
	if err != nil {
		return fmt.Errorf("quota %s: %w", q.ID, err)
	}
	return nil
}

// validID requires printable ASCII without spaces, which the scripts' formats rely on.
func validID(id string) error {
	if !delivery.ValidID(id) {
		return fmt.Errorf("id %s", delivery.IDRule)
	}
	return nil
}

// validCampaign says whether the scripts can keep the limits of a campaign, given the number of shards.
func validCampaign(c *delivery.Campaign, count int) error {
	if err := validID(c.ID); err != nil {
		return fmt.Errorf("campaign %q: %w", c.ID, err)
	}
	if n := len(c.Quotas); n > delivery.MaxQuotas {
		return fmt.Errorf("campaign %s: %d quotas; a campaign has at most %d", c.ID, n, delivery.MaxQuotas)
	}
	for _, q := range c.Quotas {
		if err := Validate(q); err != nil {
			return err
		}
	}
	return oneHome(c, count)
}
