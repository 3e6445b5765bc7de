package console

import (
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAMuchHigherRateIsConfirmed: below ten times the rate it is set at once, above it what it means is shown first.
func TestAMuchHigherRateIsConfirmed(t *testing.T) {
	w := guarded()
	h := serve(w)
	for _, tt := range []struct {
		before, rate, per, confirm string
		code                       int
		says                       string
	}{
		{"", "999", "s", "", 303, ""},
		{"", "1000", "s", "", 200, "Set 1000, 10 times as fast"},
		{"", "1000", "s", "yes", 303, ""},
		{"", "5999", "m", "", 303, ""},
		{"", "60000", "m", "", 200, "Set 60000/m, 10 times as fast"},
		{"", "0", "s", "", 200, "Set 0, and send nothing"},
		{"", "0", "s", "yes", 303, ""},
		{"", "many", "s", "", 422, `name="rate" value="many" aria-invalid="true" aria-describedby="fault"`},
		{"0", "5", "s", "", 200, "Set 5, and begin to send"},
		{"0", "5", "s", "yes", 303, ""},
	} {
		w.changes, w.rate = nil, tt.before
		press(h, "/rate", "operator", url.Values{
			"id": {"spring"}, "revision": {"7"}, "rate": {tt.rate}, "per": {tt.per}, "confirm": {tt.confirm},
		}).want(t, tt.code, tt.says)
		if (len(w.changes) == 1) != (tt.code == 303) {
			t.Errorf("%s/%s: asked %q", tt.rate, tt.per, w.changes)
		}
	}
	w.rate = ""
	visit(h, "/rate?id=spring&rate=150&per=m", "operator").want(t, 200, "Set 150/m</button>", "Done <time")
	visit(h, "/campaign?id=spring", "operator").want(t, 200, `<input name="rate" value="100" size="8">`, `<option value="s" selected>per second`)
}

// TestAFormWithAWrongValueIsKept: with what was typed, what is wrong, which field is to blame, and a way back.
func TestAFormWithAWrongValueIsKept(t *testing.T) {
	w := guarded()
	h := serve(w)
	w.snapshot.Quotas["chat"] = &delivery.Quota{ID: "chat", Per: "recipient", Windows: []delivery.Window{{Span: time.Second, Limit: 1}}}
	for action, form := range map[string]url.Values{
		"pause":        {"id": {"spring"}, "until": {"<soon>"}, "reason": {"why"}},
		"key-hold":     {"id": {"chat"}, "key": {"u-1"}, "until": {"<soon>"}, "reason": {"why"}},
		"quota-adjust": {"id": {"provider"}, "span": {"1h"}, "used": {"<many>"}, "reason": {"why"}},
	} {
		answer := press(h, "/"+action, "admin", form, "Referer", here+"/before").
			want(t, 422, `action="`+action+`"`, `/before">Back</a>`, "<h1>Not changed</h1>", `<input name="reason" value="why">`)
		for name, values := range form {
			answer.want(t, 422, `name="`+name+`" value="`+template.HTMLEscapeString(values[0])+`"`)
		}
	}
	press(h, "/pause", "admin", url.Values{"id": {"spring"}, "until": {"soon"}}).want(t, 422, `<input name="until" value="soon" aria-invalid="true"`)
	edit := press(h, "/edit", "admin", url.Values{"id": {"spring"}, "revision": {"7"}, "starts_at": {"soon"}, "burst": {"5"}}).want(t, 422,
		`<input name="starts_at" value="soon" aria-invalid="true" aria-describedby="fault" autofocus>`, `<input name="burst" value="5">`)
	if strings.Count(edit.Body.String(), "aria-invalid") != 1 {
		t.Errorf("%s", edit.Body)
	}
}

// TestPauseAll: admins pause all active campaigns after they have seen how many these are, and resume only those.
func TestPauseAll(t *testing.T) {
	w := guarded()
	h := serve(w)
	visit(h, "/pause-all", "admin").want(t, 200, "Pause 8 campaigns</button>", "Resume 1 campaigns</button>")
	press(h, "/pause-all", "admin", url.Values{"expect": {"7"}}).want(t, 412)
	w.did(t)
	for action, want := range map[string]string{
		"/pause-all":  "8 campaigns {Action:pause Rate: Percent:0 Until:} by the-admin@127.0.0.1: pause all",
		"/resume-all": "1 campaigns {Action:resume Rate: Percent:0 Until:} by the-admin@127.0.0.1: ",
	} {
		press(h, action, "admin", url.Values{"expect": {"8"}}).want(t, 303)
		w.did(t, want)
		press(h, action, "operator", url.Values{"expect": {"8"}}).want(t, 403)
		w.did(t)
	}
}

// TestDestinationIsTested: the page shows the request and the answer, and keeps what was typed.
func TestDestinationIsTested(t *testing.T) {
	w := guarded()
	h := serve(w)
	press(h, "/destination-test", "operator", url.Values{"id": {"shop-7"}, "payload": {`{"n": 1}`}}).want(t, 200,
		"<h1>Test destination shop-7</h1>", `refused</span> <strong>404</strong> after 12 ms`, "POST /hook", "<pre><code>&lt;script&gt;",
		"{&#34;n&#34;: 1}</textarea>")
	w.did(t, `test of shop-7 with {"n": 1} by the-operator@127.0.0.1: `)
	w.fail = errAway
	press(h, "/destination-test", "operator", url.Values{"id": {"shop-7"}, "payload": {"mine"}}).want(t, 503, "mine</textarea>")
}

// TestPagesOfDestinations: their state, their gates, what they answered, how many jobs they took, and what may be done.
func TestPagesOfDestinations(t *testing.T) {
	h := serve(guarded())
	failing := "/destination?id=" + url.QueryEscape(hostile[1])
	visit(h, "/destination?id=shop-7", "admin").want(t, 200, "404 × 1", ">Test</a>", ">Correct URL</a>", ">Replay</a>", ">Enable</button>",
		`data-label="Answers/s">120 `, `data-label="p50, p99">42 ms, 2.5 s<`, "<dt>Delivered</dt><dd>98\u202f765<",
		"<dt>Failed</dt><dd>234 <small>30 dead, 4 expired, 200 rejected<", "<dt>Waiting for it</dt><dd>1\u202f234<")
	visit(h, failing, "viewer").want(t, 200, "receiver sends it nothing: HTTP 500: upstream exploded.").lacks(t, ">Open</button>")
	visit(h, "/", "viewer").want(t, 200, "takes no jobs of receiver: HTTP 500: upstream exploded, for <time")
	visit(h, "/destinations", "viewer").want(t, 200, `data-label="Reason">HTTP 500: upstream exploded<`, "data-label=\"Delivered\">98\u202f765</td>"+
		"<td class=\"n\" data-label=\"Failed\">234</td><td class=\"n\" data-label=\"Waiting\">1\u202f234<")
	visit(h, "/destinations.csv", "viewer").want(t, 200, ",98765,234,1234,7,")
}

// TestPageOfAJob: where it waits, and its dead letters; also where it is not known at once. Other pages lead there, for those who may open it.
func TestPageOfAJob(t *testing.T) {
	w := guarded()
	h := serve(w)
	visit(h, "/job?id=u-42", "operator").want(t, 200,
		"<h1>Job u-42</h1>", "<code>pacer.lanes/17/4</code>", `data-label="Next try">at its turn<`, `href="destination?id=shop-7"`,
		"for its destination, which takes no jobs or is busy", "<h2>Its dead letters</h2>", "letter?place=3%2f17")
	visit(h, "/job?id=u-42", "viewer").want(t, 403)
	for _, path := range []string{"/dead", "/letter?place=3/17", "/destination?id=shop-7"} {
		visit(h, path, "operator").want(t, 200, `<a href="job?id=`)
	}
	visit(h, "/dead", "viewer").want(t, 200).lacks(t, `<a href="job?id=`)
	w.look = func() { time.Sleep(50 * time.Millisecond) }
	pages, _ := serveOf(w) // which wait as pages do
	visit(pages, "/job?id=u-43", "operator").want(t, 200, "It is being looked for")
	visit(h, "/job", "operator").want(t, 200, "<h1>Find a job</h1>")
}

// TestFormsOfferWhatThereIs: sinks, quotas, states and time zones are chosen from lists, which also have a value of the form that is unknown. With
// many quotas the id is typed. A note is shown to all, and before the rate is changed.
func TestFormsOfferWhatThereIs(t *testing.T) {
	w := guarded()
	h := serve(w)
	visit(h, "/edit?id=spring&quotas=provider+gone&sink=elsewhere&finish_by=2036-12-01T18:00&ends_at=18:00", "admin").want(t, 200,
		`<select name="sink"><option value="">–</option>`, `<option value="receiver">receiver</option>`, `<option value="elsewhere" selected>`,
		`<input type="hidden" name="quotas" value=""><select name="quotas" multiple>`, `<option value="provider" selected>`,
		`<option value="gone" selected>`, `<input name="time_zone" value="UTC" list="zones">`, `<datalist id="zones">`,
		`<option value="recipient"></option>`, `<input type="datetime-local" name="starts_at" value="">`,
		`<input type="datetime-local" name="finish_by" value="2036-12-01T18:00">`, `<input name="ends_at" value="18:00">`)
	visit(h, "/destination-create", "admin").want(t, 200, `<select name="sink"><option value="" selected>`).lacks(t, "datalist")
	visit(h, "/campaigns?state=gone&sink=receiver", "viewer").want(t, 200,
		`<select name="state"><option value="">all</option>`, `<option value="gone" selected>`,
		`<select name="quota"><option value="" selected>all</option>`, `<option value="provider">`, `<option value="receiver" selected>`)
	visit(h, "/campaign?id=spring", "viewer").want(t, 200, "ask Anna")
	visit(h, "/rate?id=spring&rate=150", "operator").want(t, 200, "ask Anna")
	for i := range 101 {
		w.snapshot.Quotas[strconv.Itoa(i)] = &delivery.Quota{ID: strconv.Itoa(i)}
	}
	visit(serve(w), "/edit?id=spring&quotas=provider", "admin").want(t, 200, `<input name="quotas" value="provider">`)
}

// TestWhatFormsSend: browsers send each choice by itself, and times without a zone. Other forms of these values are taken too, as scripts send them.
func TestWhatFormsSend(t *testing.T) {
	w := guarded()
	w.quotas = []string{"a", "b"}
	h := serve(w)
	for _, tt := range []struct {
		form url.Values
		want string // "" for no change
	}{
		{url.Values{"quotas": {"", "provider", "other"}, "was_quotas": {""}}, `{"quotas":["provider","other"]}`},
		{url.Values{"quotas": {""}, "was_quotas": {"a b"}}, `{"quotas":[]}`}, {url.Values{"was_quotas": {"a b"}}, ""},
		{url.Values{"quotas": {"", "a", "b"}, "was_quotas": {"a b"}}, ""},
		{url.Values{"quotas": {"provider other"}}, `{"quotas":["provider","other"]}`},
		{
			url.Values{"starts_at": {"2036-11-30T09:00"}, "was_starts_at": {""}, "time_zone": {"Europe/Moscow"}},
			`{"time_zone":"Europe/Moscow","starts_at":"2036-11-30T09:00"}`,
		},
		{url.Values{"ends_at": {"2036-11-30T09:00"}}, `{"ends_at":"2036-11-30T09:00"}`},
		{url.Values{"ends_at": {"2036-11-30T09:00:00+03:00"}}, `{"ends_at":"2036-11-30T09:00:00+03:00"}`},
		{url.Values{"finish_by": {"2036-11-30T09:00"}, "time_zone": {"recipient"}}, `{"time_zone":"recipient","finish_by":"2036-11-30T09:00"}`},
	} {
		tt.form.Set("id", "spring")
		tt.form.Set("revision", "7")
		press(h, "/edit", "admin", tt.form).want(t, 303)
		if tt.want == "" {
			w.did(t)
		} else {
			w.did(t, "spring "+tt.want+" by the-admin@127.0.0.1: ")
		}
	}
}

// TestWhatOneChangedIsOnesOwn: a list of changes says "you" for those of who looks, also beside a form that others, or oneself, were faster than.
func TestWhatOneChangedIsOnesOwn(t *testing.T) {
	w := guarded()
	h := serve(w)
	for actor, says := range map[string]string{"the-admin@127.0.0.1": "<strong>you</strong>", "the-admin@192.0.2.2": "<strong>the-admin</strong>"} {
		w.actor = actor
		visit(h, "/changes", "admin").want(t, 200, says)
		press(h, "/edit", "admin", url.Values{"id": {"spring"}, "revision": {"6"}, "burst": {"3"}}).want(t, 412, says)
	}
}

// TestPagesNameNoCommands: what can be done is a button or a link.
func TestPagesNameNoCommands(t *testing.T) {
	w := guarded()
	w.snapshot.Campaigns["spring"].Status = delivery.StatusPaused
	h := serve(w)
	for _, path := range []string{
		"/", "/campaigns", "/campaign?id=spring", "/quotas", "/quota?id=provider", "/dead", "/letter?place=3/17", "/destinations", "/sinks", "/replays",
	} {
		body := visit(h, path, "admin").want(t, 200).lacks(t, "it is paused").Body.String() // which it says otherwise already
		if i := strings.Index(body, "pacer "); i >= 0 && !strings.HasPrefix(body[i:], "pacer dev ·") {
			t.Errorf("%s: %s", path, body[max(0, i-100):min(len(body), i+100)])
		}
	}
}
