package view

// FillDefaults gives what is left out of a campaign that is written whole the value that it has in a new one.
func (e *Edit) FillDefaults() {
	orElse(&e.Rate, "0")
	orElse(&e.Sink, "")
	orElse(&e.Quotas, []string{})
	orElse(&e.PriorityWeight, 1)
	orElse(&e.Burst, 0)
	orElse(&e.MaxInFlight, 0)
	orElse(&e.Overflow, "lane")
	orElse(&e.StartsAt, "")
	orElse(&e.EndsAt, "")
	orElse(&e.ActiveHours, "")
	orElse(&e.TimeZone, "UTC")
	orElse(&e.Ramp, "")
	orElse(&e.JobTTL, "")
	orElse(&e.ExpectedTotal, 0)
}

// FillDefaults does the same for a quota.
func (e *QuotaEdit) FillDefaults() {
	fresh := NewQuota()
	orElse(&e.Windows, fresh.Windows)
	orElse(&e.Mode, fresh.Mode)
	orElse(&e.Spend, fresh.Spend)
	orElse(&e.OnStoreFailure, fresh.OnStoreFailure)
	orElse(&e.Rollout, fresh.Rollout)
	orElse(&e.Unit, fresh.Unit)
}

func orElse[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
