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
	if err := model.CheckQuota(&full); err != nil {
		return fmt.Errorf("quota %s: %w", q.ID, err)
	}
	return nil
}
