// Package requeue moves jobs that cannot be sent now into lanes and timers, and jobs that can never be sent into the dead
// letters. It writes an event of each job with a final outcome, if that is wanted. It names, makes and checks the topics that pacer owns.
//
// # The way of a re-enqueued job
//
//	pacer decides               Relay.Put(job, destination)            never blocks
//	  -> queue of its source    one for lanes, one for timers and      bounded by the consumer's byte budget
//	                            dead letters; one of all sources for
//	                            results
//	  -> worker                 at most 500 jobs and 512 KiB of this one queue
//	                            destination partition: by its backlog (lanes), the source (timers),
//	                            the campaign (dead letters), the job (results)
//	                            one produce request per broker, acks=all
//	  -> acknowledged           Job.Settle: requeued, retried, dead or expired
//	     refused                waits for its partition, tried again with back-off, for ever; after some seconds
//	                            another partition is taken if that is safe (stalled.go)
//	     too large              the batch is halved down to the record; that one waits, and is logged as an error
//
// What is promised:
//
//   - A job is settled only after all in-sync replicas have its new record. Until then its old offset stays open,
//     so a crash at any instant leaves at least one record of it. Nothing of its payload is cut.
//   - A crash leaves few second records: what was settled since the last commit of the source, a tenth of a second or
//     1,000 jobs. Of what may have been written to a partition that does not answer, one batch per source is in doubt; it
//     is written to no other partition. The reader of a lane, a timer or the dead letters recognises the second record by
//     its origin.
//   - A partition that refuses stops what must go there and nothing else. If all refuse, the jobs stay open, and the front
//     windows fill up.
//   - Sources are served in turn, one batch each, so a partition full of overflowing jobs delays no other
//     partition's retries. Timers and dead letters have workers of their own.
//   - Writing to lanes is never urgent: Relay.Throttle makes it give way to sending for a moment.
//
// # Owned topics
//
// The lanes and the timers keep their records for ever, since jobs wait there; a janitor removes what every
// reader has passed. Dead letters are kept for 30 days, results for seven, notes of replays for a year. All of them take
// records 64 KiB larger than those of the ingress topics, which is room for the headers. EnsureTopics never deletes or
// shrinks a topic.
package requeue
