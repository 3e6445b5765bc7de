//go:build browser

package test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"os"
	"path/filepath"
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
	phone  bool // on a small screen that is dark
}

var pictures = []picture{
	{name: "overview", page: "", shown: "Problems", height: 980},
	{name: "campaigns", page: "campaigns", shown: "paused", height: 560},
	{name: "campaign", page: "campaign?id=partner-news", shown: "repair the destination", height: 420},
	{name: "quota", page: "quota?id=sms-gateway&last=7d", shown: "Left of 250k in 1d", height: 920},
	{name: "dead", page: "dead?campaign=invoices", shown: "HTTP 410 Gone", height: 620},
	{name: "changes", page: "changes", shown: "a wrong link in it", height: 620},
	{name: "phone", page: "campaigns?q=s", shown: "spring-sale", height: 800, phone: true},
}

// maxPicture bounds the files, which are part of the repository.
const maxPicture = 150_000

// TestConsolePicturesInABrowser takes the pictures of docs/console.md, of an installation with something of everything. They are written to
// the folder of SCREENSHOTS, if that is set.
func TestConsolePicturesInABrowser(t *testing.T) {
	s := newStack(t, stackOptions{partitions: 2, sinks: `  partner: {type: http, url: "http://127.0.0.1:9/partner", timeout: 1s}`})
	s.scene()
	d := s.start("daemon", "PACER_ADMIN_TOKEN=open-sesame-open-sesame")
	d.awaitReady(30 * time.Second)
	s.publish(mix(map[string]int{
		"spring-sale": 9000, "password-reset": 900, "invoices": 1200, "newsletter": 2500, "winback": 1800, "partner-news": 300,
	}))
	s.await(30*time.Second, "dead letters", func() bool { return len(s.dead()) > 8 })
	base := "http://" + d.listen + "/"
	b := newBrowser(t, base)
	b.visit(b.tab, base+"login?next=campaign?id=newsletter")
	b.send(b.tab, "login", "token", "open-sesame-open-sesame", "Set rate")
	b.send(b.tab, "pause", "reason", "a wrong link in it", "The campaign is paused.")
	b.visit(b.tab, base+"campaign?id=spring-sale")
	b.send(b.tab, "rate", "rate", "150", "The campaign is changed.")
	s.await(60*time.Second, "a closed gate", func() bool { return strings.Contains(s.get(d, "api/v1/sinks"), `"cause"`) })
	s.await(30*time.Second, "the campaign that is paused to be shown as such", func() bool {
		return strings.Contains(strings.ReplaceAll(s.get(d, "api/v1/campaigns/newsletter"), " ", ""), `"sent":0,`)
	})
	document, err := os.ReadFile("../docs/console.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pictures {
		content := b.take(base, p)
		if len(content) > maxPicture {
			t.Errorf("the picture %s has %d bytes, more than %d", p.name, len(content), maxPicture)
		}
		if before, _, ok := strings.Cut(string(document), "](images/console-"+p.name+".png)"); !ok || len(before)-strings.LastIndex(before, "![") < 40 {
			t.Errorf("docs/console.md does not show the picture %s, or has no sentence in its place", p.name)
		}
		if folder := os.Getenv("SCREENSHOTS"); folder != "" {
			if err := os.WriteFile(filepath.Join(folder, "console-"+p.name+".png"), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// scene makes campaigns and quotas as people have them.
func (s *stack) scene() {
	s.t.Helper()
	s.run("quota", "set", "sms-gateway", "--window", "6000/1m,100000/1h,250000/1d:fixed:day")
	s.run("quota", "set", "mailbox-provider", "--window", "2000/1m,500000/1d")
	s.pastWeek("sms-gateway", 500)
	for _, of := range [][]string{
		{"spring-sale", "--rate", "120", "--quota", "sms-gateway", "--expected-total", "9000", "--ramp", "start=30,factor=2,every=2s"},
		{"password-reset", "--rate", "40", "--quota", "sms-gateway", "--priority-weight", "10"},
		{"invoices", "--rate", "25", "--quota", "mailbox-provider", "--expected-total", "1200"},
		{"newsletter", "--rate", "300", "--quota", "mailbox-provider", "--expected-total", "2500"},
		{"winback", "--rate", "50", "--quota", "sms-gateway", "--starts-at", time.Now().Add(14 * time.Hour).UTC().Format(time.RFC3339)},
		{"partner-news", "--rate", "20", "--sink", "partner"},
	} {
		s.run(append([]string{"campaign", "create"}, of...)...)
	}
	s.receiver.answer = func(a arrival) (int, time.Duration) {
		if a.campaign == "invoices" && strings.HasSuffix(a.id, "7") {
			return http.StatusGone, 0
		}
		return http.StatusOK, 0
	}
}

// get reads what a daemon answers to a path.
func (s *stack) get(d *daemon, path string) string {
	s.t.Helper()
	response, err := http.Get("http://" + d.listen + "/" + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var b bytes.Buffer
	if _, err := b.ReadFrom(response.Body); err != nil {
		s.t.Fatal(err)
	}
	return b.String()
}

// take opens a page, waits for what it must say, checks it with axe, and takes its picture.
func (b *browser) take(base string, p picture) []byte {
	b.t.Helper()
	width, scheme := int64(1100), "light"
	if p.phone {
		width, scheme = 360, "dark"
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
	if err != nil {
		b.t.Fatal(err)
	}
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
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small); err != nil {
		b.t.Fatal(err)
	}
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
