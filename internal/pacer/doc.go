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
// Two clocks are in use. Slots are in store time (the limiter's clock, microseconds). Everything else is the local
// monotonic clock, in microseconds since the Pacer was made. storeClock maps one to the other; wall clocks decide
// nothing but not-before and expiry, which producers state in wall time.
package pacer
