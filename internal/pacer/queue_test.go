package pacer

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestJobsGoInTheOrderThatIsAskedFor: the weights and the lengths in an ask are those of the jobs that take the slots.
func TestJobsGoInTheOrderThatIsAskedFor(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := newQueue("c")
		for range rapid.IntRange(1, 40).Draw(rt, "jobs") {
			j := &delivery.Job{Weight: rapid.Int64Range(1, 5).Draw(rt, "weight"), Reading: delivery.Reading{From: delivery.FromLane}}
			switch rapid.IntRange(0, 5).Draw(rt, "rank") {
			case 0:
				j.Priority = delivery.PriorityHigh
			case 1, 2:
				j.From = delivery.FromTimer
			}
			q.push(j)
			if rapid.IntRange(0, 3).Draw(rt, "go") == 0 {
				q.remove(q.head())
			}
		}
		var asked, went []*delivery.Job
		q.each(func(j *delivery.Job) bool { asked = append(asked, j); return true })
		for !q.empty() {
			j := q.head()
			q.remove(j)
			went = append(went, j)
		}
		if !slices.Equal(asked, went) || q.units != 0 || q.heavy != 0 {
			rt.Fatalf("%d asked for, %d went, or in another order; %d units left", len(asked), len(went), q.units)
		}
	})
}

// TestWhatFailedIsForgottenInTheEnd: a queue that gets no more jobs is kept while the outcome of its last jobs matters, and no longer,
// except while its campaign is held.
func TestWhatFailedIsForgottenInTheEnd(t *testing.T) {
	at := func(hours float64) instant { return instant{local: int64(hours * 3600e6)} }
	for name, tt := range map[string]struct {
		of            func(q *queue)
		keeps, forget float64 // hours
	}{
		"nothing":             {func(*queue) {}, 0, 0.1},
		"failures":            {func(q *queue) { q.circuit.fail(failure{job: &delivery.Job{}}, at(1).local) }, 24.9, 25.1},
		"a refusal":           {func(q *queue) { q.circuit.refused(heldRefusals, at(1).local) }, 24.9, 25.1},
		"as long as is asked": {func(q *queue) { q.circuit.openUntil = at(40).local }, 39.9, 40.1},
		"held": {func(q *queue) {
			for range heldRefusals {
				q.circuit.refused(heldRefusals, at(1).local)
			}
		}, 10_000, 0},
	} {
		q := newQueue("c")
		q.campaign = &delivery.Campaign{}
		tt.of(q)
		if tt.keeps > 0 && q.idle(at(tt.keeps)) || tt.forget > 0 && !q.idle(at(tt.forget)) {
			t.Errorf("%s: dropped after %v hours: %v, after %v: %v", name, tt.keeps, q.idle(at(tt.keeps)), tt.forget, q.idle(at(tt.forget)))
		}
	}
}
