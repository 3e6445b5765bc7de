package view

import (
	"time"

	"github.com/pacer/pacer/internal/catalog"
)

// QuotaSettings are what people set of a quota, as they write it.
type QuotaSettings struct {
	ID             string   `json:"id"`
	Revision       int64    `json:"revision"`
	Windows        []string `json:"windows" doc:"as 300/1m, 20/10s:log, 5000/1d:fixed:day@Europe/Moscow; none: it does not bind"`
	Mode           string   `json:"mode"`
	Spend          string   `json:"spend"`
	OnStoreFailure string   `json:"on_store_failure"`
	Rollout        int64    `json:"rollout" doc:"percent of its campaigns that it counts and limits"`
	Unit           string   `json:"unit"`
	catalog.Keying
	Shard       int      `json:"shard"`
	Campaigns   int      `json:"campaigns" doc:"how many it limits"`
	CampaignIDs []string `json:"campaign_ids" doc:"at most 1,000 of them"`

	UpdatedAt *time.Time `json:"updated_at,omitempty"`
}

// Seen returns the revision of the quota when it was read.
func (s *QuotaSettings) Seen() int64 { return s.Revision }

// Adjustment corrects what a window of a quota has counted.
type Adjustment struct {
	Span  string // of the window
	Used  int64
	Lower bool // also where that makes room
}

// Adjusted is what an adjustment did.
type Adjusted struct {
	Quota  string `json:"quota"`
	Window string `json:"window"`
	Limit  int64  `json:"limit"`
	Before int64  `json:"before" doc:"units that were counted"`
	Used   int64  `json:"used" doc:"units that are counted now"`
}

// NewQuota is what the form of a new quota begins with.
func NewQuota() *QuotaSettings {
	return &QuotaSettings{Windows: []string{}, CampaignIDs: []string{}, Mode: "strict", Spend: "greedy", OnStoreFailure: "closed", Rollout: 100, Unit: "units"}
}
