// Package broker is pacer's access to Kafka: connections to brokers, reading, watching and writing partitions, their
// bounds, the committed offsets of a group, and the meaning of a broker's errors. It deals with records, not with
// jobs.
//
// A Client is one process's view of one cluster. All batches are written by a Writer: at most one batch per partition
// at a time, acknowledged by all in-sync replicas, and halved if it is too large.
package broker
