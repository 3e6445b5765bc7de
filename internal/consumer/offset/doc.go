// Package offset tracks how far the partitions of Kafka are read and settled, and builds the commits. It is pure: it
// takes no lock and no context, does no I/O and reads no clock; callers that share a value lock it.
//
//   - Window is a partition of ingress or of a timer: the offsets that are read and not yet committed.
//   - Lane is a partition of the overflow topic: a main position, and one of its own for every campaign that was left
//     behind.
//   - Repeats recognises records that a crash has written twice.
//
// A commit is an offset, before which everything is settled, and metadata that says what is settled beyond it, so that
// the next owner of the partition does not send it again (settled.go, lanemeta.go).
package offset
