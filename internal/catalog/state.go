package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// state holds the rows of a catalog and builds snapshots. It belongs to one goroutine, or to the holder of one lock.
// Campaigns and quotas in a snapshot are immutable; a change replaces them.
type state struct {
	campaigns map[string]*campaignEntry
	quotas    map[string]*quotaEntry
	lanes     map[string][]int // pins, by campaign, ascending
	// revision is the highest revision seen; the state contains every change up to it.
	revision int64
	// removed is the revision of the last deletion that the state contains.
	removed int64
}

// campaignEntry is a row of campaigns with its links.
type campaignEntry struct {
	row    delivery.Campaign // without Quotas and Lanes
	quotas []string          // ids, in order
	built  *delivery.Campaign
}

// quotaEntry is a row of quotas with its windows.
type quotaEntry struct {
	quota   *delivery.Quota
	invalid string // why the campaigns of the quota are held, in one line that names it; "" if they are not
}

// newQuotaEntry checks whether the engine accepts the quota.
func newQuotaEntry(q *delivery.Quota) *quotaEntry {
	entry := &quotaEntry{quota: q}
	if err := model.CheckQuota(q); err != nil {
		entry.invalid = fmt.Sprintf("quota %s: %s", q.ID, err)
	}
	return entry
}

func newState() *state {
	return &state{
		campaigns: make(map[string]*campaignEntry),
		quotas:    make(map[string]*quotaEntry),
		lanes:     make(map[string][]int),
	}
}

// seen records that the state contains everything up to revision.
func (s *state) seen(revision int64) { s.revision = max(s.revision, revision) }

// snapshot returns an immutable snapshot of the state as of loadedAt. It shares the unchanged parts with the previous
// snapshot, so that one changed row of ten thousand costs one map, not ten thousand campaigns.
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

// current reports whether the campaign built last is still up to date.
func (s *state) current(id string, entry *campaignEntry) bool {
	if entry.built == nil || !slices.Equal(entry.built.Lanes, s.lanes[id]) {
		return false
	}
	return slices.EqualFunc(entry.quotas, entry.built.Quotas, func(quota string, built *delivery.Quota) bool {
		known, ok := s.quotas[quota]
		return ok && known.quota == built
	})
}

// build builds the campaign of a row, its links and its pin.
func (s *state) build(id string, entry *campaignEntry) *delivery.Campaign {
	campaign := entry.row
	campaign.Lanes = s.lanes[id]
	if campaign.Ramp != nil && campaign.Invalid == "" {
		if err := campaign.Ramp.Validate(campaign.Rate); err != nil {
			campaign.Invalid = err.Error()
		}
	}
	campaign.Quotas = make([]*delivery.Quota, 0, len(entry.quotas))
	for _, quota := range entry.quotas {
		if known, ok := s.quotas[quota]; ok {
			campaign.Quotas = append(campaign.Quotas, known.quota)
			campaign.Invalid = cmp.Or(campaign.Invalid, known.invalid)
		} else {
			campaign.Invalid = cmp.Or(campaign.Invalid, "quota "+quota+" does not exist")
		}
	}
	campaign.Invalid = cmp.Or(campaign.Invalid, spread(campaign.Quotas))
	return &campaign
}

// spread returns an error text if a campaign's quotas are in several shards of the store, else "". Quotas of mode
// eventual have no shard.
func spread(quotas []*delivery.Quota) string {
	var in []string
	several, first := false, -1
	for _, q := range quotas {
		if q.Mode == delivery.ModeEventual {
			continue
		}
		if first < 0 {
			first = q.Shard
		}
		several = several || q.Shard != first
		in = append(in, fmt.Sprintf("%s in shard %d", q.ID, q.Shard))
	}
	if !several {
		return ""
	}
	return fmt.Sprintf("its quotas live in several shards of the store: %s; create them in one shard, by "+
		"pacer quota set NEW --with QUOTA, and link those", strings.Join(in, ", "))
}
