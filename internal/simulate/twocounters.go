package simulate

// twoCounters is the sliding window of many gateways: a counter for this second of the clock and one for the last. The last one counts by
// the part of it that lies within a second of now, as if its jobs had come evenly. It needs two numbers instead of a log, and is an
// estimate.
//
// Source: J. Desgats, "How we built rate limiting capable of scaling to millions of domains", Cloudflare blog, 2017. The
// part of the last second's count is rounded down, as in Upstash's ratelimit and in RussellLuo/slidingwindow.
type twoCounters struct {
	limit      int64
	window     int64 // the number of this second
	last, this int64 // jobs in the last second and in this one
}

func newTwoCounters(rate int64) limiter { return &twoCounters{limit: rate} }

func (w *twoCounters) take(now, want int64) (units, next int64) {
	w.roll(now / second)
	units = min(want, max(0, w.limit-w.last*(second-now%second)/second-w.this))
	w.this += units
	return units, w.freeAt()
}

// roll brings the counters to a second.
func (w *twoCounters) roll(window int64) {
	switch window - w.window {
	case 0:
		return
	case 1:
		w.last, w.this = w.this, 0
	default:
		w.last, w.this = 0, 0
	}
	w.window = window
}

// freeAt is when the next job may go: when the part of the last second that counts has fallen far enough.
func (w *twoCounters) freeAt() int64 {
	start, room := w.window*second, w.limit-w.this
	if room <= 0 {
		return start + second // where the counters roll, and it is seen what is left
	}
	if w.last < room {
		return start
	}
	// This is the first left with last * left / second, rounded down, below room: last * left < room * second.
	left := (room*second - 1) / w.last
	return start + second - left
}
