package httpcall

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/delivery"
)

// maxShown bounds what is shown of a body, in bytes.
const maxShown = 4 << 10

// show adds the request to Shown, if that is set. Values that the configuration adds are left out, since they may be secrets.
func (t *trip) show(req *http.Request) {
	if t.Shown != nil {
		header := headerText(req.Header, func(name string) bool { return name == keyAuthorization || t.Hides != nil && t.Hides(name) })
		text := fmt.Sprintf("%s %s\n%s\n%s", req.Method, req.URL, header, withoutCredentials(Shorten(t.Body)))
		t.Shown.Request = join(t.Shown.Request, t.public(text))
	}
}

// join appends what is shown of a call to that of the calls before it.
func join(before, text string) string { return strings.TrimPrefix(before+"\n\n"+text, "\n\n") }

// headerText returns a header as text, without the values that are hidden.
func headerText(header http.Header, hides func(name string) bool) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(header)) {
		value := strings.Join(header[name], ", ")
		if hides(name) {
			value = "***"
		}
		fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(name), value)
	}
	return b.String()
}

var (
	// credentialHeaders are those of an answer that hold what others must not see.
	credentialHeaders = regexp.MustCompile(`(?i)authorization|cookie|secret|token|password|api-?key`)
	// credentialFields are those of a body in JSON, such as that of a step that logs in.
	credentialFields = regexp.MustCompile(`(?i)("(?:access_?token|refresh_?token|id_?token|session_?token|client_?secret|password|api_?key)"\s*:\s*)"(?:[^"\\]|\\.)*"?`)
)

// answerText returns an answer as text.
func answerText(resp *http.Response, body []byte) string {
	return fmt.Sprintf("HTTP %s\n%s\n%s", strings.TrimSpace(resp.Status), headerText(resp.Header, credentialHeaders.MatchString),
		withoutCredentials(Shorten(body)))
}

func withoutCredentials(body string) string {
	return credentialFields.ReplaceAllString(body, `$1"***"`)
}

// public returns text of an exchange without secrets: neither those of the client and of the request, nor what the request has as its
// credentials.
func (t *trip) public(text string) string {
	text = t.client.secrets.Replace(text)
	if t.Secrets != nil {
		text = t.Secrets.Replace(text)
	}
	// Such as "bearer TOKEN", or "vapid t=TOKEN, k=KEY".
	for _, part := range strings.FieldsFunc(t.Header.Get(keyAuthorization), func(c rune) bool { return strings.ContainsRune(" ,=", c) }) {
		if len(part) >= minSecret {
			text = strings.ReplaceAll(text, part, "***")
		}
	}
	return text
}

// Keep returns the result of an answer without secrets, with the beginning of an answer that did not take the job. More is read than is
// kept: a secret at the end of what is kept must be whole to be found. An address that a job has is a secret, too: it may let those who
// know it send.
func (a Answer) Keep(res delivery.Result) delivery.Result {
	kept := *cmp.Or(res.Provider, &delivery.Provider{})
	res.Provider = nil
	if res.Class != delivery.Delivered {
		kept.Answer = strings.ToValidUTF8(string(a.Body[:min(len(a.Body), maxShown)]), "?")
	}
	if kept == (delivery.Provider{}) && res.Detail == "" {
		return res
	}
	address := Scrubber(nil)
	if a.trip.client.Options.Guard != nil {
		address = Scrubber(partsOf(a.URL))
	}
	for _, text := range []*string{&res.Detail, &kept.Code, &kept.MessageID, &kept.Answer} {
		if *text != "" {
			*text = address.Replace(a.trip.public(*text))
		}
	}
	if kept.Answer = strings.Join(strings.Fields(withoutCredentials(kept.Answer)), " "); kept != (delivery.Provider{}) {
		res.Provider = &kept
	}
	return res
}

// Shorten returns the beginning of a body as a person is to see it.
func Shorten(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("(%d bytes that are not text)", len(b))
	}
	if len(b) > maxShown {
		return fmt.Sprintf("%s… (%d bytes)", b[:maxShown], len(b))
	}
	return string(b)
}
