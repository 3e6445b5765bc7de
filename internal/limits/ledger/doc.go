// Package ledger keeps the data that must survive the loss of a shard's store: which epoch of its data is in force, and
// the use of the quotas with long windows.
//
// A Fence prevents grants from a store that has lost its data until a daemon has rebuilt the windows from the ledger. What the store counts
// is copied into the ledger every two seconds. What was granted since, each daemon knows of itself.
package ledger
