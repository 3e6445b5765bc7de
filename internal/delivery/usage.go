package delivery

import "time"

// Usage is how many units of a quota were used, or reserved for use, within one minute.
type Usage struct {
	Quota  string
	Minute int64 // minutes since the Unix epoch on the store's clock
	Units  int64
	Epoch  int64 // of the store's data that the units are taken from; 0: unknown
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

// UsagePage is what one daemon writes into the ledger at once.
type UsagePage struct {
	Node    string
	Epochs  map[int]int64 // of the shards' data, which must be the recorded ones
	Usage   []Usage
	Anchors []Anchor
}

// Checkpoint is what the store has counted of a quota up to a time. It takes the place of what daemons have reserved of
// the same data before.
type Checkpoint struct {
	Quota   string
	Epoch   int64  // of the store's data that was counted
	Since   int64  // the time of the checkpoint before, microseconds of the store's time; 0: there is none
	At      int64  // its time
	Window  string // whose counts are compared, and how they are kept; counts of others cannot be compared
	Born    int64  // when the oldest units were counted that the window holds
	Counted int64  // units in the newest part of the window
	Begun   int64  // the first minute of which reservations are replaced
	Used    int64  // units counted since Since; 0 when it is read
	// Rows are those of the ledger when it is read; not written.
	Rows LedgerRows
}

// LedgerRows tells where the units of a quota come from that the ledger holds of the last minutes.
type LedgerRows struct {
	First  int64 // the first of these minutes that has any
	Epoch  int64 // of the data that all of them are taken from, 0 where that is not one, or where the count was corrected
	Before int64 // the last minute before First that has any, 0 for none
}

// Anchor is the reset of a fixed window that begins at its first use; a rebuild needs it, since it cannot be
// computed.
type Anchor struct {
	Quota   string
	Span    time.Duration
	ResetAt int64 // store time at which the window ends, microseconds
}
