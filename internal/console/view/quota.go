package view

import (
	"github.com/pacer/pacer/internal/catalog"
)

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
func NewQuota() *catalog.QuotaRow {
	return &catalog.QuotaRow{Windows: []string{}, CampaignIDs: []string{}, Mode: "strict", Spend: "greedy", OnStoreFailure: "closed", Rollout: 100, Unit: "units"}
}
