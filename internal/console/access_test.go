package console

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
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

// response is what a request was answered with.
type response struct {
	*httptest.ResponseRecorder
	request string
}

// want checks the code of an answer, and that its body says all this.
func (a response) want(t *testing.T, code int, words ...string) response {
	t.Helper()
	if a.Code != code {
		t.Errorf("%s: %d, want %d: %s", a.request, a.Code, code, a.Body)
	}
	shows(t, a.Body.String(), words...)
	return a
}

// lacks checks that the body of an answer says nothing of this.
func (a response) lacks(t *testing.T, words ...string) response {
	t.Helper()
	for _, says := range words {
		if strings.Contains(a.Body.String(), says) {
			t.Errorf("%s says %q: %s", a.request, says, a.Body)
		}
	}
	return a
}

// leads checks where one is led after a form.
func (a response) leads(t *testing.T, to string) response {
	t.Helper()
	if at := a.Header().Get("Location"); at != to {
		t.Errorf("%s leads to %q, want %q", a.request, at, to)
	}
	return a.want(t, http.StatusSeeOther)
}

// read returns what an answer of the API says.
func read[T any](t *testing.T, a response) (what T) {
	t.Helper()
	if err := json.Unmarshal(a.want(t, http.StatusOK).Body.Bytes(), &what); err != nil {
		t.Fatalf("%s: %v: %s", a.request, err, a.Body)
	}
	return what
}

// In the place of names of headers, these are where a request comes from, and what it is addressed to.
const fromAddress, toHost = "from", "to"

// ask sends a request; role is whose token it has, "" for none.
func ask(h http.Handler, method, path, role, body string, header ...string) response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, request(method, path, role, body, header...))
	return response{w, method + " " + path + " by " + role}
}

func request(method, path, role, body string, header ...string) *http.Request {
	r := httptest.NewRequest(method, here+path, strings.NewReader(body))
	r.RemoteAddr = "127.0.0.1:1"
	if role != "" {
		r.Header.Set("Authorization", "Bearer "+role+role)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		switch header[i] {
		case fromAddress:
			r.RemoteAddr = header[i+1]
		case toHost:
			r.Host = header[i+1]
		default:
			r.Header.Set(header[i], header[i+1])
		}
	}
	return r
}

// get asks without a token, and visit with that of a role.
func get(h http.Handler, path string) response { return visit(h, path, "") }

func visit(h http.Handler, path, role string) response { return ask(h, http.MethodGet, path, role, "") }

// typed is a form with these fields.
func typed(fields string) url.Values {
	form, err := url.ParseQuery(fields)
	if err != nil {
		panic(err)
	}
	return form
}

// submit sends a form with a session.
func submit(h http.Handler, path, cookie string, form url.Values, header ...string) response {
	return press(h, path, "", form, append(header, "Cookie", cookie)...)
}

// press sends a form with the token of a role.
func press(h http.Handler, path, role string, form url.Values, header ...string) response {
	return ask(h, "POST", path, role, form.Encode(), append(header, "Content-Type", "application/x-www-form-urlencoded")...)
}

// bodies are requests to the operations that write.
var bodies = map[string]string{
	"edit-campaign": `{"rate":"200","reason":"why"}`, "pause-campaign": `{"reason":"why"}`, "resume-campaign": ``, "cancel-campaign": `{}`,
	"change-campaigns":    `{"action":"pause","filter":{"q":"spring"},"expect":1}`,
	"replay-dead-letters": `{"dry_run":true}`, "stop-replay": `{}`,
	"create-campaign": `{"id":"autumn","rate":"5"}`, "create-quota": `{"id":"fresh","windows":["300/1m"]}`, "edit-quota": `{"rollout":50}`,
	"put-campaign": `{"rate":"5"}`, "put-quota": `{"windows":["300/1m"]}`,
	"create-destination": `{"id":"shop-8","url":"https://shop-8.example/hook","headers":{"x-tenant":"blue"}}`,
	"edit-destination":   `{"max_in_flight":5}`, "disable-destination": `{"reason":"why"}`,
	"cancel-jobs":  `{"ids":["u-1"],"reason":"why"}`,
	"edit-key":     `{"held_until":"2100-01-01T00:00:00Z"}`,
	"adjust-quota": `{"used":5,"reason":"credit"}`,
}

// documented returns how an answer differs from the description of its operation; "" if it does not.
func documented(t *testing.T) func(path, method string, answer response) string {
	t.Helper()
	document := api.Register(http.NewServeMux(), api.Options{Watcher: view.NewWatcher(newWorld().sources())}).OpenAPI()
	return func(path, method string, answer response) string {
		of := document.Paths[path]
		o := map[string]*huma.Operation{"get": of.Get, "post": of.Post, "patch": of.Patch, "put": of.Put, "delete": of.Delete}[method]
		response := o.Responses[strconv.Itoa(answer.Code)]
		if response == nil {
			return fmt.Sprintf("status %d", answer.Code)
		}
		kind := answer.Header().Get("Content-Type")
		if response.Content == nil && answer.Body.Len() == 0 {
			return ""
		}
		if kind == "text/event-stream; charset=utf-8" && response.Content["text/event-stream"] != nil {
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

// TestEveryOperationTakesARole: an operation without a role refuses everyone, and each refuses lower roles, and does nothing then. Its answers
// are as documented, also while the services are away.
func TestEveryOperationTakesARole(t *testing.T) {
	w, away := guarded(), guarded()
	h := serve(w)
	away.fail = errAway
	failing := serve(away)
	listed := read[struct {
		Paths map[string]map[string]struct {
			ID   string `json:"operationId"`
			Role string `json:"x-pacer-role"`
		}
	}](t, get(h, "/api/v1/openapi.json"))
	roles, seen := []string{"", "viewer", "operator", "admin"}, 0
	described := documented(t)
	fill := strings.NewReplacer("{id}", url.PathEscape(hostile[5]), "{span}", "1h", "{key}", "a%20b", "{partition}", "3", "{offset}", "17",
		"{number}", "999")
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
			request := func(h http.Handler, role string) response {
				return ask(h, strings.ToUpper(method), "/api/v1"+fill.Replace(path), role, bodies[o.ID], "If-Match", `"7"`)
			}
			for has, role := range roles {
				w.changes = nil
				answer := request(h, role)
				if why := described(path, method, answer); why != "" || has >= needs && strings.Contains(answer.Body.String(), "null") {
					t.Errorf("%s: the answer is not as documented: %s: %s", answer.request, why, answer.Body)
				}
				switch code := answer.Code; {
				case has >= needs && (code < 200 || code > 299) && (code != 404 || !strings.HasPrefix(path, "/replays/")): // of which there are none
					t.Errorf("%s: %d %s", answer.request, code, answer.Body)
				case has == 0:
					if answer.want(t, 401); answer.Header().Get("WWW-Authenticate") == "" {
						t.Errorf("%s: nobody is told how to log in", answer.request)
					}
				case has < needs:
					answer.want(t, 403)
				}
				if has < needs {
					w.did(t)
				}
			}
			if answer := request(failing, "operator"); method == "get" && answer.Code != 200 && answer.Code != 404 {
				if kind := answer.want(t, 503).Header().Get("Content-Type"); kind != "application/problem+json" {
					t.Errorf("%s without services: a problem of type %s", answer.request, kind)
				}
			}
		}
	}
	if seen < 22 {
		t.Errorf("only %d operations", seen)
	}
}

// login returns the header of a session.
func login(t *testing.T, h http.Handler, role string) string {
	t.Helper()
	answer := press(h, "/login", "", typed("token="+role+role+"&next=campaigns?q%3Da")).leads(t, "campaigns?q=a")
	cookies := answer.Result().Cookies()
	if len(cookies) != 1 || !cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode {
		t.Fatalf("log in: %v %v", answer.Header(), cookies)
	}
	return cookies[0].Name + "=" + cookies[0].Value
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
	for _, tt := range []struct {
		from, proto string
		code        int
		cookie      string
	}{
		{"192.0.2.1:1", "", 403, ""}, {"192.0.2.1:1", "https", 403, ""}, {"10.0.0.1:1", "https", 303, "__Host-pacerSession"},
		{"127.0.0.1:1", "", 303, "pacerSession"},
	} {
		answer := press(h, "/login", "", typed("token=adminadmin"), fromAddress, tt.from, "X-Forwarded-Proto", tt.proto).want(t, tt.code)
		cookie := answer.Header().Get("Set-Cookie")
		if !strings.HasPrefix(cookie, tt.cookie) || (tt.proto == "https" && tt.cookie != "") != strings.Contains(cookie, "Secure") {
			t.Errorf("%s %s: %s", tt.from, tt.proto, cookie)
		}
	}
}

// TestStreamEndsWithItsSession: a stream ends with a log-out, and when its token is removed.
func TestStreamEndsWithItsSession(t *testing.T) {
	for name, end := range map[string]func(h http.Handler, cookie string, tokens *atomic.Value){
		"logout":        func(h http.Handler, cookie string, _ *atomic.Value) { submit(h, "/logout", cookie, nil) },
		"removed token": func(_ http.Handler, _ string, tokens *atomic.Value) { tokens.Store("") },
	} {
		for _, stream := range []string{"/live?page=campaigns", "/api/v1/live"} {
			synctest.Test(t, func(t *testing.T) {
				w := guarded()
				var tokens atomic.Value
				tokens.Store(w.guard.Tokens())
				w.guard.Tokens = func() string { return tokens.Load().(string) }
				h, site := serveOf(w)
				cookie := login(t, h, "viewer")
				_, leave := watch(t, h, stream, "Cookie", cookie)
				defer leave()
				open := func(after time.Duration) int { time.Sleep(after); synctest.Wait(); return site.hub.Open() }
				if open(time.Minute+time.Second/2) != 1 {
					t.Errorf("%s: the stream ended before", name)
				}
				end(h, cookie, &tokens)
				if open(time.Second) != 0 {
					t.Errorf("%s: the stream goes on", name)
				}
			})
		}
	}
}

// TestWrongTokensAreLimited: of each address, and not of the others; a token that is known passes all the same.
func TestWrongTokensAreLimited(t *testing.T) {
	h := serve(guarded())
	ask := func(address, token string) response {
		return ask(h, "GET", "/api/v1/status", "", "", fromAddress, address, "Authorization", "Bearer "+token)
	}
	for range 5 {
		ask("[2001:db8::1]:1", "guess").want(t, 401)
	}
	ask("[2001:db8::2]:1", "guess").want(t, 429) // of the same network
	ask("[2001:db8::1]:1", "viewerviewer").want(t, 200)
	ask("[2001:db8::1]:1", "guess").want(t, 429) // a right one forgives nothing
	ask("[2001:db8:1::2]:1", "guess").want(t, 401)
}

// TestTrustedProxy: its headers are believed, those of others are not. The address is what it has added, and not what the client has made up.
func TestTrustedProxy(t *testing.T) {
	w := newWorld()
	w.guard = auth.Options{Proxy: auth.Proxy{
		Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, UserHeader: "X-Forwarded-User", GroupsHeader: "X-Forwarded-Groups",
		Operators: []string{"group:ops"}, Admins: []string{"alice"},
	}}
	h := serve(w)
	for _, tt := range []struct {
		from, user, groups string
		pause, cancel      int
	}{
		{"10.0.0.1:1", "alice", "", 200, 200}, {"10.0.0.1:1", "bob", "x, ops", 200, 403}, {"10.0.0.1:1", "carol", "x", 403, 403},
		// Nobody gets what the other kind of name has.
		{"10.0.0.1:1", "carol", "alice", 403, 403}, {"10.0.0.1:1", "ops", "group:ops", 403, 403}, {"10.0.0.1:1", "group:ops", "x", 403, 403},
		{"10.0.0.1:1", "", "ops", 401, 401}, {"192.0.2.9:1", "alice", "ops", 401, 401},
	} {
		for action, code := range map[string]int{"pause": tt.pause, "cancel": tt.cancel} {
			ask(h, "POST", "/api/v1/campaigns/spring/"+action, "", "", fromAddress, tt.from, "X-Forwarded-User", tt.user, "X-Forwarded-Groups", tt.groups,
				"X-Forwarded-For", "203.0.113.1, 192.0.2.7", "If-Match", "*").want(t, code)
			if code == 200 {
				w.did(t, "spring "+map[string]string{"pause": "paused", "cancel": "cancelled"}[action]+" by "+tt.user+"@192.0.2.7: ")
			}
			w.did(t)
		}
	}
	for forwarded, want := range map[string]string{
		"203.0.113.1, 10.1.2.3": "10.1.2.3", "10.1.2.3": "10.1.2.3", "": "10.0.0.1", "203.0.113.1, unknown": "10.0.0.1",
	} {
		ask(h, "POST", "/api/v1/campaigns/spring/pause", "", "", fromAddress, "10.0.0.1:1", "X-Forwarded-User", "alice", "X-Forwarded-For", forwarded).want(t, 200)
		w.did(t, "spring paused by alice@"+want+": ")
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
