package smtp

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/render"
)

var at = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func job(to string, payload string, headers ...string) *delivery.Job {
	j := &delivery.Job{ID: "u-42", Campaign: "spring", Payload: []byte(payload)}
	j.Headers = []delivery.Header{{Key: "to", Value: []byte(to)}}
	for i := 0; i+1 < len(headers); i += 2 {
		j.Headers = append(j.Headers, delivery.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return j
}

func texts(change func(*Texts)) *Texts {
	t := Default().Texts
	t.From, t.Subject, t.Text, t.HTML = "Müller & Söhne <news@example.com>", "Für {{ .JSON.name }}", "Hallo {{ .JSON.name }}\n", "<b>{{ .JSON.name }}</b>"
	if change != nil {
		change(&t)
	}
	return &t
}

func mustForm(t interface{ Fatal(args ...any) }, x *Texts) *form {
	if p := x.problems(); len(p) > 0 {
		t.Fatal(p)
	}
	f, _, err := access.Read(access.Secrets{}, func(r *access.Reader) *form { return newForm(r, x) })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestComposed: what a program of mail reads is what the templates say.
func TestComposed(t *testing.T) {
	f := mustForm(t, texts(func(x *Texts) {
		x.ReplyTo, x.EnvelopeFrom = "Büro <office@example.com>", "bounces+{{ .ID }}@example.com"
		x.Headers = map[string]string{"List-Unsubscribe": "<https://example.com/{{ .ID }}>", "X-Empty": `{{ .Header "none" }}`}
	}))
	m, err := f.message(job(`"Ann, O'Neil" <ann@bücher.example>`, `{"name":"Ann <&> Söhne"}`), at)
	if err != nil {
		t.Fatal(err)
	}
	if m.from != "<bounces+u-42@example.com>" || m.to != "<ann@xn--bcher-kva.example>" || m.utf8 {
		t.Errorf("%+v", m)
	}
	read, err := mail.ReadMessage(bytes.NewReader(m.data))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Subject": "Für Ann <&> Söhne", "From": "Müller & Söhne <news@example.com>", "To": `"Ann, O'Neil" <ann@xn--bcher-kva.example>`,
		"Reply-To": "Büro <office@example.com>", "List-Unsubscribe": "<https://example.com/u-42>", "X-Empty": "", "User-Agent": "",
		"Date": "Sun, 01 Nov 2026 12:00:00 +0000", "Mime-Version": "1.0",
	} {
		if got, err := new(mime.WordDecoder).DecodeHeader(read.Header.Get(name)); got != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
	if got := read.Header.Get("Message-Id"); !regexp.MustCompile(`^<u-42\.[a-z2-7]{16}@example\.com>$`).MatchString(got) {
		t.Error(got)
	}
	_, params, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	parts := multipart.NewReader(read.Body, params["boundary"])
	for _, want := range []struct{ kind, body string }{
		{"text/plain; charset=UTF-8", "Hallo Ann <&> Söhne\r\n"}, {"text/html; charset=UTF-8", "<b>Ann &lt;&amp;&gt; Söhne</b>"},
	} {
		part, err := parts.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(quotedprintable.NewReader(part))
		if err != nil || part.Header.Get("Content-Type") != want.kind || string(body) != want.body {
			t.Errorf("%v, %q, %v, want %+v", part.Header, body, err, want)
		}
	}
	if _, err := parts.NextRawPart(); err != io.EOF {
		t.Error(err)
	}
}

// TestNames: the name of a recipient needs no quotes, whatever people are called.
func TestNames(t *testing.T) {
	f := mustForm(t, texts(func(x *Texts) {
		x.From, x.To = "News, Inc. <news@example.com>", `{{ .JSON.name }} <{{ .Header "to" }}>`
	}))
	for _, name := range []string{"Smith, Ann", "Dr. Ann O'Neil: sales", "Ann (Annie", `Ann "Annie`, "Söhne; Müller", `a\b`, "[x]", "a > b < c"} {
		payload, _ := render.JSON(map[string]string{"name": name})
		m, err := f.message(job("ann@example.org", payload), at)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		read, err := mail.ReadMessage(bytes.NewReader(m.data))
		if err != nil {
			t.Fatal(err)
		}
		to, err := mail.ParseAddress(read.Header.Get("To"))
		if err != nil || to.Name != name || to.Address != "ann@example.org" || m.to != "<ann@example.org>" {
			t.Errorf("%s: %+v, %v, to %s", name, to, err, m.to)
		}
	}
}

// TestNothingIsInjected: for every job, the message has only the headers of the configuration, and one recipient.
func TestNothingIsInjected(t *testing.T) {
	f := mustForm(t, texts(func(x *Texts) {
		x.From, x.Subject, x.Text, x.HTML = `{{ .Header "from" }}`, `{{ .Header "x" }}`, "{{ .Payload }}", ""
		x.ReplyTo, x.Headers = `{{ .Header "from" }}`, map[string]string{"X-Job": `{{ .Header "x" }}`}
	}))
	evil := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z <>@,.:;"\r\n\t\x00ö\\()\[\]=?]{0,800}`),
		rapid.StringMatching(`[a-z]{1,3}(\r\n|\n|\r|\x0b|\x{2028}| )(Bcc: x@y\.z|\.\r\n|RCPT TO:<x@y\.z>){1,2}`))
	address := rapid.OneOf(evil, rapid.Map(evil, func(s string) string { return s + " <a@example.com>" }),
		rapid.Map(evil, func(s string) string { return `"` + s + `"@example.com` }), rapid.Just("ann@example.com"))
	made := 0
	rapid.Check(t, func(rt *rapid.T) {
		j := job(address.Draw(rt, "to"), evil.Draw(rt, "payload"), "x", evil.Draw(rt, "x"), "from", address.Draw(rt, "from"))
		m, err := f.message(j, at)
		if err != nil {
			return
		}
		made++
		for _, a := range []string{m.from, m.to} {
			if parsed, err := mail.ParseAddress(a); err != nil || strings.ContainsAny(a, "\r\n\x00") || !strings.HasPrefix(a, "<") || !strings.HasSuffix(a, ">") {
				rt.Fatalf("%q: %v, %v", a, parsed, err)
			}
		}
		if wellFormed(m.data) != nil || bytes.Contains(bytes.ReplaceAll(m.data, []byte("\r\n"), nil), []byte("\n")) {
			rt.Fatalf("%q", m.data)
		}
		read, err := mail.ReadMessage(bytes.NewReader(m.data))
		if err != nil {
			rt.Fatalf("%v: %q", err, m.data)
		}
		for name, values := range read.Header {
			switch name {
			case "From", "To", "Reply-To", "Subject", "Date", "Message-Id", "Mime-Version", "Content-Type", "Content-Transfer-Encoding", "X-Job":
			default:
				rt.Fatalf("%s: %q", name, values)
			}
			if len(values) != 1 {
				rt.Fatalf("%s: %q", name, values)
			}
		}
		for _, line := range strings.Split(string(m.data), "\r\n") {
			if len(line) > 998 {
				rt.Fatalf("a line of %d bytes", len(line))
			}
		}
	})
	if made == 0 {
		t.Error("no message was made")
	}
}

// TestWhole: the payload is the message, with what it lacks.
func TestWhole(t *testing.T) {
	f := mustForm(t, &Texts{To: `{{ .Header "to" }}`})
	payload := "From: a@example.com\r\nTo: Ann <ann@example.org>\r\nSubject: x\r\n\r\n.\r\nhellö\n"
	m, err := f.message(job("bob@example.org", payload), at)
	if err != nil {
		t.Fatal(err)
	}
	if m.from != "<a@example.com>" || m.to != "<bob@example.org>" || !bytes.HasSuffix(m.data, []byte("\r\n"+payload)) {
		t.Errorf("%+v: %q", m, m.data)
	}
	read, err := mail.ReadMessage(bytes.NewReader(m.data))
	if err != nil || read.Header.Get("Message-Id") == "" || read.Header.Get("Date") != "Sun, 01 Nov 2026 12:00:00 +0000" {
		t.Errorf("%v, %v", read, err)
	}
	m, err = f.message(job("", "Message-ID: <1@x>\nDate: Sun, 01 Nov 2026 12:00:00 +0000\n"+strings.ReplaceAll(payload, "\r", "")), at)
	if err != nil || m.to != "<ann@example.org>" || !bytes.HasPrefix(m.data, []byte("Message-ID: <1@x>\nDate: ")) {
		t.Errorf("%+v, %v", m, err)
	}
	named := "From: =?koi8-r?B?9MXT1A==?= <a@example.com>\r\nTo: =?ISO-2022-JP?B?GyRCJCIbKEI=?= <ann@example.org>\r\n\r\nhi\r\n" // in any encoding
	m, err = f.message(job("", named), at)
	if err != nil || m.from != "<a@example.com>" || m.to != "<ann@example.org>" || !bytes.HasSuffix(m.data, []byte(named)) {
		t.Errorf("%+v, %v", m, err)
	}
	for payload, want := range map[string]string{
		"hello": "does not begin with headers", "": "does not begin with headers", "Subject: x\n\nhi": "no From",
		"From: a@example.com\n\nhi":                                    "to: the job names no recipient",
		"From: a@example.com\nTo: a@example.com, b@example.com\n\nhi":  "to: the job names no recipient",
		"From: a@example.com\nTo: a@example.com\n\nhi\r.\rMAIL FROM:<": "a CR without LF",
		"From: a@example.com\nTo: a@example.com\n\nhi\x00":             "a NUL",
	} {
		if _, err := f.message(job("", payload), at); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", payload, err, want)
		}
	}
}

// TestNotAMessage: what cannot be sent is an error that does not repeat the job.
func TestNotAMessage(t *testing.T) {
	f := mustForm(t, texts(func(x *Texts) { x.HTML = ""; x.Subject = `{{ .Header "s" }}` }))
	ok := `{"name":"x"}`
	for _, tt := range []struct{ to, payload, subject, want string }{
		{"", ok, "s", "to: the job names none"},
		{"hunter22", ok, "s", "to: not an address"},
		{"a@example.com, hunter22@example.com", ok, "s", "to: not an address"},
		{"Ann <a@example.com>, hunter22 <b@example.com>", ok, "s", "to: not an address"},
		{strings.Repeat(`"`, 801) + " <a@example.com>", ok, "s", "to: not an address"},
		{"hunter22@" + strings.Repeat("x", 300), ok, "s", "to: not an address that mail can be sent to or from"},
		{"hunter22@\u200d.example", ok, "s", "to: not an address that mail can be sent to or from"},
		{"a@example.com", `{"hunter22":1}`, "s", `map has no entry for key "name"`},
		{"a@example.com", ok, "hunter22\x00", "subject: it has characters that a header cannot have"},
		{"a@example.com", ok, strings.Repeat("hunter22", 200), "the text is too long"},
	} {
		_, err := f.message(job(tt.to, tt.payload, "s", tt.subject), at)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestMessageID: it is always the same for a job, and that of no other one.
func TestMessageID(t *testing.T) {
	seen := map[string]string{}
	for _, j := range []*delivery.Job{
		{ID: "a", Campaign: "x"}, {ID: "a", Campaign: "y"}, {ID: "x", Campaign: "a"}, {ID: "<@>", Campaign: "x"}, {ID: strings.Repeat("a", 256), Campaign: "x"},
		{ID: "t/0/1", Campaign: "x", History: delivery.History{Origin: delivery.Origin{Topic: "t", Offset: 1, TopicID: delivery.NewTopicID([16]byte{2})}}},
		{ID: "t/0/1", Campaign: "x", History: delivery.History{Origin: delivery.Origin{Topic: "t", Offset: 1, TopicID: delivery.NewTopicID([16]byte{1})}}},
	} {
		id := messageID(j, "a@example.com")
		if id != messageID(j, "b@example.com") || len(id) > 120 {
			t.Error(id)
		}
		if _, err := mail.ParseAddress(id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the same: %s", j.ID, other, id)
		}
		seen[id] = j.ID
	}
}
