package delivery

// Position is how far one partition of a lane or a timer has been read by a consumer group. It is kept in the
// catalog beside the group's own offsets, which expire when the group is empty for long.
type Position struct {
	Topic     string
	Partition int
	Committed int64  // the offset to go on from
	Metadata  string // of the commit: what is settled or left behind beyond Committed
	Backlog   int64  // jobs that wait, as the reader knew it
}
