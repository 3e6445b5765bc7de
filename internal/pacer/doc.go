// Package pacer is the heart: it holds the jobs of each campaign in a queue, reserves slots for them a quantum
// at a time, sends each job at its slot, and settles it.
//
// One scheduler goroutine (Pacer.Run) owns every queue, every slot and every gate; there is no lock on them.
// Others talk to it: the consumer by Offer, Relieve and Drain, sink calls and takes by handing in their result.
// The scheduler never blocks and does no I/O: takes, refunds and sends run in goroutines that it counts and waits
// for.
//
// The way of a job: Offer places it (queue, lane, timer, dead letter); a tick asks the limiter for slots for the
// queue's head; the slot comes due and the job goes to its sink; the result settles it, or puts it back to wait.
//
// Waiting has several names, each for one thing:
//
//   - queued: a job in its campaign's queue, for a slot; queue.held counts the slots that the queue has.
//   - p.waits: jobs in memory until a time that is near, a short back-off or not-before.
//   - queue.waiting: lanes whose jobs were refused for want of room, until they hear from Room.
//   - p.parked: jobs of ingress that lost their place and stay in memory, since their campaign overflows by block.
//   - queue.blocked: the queue's slot has come and its sink has no call free; sinkState.full lists such queues.
//   - standing held: the campaign may not send at all, and its jobs go to lanes.
//
// And so have the instants of a queue, all local times:
//
//	askAt         when it asks for slots next
//	turnAt        before which no further slot can come, as the last reply said: decides whether jobs wait here
//	restsUntil    how long the campaign alone rests, because its jobs fail while others of the sink do not
//	closedUntil   of its sink: how long nobody sends, whoever closed the gate
//	waitUntil     of its sink: the part of it for which the destination asked
//
// Two clocks are in use. Slots are in store time (the limiter's clock, microseconds). Everything else is the local
// monotonic clock, in microseconds since the Pacer was made. storeClock maps one to the other; wall clocks decide
// nothing but not-before and expiry, which producers state in wall time.
package pacer
