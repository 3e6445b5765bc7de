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

// validAsk says whether the scripts can handle an ask, given the number of shards.
func validAsk(a *delivery.Ask, count int) error {
	if err := validID(a.Campaign.ID); err != nil {
		return fmt.Errorf("campaign %q: %w", a.Campaign.ID, err)
	}
	if n := len(a.Campaign.Quotas); n > delivery.MaxQuotas {
		return fmt.Errorf("campaign %s: %d quotas; a campaign has at most %d", a.Campaign.ID, n, delivery.MaxQuotas)
	}
	for _, q := range a.Campaign.Quotas {
		if err := Validate(q); err != nil {
			return err
		}
	}
	return oneHome(a.Campaign, count)
}
