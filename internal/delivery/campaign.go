package delivery

import "time"

// Status of a campaign.
type Status string

// The statuses.
const (
	StatusActive    Status = "active"
	StatusPaused    Status = "paused"    // jobs wait
	StatusCancelled Status = "cancelled" // jobs settle as cancelled, for good
	StatusCompleted Status = "completed" // jobs settle as expired
)

// Overflow says where jobs wait that do not fit a campaign's queue.
type Overflow string

// The overflow policies.
const (
	OverflowLane  Overflow = "lane"
	OverflowBlock Overflow = "block"
)

// Campaign is what jobs belong to. A Campaign in a snapshot is immutable.
type Campaign struct {
	ID             string
	Revision       int64 // grows with every change of the row, and with every step of the ramp (see At); the highest wins
	Rate           Rate  // in the catalog, the ceiling of the ramp
	Burst          int64 // units of credit after idle time, 0 for none
	Status         Status
	PausedUntil    time.Time // of a paused campaign: when it is active again by itself; zero: never
	Sink           string    // "" = the default sink
	PriorityWeight int64     // at least 1; the share of a contended quota
	MaxInFlight    int       // 0 = unlimited
	Quotas         []*Quota  // those of its takes
	Keyed          []*Quota  // those by a key of the job, which are asked for each job; see Quota.Per
	Overflow       Overflow
	TTL            time.Duration // 0 = none; counted from the first read
	StartsAt       time.Time
	EndsAt         time.Time
	Hours          *ActiveHours   // nil: always
	Local          *ActiveHours   // further hours, by the clocks of the recipient of each job; see Opens
	Zone           *time.Location // of jobs that name none; nil: not known
	Ramp           *Ramp          // nil: none
	ExpectedTotal  int64
	FinishBy       time.Time // what is left is spread evenly until then; zero: it is not
	FinishRate     Rate      // by which it is, at most Rate; zero: not computed yet
	Repaced        int64     // the part of Revision that comes from changes of FinishRate alone, since people changed the row

	// Invalid, if set, says in one line why the campaign is held (an invalid rate, an unknown status).
	Invalid string
}

// The words a quota's fields may hold; the empty string is the first of each.
const (
	PolicyClosed     = "closed"      // nothing is sent while the store fails
	PolicyLocalShare = "local-share" // each daemon sends its share of the last known rate
	PolicyOpen       = "open"        // the quota is not enforced while the store fails

	ModeStrict   = "strict"   // exact, in the store
	ModeShadow   = "shadow"   // evaluated and reported, not enforced
	ModeEventual = "eventual" // counted in memory, synchronised in the background

	SpendGreedy = "greedy" // as fast as the campaigns ask
	SpendEven   = "even"   // evenly over the span

	AlgorithmSliding = "sliding" // a ring of buckets
	AlgorithmFixed   = "fixed"   // with a reset, at first use or at the calendar
	AlgorithmLog     = "log"     // every grant is stored

	UnitUnits = "units" // weights of jobs
	UnitBytes = "bytes" // lengths of payloads; eventual quotas only
)

// Words of campaigns.time_zone and time_zone_missing.
const (
	ZoneRecipient = "recipient" // the zone of each job
	ZoneHold      = "hold"      // jobs that name none wait
)

// Quota is a limit shared by any number of campaigns.
type Quota struct {
	ID             string
	Revision       int64
	Windows        []Window
	OnStoreFailure string // closed (default), local-share, open
	Mode           string // strict (default), shadow, eventual
	Spend          string // greedy (default), even
	Unit           string // units (default), bytes
	// Exempt is the percentage, 0 to 100, of the campaigns that the quota neither counts nor limits while it is rolled out.
	// Which these are, see Covers. The quotas of a campaign in a snapshot cover it wholly or not at all: 0 or 100.
	Exempt int64
	// Shard is where the counts live, fixed when the quota is created. A keyed quota counts in all shards.
	Shard int

	// Per is the name of the key that the quota is kept by: its windows apply to each value alone. "" for a quota of whole campaigns.
	Per string
	KeyRules
}

// PerDestination is the key that needs no header: the job's destination.
const PerDestination = "destination"

// KeyRules are the settings of a keyed quota.
type KeyRules struct {
	MaxWait    time.Duration     // how long a job may wait for its key since it was first read, then it is capped; negative: as long as it may
	Pass       bool              // jobs without the key are not limited; else they become dead letters
	Deliveries bool              // only delivered jobs count; else every attempt does
	Keys       map[string]KeyRow // what is set for single values
}

// KeyRow is what is set for one value of a key.
type KeyRow struct {
	Windows   []Window  // in place of those of the quota; none: as the quota
	HeldUntil time.Time // no job of this value is sent before; zero: not held
}

// WindowsOf returns the windows for a value of the key.
func (q *Quota) WindowsOf(value string) []Window {
	if row := q.Keys[value]; len(row.Windows) > 0 {
		return row.Windows
	}
	return q.Windows
}

// Binds reports whether the quota limits anything: one in shadow mode, one that is rolled out to no units and one without
// windows do not.
func (q *Quota) Binds() bool { return q.Mode != ModeShadow && q.Exempt < 100 && len(q.Windows) > 0 }

// Strict reports whether the windows of the quota must never be exceeded. Those of mode eventual bind, but may be exceeded
// a little: a job that weighs more than their limit is sent.
func (q *Quota) Strict() bool { return q.Binds() && q.Mode != ModeEventual }

// Stored reports whether the quota store counts the windows of the quota, also in shadow mode.
func (q *Quota) Stored() bool { return len(q.Windows) > 0 && q.Mode != ModeEventual }

// Interval is the part of a span that a unit takes where units are spent evenly, in microseconds: the longest of all windows, at least 1.
func (q *Quota) Interval() int64 {
	longest := int64(1)
	for _, w := range q.Windows {
		longest = max(longest, w.Span.Microseconds()/max(1, w.Limit))
	}
	return longest
}

// Window is "at most Limit units in any Span".
type Window struct {
	Span      time.Duration // at least 1 ms, whole microseconds
	Limit     int64         // 0 grants nothing
	Algorithm string        // sliding (default), fixed, log
	// Anchor of a fixed window: "" begins at its first use; otherwise a unit of the calendar and a time zone, such as
	// day@Europe/Moscow.
	Anchor string
}

// Covers reports whether the quota, while it is rolled out, counts and limits a campaign that is linked to it: the same answer
// on every daemon, and one that stays when the percentage grows. Each quota begins with other campaigns.
func (q *Quota) Covers(campaign string) bool {
	switch {
	case q.Exempt <= 0:
		return true
	case q.Exempt >= 100:
		return false
	}
	return int64(CampaignHash(q.ID+" "+campaign)>>16%100) >= q.Exempt
}

// CampaignHash is FNV-1a, 64 bits, of the campaign's id; it replaces the id where there is no room for names.
func CampaignHash(id string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	return h
}
