package console

import (
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// columns are the row by the names of its fields. Times are instants.
func (o *oneRow) columns() map[string]string {
	return map[string]string{
		"rate": o.row.Rate, "burst": strconv.FormatInt(o.row.Burst, 10), "priority_weight": strconv.FormatInt(o.row.PriorityWeight, 10),
		"note": o.row.Note, "time_zone": o.row.TimeZone, "starts_at": o.row.StartsAt, "finish_by": o.row.FinishBy,
	}
}

// shown is what a form has for a field.
func (o *oneRow) shown(name string) string {
	text := o.columns()[name]
	if at, err := time.Parse(time.RFC3339, text); err == nil && isTimeField(name) {
		zone, _ := time.LoadLocation(o.row.TimeZone)
		return at.In(zone).Format("2006-01-02T15:04")
	}
	return text
}

func isTimeField(name string) bool { return name == "starts_at" || name == "finish_by" }

// choices are what people type.
var choices = map[string][]string{
	"rate": {"0", "5", "105", "150/1m", "2/1h"}, "burst": {"0", "3", "7"}, "priority_weight": {"1", "2", "9"}, "note": {"", "ask Anna", `<b> "of" Boris`},
	"time_zone": {"UTC", "Europe/Moscow", "Asia/Tokyo", "America/New_York"},
	"starts_at": {"", "2036-01-05T09:00", "2036-01-06T23:30"}, "finish_by": {"", "2037-01-05T09:00", "2037-01-06T00:15"},
}

var fieldNames = []string{"rate", "burst", "priority_weight", "note", "time_zone", "starts_at", "finish_by"}

// editor is a user with a form that was opened some time ago, or with what the API has answered.
type editor struct {
	role  string
	form  url.Values        // nil: none is open
	typed map[string]string // since it was opened first
	zoned bool              // another zone was, for a time at least: the times of the form count as typed
	etag  string
}

var inputs = regexp.MustCompile(`<input[^>]* name="([^"]*)" value="([^"]*)"`)

// fieldsOf returns what the form of a page is filled with, hidden fields as well.
func fieldsOf(page response) url.Values {
	form := url.Values{}
	for _, field := range inputs.FindAllStringSubmatch(page.Body.String(), -1) {
		form.Set(field[1], html.UnescapeString(field[2]))
	}
	return form
}

// forget forgets what was typed and is the form's own value: it does not count.
func (e *editor) forget() {
	maps.DeleteFunc(e.typed, func(name, text string) bool { return e.form.Get("was_"+name) == text })
}

// TestEditors: several users edit a campaign at the same time, by forms and by the API. Only what a user typed is set, and only at the revision that
// the user has seen. The form shows what is set. A refused change changes nothing. After a lost answer the page says that the change may
// have been made.
func TestEditors(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := guarded()
		w.snapshot.Campaigns = map[string]*delivery.Campaign{"spring": campaign("spring")}
		o := &oneRow{world: w, mode: commits, row: catalog.CampaignRow{
			ID: "spring", Revision: 7, Status: delivery.StatusActive, Rate: "100", Progress: &catalog.CampaignProgress{}, TimeZone: "UTC", PriorityWeight: 1,
			StartsAt: "2036-01-04T09:00:00Z",
		}}
		h, _ := serveOf(w, func(s *view.Sources) { s.Catalog = o })
		editors := []*editor{{role: "admin"}, {role: "admin"}, {role: "operator"}, {role: "viewer"}}
		for range rapid.IntRange(10, 40).Draw(rt, "steps") {
			e := rapid.SampledFrom(editors).Draw(rt, "editor")
			name := rapid.SampledFrom(fieldNames).Draw(rt, "field")
			text := rapid.SampledFrom(choices[name]).Draw(rt, "text")
			mode := rapid.SampledFrom([]string{commits, commits, refusesAll, losesAsk, losesReply}).Draw(rt, "the database")
			switch action := rapid.SampledFrom([]string{"open", "type", "send", "send", "patch", "sql"}).Draw(rt, "action"); {
			case action == "open":
				e.etag, e.form = visit(h, "/api/v1/campaigns/spring", e.role).Header().Get("ETag"), nil
				e.typed, e.zoned = map[string]string{}, false
				if page := visit(h, "/edit?id=spring", e.role); page.Code == http.StatusOK {
					e.form = fieldsOf(page)
				}
			case action == "sql":
				o.apply(new(changeOf(name, text)))
			case e.form == nil && e.role == "admin":
			case action == "type" && e.form != nil:
				e.form.Set(name, text)
				e.typed[name] = text
				e.zoned = e.zoned || name == "time_zone"
				e.forget()
			case action == "patch":
				o.mode = mode
				e.patch(rt, h, o, name, text)
			case action == "send":
				o.mode = mode
				e.send(rt, h, o)
			}
			o.mode = commits
		}
	})
}

// changeOf is a change of one field, as SQL makes it.
func changeOf(name, text string) catalog.CampaignChange {
	n, _ := strconv.ParseInt(text, 10, 64)
	return map[string]catalog.CampaignChange{
		"rate": {Rate: &text}, "burst": {Burst: &n}, "priority_weight": {PriorityWeight: &n}, "note": {Note: &text}, "time_zone": {TimeZone: &text},
		"starts_at": {StartsAt: &text}, "finish_by": {FinishBy: &text},
	}[name]
}

// send sends the form as it is, and reads the one that is shown again.
func (e *editor) send(rt *rapid.T, h http.Handler, o *oneRow) {
	before, revision := o.columns(), o.row.Revision
	form := e.form
	if form == nil { // of a user who has none, and makes one up
		form = url.Values{"id": {"spring"}, "revision": {strconv.FormatInt(revision, 10)}, "burst": {"9"}}
	}
	answer := press(h, "/edit", e.role, form)
	page := answer.Body.String()
	changed := o.row.Revision != revision
	switch {
	case e.role != "admin":
		expect(rt, answer.Code == http.StatusForbidden && !changed, "%s is answered %d", e.role, answer.Code)
		return
	case changed:
		expect(rt, form.Get("revision") == strconv.FormatInt(revision, 10), "a form of revision %s has changed %d", form.Get("revision"), revision)
		e.holds(rt, o, before)
		expect(rt, answer.Code == http.StatusSeeOther || !strings.Contains(page, "Not changed"), "what was changed is said not to be: %d", answer.Code)
	case answer.Code == http.StatusSeeOther:
		e.holds(rt, o, before) // all of it was so already
	}
	if answer.Code == http.StatusSeeOther {
		e.form = nil
	} else if strings.Contains(page, `name="revision"`) {
		e.form = fieldsOf(answer)
		for name, text := range e.typed {
			expect(rt, e.form.Get(name) == text, "the form that is shown again has %s %q, and not %q as it was typed", name, e.form.Get(name), text)
		}
		e.forget()
	}
}

// holds checks that the row has what was typed, and is otherwise as before.
func (e *editor) holds(rt *rapid.T, o *oneRow, before map[string]string) {
	now := o.columns()
	zoned := e.zoned || e.typed["time_zone"] != "" && e.typed["time_zone"] != before["time_zone"]
	for _, name := range fieldNames {
		text, typed := e.typed[name]
		if zoned && isTimeField(name) {
			text, typed = e.form.Get(name), true
		}
		if typed {
			expect(rt, o.shown(name) == text, "%s is %q after %q was sent", name, o.shown(name), text)
		} else {
			expect(rt, now[name] == before[name], "%s was %q and is %q, though nobody has typed it", name, before[name], now[name])
		}
	}
}

// patch changes one field by the API, at the revision that was seen last.
func (e *editor) patch(rt *rapid.T, h http.Handler, o *oneRow, name, text string) {
	value := any(text)
	if n, err := strconv.Atoi(text); err == nil && slices.Contains([]string{"burst", "priority_weight"}, name) {
		value = n
	}
	body, _ := json.Marshal(map[string]any{name: value})
	before, revision := o.columns(), o.row.Revision
	answer := ask(h, "PATCH", "/api/v1/campaigns/spring", e.role, string(body), "If-Match", e.etag)
	if o.row.Revision == revision {
		expect(rt, answer.Code >= 400, "answered %d, and nothing was changed", answer.Code)
		return
	}
	expect(rt, e.role == "admin" || e.role == "operator" && name == "rate", "%s has changed %s", e.role, name)
	expect(rt, e.etag == fmt.Sprintf(`"%d"`, revision), "revision %s was seen, and %d was changed", e.etag, revision)
	(&editor{typed: map[string]string{name: text}, form: url.Values{"starts_at": {o.shown("starts_at")}, "finish_by": {o.shown("finish_by")}}}).holds(rt, o, before)
	if answer.Code >= 400 {
		expect(rt, strings.Contains(answer.Body.String(), "in-doubt"), "what was changed is answered %d: %s", answer.Code, answer.Body)
		return
	}
	e.etag = answer.Header().Get("ETag")
	expect(rt, e.etag == fmt.Sprintf(`"%d"`, o.row.Revision), "the answer has the revision %s", e.etag)
}

func expect(rt *rapid.T, ok bool, format string, args ...any) {
	if !ok {
		rt.Fatalf(format, args...)
	}
}
