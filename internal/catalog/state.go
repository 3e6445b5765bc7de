package catalog

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// state holds the rows of a catalog and makes snapshots. It belongs to one goroutine, or to the holder of one lock.
// Campaigns and quotas in a snapshot are immutable; a change replaces them.
type state struct {
	campaigns map[string]*campaignEntry
	quotas    map[string]*quotaEntry
	endpoints map[string]*endpointEntry
	pauses    map[string]time.Time // when the pauses end that do so by themselves, by campaign
	// revision is the highest revision seen; the state contains every change up to it.
	revision int64
	// removed is the revision of the last deletion that the state contains.
	removed      int64
	stores       map[int]time.Time // since when shards of the quota store have their data
	installation delivery.Installation

	last    *delivery.Snapshot
	touched map[string]bool // campaigns that may differ from those of last
	quoted  bool            // so may the quotas
	moved   bool            // so may the destinations
	loads   uint64          // reads so far, by which rows are marked as found
}

// campaignEntry is a row of campaigns with its links.
type campaignEntry struct {
	row    *delivery.Campaign // as built last; before that without Quotas
	built  bool               // row is in a snapshot
	fault  string             // why the row itself cannot be used; "" if it can
	quotas []string           // ids, in order
	reading
}

func (e *campaignEntry) revision() int64 { return e.row.Revision }

// quotaEntry is a row of quotas with its windows.
type quotaEntry struct {
	quota   *delivery.Quota
	whole   *delivery.Quota // for the campaigns that it covers; quota itself if these are all or none
	exempt  *delivery.Quota // for the others
	invalid string          // why the campaigns of the quota are held, in one line that names it; "" if they are not
	reading
}

func (e *quotaEntry) revision() int64 { return e.quota.Revision }

// newQuotaEntry checks whether the engine accepts the quota.
func newQuotaEntry(q *delivery.Quota) *quotaEntry {
	entry := &quotaEntry{quota: q, whole: q, exempt: q}
	if q.Exempt > 0 && q.Exempt < 100 {
		whole, exempt := *q, *q
		whole.Exempt, exempt.Exempt = 0, 100
		entry.whole, entry.exempt = &whole, &exempt
	}
	if err := model.CheckQuota(q); err != nil {
		entry.invalid = fmt.Sprintf("quota %s: %s", q.ID, err)
	} else if !delivery.ValidID(q.ID) {
		entry.invalid = fmt.Sprintf("quota %q: id %s", q.ID, delivery.IDRule)
	}
	return entry
}

// of is the quota as it applies to a campaign.
func (e *quotaEntry) of(campaign string) *delivery.Quota {
	if e.quota.Covers(campaign) {
		return e.whole
	}
	return e.exempt
}

func newState() *state {
	return &state{
		campaigns: make(map[string]*campaignEntry), quotas: make(map[string]*quotaEntry), endpoints: make(map[string]*endpointEntry),
		pauses: make(map[string]time.Time),
		last:   &delivery.Snapshot{}, touched: make(map[string]bool), quoted: true, moved: true,
	}
}

// seen records that the state contains everything up to revision.
func (s *state) seen(revision int64) { s.revision = max(s.revision, revision) }

// putCampaign adds or replaces a campaign.
func (s *state) putCampaign(entry *campaignEntry) {
	s.campaigns[entry.row.ID], s.touched[entry.row.ID] = entry, true
	s.seen(entry.row.Revision)
	if until := entry.row.PausedUntil; entry.row.Status == delivery.StatusPaused && !until.IsZero() {
		s.pauses[entry.row.ID] = until
	} else {
		delete(s.pauses, entry.row.ID)
	}
}

// removeCampaign removes a campaign.
func (s *state) removeCampaign(id string) {
	delete(s.campaigns, id)
	delete(s.pauses, id)
	s.touched[id] = true
}

// putEndpoint adds or replaces a destination.
func (s *state) putEndpoint(entry *endpointEntry) { s.endpoints[entry.row.ID], s.moved = entry, true }

// putQuotas adds or replaces quotas. The campaigns whose quotas have changed, or are gone, change as well.
func (s *state) putQuotas(entries ...*quotaEntry) {
	for _, entry := range entries {
		s.quotas[entry.quota.ID] = entry
		s.seen(entry.quota.Revision)
	}
	s.quoted = true
	for id, entry := range s.campaigns {
		if len(entry.quotas) > 0 && !s.current(entry) {
			s.touched[id] = true
		}
	}
}

// current reports whether the quotas of a campaign are those of its row.
func (s *state) current(entry *campaignEntry) bool {
	quotas, keyed := entry.row.Quotas, entry.row.Keyed
	for _, quota := range entry.quotas { // they were built in this order
		switch known := s.quotas[quota]; {
		case known != nil && len(keyed) > 0 && keyed[0] == known.quota:
			keyed = keyed[1:]
		case known != nil && len(quotas) > 0 && quotas[0] == known.of(entry.row.ID):
			quotas = quotas[1:]
		default:
			return false
		}
	}
	return len(quotas) == 0 && len(keyed) == 0
}

// changed reports whether the next snapshot may differ from the last one.
func (s *state) changed() bool {
	return len(s.touched) > 0 || s.quoted || s.moved || s.last.Revision < max(s.revision, s.removed)
}

// snapshot returns an immutable snapshot of the state as of loadedAt. It shares the unchanged parts with the previous
// snapshot, so that one changed row of a hundred thousand costs one map, not a hundred thousand campaigns.
func (s *state) snapshot(loadedAt time.Time) *delivery.Snapshot {
	changed := make(map[string]*delivery.Campaign, len(s.touched))
	for id := range s.touched {
		if entry := s.campaigns[id]; entry != nil {
			s.build(id, entry)
			changed[id] = entry.row
		} else {
			changed[id] = nil
		}
	}
	next := s.last.Next(changed)
	next.Revision, next.LoadedAt = max(s.revision, s.removed), loadedAt
	if s.quoted {
		next.Quotas = make(map[string]*delivery.Quota, len(s.quotas))
		for id, entry := range s.quotas {
			next.Quotas[id] = entry.quota
		}
	}
	if s.moved {
		next.Destinations = make(map[string]*delivery.Destination, len(s.endpoints))
		for id, entry := range s.endpoints {
			next.Destinations[id] = entry.row
		}
	}
	next.Stores, next.Installation = s.stores, s.installation
	s.last, s.touched, s.quoted, s.moved = next, make(map[string]bool), false, false
	return next
}

// build builds the campaign of a row and its links.
func (s *state) build(id string, entry *campaignEntry) {
	campaign := entry.row
	if entry.built {
		campaign = new(delivery.Campaign)
		*campaign = *entry.row
	}
	campaign.Invalid = entry.fault
	if campaign.Ramp != nil && campaign.Invalid == "" {
		if err := campaign.Ramp.Validate(campaign.Rate); err != nil {
			campaign.Invalid = err.Error()
		}
	}
	campaign.Quotas, campaign.Keyed = make([]*delivery.Quota, 0, len(entry.quotas)), nil
	for _, quota := range entry.quotas {
		if known, ok := s.quotas[quota]; ok {
			if known.quota.Per != "" {
				campaign.Keyed = append(campaign.Keyed, known.quota)
			} else {
				campaign.Quotas = append(campaign.Quotas, known.of(id))
			}
			campaign.Invalid = cmp.Or(campaign.Invalid, known.invalid)
		} else {
			campaign.Invalid = cmp.Or(campaign.Invalid, "quota "+quota+" does not exist")
		}
	}
	if n := len(campaign.Quotas); n > delivery.MaxQuotas {
		campaign.Invalid = cmp.Or(campaign.Invalid, fmt.Sprintf("it has %d quotas; a campaign has at most %d", n, delivery.MaxQuotas))
	}
	campaign.Invalid = cmp.Or(campaign.Invalid, shardConflict(campaign.Quotas))
	entry.row, entry.built = campaign, true
}

// shardConflict returns an error text if a campaign's quotas are in several shards of the store, else "". Quotas of mode
// eventual have no shard.
func shardConflict(quotas []*delivery.Quota) string {
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
