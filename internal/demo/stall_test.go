package demo

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/measure"
)

const ms = time.Millisecond

func TestBlurReachesAsFarAsAStallIsFelt(t *testing.T) {
	blur := blurOf([]measure.Interval{{From: sec, To: sec + 30*ms}, {From: sec + 10*ms, To: sec + 20*ms}, {From: 2 * sec, To: 2*sec + 5*ms}})
	for at, want := range map[time.Duration]time.Duration{
		0: 0, sec - stallReach - 1: 0, sec - stallReach: 30 * ms, sec + 15*ms: 30 * ms, sec + 30*ms + stallReach: 30 * ms,
		sec + 31*ms + stallReach: 0, 2 * sec: 5 * ms, 3 * sec: 0,
	} {
		if want > 0 {
			want = handovers*want + measure.MinStall
		}
		if got := blur(at); got != want {
			t.Errorf("at %s: %s, want %s", at, got, want)
		}
	}
}
