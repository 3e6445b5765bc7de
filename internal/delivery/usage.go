package delivery

import "time"

// Usage is how many units of a quota were used within one minute.
type Usage struct {
	Quota  string
	Minute int64 // minutes since the Unix epoch on the store's clock
	Units  int64
}

// UsageKeptApart is for how long the minutes of usage are kept apart; then those of an hour become one.
const UsageKeptApart = 25 * time.Hour

// Incarnation is the life of a shard's data that is in force, and what is known of its clock.
type Incarnation struct {
	Epoch int64 // names it
	// Ahead is by how much the clock has jumped forward until JumpedAt, as far as it has not jumped back: what is recorded of the time
	// before was used so much later, by the present clock. Microseconds.
	Ahead, JumpedAt int64
}

// Taken is how many units a shard's data counted of a quota.
type Taken struct {
	Quota string
	Born  int64 // when that count began, microseconds of the store's time; another one is another count
	Units int64 // since then, less those handed back
	Held  int64 // what the window counts that counts most, and is in the ledger
	Since int64 // from when on, microseconds of the store's time
}

// CauseFirst and CauseRestored are the causes of a record of a store's data that follows no loss of them: the database has nothing, or was
// restored from a backup. What it had written before may be in the store's windows alone.
const (
	CauseFirst    = "the first"
	CauseRestored = "the database was restored"
)

// Taker is a daemon that takes units from a shard's data.
type Taker struct {
	Node  string
	Shard int
	Epoch int64 // of the data
	// Since is from when on the ledger may not hold what the daemon took, At when it last said that it goes on. Microseconds of the store's time.
	Since, At int64
}

// Anchor is the reset of a fixed window that begins at its first use; a rebuild needs it, since it cannot be
// computed.
type Anchor struct {
	Quota   string
	Span    time.Duration
	ResetAt int64 // store time at which the window ends, microseconds
}
