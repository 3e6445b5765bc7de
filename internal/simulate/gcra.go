package simulate

// gcra is the generic cell rate algorithm as rate limiters over Redis have it (rwz/redis-gcra, go-redis/redis_rate,
// throttled): it keeps the theoretical arrival time of the next job, and lets a job go that comes no earlier than the
// burst allows. The burst is a second's jobs, which is what redis_rate's PerSecond sets.
//
// Source: ITU-T Recommendation I.371 (2004), annex A, the virtual scheduling algorithm.
type gcra struct {
	rate int64
	tat  int64 // theoretical arrival time, in microseconds / rate, so that no spacing is rounded
}

func newGCRA(rate int64) limiter { return &gcra{rate: rate} }

// take lets go what fits between the theoretical arrival time and a burst from now. One job puts that time off by a
// rate-th of a second, which is a second in its unit.
func (g *gcra) take(now, want int64) (units, next int64) {
	burst := g.rate * second
	tat := max(g.tat, now*g.rate)
	units = min(want, (now*g.rate+burst-tat)/second)
	if units > 0 {
		g.tat = tat + units*second
		tat = g.tat
	}
	return units, (tat + second - burst + g.rate - 1) / g.rate
}
