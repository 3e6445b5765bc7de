package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
)

var update = flag.Bool("update", false, "record the OpenAPI document")

// running runs something until its end, which waits for it.
func running(t *testing.T, run func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); run(ctx) }()
	return func() { cancel(); <-ended }
}

// looking does what a site does while its process runs, in a bubble. Whoever comes next comes between two looks.
func looking(t *testing.T, s *Site) {
	t.Helper()
	t.Cleanup(running(t, s.Run))
	s.watcher.Look(t.Context())
	time.Sleep(500 * time.Millisecond)
}

var (
	pagePaths = []string{
		"", "campaigns", "campaigns?q=spring&sort=backlog", "campaigns?state=paused", "campaign?id=spring", "quotas", "quota?id=provider",
		"quota?id=provider&last=30d", "dead", "dead?campaign=spring&last=7d", "sinks", "daemons", "changes", "changes?campaign=spring",
		"destinations", "destinations?q=shop&state=disabled",
	}
	links    = regexp.MustCompile(`(?:href|src|action|hx-sse:connect)="([^"]*)"`)
	unsafeOf = regexp.MustCompile(`(?i)<script(?: [^>]*)?>[^<]|<img| on[a-z]+=| style=|javascript:`)
)

// TestPages: every page is there at / and below the base path, has only relative links that exist, and takes every id for text.
func TestPages(t *testing.T) {
	w := newWorld()
	w.guard.Anonymous = auth.Admin // who has all links
	h := serve(w)
	paths := append(pagePaths, "edit?id=spring", "cancel?id=spring", "bulk?state=paused", "login", "replay?campaign=spring", "replays", "create",
		"quota-create", "quota-edit?id=provider", "quota-delete?id=provider", "quota-adjust?id=provider", "destination?id=shop-7",
		"destination-edit?id=shop-7", "destination-create", "destination-delete?id=shop-7", "letter?place=3/17",
		"edit?id=spring&rate=250&sink=", "changes?who=alice")
	for _, id := range hostile {
		for _, page := range []string{"campaign?id=", "quota?id=", "campaigns?q=", "destination?id="} {
			paths = append(paths, page+url.QueryEscape(id))
		}
	}
	followed := map[string]bool{}
	for _, path := range paths {
		answer := get(h, "/"+path).want(t, 200)
		body, header := answer.Body.String(), answer.Header()
		if below := get(h, "/some/path/"+path).want(t, 200).Body.Len(); below < len(body)/2 {
			t.Errorf("%s: %d bytes below the base path", path, below)
		}
		if policy := header.Get("Content-Security-Policy"); !strings.Contains(policy, "script-src 'self';") || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: policy %q, cached %q", path, policy, header.Get("Cache-Control"))
		}
		if found := unsafeOf.FindString(strings.ReplaceAll(body, "script defer src", "link")); found != "" {
			t.Errorf("%s contains %q", path, found)
		}
		for _, match := range links.FindAllStringSubmatch(body, -1) {
			link := strings.NewReplacer("&amp;", "&", "&#39;", "'", "&#34;", `"`, "&#43;", "+").Replace(match[1])
			if strings.HasPrefix(link, "/") || strings.Contains(link, "//") {
				t.Errorf("%s links to %s, which is not relative", path, link)
			}
			if followed[link] || strings.HasPrefix(link, "#") || strings.HasPrefix(link, "data:") || strings.HasPrefix(link, "live?") {
				continue
			}
			followed[link] = true
			isForm := strings.Contains(body, `method="post"`) && strings.Contains(body, `action="`+link+`"`)
			if code := get(h, "/"+strings.TrimPrefix(link, "./")).Code; code != http.StatusOK && !isForm {
				t.Errorf("%s links to %s: %d", path, link, code)
			}
		}
	}
	get(h, "/edit?id=spring&rate=250").want(t, 200, `name="rate" value="250"`, `name="was_rate" value="100"`, "now: 100")
	get(h, "/destination?id="+url.QueryEscape(hostile[1])).want(t, 200, "nothing is sent to it: its sink &lt;script")
	for _, path := range []string{
		"campaign?id=nobody", "quota?id=nothing", "quota-adjust?id=nothing", "destination?id=nowhere", "letter?place=3", "letter?place=3/18",
	} {
		get(h, "/"+path).want(t, 404, "There is no")
	}
}

// TestPagesWithoutServices: with Redis and PostgreSQL away the pages are there, and say what is not known.
func TestPagesWithoutServices(t *testing.T) {
	w := newWorld()
	w.fail = errAway
	h := serve(w)
	for _, path := range pagePaths {
		get(h, "/"+path).want(t, 200, "redis has not answered for 9s", "connection")
	}
	get(h, "/campaign?id=spring").want(t, 200, "the quota store (Redis) does not answer")
	w.snapshot = nil
	get(serve(w), "/").want(t, 200, "the catalog is not loaded")
}

// TestManyCampaigns: a page has a hundred of them, and pages follow each other without gaps.
func TestManyCampaigns(t *testing.T) {
	w := newWorld()
	w.crowd(450)
	h := serve(w)
	next, seen := "campaigns?q=campaign-", 0
	for range 5 {
		body := get(h, "/"+next).Body.String()
		seen += strings.Count(body, `<tr id="`)
		next = ""
		if match := regexp.MustCompile(`href="(campaigns\?after=[^"]*)">Next`).FindStringSubmatch(body); match != nil {
			next = strings.ReplaceAll(match[1], "&amp;", "&")
		}
	}
	if seen != 450 || next != "" {
		t.Errorf("%d campaigns on five pages, then %q", seen, next)
	}
}

// TestAPageFollowsOneThatIsGone: a campaign that is not selected any more, or deleted, does not make a list begin anew.
func TestAPageFollowsOneThatIsGone(t *testing.T) {
	w := newWorld()
	w.crowd(10)
	h := serve(w)
	for _, sort := range []string{"id", "backlog"} {
		query := "/api/v1/campaigns?fields=id&limit=2&sort=" + sort
		first := get(h, query+"&q=campaign-&after=campaign-00003").want(t, 200).Body.String()
		if !strings.HasPrefix(first, `{"campaigns":[{"id":"campaign-00004"},{"id":"campaign-00005"}],"total":10,`) {
			t.Errorf("by %s: %s", sort, first)
		}
		get(h, query+"&q=campaign-0000&state=paused&after=campaign-00003").want(t, 200, `{"campaigns":[],"total":0`)
		get(h, query+"&q=00009&after=campaign-00003").want(t, 200, `[{"id":"campaign-00009"}]`)
		get(h, query+"&q=00001&after=campaign-00003").want(t, 200, `{"campaigns":[],"total":1}`) // it does not begin anew
		gone := get(h, query+"&q=campaign-&after=campaign-00003x").want(t, 200).Body.String()
		if (sort == "id") != strings.Contains(gone, "campaign-00004") {
			t.Errorf("by %s: %s", sort, gone)
		}
	}
}

// TestTablesForSpreadsheets: all rows of the selection, and no cell that is taken for a formula.
func TestTablesForSpreadsheets(t *testing.T) {
	w := newWorld()
	h := serve(w)
	for path, want := range map[string]int{
		"campaigns.csv": len(hostile) + 3, "usage.csv?id=provider&last=1d": 11, "changes.csv?campaign=spring": 2*len(hostile) + 1,
		"dead.csv?last=7d": len(hostile) + 1, "destinations.csv": len(hostile) + 2,
	} {
		answer := get(h, "/"+path).want(t, 200)
		rows, err := csv.NewReader(answer.Body).ReadAll()
		name, _, _ := strings.Cut(path, "?")
		if as := answer.Header().Get("Content-Disposition"); err != nil || len(rows) != want || as != `attachment; filename="`+name+`"` {
			t.Errorf("%s: %d rows, want %d, as %s; %v", path, len(rows), want, as, err)
		}
		for _, o := range delivery.SettledOutcomes {
			if name == "campaigns.csv" && !slices.Contains(rows[0], o.String()) {
				t.Errorf("%s: no column %s", path, o)
			}
		}
		for _, row := range rows {
			for _, cell := range row {
				if cell != "" && strings.ContainsRune("=+-@", rune(cell[0])) {
					t.Errorf("%s: a cell begins like a formula: %s", path, cell)
				}
			}
		}
	}
	w.fail = errAway
	for path, want := range map[string]int{
		"usage.csv?id=nothing": 404, "usage.csv?id=provider": 503, "changes.csv": 503, "dead.csv": 503, "dead.csv?since=x": 422,
		"destinations.csv": 503, "campaigns.csv": 200,
	} {
		if as := get(h, "/"+path).want(t, want).Header().Get("Content-Disposition"); want != 200 && as != "" {
			t.Errorf("%s: what is wrong is saved as %s", path, as)
		}
	}
}

// TestOverview: what is wrong and what may be done about it, which services answer, what was sent, and what was changed last.
func TestOverview(t *testing.T) {
	w := guarded()
	w.snapshot.Destinations = map[string]*delivery.Destination{"up": {ID: "up"}, "failing": {ID: "failing", FailingSince: 1}}
	for i := range 7 {
		id := fmt.Sprintf("shop-%d", i)
		w.snapshot.Destinations[id] = &delivery.Destination{ID: id, DisabledAt: delivery.Stamp(int64(i+1) * 1e9), DisabledReason: hostile[0]}
	}
	h := serve(w)
	body := visit(h, "/", "admin").want(t, 200, `<li>Redis <span class="state good">answers</span>`, "changed the rate of <a",
		"All but one campaign that is held: done <strong><time", ">2 more disabled destinations</strong></a>",
		"is disabled, and its jobs wait: &lt;script&gt;alert(1)&lt;/script&gt;,",
		`<a href="destination?id=failing"><strong>failing</strong></a> has taken no job`,
		`<a class="button" href="destination-test?id=failing" aria-label="Test failing">Test</a>`,
		`<a class="button" href="destination-edit?id=shop-6" aria-label="Correct URL shop-6">Correct URL</a>`,
		`<form method="post" action="destination-enable"><input type="hidden" name="id" value="shop-6">`,
		`<span class="state bad">throttled</span> <a href="sinks"><strong>sink receiver</strong></a> is closed for all its campaigns`,
		`<form method="post" action="sink-open"><input type="hidden" name="id" value="receiver"><button aria-label="Open receiver">Open</button></form>`,
	).lacks(t, ">shop-1<").Body.String()
	if first, last := strings.Index(body, ">shop-6<"), strings.Index(body, ">shop-2<"); first < 0 || last < first {
		t.Errorf("the last ones are not listed: %s", body)
	}
	visit(h, "/", "viewer").want(t, 200).lacks(t, `method="post" action="sink-open"`, "Correct URL")
	w.fail = errAway
	visit(serve(w), "/", "viewer").want(t, 200, `<li>Redis <span class="state bad">away</span> <small>it has not answered yet</small>`,
		`<span class="state bad">away</span> <strong>Redis</strong> does not answer.`)
}

// TestRampingCampaigns: campaigns on a ramp are shown and found while they send.
func TestRampingCampaigns(t *testing.T) {
	w := newWorld()
	spring := w.snapshot.Campaigns["spring"]
	spring.Sink = "other"
	spring.Rate = delivery.Rate{N: 100, Per: 1_000_000}
	spring.Ramp = &delivery.Ramp{Start: 10e6, Add: 10e6, Per: time.Second, Every: time.Hour, Since: time.Now()}
	sources := w.sources()
	sources.Gates, sources.Sink = nil, func(string) (string, string) { return "receiver", "" }
	state := view.NewWatcher(sources).Look(t.Context())
	list, all, _ := state.Select(view.Selection{CampaignFilter: view.CampaignFilter{State: view.Ramping}}, 10)
	if all != 1 || list[0].ID != "spring" || list[0].State != view.Sending || list[0].Allowed != 10 {
		t.Errorf("%d are ramping: %+v", all, list)
	}
}

// TestVendoredFiles: vendored files equal the published ones.
func TestVendoredFiles(t *testing.T) {
	sums, err := os.ReadFile("page/static/vendor.sum")
	if err != nil {
		t.Fatal(err)
	}
	listed := 0
	for line := range strings.Lines(string(sums)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join("page/static/vendor", name))
		if err != nil {
			t.Fatal(err)
		}
		if got := sha256.Sum256(content); hex.EncodeToString(got[:]) != sum {
			t.Errorf("%s is not what was published", name)
		}
		listed++
	}
	if files, _ := filepath.Glob("page/static/vendor/*"); len(files) != listed {
		t.Errorf("%d files, of which %d are listed", len(files), listed)
	}
}

// watch opens a stream in a bubble; events returns what it has sent since it was asked last.
func watch(t *testing.T, h http.Handler, path string, header ...string) (events func() string, leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answer := &tape{ResponseRecorder: httptest.NewRecorder()}
	go h.ServeHTTP(answer, request(http.MethodGet, path, "", "", header...).WithContext(ctx))
	return func() string {
		synctest.Wait() // it waits for its next turn
		answer.mu.Lock()
		defer answer.mu.Unlock()
		defer answer.Body.Reset()
		return answer.Body.String()
	}, cancel
}

// tape is an answer that may be given a deadline, and is read while it is written.
type tape struct {
	*httptest.ResponseRecorder
	mu sync.Mutex // guards the body
}

func (*tape) SetWriteDeadline(time.Time) error { return nil }

func (a *tape) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ResponseRecorder.Write(b)
}

// TestAPI: the document is the one that is committed, and what it does not allow is answered with a problem.
func TestAPI(t *testing.T) {
	const recorded = "../../docs/openapi.json"
	w := newWorld()
	w.guard.Anonymous = auth.Operator // who may read all
	h := serve(w)
	var document bytes.Buffer
	if err := json.Indent(&document, get(h, "/api/v1/openapi.json").want(t, 200, `"openapi":"3.1`).Body.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	document.WriteByte('\n')
	if *update {
		if err := os.WriteFile(recorded, document.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if before, err := os.ReadFile(recorded); err != nil || !bytes.Equal(before, document.Bytes()) {
		t.Errorf("the API is not what docs/openapi.json says (%v); record it with: go test ./internal/console -run TestAPI -update", err)
	}
	for path, want := range map[string]int{
		"/campaigns/nobody": 404, "/campaigns/%00": 422, "/campaigns?limit=0": 422, "/campaigns?limit=": 422, "/campaigns?limit=5&sort=color": 422,
		"/campaigns?sort=": 422, "/campaigns?unheard=of": 422, "/quotas/nothing": 404, "/quotas/nothing/usage": 404,
		"/quotas/provider/usage?step=1s": 422, "/quotas/provider/usage?last=soon": 422, "/changes?campaign=%00": 422, "/changes?quota=%FF": 422,
		"/dead-letters?after=elsewhere": 422, "/dead-letters?after=%2F": 422, "/dead-letters?since=yesterday": 422, "/dead-letters?until=": 422,
		"/dead-letters?limit=1001": 422, "/dead-letters/0/1": 404, "/dead-letters/-1/0": 422, "/dead-letters/0/x": 422, "/replays/none": 404,
		"/destinations/nowhere": 404, "/destinations?state=asleep": 422, "/destinations?after=shop-7": 422, "/nothing": 404, "/bulk-changes": 405,
	} {
		header := get(h, "/api/v1"+path).want(t, want).Header()
		if header.Get("Content-Type") != "application/problem+json" || want == 405 && header.Get("Allow") != "POST" {
			t.Errorf("%s: %v", path, header)
		}
	}
}

// TestReadsOfDeadLettersAreLimited: looks and dry runs read thousands of records, whether a page or the API asks for them. Operators have one more.
func TestReadsOfDeadLettersAreLimited(t *testing.T) {
	const says = "2 others look for dead letters already"
	for _, tt := range []struct {
		role          auth.Role
		reads, others []string // by their paths
	}{
		{auth.Viewer, []string{"/dead", "/api/v1/dead-letters"}, []string{"/dead.csv", "/api/v1/dead-letters"}},
		{auth.Operator, []string{"/replay?campaign=spring", "/api/v1/replays", "/replay?campaign=spring"}, []string{"/replay?campaign=spring", "/api/v1/replays"}},
	} {
		w, begun, end := newWorld(), make(chan struct{}), make(chan struct{})
		w.guard.Anonymous = tt.role
		var hold atomic.Bool // those that look
		wait := func() {
			if hold.Load() {
				begun <- struct{}{}
				<-end
			}
		}
		hold.Store(true)
		w.look = wait
		w.replay = func(ctx context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
			wait()
			return counted(ctx, o)
		}
		h := serve(w)
		read := func(path string) response {
			if path == "/api/v1/replays" {
				return ask(h, "POST", path, "", `{"dry_run":true}`)
			}
			return get(h, path)
		}
		var all sync.WaitGroup
		for _, path := range tt.reads {
			over := make(chan struct{})
			all.Go(func() { defer close(over); read(path).want(t, 200) })
			select {
			case <-begun:
			case <-over: // it was refused
			}
		}
		hold.Store(false)
		for _, path := range tt.others {
			if header := read(path).want(t, 503, says).Header(); path != "/dead.csv" && header.Get("Retry-After") != "10" {
				t.Errorf("%s while others look: %v", path, header)
			}
		}
		if tt.role == auth.Viewer {
			get(h, "/dead?campaign=spring").want(t, 200, "Looking for dead letters")
		}
		close(end)
		all.Wait()
		for _, path := range tt.others {
			read(path).want(t, 200)
		}
	}
}

// TestEventsOfAnyNewline: text cannot begin a field of an event, with any kind of newline.
func TestEventsOfAnyNewline(t *testing.T) {
	hub, out := live.NewHub(auth.NewGuard(auth.Options{Anonymous: auth.Viewer})), httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodGet, "/live", nil)
	err := hub.Serve(&tape{ResponseRecorder: out}, r, auth.Viewer, time.Hour, func(context.Context) ([]byte, error) {
		hub.Close() // after the first event
		return []byte("a\rid: b\r\nevent: c\nd"), nil
	})
	if _, data, _ := strings.Cut(out.Body.String(), "\n"); err != nil || data != "data: a\ndata: id: b\ndata: event: c\ndata: d\n\n" {
		t.Errorf("the event is %q", out.Body)
	}
}
