package offset

// Commits tracks how much of a partition's position the broker has acknowledged. It is pure; the zero value is a
// partition that the group has never committed, with nothing to commit.
//
// Every change of a position (a settled job, a move of a reader) makes a new version of it. An acknowledged commit of a
// version covers every change up to it.
type Commits struct {
	version uint64 // of the position
	acked   uint64 // of the last acknowledged commit
	offset  int64  // of the last acknowledged commit
	known   bool   // whether there is such a commit
}

// NewCommits returns Commits that start at the offset that the group has committed.
func NewCommits(committed int64) Commits { return Commits{offset: committed, known: true} }

// Changed records a change of the position.
func (c *Commits) Changed() { c.version++ }

// Restart records that the position is now one in another log, of which nothing has been committed.
func (c *Commits) Restart() {
	c.version++
	c.known = false
}

// Version returns the version of the position.
func (c *Commits) Version() uint64 { return c.version }

// Acknowledged returns the version of the last acknowledged commit.
func (c *Commits) Acknowledged() uint64 { return c.acked }

// Uncommitted returns the number of changes that no acknowledged commit covers.
func (c *Commits) Uncommitted() uint64 { return c.version - c.acked }

// Acknowledge records that the broker has acknowledged a commit of a version, with this offset.
func (c *Commits) Acknowledge(version uint64, offset int64) {
	c.acked = max(c.acked, version)
	c.offset, c.known = offset, true
}

// LowWatermark returns the offset before which no later owner reads again, given the stored position kept: a later
// owner may continue from either. ok is false if the group has committed nothing.
func (c *Commits) LowWatermark(kept int64) (offset int64, ok bool) {
	return min(c.offset, kept), c.known
}

// Position is the content of a commit of a partition: the offset before which everything is settled, and metadata for
// RestoreWindow or RestoreLane with what is settled beyond it.
type Position struct {
	Offset   int64
	Metadata string
	Trimmed  bool // the metadata has no room for all settled offsets: after a crash some records are handed over again
}
