package top

// delta is the difference between two samples of one daemon.
type delta struct {
	before, now *Sample
	seconds     float64 // 0 if there is no earlier sample
}

// newDelta compares two samples; before may be nil. Smaller counters than before mean that the daemon has restarted:
// then before is ignored.
func newDelta(before, now *Sample) *delta {
	d := &delta{before: before, now: now}
	if before == nil || !now.At.After(before.At) || now.all() < before.all() {
		d.before = nil
		return d
	}
	d.seconds = now.At.Sub(before.At).Seconds()
	return d
}

// all returns a number that grows as long as a daemon runs.
func (s *Sample) all() (n float64) {
	for _, c := range s.Campaigns {
		for _, v := range c.Settled {
			n += v
		}
	}
	for _, b := range s.Lateness {
		n += b.count
	}
	return n
}

// rate returns how fast a counter grew per second; nil without an earlier sample.
func (d *delta) rate(of func(*Sample) float64) *float64 {
	if d.before == nil {
		return nil
	}
	r := max(0, (of(d.now)-of(d.before))/d.seconds)
	return &r
}

func (d *delta) row(id string, c *Campaign) Row {
	outcome := func(name string) *float64 {
		if _, counted := c.Settled[name]; !counted && d.now.Fleet != nil {
			return nil
		}
		return d.rate(func(s *Sample) float64 {
			if was := s.Campaigns[id]; was != nil {
				return was.Settled[name]
			}
			return 0
		})
	}
	sent := c.Sent
	if d.now.Fleet == nil {
		sent = outcome("delivered")
	}
	return Row{
		Campaign: id, SendRate: c.Rate, Sent: sent, Backlog: c.Backlog, ETA: c.ETA, Lanes: c.Lanes,
		Requeued: outcome("requeued"), Retried: outcome("retried"), Dead: outcome("dead"), Total: c.Settled["delivered"],
	}
}

func (d *delta) quota(w Window, q *Quota) QuotaRow {
	var denied *float64
	if d.now.Fleet == nil {
		denied = d.rate(func(s *Sample) float64 {
			if was := s.Quotas[w]; was != nil {
				return was.Denied
			}
			return 0
		})
	}
	return QuotaRow{
		Quota: w.Quota, Window: w.Span, Remaining: q.Remaining, Limit: q.Limit, Denied: denied,
	}
}

// lateness returns a quantile of the slots' lateness: of those used between the samples, or of all if there is one
// sample; nil if there were none. It is the upper bound of the bucket that contains the quantile, or the largest
// finite bound if the quantile lies beyond it.
func (d *delta) lateness(quantile float64) *float64 {
	counts := make([]float64, len(d.now.Lateness))
	for i, b := range d.now.Lateness {
		counts[i] = b.count
		if d.before != nil && len(d.before.Lateness) == len(counts) {
			counts[i] -= d.before.Lateness[i].count
		}
	}
	if len(counts) < 2 || counts[len(counts)-1] <= 0 {
		return nil
	}
	last := len(counts) - 1
	for i, n := range counts[:last] {
		if n >= quantile*counts[last] {
			return &d.now.Lateness[i].le
		}
	}
	return &d.now.Lateness[last-1].le
}
