package console

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// TestChangesByAPI: the catalog gets each change with its actor and reason; the API refuses others first. Clients tell problems apart by their types.
func TestChangesByAPI(t *testing.T) {
	w := guarded()
	h := serve(w)
	for _, tt := range []struct {
		name, request, role, body, match string
		code                             int
		want                             string // what the catalog is asked, or of which type the problem is
	}{
		{"rate", "PATCH /campaigns/spring", "operator", `{"rate":"200","reason":"why"}`, `"7"`, 200, `spring {"rate":"200"}`},
		{"a weak revision", "PATCH /campaigns/spring", "operator", `{"rate":"200"}`, `W/"7"`, 200, `spring {"rate":"200"}`},
		{"more than the rate", "PATCH /campaigns/spring", "operator", `{"rate":"200","sink":"other"}`, `"7"`, 403, "role-required"},
		{"all by an admin", "PATCH /campaigns/spring", "admin", `{"quotas":[],"burst":3}`, `"7"`, 200, `spring {"quotas":[],"burst":3}`},
		{"nothing", "PATCH /campaigns/spring", "admin", `{}`, `"7"`, 422, "invalid"},
		{"unheard of", "PATCH /campaigns/spring", "admin", `{"colour":"red"}`, `"7"`, 422, "invalid"},
		{"what is null", "PATCH /campaigns/spring", "admin", `{"rate":null,"burst":3}`, `"7"`, 400, "malformed"},
		{"what is null within", "PATCH /campaigns/spring", "admin", `{"quotas":[null]}`, `"7"`, 400, "malformed"},
		{"no body", "PATCH /campaigns/spring", "operator", "", `"7"`, 400, "malformed"},
		{"a number out of bounds", "PATCH /campaigns/spring", "admin", `{"burst":1e30}`, `"7"`, 422, "invalid"},
		{"pause", "POST /campaigns/spring/pause", "operator", `{"reason":"why"}`, "", 200, `spring paused`},
		{"pause for a time", "POST /campaigns/spring/pause", "operator", `{"until":" 2h "}`, "", 200, `spring paused until 2h`},
		{"what is not UTF-8", "POST /campaigns/spring/pause", "operator", "{\"reason\":\"\xff\"}", "", 400, "malformed"},
		{"pause of two lines", "POST /campaigns/a%0Ab/pause", "operator", `{}`, "", 422, "invalid"},
		{"nobody", "POST /campaigns/nobody/pause", "operator", `{}`, "", 404, "not-found"},
		{"resume", "POST /campaigns/spring/resume", "operator", "", "*", 200, `spring active`},
		{"delete", "DELETE /campaigns/spring?reason=why", "admin", "", `"7"`, 204, `no campaign spring`},
		{"delete one that is not over", "DELETE /campaigns/paused", "admin", "", "*", 409, "in-use"},
		{"create", "POST /campaigns", "admin", `{"id":"a/b","rate":"5","reason":"why"}`, "", 201, `new a/b {"rate":"5"}`},
		{"create what exists", "POST /campaigns", "admin", `{"id":"spring"}`, "", 409, "exists"},
		{"create nothing", "POST /campaigns", "admin", `{"rate":"5"}`, "", 422, "invalid"},
		{
			"quota", "POST /quotas", "admin", `{"id":"fresh","windows":["300/1m"],"mode":"shadow","reason":"why"}`, "", 201,
			`quota fresh {"mode":"shadow","windows":["300/1m"]}`,
		},
		{"quota that exists", "POST /quotas", "admin", `{"id":"provider"}`, "", 409, "exists"},
		{"quota of no mode", "POST /quotas", "admin", `{"id":"fresh","mode":"loose"}`, "", 422, "invalid"},
		{"edit a quota", "PATCH /quotas/provider", "admin", `{"windows":[],"rollout":0}`, `"7"`, 200, `quota provider {"rollout":0,"windows":[]}`},
		{"nothing of a quota", "PATCH /quotas/provider", "admin", `{}`, `"7"`, 422, "invalid"},
		{"no quota", "PATCH /quotas/nothing", "admin", `{"rollout":50}`, "*", 404, "not-found"},
		{
			"adjust", "POST /quotas/provider/windows/1h/adjust", "admin", `{"used":5,"lower":true,"reason":"why"}`, "", 200,
			`quota provider {Span:1h Used:5 Lower:true}`,
		},
		{"adjust without a reason", "POST /quotas/provider/windows/1h/adjust", "admin", `{"used":5}`, "", 422, "invalid"},
		{
			"hold a key", "PATCH /quotas/provider/keys/a%2Fb", "operator", `{"held_until":"2100-01-01T00:00:00Z","reason":"why"}`, "", 200,
			`key a/b of provider, held true`,
		},
		{"limit a key by an operator", "PATCH /quotas/provider/keys/a", "operator", `{"windows":["9/1s"]}`, "", 403, "role-required"},
		{"delete a quota", "DELETE /quotas/provider?unlink=true&reason=why", "admin", "", `"7"`, 204, `no quota provider true`},
		{
			"create a destination", "POST /destinations", "admin",
			`{"id":"shop-8","url":"https://shop-8.example/hook","headers":{"x-tenant":"blue"},"reason":"why"}`, "", 201,
			`destination shop-8 {"url":"https://shop-8.example/hook","headers":{"x-tenant":"blue"}}`,
		},
		{"create a destination that exists", "POST /destinations", "admin", `{"id":"shop-7","url":"https://shop-7.example/hook"}`, "", 409, "exists"},
		{
			"edit a destination", "PATCH /destinations/shop-7", "admin", `{"max_in_flight":0,"secrets":[]}`, `"7"`, 200,
			`destination shop-7 {"secrets":[],"max_in_flight":0}`,
		},
		{"nothing of a destination", "PATCH /destinations/shop-7", "admin", `{}`, `"7"`, 422, "invalid"},
		{"a header that is no text", "PATCH /destinations/shop-7", "admin", `{"headers":{"x-tenant":5}}`, `"7"`, 422, "invalid"},
		{"disable", "POST /destinations/shop-7/disable", "operator", `{"reason":"why"}`, "", 200, `destination shop-7 disabled`},
		{"enable at any revision", "POST /destinations/shop-7/enable", "operator", "", `"6"`, 200, `destination shop-7 enabled`},
		{"enable nothing", "POST /destinations/nowhere/enable", "operator", "", "", 404, "not-found"},
		{"delete a destination", "DELETE /destinations/shop-7?reason=why", "admin", "", `"7"`, 204, `no destination shop-7`},
		{"open a sink", "POST /sinks/receiver/open", "operator", `{"reason":"why"}`, "", 200, `sink receiver  open`},
		{
			"open a destination", "POST /sinks/receiver/open", "operator", `{"destination":"https://a.example:443"}`, "", 200,
			`sink receiver https://a.example:443 open`,
		},
		{"open no sink", "POST /sinks/nowhere/open", "operator", "", "", 404, "not-found"},
		{
			"those until", "POST /bulk-changes", "operator", `{"action":"pause","until":"2h","ids":["spring"],"expect":1}`, "", 200,
			`1 campaigns {Action:pause Rate: Percent:0 Until:2h}`,
		},
		{
			"those", "POST /bulk-changes", "operator", `{"action":"pause","ids":["spring","paused","spring"],"expect":2}`, "", 200,
			`2 campaigns {Action:pause Rate: Percent:0 Until:}`,
		},
		{"those and others", "POST /bulk-changes", "operator", `{"action":"pause","ids":["spring"],"filter":{"q":"s"},"expect":1}`, "", 422, "invalid"},
		{"those that are gone", "POST /bulk-changes", "operator", `{"action":"pause","ids":["spring","gone"],"expect":2}`, "", 409, "count-changed"},
		{
			"many", "POST /bulk-changes", "operator", `{"action":"percent","percent":80,"filter":{"q":"spring"},"expect":1}`, "", 200,
			`1 campaigns {Action:percent Rate: Percent:80 Until:}`,
		},
		{"no operation", "GET /nothing", "viewer", "", "", 404, "not-found"},
		{"another method", "PUT /status", "viewer", "", "", 405, "method-not-allowed"},
		{"an unknown token", "GET /campaigns/spring", "guess", "", "", 401, "token-unknown"},
		{"no token", "GET /campaigns/spring", "", "", "", 401, "token-required"},
		{"no JSON", "PATCH /campaigns/spring", "operator", `{"rate`, `"7"`, 400, "malformed"},
		{"a large body", "POST /campaigns/spring/pause", "operator", `{"until":"` + strings.Repeat("x", 70<<10) + `"}`, "", 413, "too-large"},
		{"more than expected", "POST /bulk-changes", "operator", `{"action":"pause","filter":{},"expect":1}`, "", 409, "count-changed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			method, path, _ := strings.Cut(tt.request, " ")
			answer := ask(h, method, "/api/v1"+path, tt.role, tt.body, "If-Match", tt.match).want(t, tt.code)
			if tt.code >= 400 {
				isProblem(t, answer, tt.want)
				w.did(t)
				return
			}
			by := " by the-" + tt.role + "@127.0.0.1: "
			if strings.Contains(tt.request+tt.body, "why") {
				by += "why"
			}
			w.did(t, tt.want+by)
		})
	}
	isProblem(t, ask(h, "POST", "/api/v1/campaigns/spring/pause", "operator", "", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"), "foreign-origin")
}

// isProblem checks the type of a problem.
func isProblem(t *testing.T, answer response, kind string) {
	t.Helper()
	answer.want(t, answer.Code, `"type":"urn:pacer:problem:`+kind+`"`, fmt.Sprintf(`"status":%d`, answer.Code))
	if as := answer.Header().Get("Content-Type"); as != "application/problem+json" {
		t.Errorf("%s: a problem of type %s", answer.request, as)
	}
}

// TestChangesTakeARevision: nothing is changed without a revision, with an old one or with another text.
func TestChangesTakeARevision(t *testing.T) {
	w := guarded()
	h := serve(w)
	if etag := visit(h, "/api/v1/campaigns/spring", "viewer").Header().Get("ETag"); etag != `"7"` {
		t.Errorf("ETag %s", etag)
	}
	for path, body := range map[string]string{
		"campaigns/spring": `{"rate":"5"}`, "quotas/provider": `{"rollout":50}`, "destinations/shop-7": `{"max_in_flight":5}`,
	} {
		for _, method := range []string{"PATCH", "PUT", "DELETE", "POST"} {
			of, body := path, body
			switch {
			case method == "POST": // which a campaign is cancelled with
				of, body = "campaigns/spring/cancel", `{}`
			case method == "DELETE":
				body = ""
			case method == "PUT" && strings.HasPrefix(path, "destinations"):
				continue
			}
			kinds := map[int]string{428: "revision-required", 412: "stale-revision", 422: "invalid"}
			for match, code := range map[string]int{"": 428, `"6"`: 412, `W/"6"`: 412, `"x"`: 422, `""`: 422, `W/""`: 422, `"99999999999999999999"`: 422} {
				isProblem(t, ask(h, method, "/api/v1/"+of, "admin", body, "If-Match", match).want(t, code), kinds[code])
				w.did(t)
			}
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

// TestRequestsAreBounded: one may have as many ids as the document says, each of full length. One without a token is not read. The answer to a
// large form says how large one may be.
func TestRequestsAreBounded(t *testing.T) {
	w := guarded()
	w.snapshot.Campaigns = map[string]*delivery.Campaign{}
	var ids []string
	for i := range 1000 {
		id := fmt.Sprintf("%04d", i) + strings.Repeat("<", 252)
		w.snapshot.Campaigns[id] = campaign(id)
		ids = append(ids, id)
	}
	list, _ := json.Marshal(ids)
	h := serve(w)
	ask(h, "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","expect":1000,"ids":`+string(list)+`}`).want(t, 200, `"changed":1000`)
	ask(h, "POST", "/api/v1/jobs/cancel", "operator", `{"ids":`+string(list)+`}`).want(t, 200)
	ask(h, "POST", "/api/v1/jobs/cancel", "operator", `{"ids":["`+strings.Repeat("x", 3<<20)+`"]}`).want(t, 413)
	ask(h, "POST", "/api/v1/jobs/cancel", "", `{"ids":["`+strings.Repeat("x", 3<<20)+`"]}`).want(t, 401)
	w.changes = nil
	long := url.Values{"q": {strings.Repeat("%", maxBodyBytes/3)}, "expect": {"1"}, "action": {"pause"}}
	press(h, "/bulk", "operator", long).want(t, 413, "larger than 65536 bytes")
	w.did(t)
}

// TestPartOfABulkChangeIsLogged: what was changed before an error has to be found as well.
func TestPartOfABulkChangeIsLogged(t *testing.T) {
	w := guarded()
	var log bytes.Buffer
	w.log = slog.NewTextHandler(&log, nil)
	w.fail = errAway
	press(serve(w), "/bulk", "operator", typed("q=spring&expect=1&action=pause")).want(t, 503)
	shows(t, log.String(), "matched=1 changed=1 by=the-operator@127.0.0.1")
	for path, form := range map[string]string{"/pause-all": "expect=8", "/bulk": "expect=8&state=active&action=resume"} {
		press(serve(w), path, "admin", typed(form)).want(t, 503, "8 of 8 campaigns were changed, then: ")
	}
	isProblem(t, ask(serve(w), "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","filter":{"q":"spring"},"expect":1}`), "partly-done")
}

// TestCancelledStaysSo: neither the API nor a form takes a campaign up again that is over, and there are no buttons for it.
func TestCancelledStaysSo(t *testing.T) {
	w := guarded()
	h := serve(w)
	visit(h, "/campaign?id=spring", "admin").want(t, 200, `action="pause"`, "cancel?id=spring")
	w.snapshot.Campaigns["spring"].Status = delivery.StatusCancelled
	visit(h, "/campaign?id=spring", "admin").want(t, 200).lacks(t, `action="pause"`, "cancel?id=spring")
	for _, action := range []string{"pause", "resume", "cancel"} {
		ask(h, "POST", "/api/v1/campaigns/spring/"+action, "admin", `{}`, "If-Match", `"7"`).want(t, 409)
		press(h, "/"+action, "admin", typed("id=spring&typed=spring&revision=7")).want(t, 409)
	}
}

// TestForms: forms work without a script, each for its role and from pages of its own site, and what was done is on the page that follows.
func TestForms(t *testing.T) {
	w := guarded()
	h := serve(w)
	roles := []string{"viewer", "operator", "admin"}
	for _, f := range []struct{ name, needs, form, next, asked string }{
		{"pause", "operator", "id=spring&reason=why&until=+2h+", "campaign?done=paused&id=spring", `spring paused until 2h`},
		{"resume", "operator", "id=spring", "campaign?done=resumed&id=spring", `spring active`},
		{"rate", "operator", "id=spring&rate=+200+", "campaign?done=changed&id=spring", `spring {"rate":"200"}`},
		{
			"edit", "admin", "id=spring&rate=100&burst=3&quotas=a+b", "campaign?done=changed&id=spring",
			`spring {"quotas":["a","b"],"burst":3}`,
		},
		{"cancel", "admin", "id=spring&typed=spring", "campaign?done=cancelled&id=spring", `spring cancelled`},
		{"create", "admin", "id=autumn&rate=5&burst=0", "campaigns?done=created", `new autumn {"rate":"5","burst":0}`},
		{
			"quota-edit", "admin", "id=provider&windows=300/1m,+15750/1h&was_windows=1000/1h&mode=strict&was_mode=strict",
			"quota?done=quota&id=provider", `quota provider {"windows":["300/1m","15750/1h"]}`,
		},
		{"quota-create", "admin", "id=fresh&windows=5/1s&rollout=0&mode=", "quotas?done=quota-created", `quota fresh {"rollout":0,"windows":["5/1s"]}`},
		{"quota-delete", "admin", "id=provider&typed=provider&unlink=yes", "quotas?done=quota-deleted", `no quota provider true`},
		{
			"quota-adjust", "admin", "id=provider&span=1h&used=+5+&reason=credit", "quota?done=adjusted&id=provider",
			`quota provider {Span:1h Used:5 Lower:false}`,
		},
		{"destination-disable", "operator", "id=shop-7&reason=why", "destination?done=disabled&id=shop-7", `destination shop-7 disabled`},
		{"destination-enable", "operator", "id=shop-7", "destination?done=enabled&id=shop-7", `destination shop-7 enabled`},
		{
			"destination-edit", "admin",
			`id=shop-7&url=&was_url=&headers={"a": "b"}&was_headers={"x-tenant":"shop-7"}&max_in_flight=5&was_max_in_flight=0`,
			"destination?done=destination&id=shop-7", `destination shop-7 {"headers":{"a":"b"},"max_in_flight":5}`,
		},
		{
			"destination-create", "admin", "id=shop-8&url=https://shop-8.example/&secrets=file:a,+file:b&max_in_flight=0",
			"destination?done=destination-created&id=shop-8",
			`destination shop-8 {"url":"https://shop-8.example/","secrets":["file:a","file:b"],"max_in_flight":0}`,
		},
		{"destination-delete", "admin", "id=shop-7&typed=shop-7", "destinations?done=destination-deleted", `no destination shop-7`},
		{
			"bulk", "operator", "q=spring&expect=1&action=percent&rate=80+%25", "campaigns?done=bulk&q=spring",
			`1 campaigns {Action:percent Rate: Percent:80 Until:}`,
		},
	} {
		form := typed(f.form + "&revision=7")
		for _, role := range roles {
			cookie, code := login(t, h, role), http.StatusForbidden
			w.changes = nil
			answer := submit(h, "/"+f.name, cookie, form)
			if slices.Index(roles, role) >= slices.Index(roles, f.needs) {
				code = http.StatusSeeOther
				answer.leads(t, f.next)
				w.did(t, f.asked+" by the-"+role+"@127.0.0.1: "+form.Get("reason"))
			}
			answer.want(t, code)
			w.did(t)
			submit(h, "/"+f.name, cookie, form, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site").want(t, 403)
			w.did(t)
			submit(h, "/"+f.name, cookie, form, "Origin", "https://ops.example.com", "Sec-Fetch-Site", "same-site").want(t, code)
		}
	}
	get(serve(newWorld()), "/campaign?id=spring&done=paused").want(t, 200, `role="status">The campaign is paused.`).lacks(t, "<form method=\"post\"")
	get(h, "/campaigns?q=a").leads(t, "login?next=campaigns%3Fq%3Da")
	press(h, "/login", "", typed("token=adminadmin&next=//evil.example/")).leads(t, "./")
}

// TestConflict: the slower user gets the other change and the typed values, and nothing is written; what makes no sense is kept as well.
func TestConflict(t *testing.T) {
	w := guarded()
	h := serve(w)
	const meanwhile = "What was changed meanwhile"
	for _, tt := range []struct {
		action, form string
		code         int
		says         []string
	}{
		{"edit", "id=spring&revision=6&burst=3", 412, []string{meanwhile, `name="revision" value="7"`}},
		{"edit", "id=spring&revision=7&burst=many", 422, nil},
		{"rate", "id=spring&revision=6&rate=333", 412, []string{meanwhile, `name="revision" value="7"`, `value="333"`, "now: 100"}},
		{"rate", "id=spring&revision=6&rate=333&per=m", 412, []string{meanwhile, `value="333/m"`, "now: 100"}},
		{"rate", "id=spring&rate=3", 422, nil},
		{"cancel", "id=spring&revision=7&typed=sprin", 422, nil},
		{"create", "id=spring&rate=77", 409, []string{`value="77"`}},
		{"bulk", "expect=1&action=percent&q=spring&rate=x", 422, nil},
		{"bulk", "expect=3&action=pause&q=spring", 412, nil},
		{"quota-edit", "id=provider&revision=6&windows=5/1s&was_windows=900/1h", 412, []string{meanwhile, "now: 1000/1h"}},
		{"quota-edit", "id=provider&revision=7&rollout=many", 422, []string{`value="many"`}},
		{"quota-edit", "id=nothing&revision=7&rollout=5", 404, []string{"does not exist"}},
		{"quota-edit", "id=provider&rollout=5", 422, []string{"has no revision"}},
		{"quota-create", "id=provider&windows=5/1s", 409, []string{`value="5/1s"`}},
		{"quota-delete", "id=provider&revision=7&typed=provide", 422, []string{"nothing was deleted"}},
		{"quota-delete", "id=provider&revision=6&typed=provider", 412, []string{"changed meanwhile"}},
		{"quota-adjust", "id=provider&span=1h&used=all&reason=credit", 422, []string{"not a whole number"}},
	} {
		press(h, "/"+tt.action, "admin", typed(tt.form)).want(t, tt.code, tt.says...)
		w.did(t)
	}
}

// TestAnotherZone: the times of a form are in the zone of the form. Another zone makes them others, and leaves none that it does not show.
func TestAnotherZone(t *testing.T) {
	w := guarded()
	w.snapshot.Campaigns["spring"].FinishBy = time.Date(2036, 12, 1, 15, 0, 0, 0, time.UTC)
	h := serve(w)
	form := fieldsOf(visit(h, "/edit?id=spring", "admin").want(t, 200, `name="finish_by" value="2036-12-01T15:00"`))
	form.Set("time_zone", "Europe/Moscow")
	press(h, "/edit", "admin", form).want(t, 303)
	w.did(t, `spring {"time_zone":"Europe/Moscow","finish_by":"2036-12-01T15:00"} by the-admin@127.0.0.1: `)

	form.Set("burst", "many") // so the form is shown again as it was typed
	form = fieldsOf(press(h, "/edit", "admin", form).want(t, 422, `name="finish_by" value="2036-12-01T15:00"`, "now: 2036-12-01T18:00"))
	form.Set("burst", "0")
	press(h, "/edit", "admin", form).want(t, 303)
	w.did(t, `spring {"time_zone":"Europe/Moscow","finish_by":"2036-12-01T15:00"} by the-admin@127.0.0.1: `)

	form = fieldsOf(visit(h, "/edit?id=spring&time_zone=Europe/Moscow", "admin").want(t, 200, `name="finish_by" value="2036-12-01T18:00"`))
	press(h, "/edit", "admin", form).want(t, 303)
	w.did(t, `spring {"time_zone":"Europe/Moscow"} by the-admin@127.0.0.1: `)
}

// doubtful is a catalog whose connection is lost during each commit. It also lacks the quota that a change names.
type doubtful struct{ *world }

func (d doubtful) WriteCampaign(context.Context, string, *catalog.CampaignChange, catalog.Precondition) (row catalog.CampaignRow, err error) {
	return row, catalog.ErrInDoubt
}

func (d doubtful) WriteQuota(context.Context, string, *catalog.QuotaChange, catalog.Precondition) (row catalog.QuotaRow, err error) {
	return row, catalog.Fault(catalog.ErrNotFound, "quota nothing does not exist")
}

// TestWhatIsSaidOfAFailure: a change that may have been made is not said to have not been made, and what is not there is not said to be there.
func TestWhatIsSaidOfAFailure(t *testing.T) {
	w := guarded()
	h, _ := serveOf(w, func(s *view.Sources) { s.Catalog = doubtful{w} })
	for path, form := range map[string]string{"/edit": "id=spring&revision=7&burst=3", "/rate": "id=spring&revision=7&rate=105"} {
		press(h, path, "admin", typed(form)).want(t, 503, "it may have been made").lacks(t, "Not changed")
	}
	ask(h, "PATCH", "/api/v1/campaigns/spring", "admin", `{"burst":3}`, "If-Match", "*").want(t, 503, "in-doubt")
	ask(h, "PUT", "/api/v1/quotas/fresh", "admin", `{"with":"nothing"}`, "If-None-Match", "*").want(t, 404, "quota nothing")
}
