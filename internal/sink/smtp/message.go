package smtp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/mail"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	gomail "github.com/wneessen/go-mail"
	"golang.org/x/net/idna"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
)

// Bounds on what is made of a job, in bytes.
const (
	maxHeader  = 900 // of a header's text: with its name it fits the longest line that there may be
	maxAddress = 254 // RFC 5321, section 4.5.3.1.3
)

// form makes messages of jobs.
type form struct {
	texts    render.Set
	headers  []string // names
	composed bool     // false: the payload is the message
}

// newForm parses the templates, and tells the Reader of errors.
func newForm(r *access.Reader, t *Texts) *form {
	return &form{texts: r.Texts(t.settings()...), headers: slices.Sorted(maps.Keys(t.Headers)), composed: t.composed()}
}

// message is what is sent for a job: to one recipient, so that there is one answer.
type message struct {
	from, to string // in angle brackets, as they are sent
	utf8     bool   // an address has other characters than ASCII
	data     []byte // lines end in CRLF or LF
}

// String returns the message as a person is to see it.
func (m *message) String() string {
	return "MAIL FROM:" + m.from + "\nRCPT TO:" + m.to + "\nDATA\n" + strings.ReplaceAll(httpcall.Shorten(m.data), "\r\n", "\n")
}

// message returns the message for a job. An error is about the job, and holds nothing of it but what the error is about.
func (f *form) message(job *delivery.Job, now time.Time) (*message, error) {
	w := &writing{form: f, job: job, view: render.NewJob(job, now)}
	var m *message
	if f.composed {
		m = w.compose()
	} else {
		m = w.whole()
	}
	return m, w.err
}

// writing is a message that is being made. The first error stays: what is made after it is not used.
type writing struct {
	*form
	job  *delivery.Job
	view *render.Job
	err  error
}

func (w *writing) fail(err error) { w.err = cmp.Or(w.err, err) }

// compose makes a message of texts.
func (w *writing) compose() *message {
	from, to := w.address("from"), w.address("to")
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(from)
	msg.ToMailAddress(to)
	if w.texts["reply_to"] != nil {
		msg.ReplyToMailAddress(w.address("reply_to"))
	}
	msg.Subject(w.line("subject"))
	msg.SetDateWithValue(w.view.Time)
	msg.SetGenHeader(gomail.HeaderMessageID, "<"+messageID(w.job, from.Address)+">")
	for _, name := range w.headers {
		if value := w.line("headers." + name); value != "" {
			msg.SetGenHeader(gomail.Header(name), value)
		}
	}
	for _, part := range []struct {
		key  string
		kind gomail.ContentType
	}{{"text", gomail.TypeTextPlain}, {"html", gomail.TypeTextHTML}} {
		if w.texts[part.key] != nil {
			msg.AddAlternativeString(part.kind, w.text(part.key, render.BodyLimit(w.job)))
		}
	}
	if w.err != nil {
		return nil
	}
	var data bytes.Buffer
	_, err := msg.WriteTo(&data) // to memory
	w.fail(err)
	return w.envelope(from, to, data.Bytes())
}

// whole takes the payload for the message, and adds what every message needs.
func (w *writing) whole() *message {
	if w.fail(wellFormed(w.job.Payload)); w.err != nil {
		return nil
	}
	parsed, err := mail.ReadMessage(bytes.NewReader(w.job.Payload))
	if err != nil {
		w.fail(errors.New("the payload is no message: it does not begin with headers"))
		return nil
	}
	from := w.own("From", parsed.Header.Get("From"), "the payload is no message: it has no From, or one that is not an address")
	to := w.address("to")
	if errors.Is(w.err, errNoAddress) {
		w.err = nil
		to = w.own("To", strings.Join(parsed.Header["To"], ", "), "to: the job names no recipient, and the payload's To is not one address")
	}
	if w.err != nil {
		return nil
	}
	var added string
	if parsed.Header.Get("Message-Id") == "" {
		added = "Message-ID: <" + messageID(w.job, from.Address) + ">\r\n"
	}
	if parsed.Header.Get("Date") == "" {
		added += "Date: " + w.view.Time.Format(time.RFC1123Z) + "\r\n"
	}
	return w.envelope(from, to, append([]byte(added), w.job.Payload...))
}

// unnamed parses addresses in headers whose names may be in any encoding, since they are sent as they are.
var unnamed = mail.AddressParser{WordDecoder: &mime.WordDecoder{
	CharsetReader: func(string, io.Reader) (io.Reader, error) { return strings.NewReader("?"), nil },
}}

// own returns the address in a header of the payload.
func (w *writing) own(name, text, wrong string) *mail.Address {
	a, err := unnamed.Parse(text)
	if err != nil {
		return w.noAddress(errors.New(wrong))
	}
	return w.checked("the payload's "+name, a)
}

// wellFormed looks for what a server could take for the end of the message, and for what no message may have.
func wellFormed(payload []byte) error {
	for i, c := range payload {
		if c == 0 || c == '\r' && (i+1 == len(payload) || payload[i+1] != '\n') {
			return errors.New("the payload is no message: it has a NUL, or a CR without LF")
		}
	}
	return nil
}

// envelope returns the message with the addresses that it is sent from and to.
func (w *writing) envelope(from, to *mail.Address, data []byte) *message {
	if w.texts["envelope_from"] != nil {
		from = w.address("envelope_from")
	}
	bare := func(a *mail.Address) string { return (&mail.Address{Address: a.Address}).String() } // quoted where it has to be
	return &message{from: bare(from), to: bare(to), data: data, utf8: !isASCII(from.Address + to.Address)}
}

// text makes the text of a template.
func (w *writing) text(key string, limit int) string {
	text, err := w.texts.Make(key, w.view, limit)
	w.fail(err)
	return text
}

// line makes the text of a header: on one line, so that a job cannot add headers.
func (w *writing) line(key string) string {
	text := strings.Join(strings.Fields(w.text(key, maxHeader)), " ")
	if strings.ContainsFunc(text, unicode.IsControl) {
		w.fail(fmt.Errorf("%s: it has characters that a header cannot have", key))
	}
	return text
}

var errNoAddress = errors.New("the job names none")

// address makes an address of a template.
func (w *writing) address(key string) *mail.Address {
	text := strings.TrimSpace(w.text(key, maxHeader))
	if text == "" {
		return w.noAddress(fmt.Errorf("%s: %w", key, errNoAddress))
	}
	a, err := parseAddress(text)
	if err != nil {
		return w.noAddress(fmt.Errorf("%s: not an address", key))
	}
	return w.checked(key, a)
}

// noAddress stands for an address that there is not.
func (w *writing) noAddress(why error) *mail.Address {
	w.fail(why)
	return &mail.Address{Address: "@"}
}

// parseAddress parses one address. Its name need not be quoted, even with a comma in it, unless it has an @.
func parseAddress(text string) (*mail.Address, error) {
	a, err := mail.ParseAddress(text)
	begin := strings.LastIndexByte(text, '<')
	if err == nil || begin < 0 || strings.Contains(text[:begin], "@") {
		return a, err
	}
	if a, err = mail.ParseAddress(text[begin:]); err != nil {
		return nil, err
	}
	if a.Name = strings.TrimSpace(text[:begin]); isASCII(a.Name) && len(a.String()) > maxHeader { // quotes make it longer
		return nil, errors.New("the name is too long")
	}
	return a, nil
}

// checked returns the address as it is sent.
func (w *writing) checked(what string, a *mail.Address) *mail.Address {
	address, err := a.Address, error(nil)
	if at := strings.LastIndexByte(address, '@'); !isASCII(address[at:]) {
		var domain string
		domain, err = idna.Lookup.ToASCII(address[at+1:])
		address = address[:at+1] + domain
	}
	if err != nil || len(address) > maxAddress || strings.ContainsFunc(address+a.Name, unicode.IsControl) {
		return w.noAddress(fmt.Errorf("%s: not an address that mail can be sent to or from", what))
	}
	return &mail.Address{Name: a.Name, Address: address}
}

var plainID = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

// idLength bounds how much of a job's id is in that of its message.
const idLength = 64

// messageID returns the id of a job's message. It is always the same, so that mail servers and programs can recognise the second of two
// attempts. Each job has its own, since they throw away an apparent second attempt.
func messageID(job *delivery.Job, from string) string {
	sum := sha256.Sum256([]byte(job.Campaign + "\x00" + job.Scope() + "\x00" + job.ID))
	id := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:10]))
	if len(job.ID) <= idLength && plainID.MatchString(job.ID) {
		id = job.ID + "." + id
	}
	return id + from[strings.LastIndexByte(from, '@'):]
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c >= utf8.RuneSelf })
}
