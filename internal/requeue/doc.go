// Package requeue is Kafka out: everything pacer writes to Kafka goes through it. It moves jobs that cannot be
// sent now into lanes and timers, and jobs that can never be sent into the dead letters; it creates and checks
// the topics that pacer owns; it lists and replays dead letters, and it publishes jobs for the command line.
//
// # The way of a re-enqueued job
//
//	pacer decides               Relay.Put(job, destination)            never blocks
//	  -> queue of its source    one FIFO per partition read            bounded by the consumer's byte budget
//	  -> worker                 Source.Flush, if the batch before is not committed yet
//	                            at most 500 jobs and 512 KiB of this one source
//	                            destination partition: the campaign's pin (lanes), the source (timers),
//	                            the campaign (dead letters)
//	                            one produce request per broker, acks=all
//	  -> acknowledged           Job.Settle: requeued, retried, dead or expired
//	     refused                back to the head of the source's queue, with back-off, for ever
//	     too large              the batch is halved down to the record; that one becomes a dead letter
//	                            with the first 64 KiB of its payload
//
// What is promised:
//
//   - A job is settled only after all in-sync replicas have its new record. Until then its old offset stays open,
//     so a crash at any instant leaves at least one record of it.
//   - A crash leaves few second records: the settled offsets of a batch are committed (Source.Flush) before the
//     next batch of the same source is written, and what the broker refused or did not answer is written again
//     before anything else of that source. So at most one batch per source is ever in doubt. The reader of a lane
//     recognises the second record by its origin.
//   - A broker that refuses stops intake and nothing else: the jobs stay open, the front windows fill up.
//   - Sources are served in turn, one batch each, so a partition full of overflowing jobs delays no other
//     partition's retries. Within a source, timers and dead letters go before lanes.
//   - Writing to lanes is never urgent: Relay.Hold makes it give way to sending for a moment.
//
// # Records
//
// The record keeps the key, the foreign headers and the payload byte for byte; what pacer knows of the job is
// written as headers (see package delivery). A job that came as a JSON envelope is written with headers and its
// inner payload. A record that could not be decoded is kept as it came, with all its headers.
//
// # Results and replays
//
// Where they are wanted, Results writes an event for each job whose fate is final, and only then settles the job: nobody
// loses an event, and a crash repeats one as it repeats a job. Replay publishes dead letters again. A dead letter lies
// in a log and cannot be marked, so what was replayed is noted in a topic of its own, by partition and offset, after each
// acknowledged batch.
//
// # Owned topics
//
// The lanes and the timers keep their records for ever, since jobs wait there; a janitor removes what every
// reader has passed. Dead letters are kept for 30 days, results for seven, notes of replays for a year. All of them take
// records 64 KiB larger than those of the ingress topics, which is room for the headers. EnsureTopics never deletes or
// shrinks a topic.
package requeue
