// Package consumer is Kafka in: it joins the group, reads the partitions it is given, decodes records into jobs,
// hands them to a Handler, and commits what is settled.
//
// The way of a record: a reader fetches it, decodes it, registers its offset as open at the partition's source,
// charges its bytes to the budget of the process, and offers the job. Whoever has decided its fate calls
// delivery.Source.Settle. The committer, one goroutine per generation, commits the contiguous prefix of settled
// offsets of every partition that changed; what is settled beyond the prefix goes into the commit's metadata, so that
// the next owner does not send it again.
//
// Three kinds of partition, three readers over one kind of fetch:
//
//   - ingress (ingress.go): read as fast as the window of open offsets and the budget allow; where the handler refuses jobs
//     that stay there (block.go), not until it takes them;
//   - timers (timer.go): the same, but a job is handed over only when it is due, and the reader sleeps until then;
//   - lanes (lane.go, lanereader.go): a main position that goes on past campaigns whose queue is full, and a
//     position of its own for every campaign left behind.
//
// The pure parts take no lock, no clock and no context: decode.go, window.go, settled.go, lane.go, lanemeta.go,
// repeats.go. The sources (source.go, lanesource.go) put a lock around them; the readers, the committer and the
// generation are the goroutines.
//
// A generation ends as a whole, since the classic protocol revokes every partition at a rebalance: readers stop, the
// handler drains, the last commit is sent, and the sources are gone, so that a late Settle or Flush does nothing.
package consumer
