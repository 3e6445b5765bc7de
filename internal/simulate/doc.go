// Package simulate runs rate-limiting algorithms side by side: the same jobs, the same pauses, a virtual clock. It
// shows what each lets through in any second, and draws it.
//
// The source is saturated: it always has a job, except in the pauses of the Load. The sender asks again at the exact microsecond of the
// next admission. So what leaves is what the algorithm allows, and not what some machine could do.
//
// The algorithms that pacer's engine has are the reference model of that engine (internal/limits/model), asked as the
// daemon asks Redis. Two that it does not have are written here: GCRA, and the sliding window of two counters.
package simulate
