package page

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// problem is something that an operator did not intend, and what can be done about it.
type problem struct {
	State, Link, Name, Why, Remedy string
	Bad                            bool // else it is less urgent
	Since                          *time.Time
	Acts                           []act
}

// act is a button: a link to a page, or a form.
type act struct {
	Label, About string // what it says, and says to those who do not see what it is beside
	Link         string
	Action       string // of a form
	Fields       []value
	role         auth.Role
}

// value is one that a form sends.
type value struct{ Name, Value string }

// link is a button that leads to a page about something.
func linkTo(role auth.Role, label, page, id string, more ...string) act {
	query := url.Values{"id": {id}}
	if page == "dead" || page == "replay" {
		query = url.Values{"campaign": {id}, "last": {"1h"}}
	}
	for i := 0; i+1 < len(more); i += 2 {
		query.Set(more[i], more[i+1])
	}
	return act{Label: label, About: label + " " + id, Link: page + "?" + query.Encode(), role: role}
}

// send is a button that sends a form about something.
func send(role auth.Role, label, action, id string, more ...string) act {
	a := act{Label: label, About: label + " " + id, Action: action, Fields: []value{{"id", id}}, role: role}
	for i := 0; i+1 < len(more); i += 2 {
		a.Fields = append(a.Fields, value{more[i], more[i+1]})
	}
	return a
}

// allowed keeps the buttons that a role may press.
func allowed(role auth.Role, list []act) []act {
	return slices.DeleteFunc(list, func(a act) bool { return a.role > role })
}

// found collects problems, of each kind at most shortEach.
type found struct {
	list []problem
	role auth.Role
}

// shortEach is how many problems of a kind are listed one by one.
const shortEach = 5

func (f *found) add(p problem) {
	p.Acts = allowed(f.role, p.Acts)
	f.list = append(f.list, p)
}

// more adds how many there are besides those that are listed.
func (f *found) more(all, listed int, what, link string) {
	if all > listed {
		f.add(problem{State: "more", Link: link, Name: fmt.Sprintf("%d more %s", all-listed, what), Why: "have the same trouble"})
	}
}

// problems returns what is wrong: what concerns all campaigns first.
func (s *Site) problems(ctx context.Context, state *view.State, stores []view.Store, dead *view.Dead) []problem {
	f := &found{role: auth.Of(ctx).Role}
	for _, store := range stores {
		if !store.Up {
			f.add(problem{State: "away", Bad: true, Name: store.Name, Why: "does not answer", Since: store.Since})
		}
	}
	if state.DaemonsReady < state.DaemonsRunning {
		f.add(problem{
			State: "not ready", Bad: true, Link: "daemons", Name: "daemons", Why: fmt.Sprintf("%d of %d are not ready", state.DaemonsRunning-state.DaemonsReady, state.DaemonsRunning),
		})
	}
	for _, sink := range state.Sinks {
		for _, gate := range sink.Gates {
			f.add(problem{
				State: gate.Cause, Bad: true, Link: "sinks", Name: "sink " + sink.Name, Why: "is closed for all its campaigns; one job a second is tried", Since: gate.Since,
				Acts: []act{send(auth.Operator, "Open", "sink-open", sink.Name)},
			})
		}
	}
	f.destinations(state, s.watcher.Shut(ctx), s.watcher.Closed(ctx), s.watcher.Sources().Snapshot().Destination)
	f.letters(dead)
	f.held(state)
	return f.list
}

// destinations adds those whose gates are closed, those that are disabled, and those that fail. row returns that of one; nil if there is none.
func (f *found) destinations(state *view.State, shut view.Shut, closed map[string][]delivery.Gate, row func(id string) *delivery.Destination) {
	gates := slices.Concat(slices.Collect(maps.Values(closed))...)
	slices.SortStableFunc(gates, func(a, b delivery.Gate) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Destination, b.Destination))
	})
	named := map[string]bool{}
	for _, g := range gates[:min(len(gates), shortEach)] {
		named[g.Destination] = true
		p := problem{State: g.Cause.String(), Bad: true, Name: g.Destination, Why: "takes no jobs of " + g.Sink, Since: new(g.Since)}
		if last := state.LastAnswer(g.Destination); last != "" {
			p.Why += ": " + last
		}
		p.Acts = []act{send(auth.Operator, "Open", "sink-open", g.Sink, "destination", g.Destination)}
		if row(g.Destination) != nil {
			p.Link, p.Acts = linkTo(0, "", "destination", g.Destination).Link, append(repairs(g.Destination), p.Acts...)
		}
		f.add(p)
	}
	f.more(len(gates), shortEach, "destinations", "sinks")
	for _, d := range shut.List {
		f.add(problem{
			State: "disabled", Link: linkTo(0, "", "destination", d.ID).Link, Name: d.ID, Why: "is disabled, and its jobs wait: " + cmp.Or(d.DisabledReason, "no reason was given"),
			Since: new(d.DisabledAt.Time()),
			Acts:  append(repairs(d.ID), send(auth.Operator, "Enable", "destination-enable", d.ID)),
		})
	}
	f.more(shut.All, len(shut.List), "disabled destinations", "destinations?state=disabled")
	for _, d := range shut.Failed {
		if named[d.ID] {
			continue
		}
		p := problem{State: "failing", Bad: true, Link: linkTo(0, "", "destination", d.ID).Link, Name: d.ID, Why: "has taken no job", Since: new(d.FailingSince.Time()), Acts: repairs(d.ID)}
		if last := state.LastAnswer(d.ID); last != "" {
			p.Why += ": " + last
		}
		f.add(p)
	}
	f.more(shut.Failing, len(shut.Failed), "failing destinations", "destinations?state=failing")
}

// repairs are what may be done about a destination.
func repairs(id string) []act {
	return []act{linkTo(auth.Operator, "Test", "destination-test", id), linkTo(auth.Admin, "Correct URL", "destination-edit", id)}
}

// letters adds the dead letters that were not replayed, by campaign and reason.
func (f *found) letters(dead *view.Dead) {
	left := slices.DeleteFunc(slices.Clone(dead.Counts), func(c view.LetterCount) bool { return c.Letters == c.Replayed })
	for _, c := range left[:min(len(left), shortEach)] {
		of := c.Campaign
		if !delivery.ValidCampaign(of) {
			of = delivery.UnknownCampaign // without a name, letters of all campaigns would be meant
		}
		p := problem{
			State: "dead", Link: linkTo(0, "", "dead", of, "reason", c.Reason).Link, Name: counted(c.Letters-c.Replayed, "dead letter"), Why: "of " + cmp.Or(c.Campaign, "no campaign") + " in the last hour: " + c.Reason,
			Acts: []act{linkTo(auth.Operator, "Replay", "replay", of, "reason", c.Reason)},
		}
		if tally := c.Tally(); tally != "" {
			p.Why += ", " + tally
		}
		f.add(p)
	}
	f.more(len(left), shortEach, "kinds of dead letters", "dead?last=1h")
}

// held adds the campaigns that a fault holds.
func (f *found) held(state *view.State) {
	all := 0
	for _, c := range state.Campaigns {
		if c.Held == nil || !hold.Cause(c.Held.Cause).Fault() || c.Held.Cause == string(hold.Gate) {
			continue
		}
		if all++; all > shortList {
			continue
		}
		f.add(problem{
			State: c.State, Bad: true, Link: linkTo(0, "", "campaign", c.ID).Link, Name: c.ID, Why: c.Held.Why, Since: c.Held.Since, Remedy: remedy(c.Held),
			Acts: []act{linkTo(auth.Admin, "Change", "edit", c.ID)},
		})
	}
	f.more(all, shortList, "campaigns", "campaigns")
}

// counted is a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// doneAt returns when the last backlog will have been sent, and says what is done then. Campaigns whose time is not known do not count. If
// none is known, it says why.
func doneAt(s *view.State) (done *time.Time, what string) {
	unknown, waits := 0, false
	for _, c := range s.Campaigns {
		if c.Backlog == nil || *c.Backlog == 0 {
			continue
		}
		waits = true
		if c.Status == "paused" || c.Progress == nil || c.Progress.DoneAt == nil {
			unknown++
		} else if done == nil || c.Progress.DoneAt.After(*done) {
			done = c.Progress.DoneAt
		}
	}
	switch {
	case done != nil && unknown == 1:
		return done, "All but one campaign that is held:"
	case done != nil && unknown > 1:
		return done, fmt.Sprintf("All but %d campaigns that are held:", unknown)
	case done != nil:
		return done, "All"
	case waits:
		return nil, "What waits is held, and nobody knows for how long."
	case s.Backlog != nil:
		return nil, "Nothing waits."
	}
	return nil, "What waits is not known."
}
