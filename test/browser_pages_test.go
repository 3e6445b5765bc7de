//go:build browser

package test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// consolePages are all pages that an admin can open.
var consolePages = []string{
	"", "campaigns", "campaign?id=spring", "create", "edit?id=spring", "cancel?id=spring", "bulk?q=spring", "quotas", "quota?id=provider",
	"quota?id=provider&last=7d", "quota-create", "quota-edit?id=provider", "quota-delete?id=provider", "quota-adjust?id=provider", "dead",
	"letter?place=0/0", "job", "job?id=autumn-1", "rate?id=spring&rate=5000", "pause-all", "campaign?id=spring&last=7d", "replay?campaign=autumn", "replays", "destinations", "destinations?state=disabled", "destination?id=shop-7", "destination-test?id=shop-7", "destination-create", "destination-edit?id=shop-7",
	"destination-delete?id=shop-7", "sinks", "daemons", "changes", "login", "campaign?id=nobody",
}

// TestConsolePagesInABrowser: below a base path all pages fit 360 pixels, are dark where that is wanted, can be used with keys alone, work
// without scripts, and say nothing on the browser's console. A quota falls and comes back, its week is drawn, and dead letters are replayed
// by a filter.
func TestConsolePagesInABrowser(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 2})
	s.run("quota", "set", "provider", "--window", "400/20s:fixed,100000/1h")
	s.campaign("spring", 100)
	s.run("campaign", "set", "spring", "--quota", "provider")
	s.pastWeek("provider", 1200)
	s.campaign("autumn", 1000)
	s.campaign("winter", 1000)
	s.run("destination", "create", "shop-7", "--url", "https://hooks.shop-7.example/orders/of/all/customers/everywhere?token=hunter22", "--secret", "file:shop-7", "--header", "x-tenant=blue")
	s.run("destination", "disable", "shop-7", "--reason", "it answered 410 to a job, which says that it is gone for good")
	s.receiver.fails(http.StatusGone, func(a arrival) bool { return a.campaign != "spring" })
	d := s.started("daemon", "PACER_ADMIN_TOKEN=open-sesame-open-sesame", "PACER_HTTP_BASE_PATH=/tools/pacer")
	s.publish(mix(map[string]int{"spring": 300, "autumn": 20, "winter": 5}))
	s.await(30*time.Second, "the dead letters", func() bool { return len(s.dead()) == 25 })
	s.receiver.answers(nil)
	base := "http://" + d.listen + "/tools/pacer/"
	b := newBrowser(t, base)
	b.refused = []string{"404", "422"} // of a campaign that does not exist, and of a form that was wrong
	b.keys(base + "login")
	b.fallsAndComesBack(base + "quota?id=provider")
	b.week(base + "quota?id=provider&last=7d")
	for _, page := range consolePages {
		b.narrow(base + page)
		b.dark(base + page)
		b.focus(base + page)
	}
	b.preview(base + "quota-edit?id=provider")
	b.visit(b.tab, base+"edit?id=spring")
	if n := b.value(`document.getElementById("zones").options.length`); n.(float64) < 300 {
		b.t.Errorf("the form offers %v time zones", n)
	}
	b.withoutScripts(s, base)
	b.do(b.tab, emulation.SetScriptExecutionDisabled(false))
	for _, page := range []string{"replays", "changes", "dead"} { // once more, with what was done
		b.visit(b.tab, base+page)
		b.accessible(b.tab, page)
	}
	b.silent()
}

// pastWeek enters into the ledger what was used of a quota in the last week, up to some hours ago: by day up to so much a minute, at night
// nothing.
func (s *stack) pastWeek(quota string, most int) {
	s.t.Helper()
	s.sql(`INSERT INTO pacer.quota_usage (quota_id, minute, node, units)
		SELECT $1, minute, 'earlier', greatest(0, $2 * sin(2 * pi() * minute / 1440))::bigint
		FROM generate_series(extract(epoch FROM now())::bigint / 60 - 7 * 1440, extract(epoch FROM now())::bigint / 60 - 180) AS minute`, quota, float64(most))
}

// keys logs in, finds a campaign and changes its rate with keys alone.
func (b *browser) keys(page string) {
	b.t.Helper()
	enter := func(text string) { b.leads(b.tab, chromedp.KeyEvent(text), chromedp.KeyEvent(kb.Enter)) }
	b.visit(b.tab, page)
	b.tabTo(`document.activeElement.name === "token"`)
	enter("open-sesame-open-sesame")
	b.tabTo(`document.activeElement.textContent === "Campaigns"`)
	enter("")
	b.do(b.tab, chromedp.KeyEvent("/"))
	if b.value(`document.activeElement.id`) != "filter" {
		b.t.Error("/ does not lead to the filter")
	}
	b.value(`document.activeElement.value = ""`) // a key here is two events, and only the first one is suppressed
	enter("spring")
	if text := b.text(b.tab); !strings.Contains(text, "1 campaigns match") {
		b.t.Errorf("the page of campaigns says %s", text)
	}
	b.do(b.tab, chromedp.KeyEvent("j"))
	if b.value(`document.activeElement.textContent`) != "spring" {
		b.t.Error("j does not lead to the first row")
	}
	enter("")
	b.tabTo(`document.activeElement.name === "rate"`)
	enter("120") // the tab key has selected what was there
	if text := b.text(b.tab); !strings.Contains(text, "The campaign is changed.") {
		b.t.Errorf("the page of the campaign says %s", text)
	}
}

// value evaluates an expression in the page.
func (b *browser) value(expression string) (value any) {
	b.t.Helper()
	b.do(b.tab, chromedp.Evaluate(expression, &value))
	return value
}

// tabTo presses the tab key until the expression is true.
func (b *browser) tabTo(expression string) {
	b.t.Helper()
	for range 60 {
		b.do(b.tab, chromedp.KeyEvent(kb.Tab))
		if b.value(expression) == true {
			return
		}
	}
	b.t.Fatalf("the tab key does not lead to where %s", expression)
}

// headerRows counts the rows of the header: its parts in one row overlap in height.
const headerRows = `[...document.querySelectorAll("header > *")].filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect()).sort((a, b) => a.top - b.top)
	.reduce(([n, bottom], r) => r.top >= bottom ? [n + 1, r.bottom] : [n, Math.max(bottom, r.bottom)], [0, -1])[0]`

// smallPlots are the sizes of charts that are lower than 160 pixels, and of their texts that are smaller than 11.
const smallPlots = `[...document.querySelectorAll(".plot")].filter(p => p.checkVisibility()).flatMap(p =>
	[p.querySelector(".shapes").getBoundingClientRect().height].filter(h => h < 160).concat([...p.querySelectorAll("text")].map(t => parseFloat(getComputedStyle(t).fontSize)).filter(s => s < 11))).join(" ")`

// narrow checks that a page fits a small screen.
func (b *browser) narrow(page string) {
	b.t.Helper()
	b.do(b.tab, emulation.SetDeviceMetricsOverride(360, 740, 1, true))
	b.visit(b.tab, page)
	if width := b.value(`document.documentElement.scrollWidth`); width.(float64) > 360 {
		widest := b.value(`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 361).map(e => e.tagName + "." + e.className + " " + e.textContent.slice(0, 30)).slice(0, 5).join("; ")`)
		b.t.Errorf("%s is %v pixels wide on a screen of 360: %v", page, width, widest)
	}
	if rows := b.value(headerRows); rows.(float64) > 2 {
		b.t.Errorf("%s: its header has %v rows on a screen of 360 pixels, where the menu has one of its own", page, rows)
	}
	if hidden := b.value(`[...document.querySelectorAll("header a[aria-current]")].filter(a => a.getBoundingClientRect().right > 360 || a.getBoundingClientRect().left < 0).length +
		[...document.querySelectorAll("header nav a")].filter(a => a.scrollWidth > a.clientWidth).length`); hidden != 0.0 {
		b.t.Errorf("%s: the menu does not show where one is, or its links overlap", page)
	}
	if small := b.value(smallPlots); small != "" {
		b.t.Errorf("%s: a chart cannot be read on a screen of 360 pixels: %v", page, small)
	}
	b.accessible(b.tab, page+", 360 pixels wide")
	b.do(b.tab, emulation.SetDeviceMetricsOverride(1024, 740, 1, false))
	if rows, cut := b.value(headerRows), b.value(`(n => n.scrollWidth - n.clientWidth)(document.querySelector("header nav"))`); rows != 1.0 || cut != 0.0 {
		b.t.Errorf("%s: its header has %v rows on a screen of 1,024 pixels, and %v pixels of the menu are hidden", page, rows, cut)
	}
	if width := b.value(`document.documentElement.scrollWidth`); width.(float64) > 1024 {
		b.t.Errorf("%s is %v pixels wide on a screen of 1,024", page, width)
	}
	b.do(b.tab, emulation.SetDeviceMetricsOverride(1200, 740, 1, false))
	if width := b.value(`document.documentElement.scrollWidth`); width.(float64) > 1200 {
		b.t.Errorf("%s is %v pixels wide on a screen of 1,200", page, width)
	}
	b.do(b.tab, emulation.ClearDeviceMetricsOverride())
}

// dark checks that a page is dark where that is wanted: its paper, and the ink on it light.
func (b *browser) dark(page string) {
	b.t.Helper()
	scheme := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}
	b.do(b.tab, emulation.SetEmulatedMedia().WithFeatures(scheme))
	b.visit(b.tab, page)
	const light = `(of => { const [r, g, b] = of.match(/[\d.]+/g).map(Number); return (r + g + b) / 3; })(getComputedStyle(document.body).%s)`
	paper, ink := b.value(fmt.Sprintf(light, "backgroundColor")).(float64), b.value(fmt.Sprintf(light, "color")).(float64)
	if paper > 60 || ink < 180 {
		b.t.Errorf("%s is not dark: paper %v, ink %v", page, paper, ink)
	}
	b.accessible(b.tab, page+", dark")
	b.do(b.tab, emulation.SetEmulatedMedia())
}

// focus goes through a page with the tab key: it begins with the link that skips to the content, visits everything in its order, and shows
// where it is.
func (b *browser) focus(page string) {
	b.t.Helper()
	b.visit(b.tab, page)
	b.accessible(b.tab, page)
	b.do(b.tab, chromedp.KeyEvent(kb.Tab))
	if first := b.value(`document.activeElement.className`); first != "skip" {
		b.t.Errorf("%s: the first thing that is reached is %v", page, first)
	}
	const look = `(() => {
		const e = document.activeElement, style = getComputedStyle(e);
		const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, textarea")].filter(e => e.checkVisibility());
		const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
		return JSON.stringify([e === document.body ? -1 : all.indexOf(e), all.length, seen || e === document.body, e.outerHTML.slice(0, 80)]);
	})()`
	last := -1
	for range 25 {
		var at, all float64
		var seen bool
		var what string
		parts := []any{&at, &all, &seen, &what}
		noError(b.t, json.Unmarshal([]byte(b.value(look).(string)), &parts))
		if at < 0 { // beyond the last one
			if last >= 0 && float64(last) < all-1 {
				b.t.Errorf("%s: of %v only %d can be reached", page, all, last+1)
			}
			return
		}
		if int(at) < last || !seen {
			b.t.Errorf("%s: after %d comes %v, visible %v: %s", page, last, at, seen, what)
			return
		}
		last = int(at)
		b.do(b.tab, chromedp.KeyEvent(kb.Tab))
	}
}

// fallsAndComesBack watches a quota being used up and free again, without loading the page again.
func (b *browser) fallsAndComesBack(page string) {
	b.t.Helper()
	b.visit(b.tab, page)
	most := 0.0
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(time.Second) {
		// The window with the least used; without a meter its use is not known at the moment.
		now := b.value(`[...document.querySelectorAll("meter")].map(m => m.value).sort((a, b) => a - b)[0] ?? -1`).(float64)
		if most = max(most, now); now >= 0 && now < most {
			return
		}
		if time.Now().After(deadline) {
			b.t.Errorf("%v were used, and it did not come back", most)
			return
		}
	}
}

// week checks that what was left of a quota in a week is drawn.
func (b *browser) week(page string) {
	b.t.Helper()
	b.visit(b.tab, page)
	b.until(b.tab, `[...document.querySelectorAll("figure svg path.c1")].some(p => p.getBBox().width > 400 && p.getBBox().height > 50 && p.checkVisibility())`) // the ledger is waited for by the stream
	if text := b.text(b.tab); !strings.Contains(text, "last 7d") {
		b.t.Errorf("of a week the page says %s", text)
	}
	b.do(b.tab, chromedp.Click(".plot rect:nth-of-type(30)", chromedp.ByQuery))
	if tip, _ := b.value(`(tip => tip.checkVisibility() ? tip.textContent : "")(document.querySelector(".tip"))`).(string); !strings.HasSuffix(tip, " left") {
		b.t.Errorf("a touched step of a chart shows %q", tip)
	}
	b.accessible(b.tab, "a touched chart")
	if b.value(`[...document.querySelectorAll("details tbody tr")].slice(0, 48).some(row => row.cells[1].textContent !== "0")`) != true {
		b.t.Error("nothing was used in the first two days of the week")
	}
}

// draws checks that a page has a curve, which shows something, and values where the pointer is.
func (b *browser) draws(page, what string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Second) {
		b.visit(b.tab, page)
		if b.value(fmt.Sprintf(`[...document.querySelectorAll("figure.curve svg %s")].some(p => p.getBBox().height > 20 && p.checkVisibility())`, what)) == true {
			shown := b.value(`(() => {
				const at = [...document.querySelectorAll("figure.curve rect")].filter(r => r.textContent.includes(" ")).at(-1);
				at.scrollIntoView({block: "center"});
				const r = at.getBoundingClientRect(), under = document.elementFromPoint(r.left + r.width / 2, r.top + r.height / 2);
				return under === at ? at.querySelector("title").textContent : under.outerHTML.slice(0, 100);
			})()`)
			if text, _ := shown.(string); !pointed.MatchString(text) {
				b.t.Errorf("%s shows %q where the pointer is", page, text)
			}
			return
		}
		if time.Now().After(deadline) {
			b.t.Errorf("%s draws no %s: %s", page, what, b.text(b.tab))
			return
		}
	}
}

// pointed is what a curve shows where the pointer is: a time, and the values of that time.
var pointed = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\dZ(\n[^\n]+ [\d.\x{202f}]+/s)+$`)

// preview looks at what a change of a quota would mean, by the enter key, which must not change it.
func (b *browser) preview(page string) {
	b.t.Helper()
	b.visit(b.tab, page)
	b.tabTo(`document.activeElement.name === "windows"`)
	b.leads(b.tab, chromedp.KeyEvent("10/1m"), chromedp.KeyEvent(kb.Enter))
	if text := b.text(b.tab); !strings.Contains(text, "Not changed yet") || !strings.Contains(text, "they would wait for it") {
		b.t.Errorf("the preview says %s", text)
	}
	b.accessible(b.tab, "the preview of a change")
}

// withoutScripts logs out and in, replays dead letters, changes a quota and creates a campaign with plain links and forms.
func (b *browser) withoutScripts(s *stack, base string) {
	b.t.Helper()
	b.do(b.tab, emulation.SetScriptExecutionDisabled(true))
	type typed struct{ field, text string }
	press := func(action, want string, fields ...typed) {
		b.t.Helper()
		form := fmt.Sprintf(`form[action=%q] `, action)
		for _, f := range fields {
			b.do(b.tab, chromedp.SetValue(form+fmt.Sprintf(`[name=%q]`, f.field), f.text, chromedp.ByQuery))
		}
		b.leads(b.tab, chromedp.Click(form+"button:not([name])", chromedp.ByQuery))
		for deadline := time.Now().Add(30 * time.Second); strings.Contains(b.text(b.tab), "Look again") && time.Now().Before(deadline); {
			b.leads(b.tab, chromedp.Click(`#live p[role="status"] a`, chromedp.ByQuery)) // Kafka has not answered yet
		}
		if text := strings.Join(strings.Fields(b.text(b.tab)), " "); !strings.Contains(text, want) {
			b.t.Errorf("%s does not answer %q, but %s", action, want, text)
		}
	}
	send := func(page, action, want string, fields ...typed) {
		b.t.Helper()
		b.visit(b.tab, base+page)
		press(action, want, fields...)
	}
	send("", "logout", "You are logged out.")
	send("login?next=dead", "login", "25 dead letters", typed{"token", "open-sesame-open-sesame"})
	press("dead", "autumn refused 410 × 20 20 0", typed{"campaign", "autumn"}, typed{"reason", "refused"})
	b.leads(b.tab, chromedp.Click(`a[href^="replay?"]`, chromedp.ByQuery))
	press("replay", "The replay has begun.", typed{"rate", "1000"}, typed{"why", "mended"})
	s.arrive(30*time.Second, "autumn", 20)
	if n := s.receiver.count("winter"); n != 5 {
		b.t.Errorf("%d requests of the campaign whose letters were not replayed, instead of 5", n)
	}
	send("quota-edit?id=provider", "quota-edit", "The quota is changed.", typed{"windows", "500/20s:fixed"}, typed{"reason", "more"})
	send("quota-edit?id=provider", "quota-edit", "must be a whole number", typed{"windows", "many/20s"})
	send("quota-adjust?id=provider", "quota-adjust", "The count is corrected.", typed{"used", "450"}, typed{"reason", "sent elsewhere"})
	send("quota-create", "quota-create", "The quota is created.", typed{"id", "fresh"}, typed{"windows", "5/1s"})
	send("quota-delete?id=fresh", "quota-delete", "The quota is deleted.", typed{"typed", "fresh"})
	send("destination?id=shop-7", "destination-enable", "The destination is enabled.", typed{"reason", "mended"})
	send("destination?id=shop-7", "destination-disable", "The destination is disabled.", typed{"reason", "broken again"})
	send("destination-edit?id=shop-7", "destination-edit", "The destination is changed.", typed{"max_in_flight", "7"})
	send("destination-edit?id=shop-7", "destination-edit", "must begin with https://", typed{"url", "ftp://shop-7.example/"})
	send("destination-create", "destination-create", "The destination is created.", typed{"id", "shop-8"}, typed{"url", "https://shop-8.example/hook"})
	send("destination-delete?id=shop-8", "destination-delete", "The destination is deleted.", typed{"typed", "shop-8"})
	send("create", "create", "The campaign is created.", typed{"id", "summer"}, typed{"rate", "77"})
	send("campaign?id=spring", "rate", "The campaign is changed.", typed{"rate", "123"})
	send("campaign?id=spring", "rate", "10 times as fast", typed{"rate", "1230"})
	b.leads(b.tab, chromedp.Click(`button[name="confirm"]`, chromedp.ByQuery))
	if text := b.text(b.tab); !strings.Contains(text, "The campaign is changed.") {
		b.t.Errorf("a rate that is confirmed: %s", text)
	}
	b.draws(base+"campaign?id=spring", "path.c1")
	b.draws(base, "path.c1")
	send("pause-all", "pause-all", "All campaigns are paused.")
	send("pause-all", "resume-all", "The campaigns go on that were paused together.")
	send("bulk?q=spring", "bulk", "The campaigns are changed.", typed{"action", "pause"}, typed{"reason", "stop"})
	send("edit?id=spring", "edit", "The campaign is changed.", typed{"ends_at", "2036-11-30T09:00"}, typed{"time_zone", "Asia/Tokyo"})
	if out := s.run("campaign", "show", "spring"); !strings.Contains(out, "2036-11-30T00:00:00Z") || !strings.Contains(out, "provider") {
		b.t.Errorf("a campaign that ends at nine in Tokyo is\n%s", out)
	}
	b.visit(b.tab, base+"edit?id=spring")
	if at := b.value(`document.querySelector("[name=ends_at]").value`); at != "2036-11-30T09:00" {
		b.t.Errorf("the form says that it ends at %v", at)
	}
	b.value(`document.querySelector("select[name=quotas]").selectedIndex = -1`)
	press("edit", "The campaign is changed.")
	if out := s.run("campaign", "show", "spring"); strings.Contains(out, "provider") {
		b.t.Errorf("a campaign without quotas is\n%s", out)
	}
	send("cancel?id=spring", "cancel", "The campaign is cancelled.", typed{"typed", "spring"})
	if out := s.run("campaign", "show", "summer"); !strings.Contains(out, "77") {
		b.t.Errorf("the new campaign is\n%s", out)
	}
	if out := strings.Join(strings.Fields(s.run("destination", "show", "shop-7")), " "); !strings.Contains(out, "reason broken again") ||
		!strings.Contains(out, "max in flight 7") {
		b.t.Errorf("the destination is\n%s", out)
	}
	if out := s.run("quota", "show", "provider"); !strings.Contains(out, "500/20s:fixed") {
		b.t.Errorf("the quota is\n%s", out)
	}
}
