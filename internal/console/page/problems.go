package page

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/hold"
)

// problem is something that an operator did not intend.
type problem struct {
	State, Link, Name, Why, Remedy string
	Since                          *time.Time
}

// problems returns what is wrong: what concerns all campaigns first, then the campaigns that a fault holds, at most shortList of them.
func problems(s *view.State, stores []view.Store, dead *view.Dead, shut *view.Shut) (list []problem) {
	for _, store := range stores {
		if !store.Up {
			list = append(list, problem{State: "away", Name: store.Name, Why: "does not answer", Since: store.Since})
		}
	}
	if s.DaemonsReady < s.DaemonsRunning {
		list = append(list, problem{State: "not ready", Link: "daemons", Name: "daemons", Why: fmt.Sprintf("%d of %d are not ready", s.DaemonsRunning-s.DaemonsReady, s.DaemonsRunning)})
	}
	for _, sink := range s.Sinks {
		for _, gate := range sink.Gates {
			list = append(list, problem{State: gate.Cause, Link: "sinks", Name: "sink " + sink.Name, Why: "is closed for all its campaigns; one job a second is tried", Since: gate.Since})
		}
	}
	for _, count := range []struct {
		state, link, why string
		n                int
	}{
		{"disabled", "destinations?state=disabled", "are disabled; their jobs wait", shut.All},
		{"failing", "destinations?state=failing", "fail", shut.Failing},
	} {
		if count.n > 0 {
			list = append(list, problem{State: count.state, Link: count.link, Name: fmt.Sprintf("%d destinations", count.n), Why: count.why})
		}
	}
	if dead.Letters > 0 {
		list = append(list, problem{State: "dead", Link: "dead?last=1h", Name: fmt.Sprintf("%d dead letters", dead.Letters), Why: "in the last hour"})
	}
	held := 0
	for _, c := range s.Campaigns {
		if c.Held == nil || !hold.Cause(c.Held.Cause).Fault() || c.Held.Cause == string(hold.Gate) {
			continue
		}
		if held++; held <= shortList {
			list = append(list, problem{c.State, "campaign?" + view.Query(map[string]string{"id": c.ID}), c.ID, c.Held.Why, c.Held.Remedy, c.Held.Since})
		}
	}
	if held > shortList {
		list = append(list, problem{State: "held", Link: "campaigns", Name: fmt.Sprintf("%d more campaigns", held-shortList), Why: "are held by a fault"})
	}
	return list
}

// doneAt returns when the last campaign that has a backlog will have sent it; nil: there is none, or it is not known of each.
func doneAt(s *view.State) (done *time.Time) {
	for _, c := range s.Campaigns {
		if c.Backlog == nil || *c.Backlog == 0 {
			continue
		}
		if c.Status == "paused" || c.Progress == nil || c.Progress.DoneAt == nil {
			return nil
		}
		if done == nil || c.Progress.DoneAt.After(*done) {
			done = c.Progress.DoneAt
		}
	}
	return done
}
