package console

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// press sends a form of the console.
func press(h http.Handler, action, role string, form url.Values) (code int, body, next string) {
	answer := ask(h, "POST", "/"+action, role, form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	return answer.Code, answer.Body.String(), answer.Header().Get("Location")
}

// TestAMuchHigherRateIsConfirmed: below ten times the rate it is set at once, above it what it means is shown first.
func TestAMuchHigherRateIsConfirmed(t *testing.T) {
	w := guarded()
	h := serve(w)
	form := func(rate, per, confirm string) url.Values {
		return url.Values{"id": {"spring"}, "revision": {"7"}, "rate": {rate}, "per": {per}, "confirm": {confirm}}
	}
	for _, tt := range []struct {
		rate, per, confirm string
		code               int
		says               string
	}{
		{"999", "s", "", 303, ""},
		{"1000", "s", "", 200, "Set 1000, 10 times as fast"},
		{"1000", "s", "yes", 303, ""},
		{"5999", "m", "", 303, ""},
		{"60000", "m", "", 200, "Set 60000/m, 10 times as fast"},
		{"0", "s", "", 200, "Set 0, and send nothing"},
		{"0", "s", "yes", 303, ""},
		{"many", "s", "", 422, `name="rate" value="many" aria-invalid="true" aria-describedby="fault"`},
	} {
		w.changes = nil
		code, body, _ := press(h, "rate", "operator", form(tt.rate, tt.per, tt.confirm))
		if code != tt.code || !strings.Contains(body, tt.says) || (len(w.changes) == 1) != (code == 303) {
			t.Errorf("%s/%s: %d %q %s", tt.rate, tt.per, code, w.changes, body)
		}
	}
	w.rate = "0"
	if code, body, _ := press(h, "rate", "operator", form("5", "s", "")); code != 200 || !strings.Contains(body, "Set 5, and begin to send") {
		t.Errorf("from 0: %d %s", code, body)
	}
	if code, body, _ := press(h, "rate", "operator", form("5", "s", "yes")); code != 303 {
		t.Errorf("from 0, confirmed: %d %s", code, body)
	}
	w.rate = ""
	if body := ask(h, "GET", "/rate?id=spring&rate=150&per=m", "operator", "").Body.String(); !strings.Contains(body, "Set 150/m</button>") || !strings.Contains(body, "Done <time") {
		t.Errorf("the preview: %s", body)
	}
	if body := ask(h, "GET", "/campaign?id=spring", "operator", "").Body.String(); !strings.Contains(body, `<input name="rate" value="100" size="8">`) || !strings.Contains(body, `<option value="s" selected>per second`) {
		t.Errorf("the form: %s", body)
	}
}

// TestAFormWithAWrongValueIsKept: with what was typed, what is wrong, and a way back.
func TestAFormWithAWrongValueIsKept(t *testing.T) {
	w := guarded()
	h := serve(w)
	w.snapshot.Quotas["chat"] = &delivery.Quota{ID: "chat", Per: "recipient", Windows: []delivery.Window{{Span: time.Second, Limit: 1}}}
	for action, form := range map[string]url.Values{
		"pause":        {"id": {"spring"}, "until": {"<soon>"}, "reason": {"why"}},
		"key-hold":     {"id": {"chat"}, "key": {"u-1"}, "until": {"<soon>"}, "reason": {"why"}},
		"quota-adjust": {"id": {"provider"}, "span": {"1h"}, "used": {"<many>"}, "reason": {"why"}},
	} {
		answer := ask(h, "POST", "/"+action, "admin", form.Encode(), "Content-Type", "application/x-www-form-urlencoded", "Referer", here+"/before")
		body := answer.Body.String()
		for name, values := range form {
			if !strings.Contains(body, `name="`+name+`" value="`+template.HTMLEscapeString(values[0])+`"`) {
				t.Errorf("%s: no %s in %s", action, name, body)
			}
		}
		if answer.Code != 422 || !strings.Contains(body, `action="`+action+`"`) || !strings.Contains(body, `/before">Back</a>`) || !strings.Contains(body, "<h1>Not changed</h1>") {
			t.Errorf("%s: %d %s", action, answer.Code, body)
		}
	}
}

// TestANoteIsShown: on the page of its campaign, also to those who may change nothing, and before its rate is changed.
func TestANoteIsShown(t *testing.T) {
	h := serve(guarded())
	for page, role := range map[string]string{"/campaign?id=spring": "viewer", "/rate?id=spring&rate=150": "operator"} {
		if body := ask(h, "GET", page, role, "").Body.String(); !strings.Contains(body, "ask Anna") {
			t.Errorf("%s: %s", page, body)
		}
	}
}

// TestPauseAll: admins pause all active campaigns after they have seen how many these are, and resume only those.
func TestPauseAll(t *testing.T) {
	w := guarded()
	h := serve(w)
	body := ask(h, "GET", "/pause-all", "admin", "").Body.String()
	if !strings.Contains(body, "Pause 8 campaigns</button>") || !strings.Contains(body, "Resume 1 campaigns</button>") {
		t.Errorf("%s", body)
	}
	if code, _, _ := press(h, "pause-all", "admin", url.Values{"expect": {"7"}}); code != http.StatusPreconditionFailed || len(w.changes) != 0 {
		t.Errorf("with another number: %d %q", code, w.changes)
	}
	for action, want := range map[string]string{
		"pause-all": "8 campaigns {Status:paused Until:0s Rate: Percent:0} by the-admin@127.0.0.1: pause all", "resume-all": "1 campaigns {Status:active Until:0s Rate: Percent:0} by the-admin@127.0.0.1: ",
	} {
		w.changes = nil
		if code, body, _ := press(h, action, "admin", url.Values{"expect": {"8"}}); code != 303 || len(w.changes) != 1 || w.changes[0] != want {
			t.Errorf("%s: %d %q %s", action, code, w.changes, body)
		}
		if code, _, _ := press(h, action, "operator", url.Values{"expect": {"8"}}); code != 403 {
			t.Errorf("%s by an operator: %d", action, code)
		}
	}
}

// TestDestinationIsTested: the page shows the request and the answer, and keeps what was typed.
func TestDestinationIsTested(t *testing.T) {
	w := guarded()
	h := serve(w)
	code, body, _ := press(h, "destination-test", "operator", url.Values{"id": {"shop-7"}, "payload": {`{"n": 1}`}})
	if code != 200 || len(w.changes) != 1 || w.changes[0] != `test of shop-7 with {"n": 1} by the-operator@127.0.0.1: ` {
		t.Errorf("%d %q", code, w.changes)
	}
	for _, says := range []string{"<h1>Test destination shop-7</h1>", `refused</span> <strong>404</strong> after 12 ms`, "POST /hook", "<pre><code>&lt;script&gt;", "{&#34;n&#34;: 1}</textarea>"} {
		if !strings.Contains(body, says) {
			t.Errorf("no %s in %s", says, body)
		}
	}
	w.fail = errAway
	if code, body, _ = press(h, "destination-test", "operator", url.Values{"id": {"shop-7"}, "payload": {"mine"}}); code != 503 || !strings.Contains(body, "mine</textarea>") {
		t.Errorf("%d %s", code, body)
	}
}

// TestPageOfADestination: its state, its gates, what it answered, and what may be done.
func TestPageOfADestination(t *testing.T) {
	h := serve(guarded())
	body := ask(h, "GET", "/destination?id=shop-7", "admin", "").Body.String()
	for _, says := range []string{"404 × 1", ">Test</a>", ">Correct URL</a>", ">Replay</a>", ">Enable</button>", `data-label="Answers/s">120 `, `data-label="p50, p99">42 ms, 2.5 s<`, "<dt>Delivered</dt><dd>98\u202f765<", "<dt>Failed</dt><dd>234 <small>30 dead, 4 expired, 200 rejected<", "<dt>Waiting for it</dt><dd>1\u202f234<"} {
		if !strings.Contains(body, says) {
			t.Errorf("no %s in %s", says, body)
		}
	}
	body = ask(h, "GET", "/destination?id="+url.QueryEscape(hostile[1]), "viewer", "").Body.String()
	if !strings.Contains(body, "receiver sends it nothing: HTTP 500") || strings.Contains(body, ">Open</button>") {
		t.Errorf("%s", body)
	}
}

// TestCountsOfDestinationsAreListed: on the page and in the table for spreadsheets.
func TestCountsOfDestinationsAreListed(t *testing.T) {
	h := serve(guarded())
	for page, says := range map[string]string{
		"/destinations":     "data-label=\"Delivered\">98\u202f765</td><td class=\"n\" data-label=\"Failed\">234</td><td class=\"n\" data-label=\"Waiting\">1\u202f234<",
		"/destinations.csv": ",98765,234,1234,7,",
	} {
		if body := ask(h, "GET", page, "viewer", "").Body.String(); !strings.Contains(body, says) {
			t.Errorf("%s: no %s in %s", page, says, body)
		}
	}
}

// TestTheAnswerOfADestinationThatFailsIsShown: on its page, in the list, and among the problems.
func TestTheAnswerOfADestinationThatFailsIsShown(t *testing.T) {
	h := serve(guarded())
	for page, says := range map[string]string{
		"/":             "takes no jobs of receiver: HTTP 500: upstream exploded, for <time",
		"/destinations": `data-label="Reason">HTTP 500: upstream exploded<`,
		"/destination?id=" + url.QueryEscape(hostile[1]): "receiver sends it nothing: HTTP 500: upstream exploded.",
	} {
		if body := ask(h, "GET", page, "viewer", "").Body.String(); !strings.Contains(body, says) {
			t.Errorf("%s: no %s in %s", page, says, body)
		}
	}
}

// TestPageOfAJob: where it waits, and its dead letters; also where it is not known at once.
func TestPageOfAJob(t *testing.T) {
	w := guarded()
	h := serve(w)
	body := ask(h, "GET", "/job?id=u-42", "operator", "").Body.String()
	for _, says := range []string{"<h1>Job u-42</h1>", "<code>pacer.lanes/17/4</code>", `data-label="Next try">at its turn<`, `href="destination?id=shop-7"`, "for its destination, which takes no jobs or is busy", "<h2>Its dead letters</h2>", "letter?place=3%2f17"} {
		if !strings.Contains(body, says) {
			t.Errorf("no %s in %s", says, body)
		}
	}
	if code := ask(h, "GET", "/job?id=u-42", "viewer", "").Code; code != http.StatusForbidden {
		t.Errorf("a viewer: %d", code)
	}
	w.look = func() { time.Sleep(50 * time.Millisecond) }
	if body := ask(h, "GET", "/job?id=u-43", "operator", "").Body.String(); !strings.Contains(body, "It is being looked for") {
		t.Errorf("%s", body)
	}
	if body := ask(h, "GET", "/job", "operator", "").Body.String(); !strings.Contains(body, "<h1>Find a job</h1>") {
		t.Errorf("%s", body)
	}
}

// TestWrongFieldIsMarked: the form keeps what was typed, and says which field is to blame.
func TestWrongFieldIsMarked(t *testing.T) {
	h := serve(guarded())
	_, body, _ := press(h, "edit", "admin", url.Values{"id": {"spring"}, "revision": {"7"}, "starts_at": {"soon"}, "burst": {"5"}})
	if _, refused, _ := press(h, "pause", "admin", url.Values{"id": {"spring"}, "until": {"soon"}, "reason": {"why"}}); !strings.Contains(refused, `<input name="until" value="soon" aria-invalid="true"`) || !strings.Contains(refused, `<input name="reason" value="why">`) {
		t.Errorf("a pause until soon: %s", refused)
	}
	if !strings.Contains(body, `<input name="starts_at" value="soon" aria-invalid="true" aria-describedby="fault" autofocus>`) || !strings.Contains(body, `<input name="burst" value="5">`) || strings.Count(body, "aria-invalid") != 1 {
		t.Errorf("%s", body)
	}
}

// TestFormsOfferWhatThereIs: sinks, quotas and time zones are chosen from lists, which also have a value of the form that is unknown. With many
// quotas the id is typed.
func TestFormsOfferWhatThereIs(t *testing.T) {
	w := guarded()
	h := serve(w)
	body := ask(h, "GET", "/edit?id=spring&quotas=provider+gone&sink=elsewhere&finish_by=2036-12-01T18:00&ends_at=18:00", "admin", "").Body.String()
	for _, says := range []string{
		`<select name="sink"><option value="">–</option>`, `<option value="receiver">receiver</option>`, `<option value="elsewhere" selected>`,
		`<input type="hidden" name="quotas" value=""><select name="quotas" multiple>`, `<option value="provider" selected>`, `<option value="gone" selected>`,
		`<input name="time_zone" value="UTC" list="zones">`, `<datalist id="zones">`, `<option value="recipient"></option>`,
		`<input type="datetime-local" name="starts_at" value="">`, `<input type="datetime-local" name="finish_by" value="2036-12-01T18:00">`, `<input name="ends_at" value="18:00">`,
	} {
		if !strings.Contains(body, says) {
			t.Errorf("no %s in %s", says, body)
		}
	}
	if body := ask(h, "GET", "/destination-create", "admin", "").Body.String(); !strings.Contains(body, `<select name="sink"><option value="" selected>`) || strings.Contains(body, "datalist") {
		t.Errorf("the form of a destination: %s", body)
	}
	for i := range 101 {
		w.snapshot.Quotas[strconv.Itoa(i)] = &delivery.Quota{ID: strconv.Itoa(i)}
	}
	if body := ask(serve(w), "GET", "/edit?id=spring&quotas=provider", "admin", "").Body.String(); !strings.Contains(body, `<input name="quotas" value="provider">`) {
		t.Errorf("of many quotas: %s", body)
	}
}

// TestWhatFormsSend: browsers send each choice by itself, and times without a zone. Other forms of these values are taken too, as scripts send them.
func TestWhatFormsSend(t *testing.T) {
	w := guarded()
	h := serve(w)
	for _, tt := range []struct {
		form url.Values
		want string
	}{
		{url.Values{"quotas": {"", "provider", "other"}, "was_quotas": {""}}, `{"quotas":["provider","other"]}`},
		{url.Values{"quotas": {"provider other"}}, `{"quotas":["provider","other"]}`},
		{url.Values{"starts_at": {"2036-11-30T09:00"}, "was_starts_at": {""}, "time_zone": {"Europe/Moscow"}}, `{"starts_at":"2036-11-30T06:00:00Z","time_zone":"Europe/Moscow"}`},
		{url.Values{"ends_at": {"2036-11-30T09:00"}}, `{"ends_at":"2036-11-30T09:00:00Z"}`},
		{url.Values{"ends_at": {"2036-11-30T09:00:00+03:00"}}, `{"ends_at":"2036-11-30T06:00:00Z"}`},
		{url.Values{"finish_by": {"2036-11-30T09:00"}, "time_zone": {"recipient"}}, `{"finish_by":"2036-11-30T09:00:00Z","time_zone":"recipient"}`},
	} {
		tt.form.Set("id", "spring")
		tt.form.Set("revision", "7")
		w.changes = nil
		code, body, _ := press(h, "edit", "admin", tt.form)
		if len(w.changes) != 1 || w.changes[0] != "spring "+tt.want+" by the-admin@127.0.0.1: " {
			t.Errorf("%v: %d %q %s", tt.form, code, w.changes, body)
		}
	}
}

// TestWithoutAHistory: a process that has none says so.
func TestWithoutAHistory(t *testing.T) {
	server := newServer()
	server.Site = newSiteOf(prometheus.NewRegistry(), newWorld(), func(sources *view.Sources) { sources.History = nil })
	if _, body, _ := get(t, server.routes(), "/"); !strings.Contains(body, "there is no database here, and so no history") {
		t.Errorf("%s", body)
	}
}

// TestWhatOneChangedIsOnesOwn: a list of changes says "you" for those of who looks, also beside a form that others, or oneself, were faster than.
func TestWhatOneChangedIsOnesOwn(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for actor, says := range map[string]string{"the-admin@127.0.0.1": "<strong>you</strong>", "the-admin@192.0.2.2": "<strong>the-admin</strong>"} {
		w.actor = actor
		stale := submit(h, "/edit", cookie, url.Values{"id": {"spring"}, "revision": {"6"}, "burst": {"3"}}).Body.String()
		for page, body := range map[string]string{"/changes": ask(h, "GET", "/changes", "", "", "Cookie", cookie).Body.String(), "/edit": stale} {
			if !strings.Contains(body, says) {
				t.Errorf("%s, by %s: no %s in %s", page, actor, says, body)
			}
		}
	}
}

// TestPagesNameNoCommands: what can be done is a button or a link.
func TestPagesNameNoCommands(t *testing.T) {
	w := guarded()
	w.snapshot.Campaigns["spring"].Status = delivery.StatusPaused
	h := serve(w)
	for _, page := range []string{"/", "/campaigns", "/campaign?id=spring", "/quotas", "/quota?id=provider", "/dead", "/letter?place=3/17", "/destinations", "/sinks", "/replays"} {
		body := ask(h, "GET", page, "admin", "").Body.String()
		if i := strings.Index(body, "pacer "); i >= 0 && !strings.HasPrefix(body[i:], "pacer dev ·") || body == "" {
			t.Errorf("%s: %s", page, body[max(0, i-100):min(len(body), i+100)])
		}
		if strings.Contains(body, "it is paused") {
			t.Errorf("%s says paused twice", page)
		}
	}
}

// TestIDsLeadToTheirPages: of jobs, for those who may open them.
func TestIDsLeadToTheirPages(t *testing.T) {
	h := serve(guarded())
	for _, page := range []string{"/dead", "/letter?place=3/17", "/destination?id=shop-7"} {
		if body := ask(h, "GET", page, "operator", "").Body.String(); !strings.Contains(body, `<a href="job?id=`) {
			t.Errorf("%s: %s", page, body)
		}
	}
	if body := ask(h, "GET", "/dead", "viewer", "").Body.String(); strings.Contains(body, `<a href="job?id=`) {
		t.Errorf("a viewer: %s", body)
	}
}

// TestFiltersOfferWhatThereIs: states, quotas and sinks, and what was asked for.
func TestFiltersOfferWhatThereIs(t *testing.T) {
	h := serve(guarded())
	body := ask(h, "GET", "/campaigns?state=gone&sink=receiver", "viewer", "").Body.String()
	for _, says := range []string{
		`<select name="state"><option value="">all</option>`, `<option value="gone" selected>`, `<select name="quota"><option value="" selected>all</option>`, `<option value="provider">`, `<option value="receiver" selected>`,
	} {
		if !strings.Contains(body, says) {
			t.Errorf("no %s in %s", says, body)
		}
	}
}
