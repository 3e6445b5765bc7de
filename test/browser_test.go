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
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox)
	allocator, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	tab, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &browser{t: t, base: base, tab: tab}
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
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// fill types a text into a field of a form, and sends the form.
func fill(action, field, text string) chromedp.Action {
	script := fmt.Sprintf(`(() => {
		const form = [...document.forms].find(f => f.getAttribute("action") === %q);
		form.elements.namedItem(%q).value = %q;
		form.requestSubmit();
	})()`, action, field, text)
	return chromedp.Tasks{chromedp.Evaluate(script, nil), chromedp.Sleep(500 * time.Millisecond), chromedp.WaitReady("h1")}
}

// text reads what the page says.
func (b *browser) text(tab context.Context) (text string) {
	b.t.Helper()
	b.do(tab, chromedp.Text("main", &text))
	return text
}

// TestConsoleInABrowser: somebody logs in, raises a rate, which the receiver sees, pauses and resumes; of two tabs that change the same
// campaign the second is told; and no page has an error.
func TestConsoleInABrowser(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 2})
	s.campaign("spring", 50)
	d := s.start("daemon", "PACER_ADMIN_TOKEN=open-sesame-open-sesame")
	d.awaitReady(30 * time.Second)
	s.publish(mix(map[string]int{"spring": 20_000}))
	base := "http://" + d.listen + "/"
	b := newBrowser(t, base)
	b.refused = []string{"412"} // of the conflict
	page := base + "campaign?id=spring"
	b.do(b.tab, chromedp.Navigate(base+"login?"+url.Values{"next": {"campaign?id=spring"}}.Encode()), fill("login", "token", "open-sesame-open-sesame"))
	if got := b.text(b.tab); !strings.Contains(got, "Set rate") {
		t.Fatalf("logged in, the page says %s", got)
	}
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
	b.do(other, chromedp.Navigate(base+"edit?id=spring"))
	b.do(b.tab, chromedp.Navigate(page), fill("rate", "rate", "200"))
	if got := b.text(b.tab); !strings.Contains(got, "The campaign is changed.") {
		t.Errorf("after the rate was set: %s", got)
	}
	s.await(10*time.Second, "200 a second", about(200))
	b.do(other, fill("edit", "rate", "300"))
	if got := b.text(other); !strings.Contains(got, "What others changed") || !strings.Contains(got, "now: 200") {
		t.Errorf("the second of two tabs sees %s", got)
	}
	s.await(10*time.Second, "still 200 a second", about(200))
	b.do(b.tab, fill("pause", "reason", "stop"))
	s.await(10*time.Second, "nothing while it is paused", func() bool { return perSecond() == 0 })
	b.do(b.tab, fill("resume", "reason", "go"))
	s.await(10*time.Second, "200 a second again", about(200))
	for _, name := range []string{"", "campaigns", "campaign?id=spring", "edit?id=spring", "bulk", "quotas", "dead", "replays", "sinks", "daemons", "changes", "login"} {
		b.do(b.tab, chromedp.Navigate(base+name), chromedp.WaitReady("h1"), chromedp.Sleep(300*time.Millisecond))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.said) > 0 {
		t.Errorf("the browser's console says %q", b.said)
	}
}
