package delivery

import "time"

// Usage is how many units of a quota were used, or reserved for use, within one minute.
type Usage struct {
	Quota  string
	Minute int64 // minutes since the Unix epoch on the store's clock
	Units  int64
}

// Anchor is the reset of a fixed window that begins at its first use; a rebuild needs it, since it cannot be
// computed.
type Anchor struct {
	Quota   string
	Span    time.Duration
	ResetAt int64 // store time at which the window ends, microseconds
}
