// Package pacer is the scheduler: it holds the jobs of each campaign in a queue, reserves slots for them a
// quantum at a time, sends each job at its slot, and settles it.
//
// One scheduler goroutine (Pacer.Run) owns every queue, every slot and every gate; there is no lock on them.
// Others communicate with it: the consumer by Offer, Relieve and Revoke, sink calls and takes by passing their
// results. The scheduler never blocks and does no I/O: takes, refunds and sends run in goroutines that it counts
// and waits for.
//
// The path of a job: decide returns its placement (queue, destination, lane, timer, dead letter), and carryOut puts it there. A take asks
// the limiter for slots. Shortly before, askKeys has the keys of a job count it, if keyed quotas limit its campaign. When a slot comes due,
// dispatchNext sends the job to its sink. placementAfter makes the answer a placement, and carryOut settles the job or makes it wait again.
//
// Waiting has several names, each for one thing:
//
//   - queued: a job in its campaign's queue (ranked), for a slot; timeline.granted counts the slots that the queue has.
//   - asked, then allowed: a queued job whose keys are asked, or allow it; it uses a slot that is about to come.
//   - aside.waits: jobs in memory until a time that is near: a short back-off, a not-before, or their next step.
//   - queue.waiting: lanes, and partitions of ingress, whose jobs were refused for want of room, until GrantCapacity is called.
//   - destination.line: jobs in memory until their destination may have another call, or is tried again.
//   - queue.blocked: the queue's slot has come and its sink has no call free; sinkState.full lists such queues.
//   - followUps, of a sink: jobs whose request has begun and whose next step may be made; the others are in aside.waits or in timers.
//   - held, a standing: the campaign may not send at all, and its jobs go to lanes.
//
// And so have the instants of a queue, all local times:
//
//	ask.at               when it asks for slots next
//	turnAt               before which no further slot can come, by the last reply
//	circuit.openUntil    while the campaign's jobs fail and others of the sink do not: when the next one is tried
//	breaker.openUntil    of its sink: until when no campaign of this daemon sends
//	breaker.openUntil    of one destination of its sink: until when none of its jobs is sent; its other jobs pass them
//
// The latest of turnAt and of the breakers of the campaign and its sink is queue.turn, which decides whether jobs wait here.
//
// The scheduler's state lies in layers, and none calls those around it: slots (asks, due slots, refunds), gates (news for other daemons),
// placing (decide), judge (placementAfter, breakers), and Pacer (the loop, carryOut, the exported methods).
//
// Its decisions are split into types that do no I/O. Campaigns hold the current state of the catalog and the schedules. A queue, with
// ranked and timeline, holds jobs and slots. A breaker counts failures of a sink, a campaign or a destination. Destinations, with flow,
// hold calls of single destinations. Takes and quantum decide when to ask for slots, and for how many. Their methods take the time as an
// argument: a turn reads the clocks once.
//
// Two clocks are in use. Slots are in store time (the limiter's clock, microseconds). Everything else is the local
// monotonic clock, in microseconds since the Pacer was made. storeClock maps one to the other; wall clocks are
// used only for schedules, not-before and expiry, which are given in wall time.
package pacer
