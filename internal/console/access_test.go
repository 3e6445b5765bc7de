package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// guarded is a world with a token for each role, which is its name twice.
func guarded() *world {
	w := newWorld()
	var lines strings.Builder
	for _, role := range []string{"viewer", "operator", "admin"} {
		sum := sha256.Sum256([]byte(role + role))
		fmt.Fprintf(&lines, "# one\nthe-%s %s %s\n", role, role, hex.EncodeToString(sum[:]))
	}
	tokens := lines.String()
	w.guard = auth.Options{Tokens: func() string { return tokens }, Anonymous: auth.None, Logger: slog.New(slog.DiscardHandler)}
	return w
}

// ask sends a request; role is whose token it has, "" for none.
func ask(h http.Handler, method, path, role, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, here+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	if role != "" {
		r.Header.Set("Authorization", "Bearer "+role+role)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// bodies are requests to the operations that write.
var bodies = map[string]string{
	"edit-campaign": `{"rate":"200","reason":"why"}`, "pause-campaign": `{"reason":"why"}`, "resume-campaign": ``, "cancel-campaign": `{}`,
	"change-campaigns":    `{"action":"pause","filter":{"q":"spring"},"expect":1}`,
	"replay-dead-letters": `{"dry_run":true}`, "stop-replay": `{}`,
	"create-campaign": `{"id":"autumn","rate":"5"}`, "create-quota": `{"id":"fresh","windows":["300/1m"]}`, "edit-quota": `{"rollout":50}`,
	"add-quota-windows": `{"windows":["300/1m"]}`, "adjust-quota": `{"used":5,"reason":"credit"}`,
}

// documented returns what says in which way an answer is not as its operation describes it; "" if it is.
func documented(t *testing.T) func(path, method string, answer *httptest.ResponseRecorder) string {
	t.Helper()
	document := api.Register(http.NewServeMux(), view.NewLooker(newWorld().sources()), slog.New(slog.DiscardHandler)).OpenAPI()
	return func(path, method string, answer *httptest.ResponseRecorder) string {
		operations := document.Paths[path]
		o := map[string]*huma.Operation{"get": operations.Get, "post": operations.Post, "patch": operations.Patch, "delete": operations.Delete}[method]
		response := o.Responses[strconv.Itoa(answer.Code)]
		if response == nil {
			return fmt.Sprintf("status %d", answer.Code)
		}
		kind := answer.Header().Get("Content-Type")
		if response.Content == nil && answer.Body.Len() == 0 {
			return ""
		}
		media := response.Content[kind]
		if media == nil {
			return fmt.Sprintf("%d of type %s", answer.Code, kind)
		}
		var body any
		if err := json.Unmarshal(answer.Body.Bytes(), &body); err != nil {
			return err.Error()
		}
		var result huma.ValidateResult
		huma.Validate(document.Components.Schemas, media.Schema, huma.NewPathBuffer(nil, 0), huma.ModeReadFromServer, body, &result)
		if err := errors.Join(result.Errors...); err != nil {
			return err.Error()
		}
		return ""
	}
}

// TestEveryOperationTakesARole: one that has none is for nobody, and each is only for those who have its role.
func TestEveryOperationTakesARole(t *testing.T) {
	h := serve(guarded())
	_, document, _ := get(t, h, "/api/v1/openapi.json")
	var listed struct {
		Paths map[string]map[string]struct {
			ID   string `json:"operationId"`
			Role string `json:"x-pacer-role"`
		}
	}
	if err := json.Unmarshal([]byte(document), &listed); err != nil {
		t.Fatal(err)
	}
	roles, seen := []string{"", "viewer", "operator", "admin"}, 0
	described := documented(t)
	for path, operations := range listed.Paths {
		for method, o := range operations {
			needs := slices.Index(roles, o.Role)
			if needs < 1 {
				t.Errorf("%s %s has no role", method, path)
				continue
			}
			if seen++; method != "get" && needs < slices.Index(roles, "operator") {
				t.Errorf("%s %s is for %s", method, path, o.Role)
			}
			for has, role := range roles {
				id := "spring"
				if strings.HasPrefix(path, "/quotas") {
					id = "provider"
				}
				answer := ask(h, strings.ToUpper(method), "/api/v1"+strings.NewReplacer("{id}", id, "{span}", "1h").Replace(path), role, bodies[o.ID], "If-Match", `"7"`)
				if why := described(path, method, answer); why != "" {
					t.Errorf("%s %s by %q: the answer is not as documented: %s", method, path, role, why)
				}
				switch want := answer.Code; {
				case strings.HasSuffix(o.ID, "-replay") && has >= needs && want == http.StatusNotFound: // none is running
				case has >= needs && (want < 200 || want > 299):
					t.Errorf("%s %s by %q: %d %s", method, path, role, want, answer.Body)
				case has == 0 && (want != http.StatusUnauthorized || answer.Header().Get("WWW-Authenticate") == ""),
					has > 0 && has < needs && want != http.StatusForbidden:
					t.Errorf("%s %s by %q: %d", method, path, role, want)
				}
			}
		}
	}
	if seen < 22 {
		t.Errorf("only %d operations", seen)
	}
}

// TestChangesByAPI: what is asked of the catalog, and what is refused before.
func TestChangesByAPI(t *testing.T) {
	w := guarded()
	h := serve(w)
	const spring, provider = "/api/v1/campaigns/spring", "/api/v1/quotas/provider"
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
		{"touch", "POST", provider + "/touch", "admin", "", "", 200, `quota provider {}[][] by the-admin@127.0.0.1: `},
		{"create", "POST", "/api/v1/campaigns", "admin", `{"id":"a/b","rate":"5","reason":"why"}`, "", 201, `new a/b {"rate":"5"} by the-admin@127.0.0.1: why`},
		{"create what exists", "POST", "/api/v1/campaigns", "admin", `{"id":"spring"}`, "", 409, ""},
		{"create nothing", "POST", "/api/v1/campaigns", "admin", `{"rate":"5"}`, "", 422, ""},
		{"create by an operator", "POST", "/api/v1/campaigns", "operator", `{"id":"autumn"}`, "", 403, ""},
		{"quota", "POST", "/api/v1/quotas", "admin", `{"id":"fresh","windows":["300/1m"],"mode":"shadow","reason":"why"}`, "", 201, `quota fresh {"windows":["300/1m"],"mode":"shadow"}[][] by the-admin@127.0.0.1: why`},
		{"quota that exists", "POST", "/api/v1/quotas", "admin", `{"id":"provider"}`, "", 409, ""},
		{"quota of no mode", "POST", "/api/v1/quotas", "admin", `{"id":"fresh","mode":"loose"}`, "", 422, ""},
		{"edit a quota", "PATCH", provider, "admin", `{"windows":[],"rollout":0}`, `"7"`, 200, `quota provider {"windows":[],"rollout":0}[][] by the-admin@127.0.0.1: `},
		{"edit a quota by an operator", "PATCH", provider, "operator", `{"rollout":50}`, `"7"`, 403, ""},
		{"edit a quota without a revision", "PATCH", provider, "admin", `{"rollout":50}`, "", 428, ""},
		{"edit a stale quota", "PATCH", provider, "admin", `{"rollout":50}`, `"6"`, 412, ""},
		{"nothing of a quota", "PATCH", provider, "admin", `{}`, `"7"`, 422, ""},
		{"no quota", "PATCH", "/api/v1/quotas/nothing", "admin", `{"rollout":50}`, "*", 404, ""},
		{"add a window", "POST", provider + "/windows", "admin", `{"windows":["300/1m"],"reason":"why"}`, "", 200, `quota provider {}[300/1m][] by the-admin@127.0.0.1: why`},
		{"add none", "POST", provider + "/windows", "admin", `{"windows":[]}`, "", 422, ""},
		{"remove a window", "DELETE", provider + "/windows/1h?reason=why", "admin", "", `"7"`, 200, `quota provider {}[][1h] by the-admin@127.0.0.1: why`},
		{"remove a window of a stale quota", "DELETE", provider + "/windows/1h", "admin", "", `"6"`, 412, ""},
		{"adjust", "POST", provider + "/windows/1h/adjust", "admin", `{"used":5,"lower":true,"reason":"credit"}`, "", 200, `quota provider {Span:1h Used:5 Lower:true} by the-admin@127.0.0.1: credit`},
		{"adjust without a reason", "POST", provider + "/windows/1h/adjust", "admin", `{"used":5}`, "", 422, ""},
		{"adjust by an operator", "POST", provider + "/windows/1h/adjust", "operator", `{"used":5,"reason":"credit"}`, "", 403, ""},
		{"delete a quota", "DELETE", provider + "?unlink=true&reason=why", "admin", "", `"7"`, 204, `no quota provider true by the-admin@127.0.0.1: why`},
		{"delete a stale quota", "DELETE", provider, "admin", "", `"6"`, 412, ""},
		{"delete a quota without a revision", "DELETE", provider, "admin", "", "", 428, ""},
		{"a reason of two lines", "DELETE", provider + "?reason=a%0Ab", "admin", "", `"7"`, 422, ""},
		{"those", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","ids":["spring","paused","spring"],"expect":2}`, "", 200, `2 campaigns {"action":"pause"} by the-operator@127.0.0.1: `},
		{"those and others", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","ids":["spring"],"filter":{"q":"s"},"expect":1}`, "", 422, ""},
		{"those that are gone", "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","ids":["spring","gone"],"expect":2}`, "", 409, ""},
		{"many", "POST", "/api/v1/bulk-changes", "operator", `{"action":"percent","percent":80,"filter":{"q":"spring"},"expect":1}`, "", 200, `1 campaigns {"action":"percent","percent":80} by the-operator@127.0.0.1: `},
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

// TestPreviewOfAQuota: what a change would mean is shown, and nothing is done.
func TestPreviewOfAQuota(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for _, tt := range []struct {
		windows, revision string
		code              int
		want              []string
	}{
		{"2000/1h, 300/1m", "7", http.StatusOK, []string{"Not changed yet", ">room<", ">new<", "the window of 1h would allow 0.56, which is less", `value="2000/1h, 300/1m"`}},
		{"1/1h", "7", http.StatusOK, []string{"used up: nothing is sent until it has room again"}},
		{"1000000/1s", "7", http.StatusOK, []string{">removed<", "the window of 1s would allow 1\u202f000\u202f000."}},
		{"", "7", http.StatusOK, []string{">removed<", "by their schedules now."}},
		{"many/1h", "7", http.StatusUnprocessableEntity, []string{"must be a whole number"}},
		{"2000/1h", "6", http.StatusPreconditionFailed, []string{"Somebody has changed"}},
	} {
		answer := submit(h, "/quota-edit", cookie, url.Values{
			"id": {"provider"}, "revision": {tt.revision}, "windows": {tt.windows}, "was_windows": {"1000/1h"}, "preview": {"yes"},
		})
		if answer.Code != tt.code || len(w.changes) > 0 {
			t.Errorf("%s: %d, asked %q", tt.windows, answer.Code, w.changes)
		}
		for _, want := range tt.want {
			if !strings.Contains(answer.Body.String(), want) {
				t.Errorf("%s: %q is not in %s", tt.windows, want, answer.Body)
			}
		}
	}
}

// TestTickedCampaigns: a form is about those that are ticked, about none without a tick, and not about those that are gone since.
func TestTickedCampaigns(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "operator")
	for path, want := range map[string]string{
		"/campaigns": `form="ticked" name="id" value="spring"`, "/bulk?ticked=yes&id=spring&id=paused&id=spring&id=gone": "Change 2 campaigns",
		"/bulk?ticked=yes": "No campaign is ticked",
	} {
		if body := ask(h, "GET", path, "", "", "Cookie", cookie).Body.String(); !strings.Contains(body, want) || path == "/bulk?ticked=yes" && strings.Contains(body, "<form method=\"post\" action=\"bulk\"") {
			t.Errorf("%s does not have %s: %s", path, want, body)
		}
	}
	if body := ask(h, "GET", "/campaigns", "viewer", "").Body.String(); strings.Contains(body, "checkbox") {
		t.Error("a viewer may tick campaigns")
	}
	for _, tt := range []struct {
		form url.Values
		code int
		want string
	}{
		{url.Values{"id": {"spring", "paused"}, "expect": {"2"}}, http.StatusSeeOther, `2 campaigns {"action":"pause"} by the-operator@127.0.0.1: `},
		{url.Values{"id": {"spring", "gone"}, "expect": {"2"}}, http.StatusPreconditionFailed, ""},
		{url.Values{"expect": {"0"}}, http.StatusUnprocessableEntity, ""},
	} {
		w.changes = nil
		tt.form.Set("ticked", "yes")
		tt.form.Set("action", "pause")
		if answer := submit(h, "/bulk", cookie, tt.form); answer.Code != tt.code || strings.Join(w.changes, ";") != tt.want {
			t.Errorf("%v: %d, asked %q", tt.form, answer.Code, w.changes)
		}
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
		if answer := ask(h, "POST", "/api/v1/campaigns/spring/"+action, "admin", `{}`, "If-Match", `"7"`); answer.Code != http.StatusConflict {
			t.Errorf("%s by the API: %d %s", action, answer.Code, answer.Body)
		}
		if answer := submit(h, "/"+action, cookie, url.Values{"id": {"spring"}, "typed": {"spring"}, "revision": {"7"}}); answer.Code != http.StatusConflict {
			t.Errorf("%s by a form: %d", action, answer.Code)
		}
	}
}

// login returns the header of a session.
func login(t *testing.T, h http.Handler, role string) string {
	t.Helper()
	answer := ask(h, "POST", "/login", "", url.Values{"token": {role + role}, "next": {"campaigns?q=a"}}.Encode(), "Content-Type", "application/x-www-form-urlencoded")
	cookies := answer.Result().Cookies()
	if answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "campaigns?q=a" || len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("log in: %d %v %v", answer.Code, answer.Header(), cookies)
	}
	return cookies[0].Name + "=" + cookies[0].Value
}

func submit(h http.Handler, path, cookie string, form url.Values, header ...string) *httptest.ResponseRecorder {
	return ask(h, "POST", path, "", form.Encode(), append([]string{"Content-Type", "application/x-www-form-urlencoded", "Cookie", cookie}, header...)...)
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

		"quota-edit":   {"admin", url.Values{"windows": {"300/1m, 15750/1h"}, "was_windows": {"1000/1h"}, "mode": {"strict"}, "was_mode": {"strict"}}, "quota?done=quota&id=provider", `quota provider {"windows":["300/1m","15750/1h"]}[][]`},
		"quota-create": {"admin", url.Values{"id": {"fresh"}, "windows": {"5/1s"}, "rollout": {"0"}, "mode": {""}}, "quotas?done=quota-created", `quota fresh {"windows":["5/1s"],"rollout":0}[][]`},
		"quota-delete": {"admin", url.Values{"typed": {"provider"}, "unlink": {"yes"}}, "quotas?done=quota-deleted", `no quota provider true`},
		"quota-adjust": {"admin", url.Values{"span": {"1h"}, "used": {" 5 "}, "reason": {"credit"}}, "quota?done=adjusted&id=provider", `quota provider {Span:1h Used:5 Lower:false}`},

		"bulk": {"operator", url.Values{"q": {"spring"}, "expect": {"1"}, "action": {"percent"}, "rate": {"80 %"}}, "campaigns?done=bulk&q=spring", `1 campaigns {"action":"percent","percent":80}`},
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
			if foreign := submit(h, "/"+name, cookie, form, "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"); foreign.Code != http.StatusForbidden {
				t.Errorf("%s from another site: %d", name, foreign.Code)
			}
			if trusted := submit(h, "/"+name, cookie, form, "Origin", "https://ops.example.com", "Sec-Fetch-Site", "same-site"); trusted.Code != answer.Code {
				t.Errorf("%s from a trusted site: %d", name, trusted.Code)
			}
		}
	}
	if code, body, _ := get(t, serve(newWorld()), "/campaign?id=spring&done=paused"); code != 200 || !strings.Contains(body, `role="status">The campaign is paused.`) || strings.Contains(body, "<form method=\"post\"") {
		t.Errorf("%d: the page does not say what was done, or has forms for a viewer", code)
	}
	stranger := ask(h, "GET", "/campaigns?q=a", "", "")
	if stranger.Code != http.StatusSeeOther || stranger.Header().Get("Location") != "login?next=campaigns%3Fq%3Da" {
		t.Errorf("a page for nobody: %d %s", stranger.Code, stranger.Header().Get("Location"))
	}
	if next := submit(h, "/login", "", url.Values{"token": {"adminadmin"}, "next": {"//evil.example/"}}).Header().Get("Location"); next != "./" {
		t.Errorf("logging in leads to %s", next)
	}
}

// TestConflict: whoever was slower sees what was changed and what they typed, and nothing is done.
func TestConflict(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for path, form := range map[string]url.Values{"/edit": {"burst": {"3"}}, "/rate": {"rate": {"333"}}} {
		form.Set("id", "spring")
		form.Set("revision", "6")
		answer := submit(h, path, cookie, form)
		body := answer.Body.String()
		if answer.Code != http.StatusPreconditionFailed || len(w.changes) > 0 || !strings.Contains(body, `name="revision" value="7"`) || !strings.Contains(body, "What others changed") {
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

// TestSessions: a session is of no use after it is ended, or after its token is removed, and never over plain HTTP from elsewhere.
func TestSessions(t *testing.T) {
	w := guarded()
	tokens := w.guard.Tokens()
	w.guard.Tokens = func() string { return tokens }
	h := serve(w)
	code := func(cookie string) int { return ask(h, "GET", "/campaigns", "", "", "Cookie", cookie).Code }
	a, b := login(t, h, "viewer"), login(t, h, "viewer")
	if code(a) != 200 || code(b) != 200 || code("pacerSession=guess") != http.StatusSeeOther {
		t.Fatal("sessions do not work")
	}
	if submit(h, "/logout", a, nil); code(a) == 200 || code(b) != 200 {
		t.Error("logging out ends another session, or none")
	}
	all := tokens
	tokens = "not a list"
	if code(b) != 200 {
		t.Error("a list that cannot be read was used")
	}
	_, tokens, _ = strings.Cut(strings.Replace(all, "# one\n", "", 1), "\n")
	if code(b) == 200 {
		t.Error("a removed token is still good")
	}
	w = guarded()
	w.guard.Proxy.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	h = serve(w)
	form := url.Values{"token": {"adminadmin"}}.Encode()
	for _, tt := range []struct {
		from, proto string
		code        int
		cookie      string
	}{
		{"192.0.2.1:1", "", http.StatusForbidden, ""}, {"192.0.2.1:1", "https", http.StatusForbidden, ""}, {"10.0.0.1:1", "https", http.StatusSeeOther, "__Host-pacerSession"},
		{"127.0.0.1:1", "", http.StatusSeeOther, "pacerSession"},
	} {
		r := httptest.NewRequest(http.MethodPost, here+"/login", strings.NewReader(form))
		r.RemoteAddr = tt.from
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("X-Forwarded-Proto", tt.proto)
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, r)
		cookie := answer.Header().Get("Set-Cookie")
		if answer.Code != tt.code || !strings.HasPrefix(cookie, tt.cookie) || (tt.proto == "https" && tt.cookie != "") != strings.Contains(cookie, "Secure") {
			t.Errorf("%s %s: %d %s", tt.from, tt.proto, answer.Code, cookie)
		}
	}
}

// streamed is an answer that may be given a deadline.
type streamed struct{ *httptest.ResponseRecorder }

func (streamed) SetWriteDeadline(time.Time) error { return nil }

// TestStreamEndsWithItsSession: whoever logs out, or whose token is removed, sees no more of what is streamed.
func TestStreamEndsWithItsSession(t *testing.T) {
	for name, end := range map[string]func(h http.Handler, cookie string, tokens *atomic.Value){
		"logout":        func(h http.Handler, cookie string, _ *atomic.Value) { submit(h, "/logout", cookie, nil) },
		"removed token": func(_ http.Handler, _ string, tokens *atomic.Value) { tokens.Store("") },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := guarded()
			var tokens atomic.Value
			tokens.Store(w.guard.Tokens())
			w.guard.Tokens = func() string { return tokens.Load().(string) }
			h := serve(w)
			cookie := login(t, h, "viewer")
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, here+"/live?page=campaigns", nil)
				r.Header.Set("Cookie", cookie)
				h.ServeHTTP(streamed{httptest.NewRecorder()}, r)
			}()
			over := func(after time.Duration) bool {
				time.Sleep(after)
				synctest.Wait()
				select {
				case <-ended:
					return true
				default:
					return false
				}
			}
			if over(time.Minute + time.Second/2) {
				t.Errorf("%s: the stream ended before", name)
			}
			end(h, cookie, &tokens)
			if !over(time.Second) {
				t.Errorf("%s: the stream goes on", name)
			}
			leave()
			<-ended
		})
	}
}

// TestWrongTokensAreLimited: of each address, and not of the others; a token that is known passes all the same.
func TestWrongTokensAreLimited(t *testing.T) {
	h := serve(guarded())
	from := func(address, token string) int {
		r := httptest.NewRequest(http.MethodGet, here+"/api/v1/status", nil)
		r.RemoteAddr = address
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	for i := range 5 {
		if code := from("[2001:db8::1]:1", "guess"); code != http.StatusUnauthorized {
			t.Errorf("guess %d: %d", i, code)
		}
	}
	for _, tt := range []struct {
		address, token string
		code           int
	}{
		{"[2001:db8::2]:1", "guess", http.StatusTooManyRequests}, {"[2001:db8::1]:1", "viewerviewer", http.StatusOK},
		{"[2001:db8::1]:1", "guess", http.StatusTooManyRequests}, // a right one forgives nothing
		{"[2001:db8:1::2]:1", "guess", http.StatusUnauthorized},
	} {
		if code := from(tt.address, tt.token); code != tt.code {
			t.Errorf("%s from %s after five guesses of one network: %d, want %d", tt.token, tt.address, code, tt.code)
		}
	}
}

// TestTrustedProxy: its headers are believed, those of others are not.
func TestTrustedProxy(t *testing.T) {
	w := newWorld()
	w.guard = auth.Options{Proxy: auth.Proxy{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, UserHeader: "X-Forwarded-User", GroupsHeader: "X-Forwarded-Groups",
		Operators: []string{"ops"}, Admins: []string{"alice"},
	}}
	s := newServer()
	s.Site = newSite(prometheus.NewRegistry(), w)
	h := s.routes()
	for _, tt := range []struct {
		from, user, groups string
		pause, cancel      int
		by                 string
	}{
		{"10.0.0.1:1", "alice", "", 200, 200, "alice@192.0.2.7"}, {"10.0.0.1:1", "bob", "x, ops", 200, 403, "bob@192.0.2.7"},
		{"10.0.0.1:1", "carol", "x", 403, 403, ""}, {"10.0.0.1:1", "", "ops", 401, 401, ""}, {"192.0.2.9:1", "alice", "ops", 401, 401, ""},
	} {
		for path, want := range map[string]int{"pause": tt.pause, "cancel": tt.cancel} {
			w.changes = nil
			r := httptest.NewRequest(http.MethodPost, "/api/v1/campaigns/spring/"+path, nil)
			r.RemoteAddr = tt.from
			r.Header.Set("X-Forwarded-User", tt.user)
			r.Header.Set("X-Forwarded-Groups", tt.groups)
			r.Header.Set("X-Forwarded-For", "203.0.113.1, 192.0.2.7")
			r.Header.Set("If-Match", "*")
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, r)
			if answer.Code != want || want == 200 && !strings.Contains(w.changes[0], " by "+tt.by+":") {
				t.Errorf("%s of %s by %s in %s: %d %v", path, tt.from, tt.user, tt.groups, answer.Code, w.changes)
			}
		}
	}
}

func TestListsOfTokens(t *testing.T) {
	hash := strings.Repeat("ab", 32)
	for text, fine := range map[string]bool{
		"": true, "# nothing\n\n": true, "a viewer " + hash: true, "a viewer": false, "a boss " + hash: false, "a none " + hash: false,
		"a viewer secret": false, "a viewer " + hash + "\na admin " + hash: false,
		"a admin e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": false, // of an empty token
	} {
		if err := auth.CheckTokens(text); (err == nil) != fine || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestReplays: dead letters are counted, then replayed in the background as often as was seen, one replay at a time, until it is stopped.
func TestReplays(t *testing.T) {
	w := guarded()
	asked, stopped := make(chan replay.Request, 1), errors.New("stopped")
	w.replay = func(ctx context.Context, r replay.Request, progress func(int)) (replay.Outcome, error) {
		if r.DryRun {
			return counted(ctx, r, progress)
		}
		asked <- r
		progress(3)
		<-ctx.Done()
		return replay.Outcome{Replayed: 4, Doubtful: 2}, stopped
	}
	s := newServer()
	s.Site = newSite(prometheus.NewRegistry(), w)
	h := s.routes()
	cookie := login(t, h, "operator")
	page := ask(h, "GET", "/replay?campaign=spring&last=7d", "", "", "Cookie", cookie).Body.String()
	form := url.Values{"rate": {"20"}, "why": {"fixed"}}
	for _, match := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
		form.Set(match[1], match[2])
	}
	if form.Get("limit") != "7" || !strings.Contains(page, "9 match; left out are 2") {
		t.Fatalf("the page says %s", page)
	}
	for key, wrong := range map[string]string{"rate": "0", "limit": "0", "until": "", "since": "now", "why": "a\rdata: b"} {
		bad := maps.Clone(form)
		bad.Set(key, wrong)
		if answer := submit(h, "/replay", cookie, bad); answer.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s %q: %d", key, wrong, answer.Code)
		}
	}
	if answer := submit(h, "/replay", login(t, h, "viewer"), form); answer.Code != http.StatusForbidden {
		t.Errorf("by a viewer: %d", answer.Code)
	}
	w.elsewhere = true
	if answer := submit(h, "/replay", cookie, form); answer.Code != http.StatusPreconditionFailed {
		t.Errorf("while another process replays: %d", answer.Code)
	}
	if answer := ask(h, "POST", "/api/v1/replays", "operator", `{"limit":7}`); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "another process") {
		t.Errorf("while another process replays, by the API: %d %s", answer.Code, answer.Body)
	}
	w.elsewhere = false
	if answer := submit(h, "/replay", cookie, form); answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "replays?done=replay" {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	r := <-asked
	if r.Limit != 7 || r.Rate != "20" || r.Campaign != "spring" || r.Until.Sub(r.Since) != 7*24*time.Hour {
		t.Errorf("asked for %+v", r)
	}
	if answer := submit(h, "/replay", cookie, form); answer.Code != http.StatusPreconditionFailed {
		t.Errorf("a second one at once: %d", answer.Code)
	}
	if answer := ask(h, "POST", "/api/v1/replays", "operator", `{"limit":7}`); answer.Code != http.StatusConflict {
		t.Errorf("a second one by the API: %d %s", answer.Code, answer.Body)
	}
	list := func() (all struct{ Replays []replay.Job }) {
		if err := json.Unmarshal(ask(h, "GET", "/api/v1/replays", "viewer", "").Body.Bytes(), &all); err != nil || len(all.Replays) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all
	}
	job := list().Replays[0]
	if job.State != "running" || job.By != "the-operator@127.0.0.1" || job.Why != "fixed" || job.Expected != 7 {
		t.Errorf("it is %+v", job)
	}
	if answer := submit(h, "/stop-replay", cookie, url.Values{"id": {job.ID}}); answer.Code != http.StatusSeeOther {
		t.Errorf("stop: %d", answer.Code)
	}
	s.Site.Close()
	if answer := ask(h, "POST", "/api/v1/replays/"+job.ID+"/stop", "operator", ""); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"stopped":false`) {
		t.Errorf("stopped twice: %d %s", answer.Code, answer.Body)
	}
	if answer := ask(h, "GET", "/api/v1/replays/"+job.ID, "viewer", ""); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"state":"stopped"`) {
		t.Errorf("one replay: %d %s", answer.Code, answer.Body)
	}
	if job = list().Replays[0]; job.State != "stopped" || job.Error != "stopped" || w.leases.Load() != 0 || job.Outcome.Doubtful != 2 || job.Outcome.Replayed != 4 || job.Ended == nil {
		t.Errorf("then it is %+v", job)
	}
	if answer := ask(h, "POST", "/api/v1/replays", "operator", `{"limit":7}`); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("while the process ends: %d", answer.Code)
	}
	for body, want := range map[string]int{`{"dry_run":true}`: 200, `{"limit":7,"rate":"fast"}`: 422, `{"limit":100001}`: 422, `{"limit":7,"why":"a\rb"}`: 422, `{}`: 422} {
		if answer := ask(h, "POST", "/api/v1/replays", "operator", body); answer.Code != want {
			t.Errorf("%s: %d %s", body, answer.Code, answer.Body)
		}
	}
}

// TestReplayIsBegunOnce: a request that is sent again, as its key says, is answered with what it has begun.
func TestReplayIsBegunOnce(t *testing.T) {
	w := guarded()
	begun := 0
	w.replay = func(context.Context, replay.Request, func(int)) (replay.Outcome, error) {
		begun++
		return replay.Outcome{}, nil
	}
	s := newServer()
	s.Site = newSite(prometheus.NewRegistry(), w)
	h := s.routes()
	ids, described := map[string]bool{}, documented(t)
	for _, tt := range []struct {
		role, key, body string
		code, begun     int
	}{
		{"operator", "once", `{"limit":7}`, 202, 1}, {"operator", "once", `{"limit":7}`, 202, 1}, {"operator", "once", `{"limit":8}`, 422, 1},
		{"operator", "twice", `{"limit":7}`, 202, 2}, {"admin", "once", `{"limit":7}`, 202, 3}, {"operator", "", `{"limit":7}`, 202, 4}, {"operator", "", `{"limit":7}`, 202, 5},
		{"operator", strings.Repeat("k", 129), `{"limit":7}`, 422, 5},
	} {
		answer := ask(h, "POST", "/api/v1/replays", tt.role, tt.body, "Idempotency-Key", tt.key)
		if why := described("/replays", "post", answer); why != "" {
			t.Errorf("the answer is not as documented: %s", why)
		}
		s.Site.replays.Wait()
		var out struct{ Job replay.Job }
		if err := json.Unmarshal(answer.Body.Bytes(), &out); answer.Code != tt.code || begun != tt.begun || err != nil {
			t.Errorf("%s with key %q: %d %s; %d have begun (%v)", tt.role, tt.key, answer.Code, answer.Body, begun, err)
		}
		if tt.code == 202 {
			ids[out.Job.ID] = true
		}
	}
	if len(ids) != 5 {
		t.Errorf("%d replays", len(ids))
	}
}

// TestConflictOfAQuota: whoever was slower sees what was changed and what they typed, and nothing is done; what exists is not created.
func TestConflictOfAQuota(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for _, tt := range []struct {
		path     string
		form     url.Values
		code     int
		contains string
	}{
		{"/quota-edit", url.Values{"id": {"provider"}, "revision": {"6"}, "windows": {"5/1s"}, "was_windows": {"900/1h"}}, 412, "now: 1000/1h"},
		{"/quota-edit", url.Values{"id": {"provider"}, "revision": {"6"}, "windows": {"5/1s"}, "was_windows": {"900/1h"}}, 412, "What others changed"},
		{"/quota-edit", url.Values{"id": {"provider"}, "revision": {"7"}, "rollout": {"many"}}, 422, `value="many"`},
		{"/quota-edit", url.Values{"id": {"nothing"}, "revision": {"7"}, "rollout": {"5"}}, 404, "does not exist"},
		{"/quota-edit", url.Values{"id": {"provider"}, "rollout": {"5"}}, 422, "has no revision"},
		{"/quota-create", url.Values{"id": {"provider"}, "windows": {"5/1s"}}, 409, `value="5/1s"`},
		{"/create", url.Values{"id": {"spring"}, "rate": {"77"}}, 409, `value="77"`},
		{"/quota-delete", url.Values{"id": {"provider"}, "typed": {"provide"}, "revision": {"7"}}, 422, "nothing was deleted"},
		{"/quota-delete", url.Values{"id": {"provider"}, "typed": {"provider"}, "revision": {"6"}}, 412, "changed meanwhile"},
		{"/quota-adjust", url.Values{"id": {"provider"}, "span": {"1h"}, "used": {"all"}, "reason": {"credit"}}, 422, "not a whole number"},
	} {
		answer := submit(h, tt.path, cookie, tt.form)
		if answer.Code != tt.code || len(w.changes) > 0 || !strings.Contains(answer.Body.String(), tt.contains) {
			t.Errorf("%s %v: %d, asked %v: %s", tt.path, tt.form, answer.Code, w.changes, answer.Body)
		}
	}
}

// TestPagesOfQuotas: the API's list has them all, page by page.
func TestPagesOfQuotas(t *testing.T) {
	w := newWorld()
	h := serve(w)
	seen, after := map[string]bool{}, ""
	for range len(w.snapshot.Quotas) {
		var out struct {
			Quotas []struct{ ID string }
			Total  int
			Next   string
		}
		_, body, _ := get(t, h, "/api/v1/quotas?limit=3&after="+url.QueryEscape(after))
		if err := json.Unmarshal([]byte(body), &out); err != nil || len(out.Quotas) == 0 || out.Total != len(w.snapshot.Quotas) {
			t.Fatalf("%s, %v", body, err)
		}
		for _, q := range out.Quotas {
			seen[q.ID] = true
		}
		if after = out.Next; after == "" {
			break
		}
	}
	if len(seen) != len(w.snapshot.Quotas) || after != "" {
		t.Errorf("%d of %d quotas, then %q", len(seen), len(w.snapshot.Quotas), after)
	}
	if _, body, header := get(t, h, "/api/v1/quotas/provider"); header.Get("ETag") != `"0"` {
		t.Errorf("ETag %s of %s", header.Get("ETag"), body)
	}
}
