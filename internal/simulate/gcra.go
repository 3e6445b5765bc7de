package simulate

// gcra is the generic cell rate algorithm of rate limiters over Redis (rwz/redis-gcra, go-redis/redis_rate, throttled). It keeps the
// theoretical arrival time of the next job and admits a job that is at most a burst early. The burst is a second's jobs, which is what
// redis_rate's PerSecond sets.
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
