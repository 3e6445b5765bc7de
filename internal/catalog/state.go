package catalog

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// state is what a catalog knows, row by row, and makes snapshots of. It belongs to one goroutine, or to the
// holder of one lock. Campaigns and quotas that went into a snapshot are never touched again; a change replaces
// them.
type state struct {
	campaigns map[string]*campaignEntry
	quotas    map[string]*quotaEntry
	lanes     map[string]int // pins, by campaign
	// revision is the highest seen; every change up to it is in the state.
	revision int64
	// removed is the revision of the last deletion that the state takes part of.
	removed int64
}

// campaignEntry is a row of campaigns with its links.
type campaignEntry struct {
	row    delivery.Campaign // without Quotas and Lane
	quotas []string          // ids, in order
	built  *delivery.Campaign
}

// quotaEntry is a row of quotas with its windows.
type quotaEntry struct {
	quota   *delivery.Quota
	invalid string // why the campaigns of the quota are held, in one line
}

// newQuotaEntry looks whether the engine can keep the quota.
func newQuotaEntry(q *delivery.Quota) *quotaEntry {
	entry := &quotaEntry{quota: q}
	if err := checkQuota(q); err != nil {
		entry.invalid = err.Error()
	}
	return entry
}

func newState() *state {
	return &state{
		campaigns: make(map[string]*campaignEntry),
		quotas:    make(map[string]*quotaEntry),
		lanes:     make(map[string]int),
	}
}

// seen notes that everything up to revision is part of the state.
func (s *state) seen(revision int64) { s.revision = max(s.revision, revision) }

// snapshot makes an immutable picture of the state, as it was at loadedAt. What has not changed since the last
// picture is shared with it, so that one changed row of ten thousand costs one map, not ten thousand campaigns.
func (s *state) snapshot(loadedAt time.Time) *delivery.Snapshot {
	snapshot := &delivery.Snapshot{
		Revision:  max(s.revision, s.removed),
		LoadedAt:  loadedAt,
		Campaigns: make(map[string]*delivery.Campaign, len(s.campaigns)),
		Quotas:    make(map[string]*delivery.Quota, len(s.quotas)),
	}
	for id, entry := range s.quotas {
		snapshot.Quotas[id] = entry.quota
	}
	for id, entry := range s.campaigns {
		if !s.current(id, entry) {
			entry.built = s.build(id, entry)
		}
		snapshot.Campaigns[id] = entry.built
	}
	return snapshot
}

// current tells whether the campaign built last is still what the state says.
func (s *state) current(id string, entry *campaignEntry) bool {
	if entry.built == nil || entry.built.Lane != s.lane(id) || len(entry.built.Quotas) != len(entry.quotas) {
		return false
	}
	for i, quota := range entry.quotas {
		if known, ok := s.quotas[quota]; !ok || known.quota != entry.built.Quotas[i] {
			return false
		}
	}
	return true
}

// build makes the campaign of a row, its links and its pin.
func (s *state) build(id string, entry *campaignEntry) *delivery.Campaign {
	campaign := entry.row
	campaign.Lane = s.lane(id)
	if campaign.Ramp != nil && campaign.Invalid == "" {
		if err := campaign.Ramp.Validate(campaign.Rate); err != nil {
			campaign.Invalid = err.Error()
		}
	}
	campaign.Quotas = make([]*delivery.Quota, 0, len(entry.quotas))
	for _, quota := range entry.quotas {
		known, ok := s.quotas[quota]
		switch {
		case !ok && campaign.Invalid == "":
			campaign.Invalid = fmt.Sprintf("quota %s does not exist", quota)
		case ok:
			campaign.Quotas = append(campaign.Quotas, known.quota)
			if known.invalid != "" && campaign.Invalid == "" {
				campaign.Invalid = fmt.Sprintf("quota %s: %s", quota, known.invalid)
			}
		}
	}
	return &campaign
}

// lane is the lane the campaign is pinned to, or delivery.NoLane.
func (s *state) lane(campaign string) int {
	if lane, ok := s.lanes[campaign]; ok {
		return lane
	}
	return delivery.NoLane
}
