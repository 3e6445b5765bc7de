package console

import (
	"bytes"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestChangesByAPI: what is asked of the catalog, and what is refused before.
func TestChangesByAPI(t *testing.T) {
	w := guarded()
	h := serve(w)
	const spring, provider, shop = "/api/v1/campaigns/spring", "/api/v1/quotas/provider", "/api/v1/destinations/shop-7"
	if etag := ask(h, "GET", spring, "viewer", "").Header().Get("ETag"); etag != `"7"` {
		t.Errorf("ETag %s", etag)
	}
	for _, tt := range []struct {
		name, method, path, role, body, match string
		code                                  int
		asked                                 string // of the catalog; "" for nothing
	}{
		{"rate", "PATCH", spring, "operator", `{"rate":"200","reason":"why"}`, `"7"`, 200, `spring {"rate":"200"} by the-operator@127.0.0.1: why`},
		{"pause", "POST", spring + "/pause", "operator", `{"reason":"why"}`, "", 200, `spring paused{} by the-operator@127.0.0.1: why`},
		{"resume", "POST", spring + "/resume", "operator", "", "*", 200, `spring active{} by the-operator@127.0.0.1: `},
		{"without a revision", "PATCH", spring, "operator", `{"rate":"200"}`, "", 428, ""},
		{"cancel without a revision", "POST", spring + "/cancel", "admin", `{}`, "", 428, ""},
		{"stale", "PATCH", spring, "operator", `{"rate":"200"}`, `"6"`, 412, ""},
		{"no revision", "PATCH", spring, "operator", `{"rate":"200"}`, `"x"`, 422, ""},
		{"a weak revision", "PATCH", spring, "operator", `{"rate":"200"}`, `W/"7"`, 200, `spring {"rate":"200"} by the-operator@127.0.0.1: `},
		{"a weak stale one", "PATCH", spring, "operator", `{"rate":"200"}`, `W/"6"`, 412, ""},
		{"an empty revision", "PATCH", spring, "operator", `{"rate":"200"}`, `""`, 422, ""},
		{"a pause for a time", "POST", spring + "/pause", "operator", `{"until":" 2h "}`, "", 200, `spring paused until 2h{} by the-operator@127.0.0.1: `},
		{"a pause of no revision", "POST", spring + "/pause", "operator", `{}`, `W/""`, 422, ""},
		{"more than the rate", "PATCH", spring, "operator", `{"rate":"200","sink":"other"}`, `"7"`, 403, ""},
		{"all by an admin", "PATCH", spring, "admin", `{"quotas":[],"burst":3}`, `"7"`, 200, `spring {"quotas":[],"burst":3} by the-admin@127.0.0.1: `},
		{"nothing", "PATCH", spring, "admin", `{}`, `"7"`, 422, ""},
		{"unheard of", "PATCH", spring, "admin", `{"colour":"red"}`, `"7"`, 422, ""},
		{"what is null", "PATCH", spring, "admin", `{"rate":null,"burst":3}`, `"7"`, 400, ""},
		{"what is null within", "PATCH", spring, "admin", `{"quotas":[null]}`, `"7"`, 400, ""},
		{"what is not UTF-8", "POST", spring + "/pause", "operator", "{\"reason\":\"\xff\"}", "", 400, ""},
		{"no body", "PATCH", spring, "operator", "", `"7"`, 400, ""},
		{"an id of two lines", "POST", "/api/v1/campaigns/a%0Ab/pause", "operator", `{}`, "", 422, ""},
		{"a number out of bounds", "PATCH", spring, "admin", `{"burst":1e30}`, `"7"`, 422, ""},
		{"a revision out of bounds", "PATCH", spring, "operator", `{"rate":"200"}`, `"99999999999999999999"`, 422, ""},
		{"a reason with U+0000", "POST", spring + "/pause", "operator", `{"reason":"a\u0000b"}`, "", 422, ""},
		{"nobody", "POST", "/api/v1/campaigns/nobody/pause", "operator", `{}`, "", 404, ""},
		{"delete", "DELETE", spring + "?reason=why", "admin", "", `"7"`, 204, `no campaign spring by the-admin@127.0.0.1: why`},
		{"delete a stale campaign", "DELETE", spring, "admin", "", `"6"`, 412, ""},
		{"delete without a revision", "DELETE", spring, "admin", "", "", 428, ""},
		{"delete by an operator", "DELETE", spring, "operator", "", "*", 403, ""},
		{"delete one that is not over", "DELETE", "/api/v1/campaigns/paused", "admin", "", "*", 409, ""},
		{"create", "POST", "/api/v1/campaigns", "admin", `{"id":"a/b","rate":"5","reason":"why"}`, "", 201, `new a/b {"rate":"5"} by the-admin@127.0.0.1: why`},
		{"create what exists", "POST", "/api/v1/campaigns", "admin", `{"id":"spring"}`, "", 409, ""},
		{"create nothing", "POST", "/api/v1/campaigns", "admin", `{"rate":"5"}`, "", 422, ""},
		{"create by an operator", "POST", "/api/v1/campaigns", "operator", `{"id":"autumn"}`, "", 403, ""},
		{"quota", "POST", "/api/v1/quotas", "admin", `{"id":"fresh","windows":["300/1m"],"mode":"shadow","reason":"why"}`, "", 201, `quota fresh {"windows":["300/1m"],"mode":"shadow"} by the-admin@127.0.0.1: why`},
		{"quota that exists", "POST", "/api/v1/quotas", "admin", `{"id":"provider"}`, "", 409, ""},
		{"quota of no mode", "POST", "/api/v1/quotas", "admin", `{"id":"fresh","mode":"loose"}`, "", 422, ""},
		{"edit a quota", "PATCH", provider, "admin", `{"windows":[],"rollout":0}`, `"7"`, 200, `quota provider {"windows":[],"rollout":0} by the-admin@127.0.0.1: `},
		{"edit a quota by an operator", "PATCH", provider, "operator", `{"rollout":50}`, `"7"`, 403, ""},
		{"edit a quota without a revision", "PATCH", provider, "admin", `{"rollout":50}`, "", 428, ""},
		{"edit a stale quota", "PATCH", provider, "admin", `{"rollout":50}`, `"6"`, 412, ""},
		{"nothing of a quota", "PATCH", provider, "admin", `{}`, `"7"`, 422, ""},
		{"no quota", "PATCH", "/api/v1/quotas/nothing", "admin", `{"rollout":50}`, "*", 404, ""},
		{"adjust", "POST", provider + "/windows/1h/adjust", "admin", `{"used":5,"lower":true,"reason":"credit"}`, "", 200, `quota provider {Span:1h Used:5 Lower:true} by the-admin@127.0.0.1: credit`},
		{"hold a key", "PATCH", provider + "/keys/a%2Fb", "operator", `{"held_until":"2100-01-01T00:00:00Z","reason":"asked to"}`, "", 200, `key a/b of provider, held true by the-operator@127.0.0.1: asked to`},
		{"limit a key by an operator", "PATCH", provider + "/keys/a", "operator", `{"windows":["9/1s"]}`, "", 403, ""},
		{"hold a key by a viewer", "PATCH", provider + "/keys/a", "viewer", `{"held_until":"2100-01-01T00:00:00Z"}`, "", 403, ""},
		{"adjust without a reason", "POST", provider + "/windows/1h/adjust", "admin", `{"used":5}`, "", 422, ""},
		{"adjust by an operator", "POST", provider + "/windows/1h/adjust", "operator", `{"used":5,"reason":"credit"}`, "", 403, ""},
		{"delete a quota", "DELETE", provider + "?unlink=true&reason=why", "admin", "", `"7"`, 204, `no quota provider true by the-admin@127.0.0.1: why`},
		{"delete a stale quota", "DELETE", provider, "admin", "", `"6"`, 412, ""},
		{"delete a quota without a revision", "DELETE", provider, "admin", "", "", 428, ""},
		{"a reason of two lines", "DELETE", provider + "?reason=a%0Ab", "admin", "", `"7"`, 422, ""},
		{"create a destination", "POST", "/api/v1/destinations", "admin", `{"id":"shop-8","url":"https://shop-8.example/hook","headers":{"x-tenant":"blue"},"reason":"why"}`, "", 201, `destination shop-8 {"url":"https://shop-8.example/hook","headers":{"x-tenant":"blue"}} by the-admin@127.0.0.1: why`},
		{"create a destination that exists", "POST", "/api/v1/destinations", "admin", `{"id":"shop-7","url":"https://shop-7.example/hook"}`, "", 409, ""},
		{"edit a destination", "PATCH", shop, "admin", `{"max_in_flight":0,"secrets":[]}`, `"7"`, 200, `destination shop-7 {"secrets":[],"max_in_flight":0} by the-admin@127.0.0.1: `},
		{"edit a destination by an operator", "PATCH", shop, "operator", `{"url":"https://evil.example"}`, `"7"`, 403, ""},
		{"edit a destination without a revision", "PATCH", shop, "admin", `{"max_in_flight":0}`, "", 428, ""},
		{"edit a stale destination", "PATCH", shop, "admin", `{"max_in_flight":0}`, `"6"`, 412, ""},
		{"nothing of a destination", "PATCH", shop, "admin", `{}`, `"7"`, 422, ""},
		{"a header that is no text", "PATCH", shop, "admin", `{"headers":{"x-tenant":5}}`, `"7"`, 422, ""},
		{"disable", "POST", shop + "/disable", "operator", `{"reason":"why"}`, "", 200, `destination shop-7 disabled{} by the-operator@127.0.0.1: why`},
		{"enable", "POST", shop + "/enable", "operator", "", `"6"`, 200, `destination shop-7 enabled{} by the-operator@127.0.0.1: `},
		{"enable by a viewer", "POST", shop + "/enable", "viewer", "", "", 403, ""},
		{"enable nothing", "POST", "/api/v1/destinations/nowhere/enable", "operator", "", "", 404, ""},
		{"delete a destination", "DELETE", shop + "?reason=why", "admin", "", `"7"`, 204, `no destination shop-7 by the-admin@127.0.0.1: why`},
		{"delete a stale destination", "DELETE", shop, "admin", "", `"6"`, 412, ""},
		{"delete a destination without a revision", "DELETE", shop, "admin", "", "", 428, ""},
		{"no page of destinations", "GET", "/api/v1/destinations?after=shop-7", "viewer", "", "", 422, ""},
		{"destinations of no state", "GET", "/api/v1/destinations?state=asleep", "viewer", "", "", 422, ""},
		{"open a sink", "POST", "/api/v1/sinks/receiver/open", "operator", `{"reason":"mended"}`, "", 200, `sink receiver  open by the-operator@127.0.0.1: mended`},
		{"open a destination", "POST", "/api/v1/sinks/receiver/open", "operator", `{"destination":"https://a.example:443"}`, "", 200, `sink receiver https://a.example:443 open by the-operator@127.0.0.1: `},
		{"open by a viewer", "POST", "/api/v1/sinks/receiver/open", "viewer", "", "", 403, ""},
		{"open no sink", "POST", "/api/v1/sinks/nowhere/open", "operator", "", "", 404, ""},
		{"those until", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","until":"2h","ids":["spring"],"expect":1}`, "", 200, `1 campaigns {Status:paused Until:2h0m0s Rate: Percent:0} by the-operator@127.0.0.1: `},
		{"those", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","ids":["spring","paused","spring"],"expect":2}`, "", 200, `2 campaigns {Status:paused Until:0s Rate: Percent:0} by the-operator@127.0.0.1: `},
		{"those and others", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","ids":["spring"],"filter":{"q":"s"},"expect":1}`, "", 422, ""},
		{"those that are gone", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","ids":["spring","gone"],"expect":2}`, "", 409, ""},
		{"many", "POST", "/api/v1/bulk-changes", "operator", `{"action":"percent","percent":80,"filter":{"q":"spring"},"expect":1}`, "", 200, `1 campaigns {Status: Until:0s Rate: Percent:80} by the-operator@127.0.0.1: `},
		{"more than expected", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","filter":{},"expect":1}`, "", 409, ""},
	} {
		w.changes = nil
		answer := ask(h, tt.method, tt.path, tt.role, tt.body, "If-Match", tt.match)
		if asked := strings.Join(w.changes, ";"); answer.Code != tt.code || asked != tt.asked {
			t.Errorf("%s: %d %s; asked %q", tt.name, answer.Code, answer.Body, asked)
		}
		if tt.code >= 400 && answer.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %s", tt.name, answer.Header().Get("Content-Type"))
		}
	}
}

// TestWhatIsRefusedIsNamed: an answer names the field, and its bounds in full. No service is asked for what is no text.
func TestWhatIsRefusedIsNamed(t *testing.T) {
	h := serve(guarded())
	for _, tt := range []struct{ method, path, body, says string }{
		{"PATCH", "/api/v1/campaigns/spring", `{"burst":2000000}`, "expected number \u003c= 1000000\""},
		{"PATCH", "/api/v1/campaigns/spring", `{"max_in_flight":1e12}`, "expected number \u003c= 2147483647\""},
		{"PATCH", "/api/v1/campaigns/spring", `{"expected_total":1e300}`, "expected number \u003c= 1000000000000000\""},
		{"POST", "/api/v1/bulk-changes", `{"action":"pause","ids":["spring"],"expect":1e300}`, "expected number \u003c= 2147483647\""},
		{"GET", "/api/v1/changes?who=a%00b", "", "query.who"},
		{"GET", "/api/v1/changes?who=%ff", "", "query.who"},
	} {
		ask(h, tt.method, tt.path, "admin", tt.body, "If-Match", "*").want(t, 422, tt.says)
	}
}

// TestALargeFormIsRefused: the answer says how large one may be.
func TestALargeFormIsRefused(t *testing.T) {
	w := guarded()
	h := serve(w)
	long := url.Values{"q": {strings.Repeat("%", maxBodyBytes/3)}, "expect": {"1"}, "action": {"pause"}}
	answer := submit(h, "/bulk", login(t, h, "operator"), long)
	if answer.Code != http.StatusRequestEntityTooLarge || !strings.Contains(answer.Body.String(), "larger than 65536 bytes") || len(w.changes) > 0 {
		t.Errorf("more than a form may have: %d %s", answer.Code, answer.Body)
	}
}

// TestPartOfABulkChangeIsLogged: what was changed before an error has to be found as well.
func TestPartOfABulkChangeIsLogged(t *testing.T) {
	w := guarded()
	var log bytes.Buffer
	w.log = slog.NewTextHandler(&log, nil)
	h := serve(w)
	cookie := login(t, h, "operator")
	w.fail = errAway
	answer := submit(h, "/bulk", cookie, url.Values{"q": {"spring"}, "expect": {"1"}, "action": {"pause"}})
	if answer.Code != http.StatusServiceUnavailable || !strings.Contains(log.String(), "matched=1 changed=1 by=the-operator@127.0.0.1") {
		t.Errorf("%d; the log has %s", answer.Code, log.String())
	}
}

// TestCancelledStaysSo: neither the API nor a form takes a campaign up again that is over, and there are no buttons for it.
func TestCancelledStaysSo(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for _, over := range []bool{false, true} {
		if over {
			w.snapshot.Campaigns["spring"].Status = delivery.StatusCancelled
		}
		body := ask(h, "GET", "/campaign?id=spring", "", "", "Cookie", cookie).Body.String()
		if strings.Contains(body, `action="pause"`) == over || strings.Contains(body, "cancel?id=spring") == over {
			t.Errorf("over %v: %s", over, body)
		}
	}
	for _, action := range []string{"pause", "resume", "cancel"} {
		ask(h, "POST", "/api/v1/campaigns/spring/"+action, "admin", `{}`, "If-Match", `"7"`).want(t, 409)
		submit(h, "/"+action, cookie, url.Values{"id": {"spring"}, "typed": {"spring"}, "revision": {"7"}}).want(t, 409)
	}
}

// TestForms: forms work without a script, each for its role, and what was done is on the page that follows.
func TestForms(t *testing.T) {
	w := guarded()
	h := serve(w)
	forms := map[string]struct {
		needs string
		form  url.Values
		next  string
		asked string
	}{
		"pause":  {"operator", url.Values{"reason": {"why"}, "until": {" 2h "}}, "campaign?done=paused&id=spring", `spring paused until 2h{}`},
		"resume": {"operator", nil, "campaign?done=resumed&id=spring", `spring active{}`},
		"rate":   {"operator", url.Values{"rate": {" 200 "}}, "campaign?done=changed&id=spring", `spring {"rate":"200"}`},
		"edit":   {"admin", url.Values{"rate": {"100"}, "burst": {"3"}, "quotas": {"a b"}}, "campaign?done=changed&id=spring", `spring {"quotas":["a","b"],"burst":3}`},
		"cancel": {"admin", url.Values{"typed": {"spring"}}, "campaign?done=cancelled&id=spring", `spring cancelled{}`},
		"create": {"admin", url.Values{"id": {"autumn"}, "rate": {"5"}, "burst": {"0"}}, "campaigns?done=created", `new autumn {"rate":"5","burst":0}`},

		"quota-edit":   {"admin", url.Values{"windows": {"300/1m, 15750/1h"}, "was_windows": {"1000/1h"}, "mode": {"strict"}, "was_mode": {"strict"}}, "quota?done=quota&id=provider", `quota provider {"windows":["300/1m","15750/1h"]}`},
		"quota-create": {"admin", url.Values{"id": {"fresh"}, "windows": {"5/1s"}, "rollout": {"0"}, "mode": {""}}, "quotas?done=quota-created", `quota fresh {"windows":["5/1s"],"rollout":0}`},
		"quota-delete": {"admin", url.Values{"typed": {"provider"}, "unlink": {"yes"}}, "quotas?done=quota-deleted", `no quota provider true`},
		"quota-adjust": {"admin", url.Values{"span": {"1h"}, "used": {" 5 "}, "reason": {"credit"}}, "quota?done=adjusted&id=provider", `quota provider {Span:1h Used:5 Lower:false}`},

		"destination-disable": {"operator", url.Values{"reason": {"why"}}, "destination?done=disabled&id=shop-7", `destination shop-7 disabled{}`},
		"destination-enable":  {"operator", nil, "destination?done=enabled&id=shop-7", `destination shop-7 enabled{}`},
		"destination-edit": {"admin", url.Values{"url": {""}, "was_url": {""}, "headers": {`{"a": "b"}`}, "was_headers": {`{"x-tenant":"shop-7"}`}, "max_in_flight": {"5"}, "was_max_in_flight": {"0"}}, "destination?done=destination&id=shop-7",
			`destination shop-7 {"headers":{"a":"b"},"max_in_flight":5}`},
		"destination-create": {"admin", url.Values{"id": {"shop-8"}, "url": {"https://shop-8.example/"}, "secrets": {"file:a, file:b"}, "max_in_flight": {"0"}}, "destination?done=destination-created&id=shop-8",
			`destination shop-8 {"url":"https://shop-8.example/","secrets":["file:a","file:b"],"max_in_flight":0}`},
		"destination-delete": {"admin", url.Values{"typed": {"shop-7"}}, "destinations?done=destination-deleted", `no destination shop-7`},

		"bulk": {"operator", url.Values{"q": {"spring"}, "expect": {"1"}, "action": {"percent"}, "rate": {"80 %"}}, "campaigns?done=bulk&q=spring", `1 campaigns {Status: Until:0s Rate: Percent:80}`},
	}
	roles := []string{"viewer", "operator", "admin"}
	for _, role := range roles {
		cookie := login(t, h, role)
		for name, f := range forms {
			form := maps.Clone(f.form)
			if form == nil {
				form = url.Values{}
			}
			switch {
			case name == "create":
				form.Set("id", "autumn")
			case name == "quota-create":
				form.Set("id", "fresh")
			case strings.HasPrefix(name, "quota-"):
				form.Set("id", "provider")
			case name == "destination-create":
				form.Set("id", "shop-8")
			case strings.HasPrefix(name, "destination-"):
				form.Set("id", "shop-7")
			default:
				form.Set("id", "spring")
			}
			form.Set("revision", "7")
			w.changes = nil
			answer := submit(h, "/"+name, cookie, form)
			asked, allowed := strings.Join(w.changes, ";"), slices.Index(roles, role) >= slices.Index(roles, f.needs)
			switch {
			case allowed && (answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != f.next || !strings.HasPrefix(asked, f.asked+" by the-"+role+"@127.0.0.1: ")):
				t.Errorf("%s by %s: %d to %s, asked %q", name, role, answer.Code, answer.Header().Get("Location"), asked)
			case !allowed && (answer.Code != http.StatusForbidden || asked != ""):
				t.Errorf("%s by %s: %d, asked %q", name, role, answer.Code, asked)
			}
			submit(h, "/"+name, cookie, form, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").want(t, 403)
			submit(h, "/"+name, cookie, form, "Origin", "https://ops.example.com", "Sec-Fetch-Site", "same-site").want(t, answer.Code)
		}
	}
	get(serve(newWorld()), "/campaign?id=spring&done=paused").want(t, 200, `role="status">The campaign is paused.`).lacks(t, "<form method=\"post\"")
	stranger := ask(h, "GET", "/campaigns?q=a", "", "")
	if stranger.Code != http.StatusSeeOther || stranger.Header().Get("Location") != "login?next=campaigns%3Fq%3Da" {
		t.Errorf("a page for nobody: %d %s", stranger.Code, stranger.Header().Get("Location"))
	}
	if next := submit(h, "/login", "", url.Values{"token": {"adminadmin"}, "next": {"//evil.example/"}}).Header().Get("Location"); next != "./" {
		t.Errorf("logging in leads to %s", next)
	}
}

// TestConflict: the slower user gets the other change and the typed values, and nothing is written.
func TestConflict(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for path, form := range map[string]url.Values{"/edit": {"burst": {"3"}}, "/rate": {"rate": {"333"}}} {
		form.Set("id", "spring")
		form.Set("revision", "6")
		answer := submit(h, path, cookie, form)
		body := answer.Body.String()
		if answer.Code != http.StatusPreconditionFailed || len(w.changes) > 0 || !strings.Contains(body, `name="revision" value="7"`) || !strings.Contains(body, "What was changed meanwhile") {
			t.Errorf("%s: %d, asked %v: %s", path, answer.Code, w.changes, body)
		}
		if typed := form.Get("rate"); typed != "" && (!strings.Contains(body, `value="333"`) || !strings.Contains(body, "now: 100")) {
			t.Errorf("%s: what was typed is not there", path)
		}
	}
	for path, form := range map[string]url.Values{
		"/cancel": {"id": {"spring"}, "typed": {"sprin"}, "revision": {"7"}}, "/edit": {"id": {"spring"}, "burst": {"many"}, "revision": {"7"}},
		"/rate": {"id": {"spring"}, "rate": {"3"}}, "/bulk": {"expect": {"1"}, "action": {"percent"}, "q": {"spring"}, "rate": {"x"}},
	} {
		if answer := submit(h, path, cookie, form); answer.Code != http.StatusUnprocessableEntity || len(w.changes) > 0 {
			t.Errorf("%s: %d %v", path, answer.Code, w.changes)
		}
	}
	if answer := submit(h, "/bulk", cookie, url.Values{"expect": {"3"}, "action": {"pause"}, "q": {"spring"}}); answer.Code != http.StatusPreconditionFailed || len(w.changes) > 0 {
		t.Errorf("more than expected: %d", answer.Code)
	}
}

// formFields are the fields of a form, hidden ones as well.
var formFields = regexp.MustCompile(`<input (?:type="hidden" )?name="([^"]*)" value="([^"]*)"`)

// TestConflictKeepsWhatOthersDid: a form that is sent once more changes what was typed, and nothing that others have changed since.
func TestConflictKeepsWhatOthersDid(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	fields := func(page string) url.Values {
		form := url.Values{}
		for _, field := range formFields.FindAllStringSubmatch(page, -1) {
			form.Set(field[1], field[2])
		}
		return form
	}
	form := fields(ask(h, "GET", "/edit?id=spring", "", "", "Cookie", cookie).Body.String())
	form.Set("burst", "3")
	form.Set("rate", "50") // as the campaign was before somebody has made it 100
	form.Set("was_rate", "50")
	form.Set("revision", "6")
	answer := submit(h, "/edit", cookie, form)
	again := fields(answer.Body.String())
	if answer.Code != http.StatusPreconditionFailed || again.Get("rate") != "100" || again.Get("burst") != "3" || again.Get("was_burst") != "0" {
		t.Errorf("%d, the form is %v", answer.Code, again)
	}
	submit(h, "/edit", cookie, again)
	if len(w.changes) != 1 || !strings.HasPrefix(w.changes[0], `spring {"burst":3} by`) {
		t.Errorf("asked %q", w.changes)
	}
}
