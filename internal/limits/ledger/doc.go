// Package ledger keeps the data that must survive the loss of a shard's store: which epoch of its data is in force, and
// the use of the quotas with long windows.
//
// A Writer copies what the store counts into the ledger every two seconds. A Fence prevents grants from a store that has lost its data
// until a daemon has rebuilt the windows from the ledger. What was granted in the last seconds each daemon knows of itself: see Taken.
package ledger
