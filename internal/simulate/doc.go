// Package simulate runs rate-limiting algorithms side by side: the same jobs, the same pauses, a virtual clock. It
// shows what each lets through in any second, and draws it.
//
// The source is saturated: a job is always there, except in the pauses of the Load, and the sender asks again the very
// microsecond at which more may go. So what leaves is what the algorithm allows, and not what some machine could do.
//
// The algorithms that pacer's engine has are the reference model of that engine (internal/limits/model), asked as the
// daemon asks Redis. Two that it does not have are written here: GCRA, and the sliding window of two counters.
package simulate
