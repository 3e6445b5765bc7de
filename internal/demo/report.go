package demo

// Report is the output of `pacer demo --json`. It is counted at the destination and by reading the broker after the
// daemons have stopped, never from pacer's own counters.
type Report struct {
	OK        bool             `json:"ok"`
	DurationS float64          `json:"duration_s"`
	Campaigns []CampaignReport `json:"campaigns"`
	Quotas    []QuotaReport    `json:"quotas"`
	Redis     RedisReport      `json:"redis"`
	// Problems are the reasons, one line each, why OK is false.
	Problems []string `json:"problems,omitempty"`
	// Warnings are unusual findings that break no promise.
	Warnings []string `json:"warnings,omitempty"`
}

// CampaignReport is the report on one campaign. Every published job is in exactly one of Delivered, Queued, Dead,
// Expired, Cancelled and Lost.
type CampaignReport struct {
	ID            string  `json:"id"`
	SendRate      float64 `json:"send_rate"` // per second, as last set
	Published     int     `json:"published"`
	Delivered     int     `json:"delivered"` // distinct ids that the receiver accepted
	Queued        int     `json:"queued"`    // distinct ids that wait in ingress, lanes and timers
	Requeued      int     `json:"requeued"`  // distinct ids that were written to a lane
	MaxHops       int     `json:"max_hops"`  // largest number of times that a job was written to a lane
	Retried       int     `json:"retried"`   // distinct ids that were sent again after a refusal
	Dead          int     `json:"dead"`
	Expired       int     `json:"expired"`
	Cancelled     int     `json:"cancelled"`
	Duplicates    int     `json:"duplicates"` // accepted requests beyond one per id
	Lost          int     `json:"lost"`
	AchievedRate  float64 `json:"achieved_rate"` // delivered per second in which the campaign could send
	RateRatio     float64 `json:"rate_ratio"`    // delivered / what send_rate and quotas allowed in that time on average; an unused window may add up to its limit
	MaxRolling1s  int     `json:"max_rolling_1s"`
	LatenessP99MS float64 `json:"slot_lateness_p99_ms"`
}

// QuotaReport is the report on one window of a quota.
type QuotaReport struct {
	ID         string  `json:"id"`
	SpanS      float64 `json:"span_s"`
	Limit      int64   `json:"limit"`
	MaxRolling int     `json:"max_rolling"` // requests in the fullest rolling span, refused ones too
	Remaining  int64   `json:"remaining"`   // at the end
}

// RedisReport is the cost of the shared store.
type RedisReport struct {
	RoundTrips     int64   `json:"round_trips"`
	CommandsPerJob float64 `json:"commands_per_job"`
}
