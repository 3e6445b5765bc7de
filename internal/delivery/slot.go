package delivery

// Slot is a point on a campaign's timeline: At microseconds of store time plus Frac/N of a microsecond, where N
// is the numerator of the timeline's Rate and 0 <= Frac < N. Keeping the remainder makes slots exact for any
// rate, without an index that would have to be re-based: advancing is addition, and no product exceeds
// MaxGrant * maxRateUnits < 2^53.
type Slot struct {
	At   int64
	Frac int64
}

// Advance is the slot k places further on a timeline of rate r; 0 <= k <= MaxGrant.
func (s Slot) Advance(k int64, r Rate) Slot {
	whole, rest := r.Per/r.N, r.Per%r.N
	f := s.Frac + k*rest
	return Slot{At: s.At + k*whole + f/r.N, Frac: f % r.N}
}

// Back is the slot before s on a timeline of rate r.
func (s Slot) Back(r Rate) Slot {
	s.At -= r.Per / r.N
	if s.Frac -= r.Per % r.N; s.Frac < 0 {
		s.At, s.Frac = s.At-1, s.Frac+r.N
	}
	return s
}

// Micros is the first whole microsecond not before the slot: the instant when it may be used.
func (s Slot) Micros() int64 {
	if s.Frac > 0 {
		return s.At + 1
	}
	return s.At
}

// Before reports whether s lies before o on the same timeline.
func (s Slot) Before(o Slot) bool { return s.At < o.At || s.At == o.At && s.Frac < o.Frac }

// CountUntil is how many slots of a timeline of rate r, beginning with s, lie not after end (microseconds of
// store time), at most limit (and MaxGrant).
func (s Slot) CountUntil(end int64, r Rate, limit int64) int64 {
	limit = min(limit, MaxGrant)
	if r.N == 0 || limit <= 0 || s.Micros() > end {
		return 0
	}
	if s.Advance(limit-1, r).Micros() <= end {
		return limit
	}
	lo, hi := int64(0), limit-1 // slot lo is not after end, slot hi is
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if s.Advance(mid, r).Micros() <= end {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo + 1
}
