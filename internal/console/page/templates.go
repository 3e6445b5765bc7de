package page

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"html/template"
	"io/fs"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

// assetHash is that of all files that pages refer to, whose addresses contain it. They are hashed when a page is asked for first: most
// commands have none to show.
var assetHash = sync.OnceValue(func() string {
	sum := sha256.New()
	err := fs.WalkDir(staticFiles, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := staticFiles.ReadFile(name)
		_, _ = sum.Write(content) // never fails
		return err
	})
	if err != nil {
		panic(err) // the files are in the binary
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
})

// asset serves a file, which never changes at its address.
func asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	content, err := staticFiles.ReadFile("static/" + name)
	if err != nil || r.PathValue("hash") != assetHash() {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(content))
}

// templates are those of all pages, each with the common parts, parsed when a page is asked for first.
var templates = sync.OnceValue(parse)

func parse() map[string]*template.Template {
	all := map[string]*template.Template{}
	base := template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/base.html", "templates/parts.html"))
	names := []string{"message"}
	for name, p := range pages {
		if p.of == "" {
			names = append(names, name)
		}
	}
	for _, name := range names {
		source := name
		if name == overview {
			source = "overview"
		}
		all[name] = template.Must(template.Must(base.Clone()).ParseFS(templateFiles, "templates/"+source+".html"))
	}
	for name, p := range pages {
		if p.of != "" {
			all[name] = all[p.of]
		}
	}
	return all
}

const unknown = "–"

var functions = template.FuncMap{
	"asset": func(name string) string { return "static/" + assetHash() + "/" + name },
	"list":  notation.List, "class": class, "number": number, "rate": rate, "when": when, "age": age, "prose": prose, "why": why, "remedy": remedy, "stamp": stamp, "local": local, "eta": eta, "foreseen": foreseen, "clock": clock,
	"stampof": func(at delivery.Stamp) template.HTML { return stamp(at.Time()) },
	// query is what url.Values.Encode has made, which is not to be escaped once more.
	"query":    func(encoded string) template.URL { return template.URL(encoded) }, //nolint:gosec // escaped by url.Values
	"achieved": achieved, "before": before,
	"size": size, "istime": isTime,
	"typed": func(name string) string {
		return map[string]string{"until": "Until", "used": "Used", "rate": "Rate or percent", "reason": "Reason", "key": "Key", "typed": "Its id"}[name]
	},
	// blamed reports whether a field of a form is why it was not done.
	"blamed": func(name, fault string) bool {
		field, _, named := strings.Cut(strings.ToLower(fault), ":")
		return named && field == name
	},
	"waits": func(reason string) string {
		return cmp.Or(map[delivery.Reason]string{
			delivery.ReasonOverflow: "for its turn", delivery.ReasonRetry: "after a failed try", delivery.ReasonNotBefore: "for its time", delivery.ReasonStep: "between two steps", delivery.ReasonDestination: "for its destination, which takes no jobs or is busy",
			delivery.ReasonKey: "for the turn of its key", delivery.ReasonKeyLine: "for a turn of its key", delivery.ReasonHours: "for the hours of its recipient", delivery.ReasonNoZone: "for the hours of its recipient, whose zone is not known", delivery.ReasonUnknownDestination: "for the row of its destination",
		}[delivery.Reason(reason)], reason, unknown)
	},
	// A meter is amber from 80 % on, and red at 100 %.
	"low":     func(limit int64) float64 { return 0.8*float64(limit) - 0.001 },
	"high":    func(limit int64) float64 { return float64(limit) - 0.001 },
	"took":    took,
	"tookms":  func(ms float64) string { return took(ms / 1000) },
	"coming":  func(at any) bool { t, ok := known[time.Time](at); return ok && time.Until(t) > 0 },
	"share":   func(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" },
	"percent": func(v *float64) string { return strconv.FormatFloat(*v, 'f', 1, 64) + " %" },
	"row": func(name string) string {
		sum := fnv.New64a()
		_, _ = sum.Write([]byte(name)) // never fails
		return "r" + strconv.FormatUint(sum.Sum64(), 36)
	},
}

// class is how a state is shown: it is also in words.
func class(state string) string {
	switch {
	case state == view.Sending, state == view.Ramping, state == "ready", state == "answers", state == "open", state == "enabled", state == "delivered", state == "pending":
		return "good"
	case state == view.Idle:
		return "quiet"
	case state == "rejected", state == "interrupted": // of a sink's answers
		return "warn"
	case state == "not ready", state == "away", state == "disabled", state == "failing", state == "misconfigured", hold.Cause(state).Fault():
		return "bad"
	}
	return "warn"
}

// known returns a value, or what a pointer points to; ok is false of nil.
func known[T any](v any) (value T, ok bool) {
	if p, is := v.(*T); is && p != nil {
		return *p, true
	}
	value, ok = v.(T)
	return value, ok
}

// number formats a count with a space between thousands.
func number(v any) string {
	if n, is := v.(int); is {
		v = int64(n)
	}
	n, ok := known[int64](v)
	if !ok {
		return unknown
	}
	digits := strconv.FormatInt(n, 10)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteString("\u202f") // a narrow space that does not break
		}
		b.WriteRune(d)
	}
	return b.String()
}

func rate(v any) string {
	perSecond, ok := known[float64](v)
	switch {
	case !ok:
		return unknown
	case perSecond >= 100:
		return number(int64(perSecond + 0.5))
	case perSecond >= 1:
		return strings.TrimSuffix(strconv.FormatFloat(perSecond, 'f', 1, 64), ".0")
	}
	return strconv.FormatFloat(perSecond, 'g', 2, 64)
}

func size(bytes int64) string {
	if bytes < 10<<20 {
		return strconv.FormatFloat(float64(bytes)/(1<<20), 'f', 1, 64) + " MiB"
	}
	return number(bytes>>20) + " MiB"
}

// took formats seconds with two digits: they are known within an eighth.
func took(v any) string {
	seconds, ok := known[float64](v)
	if !ok {
		return unknown
	}
	digits := func(n float64) string {
		if n >= 10 {
			return number(int64(n + 0.5))
		}
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	if seconds >= 1 {
		return digits(seconds) + " s"
	}
	return digits(1000*seconds) + " ms"
}

// achieved is what part of what a campaign may send it sends, in percent; "" while it has nothing to send, or may send nothing.
func achieved(c *view.Campaign) string {
	if c.State != view.Sending || c.Sent == nil || c.Allowed <= 0 {
		return ""
	}
	return strconv.FormatFloat(100**c.Sent/c.Allowed, 'f', 0, 64) + " %"
}

// when is an instant with how far off it is.
func when(v any) template.HTML {
	t, ok := known[time.Time](v)
	if !ok || t.IsZero() {
		return unknown
	}
	off := time.Until(t).Round(time.Second)
	text := "now"
	switch {
	case off > 0:
		text = "in " + coarse(off)
	case off < 0:
		text = coarse(-off) + " ago"
	}
	return timeElement(t, "when", text)
}

// age is for how long something has been so.
func age(v any) template.HTML {
	t, ok := known[time.Time](v)
	if !ok || t.IsZero() {
		return unknown
	}
	return timeElement(t, "when", coarse(max(0, time.Since(t).Round(time.Second))))
}

// instants are times within texts, as RFC 3339 writes them.
var instants = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)

// prose is a text whose times are shown as those of the page are.
func prose(text string) template.HTML {
	return template.HTML(instants.ReplaceAllStringFunc(template.HTMLEscapeString(text), func(found string) string { //nolint:gosec // it is escaped
		at, err := time.Parse(time.RFC3339, found)
		if err != nil {
			return found
		}
		return string(clock(&at))
	}))
}

// why says what holds a campaign, without what its state beside it says.
func why(held *view.Held) template.HTML {
	text := held.Why
	if rest, ok := strings.CutPrefix(text, "it is "+held.Cause); ok {
		text = strings.TrimSpace(strings.TrimPrefix(rest, ", and"))
	}
	return prose(text)
}

// remedy says what to do about what holds a campaign; "" for a command, whose place buttons and links take.
func remedy(held *view.Held) string {
	if strings.Contains(held.Remedy, "pacer ") {
		return ""
	}
	return held.Remedy
}

// stamp is an instant in UTC, which a script writes in the zone of who looks.
func stamp(t time.Time) template.HTML {
	at := t.UTC()
	return template.HTML(fmt.Sprintf(`<time class="stamp" datetime="%s">%s</time>`, at.Format(time.RFC3339), at.Format("2006-01-02 15:04:05 UTC"))) //nolint:gosec // made of times only
}

// clock is the time of the day of an instant, with the day unless that is today.
func clock(t *time.Time) template.HTML {
	at, layout := t.UTC(), "15:04 UTC"
	if off := time.Until(at); off > 20*time.Hour || off < -20*time.Hour {
		layout = "2 Jan 15:04 UTC"
	}
	return timeElement(at, "clock", at.Format(layout))
}

// timeElement is an element with an instant, whose class says to a script how it is written.
func timeElement(t time.Time, class, text string) template.HTML {
	at := t.UTC()
	return template.HTML(fmt.Sprintf(`<time class="%s" datetime="%s" title="%s">%s</time>`, class, at.Format(time.RFC3339), at.Format("2006-01-02 15:04:05 UTC"), text)) //nolint:gosec // made of times only
}

// local is an instant in its own zone, with the day of the week.
func local(t time.Time) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%s">%s</time>`, t.Format(time.RFC3339), t.Format("Mon 2 Jan 15:04"))) //nolint:gosec // made of times only
}

// coarse is a duration in its two largest units.
func coarse(d time.Duration) string {
	switch {
	case d >= notation.Day:
		return fmt.Sprintf("%dd %dh", d/notation.Day, d%notation.Day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh %dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm %ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// foreseen returns when the backlog of a campaign will have been sent; nil: not known, or there is none.
func foreseen(c *view.Campaign) *time.Time {
	if c.Status == "paused" || c.Progress == nil || c.Backlog != nil && *c.Backlog == 0 { // what is stored may be from before the pause
		return nil
	}
	return c.Progress.DoneAt
}

func eta(c *view.Campaign) template.HTML { return when(foreseen(c)) }
