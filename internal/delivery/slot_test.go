package delivery

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func drawRate(t *rapid.T) Rate {
	micros := rapid.OneOf(rapid.Int64Range(1, 1_000_000), rapid.Int64Range(1_000_000, 100_000_000_000)).Draw(t, "millionths")
	per := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 100 * time.Millisecond}).Draw(t, "per")
	r, err := NewRate(micros, per)
	if err != nil {
		t.Skip(err)
	}
	return r
}

// TestSlotsAreExact: however one gets there, slot k lies at exactly k * per / n, and no product leaves 2^53.
func TestSlotsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		start := Slot{At: rapid.Int64Range(0, 1<<51).Draw(t, "at"), Frac: rapid.Int64Range(0, r.N-1).Draw(t, "frac")}
		s, total := start, int64(0)
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			k := rapid.Int64Range(0, MaxGrant).Draw(t, "k")
			if r.Per%r.N > 0 && (s.Frac+k*(r.Per%r.N)) >= 1<<53 {
				t.Fatalf("%d slots of %+v leave 2^53", k, r)
			}
			s, total = s.Advance(k, r), total+k
		}
		// The exact place in units of 1/N of a microsecond.
		exact := new(big.Int).Mul(big.NewInt(start.At), big.NewInt(r.N))
		exact.Add(exact, big.NewInt(start.Frac))
		exact.Add(exact, new(big.Int).Mul(big.NewInt(total), big.NewInt(r.Per)))
		got := new(big.Int).Mul(big.NewInt(s.At), big.NewInt(r.N))
		got.Add(got, big.NewInt(s.Frac))
		if exact.Cmp(got) != 0 || s.Frac < 0 || s.Frac >= r.N {
			t.Fatalf("%d slots of %+v from %+v end at %+v", total, r, start, s)
		}
	})
}

// TestCountUntil: as many slots as a loop would count.
func TestCountUntil(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRate(t)
		s := Slot{At: 1_000_000_000, Frac: rapid.Int64Range(0, r.N-1).Draw(t, "frac")}
		end := s.At + rapid.Int64Range(-10, 200_000).Draw(t, "end")
		limit := rapid.Int64Range(0, 3000).Draw(t, "limit")
		want := int64(0)
		for want < limit && s.Advance(want, r).Micros() <= end {
			want++
		}
		if got := s.CountUntil(end, r, limit); got != want {
			t.Fatalf("%d slots of %+v from %+v until %d, want %d", got, r, s, end, want)
		}
	})
}

func TestSlotIsNeverEarly(t *testing.T) {
	if got := (Slot{At: 5}).Micros(); got != 5 {
		t.Errorf("a whole slot may be used at %d, want 5", got)
	}
	if got := (Slot{At: 5, Frac: 1}).Micros(); got != 6 {
		t.Errorf("a slot between 5 and 6 may be used at %d, want 6", got)
	}
}
