package offset

import (
	"slices"
	"testing"
)

// TestReadsVersion1: what 0.1.0 commits is read as it was meant. Change none of these: partitions in the field have them.
func TestReadsVersion1(t *testing.T) {
	between := func(from, to, step int64) (offsets []int64) {
		for o := from; o < to; o += step {
			offsets = append(offsets, o)
		}
		return offsets
	}
	for name, c := range map[string]struct {
		lane      bool
		committed int64
		metadata  string
		end       int64              // of what was read
		open      map[string][]int64 // by campaign, before end
	}{
		"ingress, few long runs": {
			committed: 1000, metadata: "AQEAAwwE8PQCSPXwWQ", end: 4000, open: map[string][]int64{
				"any": slices.Concat(between(1000, 1002, 1), between(1004, 1010, 1), between(1011, 1020, 1)),
			},
		},
		"ingress, every other one": {
			committed: 2000, metadata: "AQEABVRVVVVVsyOYsw", end: 2039, open: map[string][]int64{
				"any": slices.Concat(between(2000, 2002, 1), between(2003, 2039, 2)),
			},
		},
		// Records of autumn are at the multiples of ten, of spring at the other even offsets and of summer at the odd ones.
		"lane": {
			lane: true, committed: 7, metadata: "AQIhA40MFJRw1E+UAA4HC015ENglkAwJCBf823P6DqE6sw0CAAAFAP+66nrMPgh/", end: 40, open: map[string][]int64{
				"summer": append([]int64{7}, between(15, 40, 2)...), "autumn": {20, 30}, "spring": {16, 18, 22, 24, 26, 28, 32, 34},
				"of which nothing waits": nil,
			},
		},
	} {
		open, err := Unsettled(c.lane, c.committed, c.metadata)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for campaign, want := range c.open {
			var got []int64
			for o := range c.end {
				if (!c.lane || want == nil || campaignAt(o) == campaign) && open(campaign, o) {
					got = append(got, o)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: of %s, open are %v, want %v", name, campaign, got, want)
			}
			if !open(campaign, c.end) {
				t.Errorf("%s: %s ends before the end", name, campaign)
			}
		}
		var restored Position
		if c.lane {
			l, err := RestoreLane(c.committed, c.metadata)
			if err != nil || l.Main() != c.end {
				t.Errorf("%s: restored %+v, %v", name, l, err)
				continue
			}
			for hash, n := range l.Waiting() {
				if c := l.campaigns[hash]; n != c.left {
					t.Errorf("%s: %d wait, %d are left", name, n, c.left)
				}
			}
			restored = l.Position()
		} else {
			w, err := RestoreWindow(c.committed, c.metadata)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			restored = w.Position()
		}
		if want := (Position{Offset: c.committed, Metadata: c.metadata}); restored != want {
			t.Errorf("%s: is committed again as %+v, want %+v", name, restored, want)
		}
	}
}

func campaignAt(offset int64) string {
	switch {
	case offset%10 == 0:
		return "autumn"
	case offset%2 == 0:
		return "spring"
	}
	return "summer"
}
