package progress

// summary is what all daemons know together: a part with the sums of their parts, of each lane the count that is valid,
// and what holds campaigns.
type summary struct {
	part
	daemons int   // that run
	silent  []int // lanes whose daemon runs no more
}
