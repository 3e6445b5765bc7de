package offset

import (
	"testing"

	"pgregory.net/rapid"
)

// The low watermark is never beyond what was acknowledged nor beyond what is kept, whatever comes first.
func TestLowWatermark(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var c Commits
		acked, known := int64(50), rapid.Bool().Draw(rt, "the group has an offset")
		if known {
			c = NewCommits(acked)
		}
		for range rapid.IntRange(1, 20).Draw(rt, "steps") {
			offset := rapid.Int64Range(0, 200).Draw(rt, "offset")
			if rapid.Bool().Draw(rt, "acknowledged") {
				c.Changed()
				c.Acknowledge(c.Version(), offset)
				acked, known = offset, true
				continue
			}
			got, ok := c.LowWatermark(offset)
			if ok != known || known && got != min(acked, offset) {
				rt.Fatalf("%d, %t with %d kept; %d acknowledged, %t", got, ok, offset, acked, known)
			}
		}
	})
}

// A commit covers the changes up to its version; one that is acknowledged late takes nothing back.
func TestCommitsCoverTheirVersion(t *testing.T) {
	var c Commits
	for range 3 {
		c.Changed()
	}
	c.Acknowledge(2, 10)
	if n := c.Uncommitted(); n != 1 {
		t.Errorf("%d uncommitted of 3, 2 are acknowledged", n)
	}
	c.Acknowledge(1, 5)
	if n := c.Uncommitted(); n != 1 || c.Acknowledged() != 2 {
		t.Errorf("%d uncommitted, version %d acknowledged, after an answer that came late", n, c.Acknowledged())
	}
}
