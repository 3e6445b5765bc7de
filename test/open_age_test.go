package test

import (
	"testing"
	"time"
)

// pacing.max_open_age decides how soon a job whose turn is far off leaves memory for its lane.
func TestMaxOpenAge(t *testing.T) {
	t.Parallel()
	for age, c := range map[string]struct{ least, most int }{"500ms": {35, 40}, "1m": {0, 0}} {
		t.Run(age, func(t *testing.T) {
			t.Parallel()
			s := newStack(t, stackOptions{settings: "pacing: {max_open_age: " + age + "}"})
			s.campaign("slow", 1)
			d := s.started("daemon")
			s.publish(mix(map[string]int{"slow": 40}))
			s.await(20*time.Second, "the first job", func() bool { return s.receiver.count("slow") > 0 })
			requeued := func() int { return int(d.metric(`pacer_jobs_settled_total{campaign="slow",outcome="requeued"}`)) }
			s.await(20*time.Second, "jobs to leave for the lane", func() bool { return requeued() >= c.least })
			time.Sleep(2 * time.Second)
			if n := requeued(); n > c.most {
				t.Errorf("%d of 40 jobs went to a lane", n)
			}
		})
	}
}
