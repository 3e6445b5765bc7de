//go:build browser

package test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a Chromium that notes what its console says: errors of scripts, and violations of the Content-Security-Policy.
type browser struct {
	t    *testing.T
	base string
	tab  context.Context
	axe  string // the script of axe

	refused []string // statuses that pages are answered with on purpose

	mu   sync.Mutex // guards said
	said []string
}

func newBrowser(t *testing.T, base string) *browser {
	t.Helper()
	path := os.Getenv("CHROMIUM")
	if path == "" {
		path = "chromium"
	}
	program, err := exec.LookPath(path)
	if err != nil {
		t.Fatalf("%v: install chromium, or name another Chrome with CHROMIUM", err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.WSURLReadTimeout(time.Minute))
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	tab, cancel := chromedp.NewContext(allocator, chromedp.WithErrorf(func(string, ...any) {})) // events that this version does not know
	t.Cleanup(cancel)
	b := &browser{t: t, base: base, tab: tab, axe: readAxe(t)}
	b.open(tab)
	return b
}

// open opens a tab, and notes what its console says.
func (b *browser) open(tab context.Context) {
	b.t.Helper()
	if err := chromedp.Run(tab); err != nil { // not with a deadline, which would close the tab
		b.t.Fatal(err)
	}
	chromedp.ListenTarget(tab, func(event any) {
		what := ""
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			what = e.ExceptionDetails.Error()
		case *runtime.EventConsoleAPICalled:
			if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
				what = fmt.Sprint(e.Type, " by a script")
			}
		case *log.EventEntryAdded:
			if e.Entry.Level == log.LevelError && !slices.ContainsFunc(b.refused, func(status string) bool { return strings.Contains(e.Entry.Text, status) }) {
				what = e.Entry.Text
			}
		}
		if what != "" {
			b.mu.Lock()
			b.said = append(b.said, what)
			b.mu.Unlock()
		}
	})
}

// do runs actions in a tab.
func (b *browser) do(tab context.Context, actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(tab, 30*time.Second)
	defer cancel()
	noError(b.t, chromedp.Run(ctx, actions...))
}

// leads runs what leads to another page, and waits for that page.
func (b *browser) leads(tab context.Context, actions ...chromedp.Action) {
	b.t.Helper()
	b.do(tab, chromedp.Evaluate(`document.documentElement.dataset.left = "yes"; true`, nil))
	b.do(tab, actions...)
	b.until(tab, `!document.documentElement.dataset.left && document.readyState === "complete" && document.querySelector("h1") !== null`)
}

// visit opens a page.
func (b *browser) visit(tab context.Context, page string) {
	b.t.Helper()
	b.leads(tab, chromedp.Navigate(page))
}

// until waits for an expression to be true. A page that is just being left cannot be asked, which is no fault.
func (b *browser) until(tab context.Context, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		yes := false
		ctx, cancel := context.WithTimeout(tab, 10*time.Second)
		err := chromedp.Run(ctx, chromedp.Evaluate(expression, &yes))
		cancel()
		if err == nil && yes {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("waited 30 s in vain for %s: %v", expression, err)
		}
	}
}

// send types a text into a field of a form, sends the form, and checks what the page says then.
func (b *browser) send(tab context.Context, action, field, text, want string) {
	b.t.Helper()
	script := fmt.Sprintf(`(() => {
		const form = [...document.forms].find(f => f.getAttribute("action") === %q);
		form.elements.namedItem(%q).value = %q;
		form.requestSubmit();
	})()`, action, field, text)
	b.leads(tab, chromedp.Evaluate(script, nil))
	if got := b.text(tab); !strings.Contains(got, want) {
		b.t.Errorf("after %s the page does not say %q: %s", action, want, got)
	}
}

// text reads what the page says.
func (b *browser) text(tab context.Context) (text string) {
	b.t.Helper()
	b.do(tab, chromedp.Text("main", &text))
	return text
}

// follows tells how long after an instant of the receiver's clock a campaign was sent at a rate: 40 jobs within the time of 60.
func (s *stack) follows(campaign string, rate int, since int64) (after time.Duration, ok bool) {
	const jobs = 40
	list := s.receiver.arrivals(campaign)
	for i := range len(list) - jobs + 1 {
		if last := list[i+jobs-1].at; list[i].at >= since && last-list[i].at <= int64(60*1_000_000/rate) {
			return time.Duration(last-since) * time.Microsecond, true
		}
	}
	return 0, false
}

// raise sets a rate in the browser, and checks that the receiver sees it within a second of the form's being sent. A machine that stood
// still for half a second is no fault of pacer's: three times the rate is set back and raised anew.
func (b *browser) raise(s *stack, page string, from, to int, about func(rate int) func() bool) {
	b.t.Helper()
	var waits []time.Duration
	for len(waits) < 3 {
		b.visit(b.tab, page)
		sent := s.receiver.now()
		b.send(b.tab, "rate", "rate", fmt.Sprint(to), "The campaign is changed.")
		after := time.Duration(0)
		s.await(20*time.Second, fmt.Sprint(to, " a second"), func() (ok bool) { after, ok = s.follows("spring", to, sent); return ok })
		if after <= time.Second {
			b.t.Logf("%s after the form was sent the receiver saw %d a second", after, to)
			return
		}
		waits = append(waits, after)
		b.visit(b.tab, page)
		b.send(b.tab, "rate", "rate", fmt.Sprint(from), "The campaign is changed.")
		s.await(20*time.Second, fmt.Sprint(from, " a second"), about(from))
	}
	b.t.Errorf("the receiver saw %d a second only %s after the form was sent", to, waits)
}

// silent checks that the browser's console has said nothing, and that it would have been heard.
func (b *browser) silent() {
	b.t.Helper()
	count := func() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.said) }
	if before := count(); before > 0 {
		b.t.Errorf("the browser's console says %q", b.said[:before])
	}
	for _, fault := range []string{`console.error("wrong")`, `const s = document.createElement("script"); s.textContent = "1"; document.head.append(s)`} {
		before := count()
		b.do(b.tab, chromedp.Evaluate(`(() => { `+fault+` })()`, nil))
		for deadline := time.Now().Add(10 * time.Second); count() == before; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				b.t.Fatalf("nothing was heard of %s", fault)
			}
		}
	}
	b.do(b.tab, chromedp.Evaluate(`document.querySelector("main").append(document.createElement("img")); true`, nil))
	if list := b.findings(b.tab); len(list) == 0 {
		b.t.Error("axe does not see an image without a text")
	}
}

// TestConsoleInABrowser logs in, raises a rate, which the receiver sees within a second, pauses and resumes. Of two tabs that change one
// campaign the second gets a conflict. No page has an error.
func TestConsoleInABrowser(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 2})
	s.campaign("spring", 50)
	d := s.started("daemon", "PACER_ADMIN_TOKEN=open-sesame-open-sesame")
	s.publish(mix(map[string]int{"spring": 20_000}))
	base := "http://" + d.listen + "/"
	b := newBrowser(t, base)
	b.refused = []string{"401", "412"} // of a wrong token, and of the conflict
	page := base + "campaign?id=spring"
	b.visit(b.tab, base+"login?"+url.Values{"next": {"campaign?id=spring"}}.Encode())
	b.send(b.tab, "login", "token", "a-wrong-one-a-wrong-one", "token")
	b.accessible(b.tab, "after a wrong token")
	b.send(b.tab, "login", "token", "open-sesame-open-sesame", "Set rate")
	perSecond := func() int {
		before := s.receiver.count("spring")
		time.Sleep(2 * time.Second)
		return (s.receiver.count("spring") - before) / 2
	}
	about := func(rate int) func() bool {
		return func() bool { got := perSecond(); return got >= rate*9/10 && got <= rate*11/10 }
	}
	s.await(30*time.Second, "50 a second", about(50))
	other, cancel := chromedp.NewContext(b.tab)
	defer cancel()
	b.open(other)
	b.visit(other, base+"edit?id=spring")
	b.raise(s, page, 50, 200, about)
	b.accessible(b.tab, "after a change")
	s.await(20*time.Second, "200 a second", about(200))
	b.send(other, "edit", "rate", "300", "What was changed meanwhile")
	if got := b.text(other); !strings.Contains(got, "now: 200") {
		t.Errorf("the second of two tabs sees %s", got)
	}
	b.accessible(other, "a conflict")
	s.await(20*time.Second, "still 200 a second", about(200))
	b.send(other, "edit", "rate", "300", "The campaign is changed.") // once more, on top of what the other has done
	b.send(b.tab, "pause", "reason", "stop", "The campaign is paused.")
	s.await(20*time.Second, "nothing while it is paused", func() bool { return perSecond() == 0 })
	b.accessible(b.tab, "while it is paused")
	b.send(b.tab, "resume", "reason", "go", "The campaign goes on.")
	s.await(20*time.Second, "300 a second", about(300))
	b.many(base)
	b.silent()
}

// many pauses all campaigns that match the filter of the page of campaigns.
func (b *browser) many(base string) {
	b.t.Helper()
	b.visit(b.tab, base+"campaigns?q=spring")
	b.leads(b.tab, chromedp.Click(`a[href^="bulk?"]`, chromedp.ByQuery))
	b.accessible(b.tab, "what matches")
	b.send(b.tab, "bulk", "action", "pause", "The campaigns are changed.")
	b.visit(b.tab, base+"campaign?id=spring")
	b.until(b.tab, `document.querySelector("#live .state").textContent === "paused"`)
}
