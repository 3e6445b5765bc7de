// Package consumer reads from Kafka: it joins the group, reads its assigned partitions, decodes records into
// jobs, offers them to a Handler, and commits settled offsets.
//
// The path of a record: a reader fetches it, decodes it, registers its offset as open at the partition's source,
// charges its bytes to the budget of the process, and offers the job. When the job's outcome is durable, its
// delivery.Receipt is settled. The committer, one goroutine, commits the contiguous prefix of settled
// offsets of every partition that changed; offsets settled beyond the prefix go into the commit's metadata, so that
// the next owner does not send them again.
//
// Three kinds of partition, over one reader loop (reader.go) and one kind of source (source.go):
//
//   - ingress (ingress.go): read as fast as the window of open offsets and the budget allow; while the handler refuses
//     jobs that stay there (block.go), reading stops until it accepts them;
//   - timers (ingress.go): the same, but a job is offered only when it is due, and the reader sleeps until then;
//   - lanes (lanereader.go, lane.go): a main position that passes campaigns whose queue is full, and a separate
//     position for every campaign left behind.
//
// The progress of a partition is kept in four places. The first is its position (package offset), which the next commit will contain. The
// second is the last acknowledged commit, the third the position stored in Positions (progress.go). The last is the low watermark,
// where the janitor's deletions end. Each follows the one before it.
//
// Package offset is pure: it takes no lock, no clock and no context. The sources put a lock around positions; the readers, the
// committer, and those that look at topics and store positions are the goroutines. Readers and the committer have heartbeats (heartbeat.go).
//
// A daemon keeps what it holds while the group rebalances (assignment.go). It lets go of single partitions that it is no longer dealt
// (revoke.go), and of all when it stops or the group has gone on without it. Then readers stop, what is in flight ends, the last commit is
// sent, and the sources are closed. A late Settle does nothing.
package consumer
