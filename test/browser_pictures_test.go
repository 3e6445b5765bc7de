//go:build browser

package test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// picture is one of docs/console.md.
type picture struct {
	name   string // of its file, which is docs/images/console-NAME.png
	page   string
	shown  string // what the page must say before it is taken
	height int64
	dark   bool
	phone  bool // on a small screen
}

var pictures = []picture{
	{name: "overview", page: "", shown: "404 × ", height: 1060},
	{name: "dark", page: "", shown: "404 × ", height: 1060, dark: true},
	{name: "campaign", page: "campaign?id=spring-sale&last=24h", shown: "dead or rejected", height: 820},
	{name: "destination", page: "destination?id=cora", shown: "404 × ", height: 760},
	{name: "quota", page: "quota?id=sms-gateway&last=7d", shown: "Left of 9M in 1d", height: 960},
	{name: "dead", page: "dead?campaign=acme-hooks", shown: "404 × ", height: 620},
	{name: "phone", page: "", shown: "404 × ", height: 800, dark: true, phone: true},
}

// maxPicture bounds the files, which are part of the repository.
const maxPicture = 150_000

// TestConsolePicturesInABrowser takes the pictures of docs/console.md, of an installation with something of everything. They are written to
// the folder of SCREENSHOTS, if that is set. Those of every page, light, dark and on a phone, go to the folder of PAGES, if that is.
func TestConsolePicturesInABrowser(t *testing.T) {
	shops := newReceiver(t)
	s := newStack(t, stackOptions{partitions: 2, sinks: `  partner: {type: http, url: "http://127.0.0.1:9/partner", timeout: 1s}` + fmt.Sprintf(
		"\n  hooks: {type: http, destinations: true, guard: {ports: [%s], allow: [127.0.0.0/8], allow_http: true}}", portOf(t, shops))})
	s.scene(shops)
	d := s.started("daemon", "PACER_ADMIN_TOKEN=open-sesame-open-sesame")
	s.publish(mix(map[string]int{
		"spring-sale": 60_000, "password-reset": 4000, "invoices": 6000, "newsletter": 2500, "winback": 1800, "partner-news": 300,
	}))
	s.publish(hooks(map[string]int{"anna": 700, "bert": 500, "cora": 40, "dora": 900}))
	s.await(100*time.Second, "dead letters", func() bool { return len(s.dead()) >= 5 }) // then the destination is held
	base := "http://" + d.listen + "/"
	b := newBrowser(t, base)
	b.visit(b.tab, base+"login?next=campaign?id=newsletter")
	b.send(b.tab, "login", "token", "open-sesame-open-sesame", "Set rate")
	b.send(b.tab, "pause", "reason", "a wrong link in it", "The campaign is paused.")
	b.visit(b.tab, base+"campaign?id=spring-sale")
	b.send(b.tab, "rate", "rate", "150", "The campaign is changed.")
	s.await(60*time.Second, "a closed gate", func() bool { return strings.Contains(string(d.body("/api/v1/sinks")), `"cause"`) })
	s.await(30*time.Second, "the campaign that is paused to be shown as such", func() bool {
		return strings.Contains(strings.ReplaceAll(string(d.body("/api/v1/campaigns/newsletter")), " ", ""), `"sent":0,`)
	})
	s.await(60*time.Second, "the overview to have counted the dead letters", func() bool { return strings.Contains(string(d.body("/")), "404 × ") })
	document := readFile(t, "../docs/console.md")
	for _, p := range pictures {
		content := b.take(base, p)
		if len(content) > maxPicture {
			t.Errorf("the picture %s has %d bytes, more than %d", p.name, len(content), maxPicture)
		}
		if before, _, ok := strings.Cut(document, "](images/console-"+p.name+".png)"); !ok || len(before)-strings.LastIndex(before, "![") < 40 {
			t.Errorf("docs/console.md does not show the picture %s, or has no sentence in its place", p.name)
		}
		if folder := os.Getenv("SCREENSHOTS"); folder != "" {
			noError(t, os.WriteFile(filepath.Join(folder, "console-"+p.name+".png"), content, 0o600))
		}
	}
	if folder := os.Getenv("PAGES"); folder != "" {
		b.everyPage(base, folder)
	}
}

// everyPage takes pictures of all pages.
func (b *browser) everyPage(base, folder string) {
	noError(b.t, os.MkdirAll(folder, 0o700))
	here := strings.NewReplacer("spring", "spring-sale", "autumn-1", "cora-0", "autumn", "acme-hooks", "provider", "sms-gateway", "shop-7", "cora")
	for i, of := range consolePages {
		for how, p := range map[string]picture{"light": {}, "dark": {dark: true}, "phone": {phone: true}} {
			p.name, p.page, p.height = fmt.Sprintf("%02d-%s-%s.png", i, cmp.Or(regexp.MustCompile(`\W.*`).ReplaceAllString(of, ""), "overview"), how), here.Replace(of), 900
			noError(b.t, os.WriteFile(filepath.Join(folder, p.name), b.take(base, p), 0o600))
		}
	}
}

// hooks are jobs of customers.
func hooks(numbers map[string]int) (list []job) {
	for id, n := range numbers {
		for i := range n {
			list = append(list, jobFor("acme-hooks", id, fmt.Sprintf("%s-%d", id, i)))
		}
	}
	return list
}

// scene makes campaigns, quotas and destinations as people have them, and what they have done in the last days.
func (s *stack) scene(shops *receiver) {
	s.t.Helper()
	s.run("quota", "set", "sms-gateway", "--window", "12000/1m,700000/1h,9000000/1d:fixed:day")
	s.run("quota", "set", "mailbox-provider", "--window", "2000/1m,500000/1d")
	s.pastWeek("sms-gateway", 9000)
	for _, of := range [][]string{
		{"spring-sale", "--rate", "120", "--quota", "sms-gateway"},
		{"password-reset", "--rate", "40", "--quota", "sms-gateway", "--priority-weight", "10"},
		{"invoices", "--rate", "25", "--quota", "mailbox-provider"},
		{"acme-hooks", "--rate", "20", "--sink", "hooks"},
		{"newsletter", "--rate", "60", "--quota", "mailbox-provider"},
		{"winback", "--rate", "50", "--quota", "sms-gateway", "--starts-at", time.Now().Add(14 * time.Hour).UTC().Format(time.RFC3339)},
		{"partner-news", "--rate", "20", "--sink", "partner"},
	} {
		s.run(append([]string{"campaign", "create"}, of...)...)
	}
	for _, id := range []string{"anna", "bert", "cora", "dora"} {
		s.run("destination", "create", id, "--url", shops.url+"/"+id, "--sink", "hooks")
	}
	for id, rate := range map[string]int{"spring-sale": 120, "password-reset": 40, "invoices": 25, "acme-hooks": 20, "newsletter": 60} {
		s.pastDays(id, rate)
	}
	s.receiver.fails(http.StatusGone, func(a arrival) bool { return a.campaign == "invoices" && strings.HasSuffix(a.id, "77") })
	shops.fails(http.StatusNotFound, func(a arrival) bool { return strings.HasPrefix(a.id, "cora-") })
	for _, r := range []*receiver{s.receiver, shops} {
		r.answersAfter("", 8*time.Millisecond)
	}
}

// pastDays enters what a campaign has delivered in the last days into the history and the counts: more by day than at night, and never more
// than its rate.
func (s *stack) pastDays(campaign string, rate int) {
	s.t.Helper()
	s.sql(`WITH minutes AS (
			SELECT minute, least(1, 0.62 + 0.38 * sin(2 * pi() * minute / 1440 - 1.5) + 0.1 * sin(minute / 7.0) + ((minute * 7919 + $2 * 31) % 23) / 160.0) AS part
			FROM generate_series(extract(epoch FROM now())::bigint / 60 - 7 * 1440, extract(epoch FROM now())::bigint / 60) AS minute
		), added AS (
			INSERT INTO pacer.campaign_history SELECT $1, minute, (60 * $2 * part)::bigint, (60 * $2 * part / 400)::bigint, $2 FROM minutes RETURNING delivered, failed
		) INSERT INTO pacer.campaign_progress (campaign_id, delivered, dead, delivered_in_history, failed_in_history)
		SELECT $1, sum(delivered), sum(failed), sum(delivered), sum(failed) FROM added`, campaign, rate)
}

// take opens a page, waits for what it must say, checks it with axe, and takes its picture.
func (b *browser) take(base string, p picture) []byte {
	b.t.Helper()
	width, scheme := int64(1100), "light"
	if p.phone {
		width = 360
	}
	if p.dark {
		scheme = "dark"
	}
	b.do(b.tab, emulation.SetDeviceMetricsOverride(width, p.height, 1, p.phone),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
	b.visit(b.tab, base+p.page)
	b.until(b.tab, fmt.Sprintf(`document.querySelector("main").textContent.includes(%q)`, p.shown))
	b.accessible(b.tab, "the picture "+p.name)
	var content []byte
	b.do(b.tab, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		content, err = page.CaptureScreenshot().WithFormat(page.CaptureScreenshotFormatPng).Do(ctx)
		return err
	}))
	return b.smaller(content)
}

// smaller returns the picture with its 256 most used colours, a byte each.
func (b *browser) smaller(content []byte) []byte {
	b.t.Helper()
	full, err := png.Decode(bytes.NewReader(content))
	noError(b.t, err)
	bounds := full.Bounds()
	used := map[color.Color]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			used[full.At(x, y)]++
		}
	}
	b.t.Logf("%d colours, %d bytes", len(used), len(content))
	palette := mostUsed(used, 256)
	small := image.NewPaletted(bounds, palette)
	nearest := map[color.Color]uint8{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			c := full.At(x, y)
			index, ok := nearest[c]
			if !ok {
				index = uint8(palette.Index(c))
				nearest[c] = index
			}
			small.SetColorIndex(x, y, index)
		}
	}
	var out bytes.Buffer
	noError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small))
	return out.Bytes()
}

// mostUsed are the colours that are used most.
func mostUsed(used map[color.Color]int, most int) color.Palette {
	palette := make(color.Palette, 0, len(used))
	for c := range used {
		palette = append(palette, c)
	}
	slices.SortFunc(palette, func(a, b color.Color) int { return used[b] - used[a] })
	return palette[:min(len(palette), most)]
}
