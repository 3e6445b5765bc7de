package keyed

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestTurnsKeepAllWindows: the jobs of a key, sent at once or at their turns, exceed none of several windows, so that no turn is in vain.
func TestTurnsKeepAllWindows(t *testing.T) {
	t.Parallel()
	for _, windows := range [][]delivery.Window{
		{window(1, time.Second), window(3, time.Minute)}, {window(1, time.Second), window(20, time.Minute)}, {window(3, time.Minute)},
		{window(2, 10*time.Second), window(5, 30*time.Second), window(50, time.Hour)},
	} {
		for _, sent := range []int{0, 1} {
			r := newRig(t, unlimited(delivery.Quota{Windows: windows}))
			begun, jobs := time.Now(), make([]*delivery.Job, 30)
			for i := range jobs {
				jobs[i] = job("a")
			}
			for _, j := range jobs[:sent] {
				r.send(j)
			}
			for _, part := range [][]*delivery.Job{jobs[sent:20], jobs[20:]} {
				r.Reserve(context.Background(), part)
			}
			at := make([]time.Duration, 0, len(jobs))
			for _, j := range jobs {
				if d := j.Due.Sub(begun); d < time.Hour-time.Second {
					at = append(at, max(0, d))
				}
			}
			slices.Sort(at)
			for _, w := range windows {
				for i := int(w.Limit); i < len(at); i++ {
					if gap := at[i] - at[i-int(w.Limit)]; gap < w.Span {
						t.Fatalf("%v, %d sent: %d turns within %s: %v", windows, sent, w.Limit+1, gap, at)
					}
				}
			}
		}
	}
}

// TestAHoldBeginsWithTheAnswer: the destination may take its time to ask for a wait.
func TestAHoldBeginsWithTheAnswer(t *testing.T) {
	t.Parallel()
	const late, wait = 300 * time.Millisecond, 30 * time.Second
	r := newRig(t, unlimited(delivery.Quota{Windows: []delivery.Window{window(100, time.Second)}}))
	answered := time.Time{}
	r.answer = func(*delivery.Job) delivery.Result {
		time.Sleep(late) // the call
		answered = time.Now()
		return delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: wait}
	}
	r.send(job("slow"))
	r.eventually("it is held", func() bool {
		s, err := r.Show(context.Background(), r.quota, "slow")
		if err != nil || s.Held == 0 {
			return false
		}
		if until := time.Since(answered) + s.Held; until < wait-late/10 {
			t.Errorf("it is held until %s after the answer", until)
		}
		return true
	})
}
