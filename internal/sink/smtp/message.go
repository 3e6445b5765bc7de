package smtp

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/mail"
	"regexp"
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
	headers  render.Set // by name
	composed bool       // false: the payload is the message
}

// newForm parses the templates, and tells the Reader of errors.
func newForm(r *access.Reader, t *Texts) *form {
	var headers []render.Text
	for name, text := range t.Headers {
		headers = append(headers, render.Text{Key: name, Text: text})
	}
	return &form{texts: r.Texts(t.settings()...), headers: r.Texts(headers...), composed: t.composed()}
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
	view := render.NewJob(job, now)
	if f.composed {
		return f.compose(job, view)
	}
	return f.whole(job, view)
}

// compose makes a message of texts.
func (f *form) compose(job *delivery.Job, view *render.Job) (*message, error) {
	from, err := f.address(keyFrom, view)
	if err != nil {
		return nil, err
	}
	to, err := f.address(keyTo, view)
	if err != nil {
		return nil, err
	}
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	msg.FromMailAddress(from)
	msg.ToMailAddress(to)
	if f.texts[keyReplyTo] != nil {
		reply, err := f.address(keyReplyTo, view)
		if err != nil {
			return nil, err
		}
		msg.ReplyToMailAddress(reply)
	}
	subject, err := f.line(keySubject, f.texts[keySubject], view)
	if err != nil {
		return nil, err
	}
	msg.Subject(subject)
	msg.SetDateWithValue(view.Time)
	msg.SetGenHeader(gomail.HeaderMessageID, "<"+messageID(job, from.Address)+">")
	for name, t := range f.headers {
		value, err := f.line(name, t, view)
		if err != nil {
			return nil, err
		}
		if value != "" {
			msg.SetGenHeader(gomail.Header(name), value)
		}
	}
	for _, part := range []struct {
		key  string
		kind gomail.ContentType
	}{{keyText, gomail.TypeTextPlain}, {keyHTML, gomail.TypeTextHTML}} {
		if f.texts[part.key] == nil {
			continue
		}
		body, err := f.texts[part.key].Text(view, render.BodyLimit(job))
		if err != nil {
			return nil, err
		}
		msg.AddAlternativeString(part.kind, body)
	}
	var data bytes.Buffer
	if _, err := msg.WriteTo(&data); err != nil {
		return nil, errors.New("the message cannot be written") // to memory: never
	}
	return f.envelope(from, to, view, data.Bytes())
}

// whole takes the payload for the message, and adds what every message needs.
func (f *form) whole(job *delivery.Job, view *render.Job) (*message, error) {
	if err := wellFormed(job.Payload); err != nil {
		return nil, err
	}
	parsed, err := mail.ReadMessage(bytes.NewReader(job.Payload))
	if err != nil {
		return nil, errors.New("the payload is no message: it does not begin with headers")
	}
	from, err := unnamed.Parse(parsed.Header.Get("From"))
	if err != nil {
		return nil, errors.New("the payload is no message: it has no From, or one that is not an address")
	}
	if from, err = checked("the payload's From", from); err != nil {
		return nil, err
	}
	to, err := f.address(keyTo, view)
	if errors.Is(err, errNoAddress) {
		if to, err = unnamed.Parse(strings.Join(parsed.Header["To"], ", ")); err != nil {
			return nil, errors.New("to: the job names no recipient, and the payload's To is not one address")
		}
		to, err = checked("the payload's To", to)
	}
	if err != nil {
		return nil, err
	}
	var added string
	if parsed.Header.Get("Message-Id") == "" {
		added = "Message-ID: <" + messageID(job, from.Address) + ">\r\n"
	}
	if parsed.Header.Get("Date") == "" {
		added += "Date: " + view.Time.Format(time.RFC1123Z) + "\r\n"
	}
	return f.envelope(from, to, view, append([]byte(added), job.Payload...))
}

// unnamed parses addresses in headers whose names may be in any encoding, since they are sent as they are.
var unnamed = mail.AddressParser{WordDecoder: &mime.WordDecoder{
	CharsetReader: func(string, io.Reader) (io.Reader, error) { return strings.NewReader("?"), nil },
}}

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
func (f *form) envelope(from, to *mail.Address, view *render.Job, data []byte) (*message, error) {
	if f.texts[keyEnvelopeFrom] != nil {
		var err error
		if from, err = f.address(keyEnvelopeFrom, view); err != nil {
			return nil, err
		}
	}
	bare := func(a *mail.Address) string { return (&mail.Address{Address: a.Address}).String() } // quoted where it has to be
	return &message{
		from: bare(from), to: bare(to), data: data, utf8: !isASCII(from.Address + to.Address),
	}, nil
}

var errNoAddress = errors.New("the job names none")

// address makes an address of a template.
func (f *form) address(key string, view *render.Job) (*mail.Address, error) {
	text, err := f.texts[key].Text(view, maxHeader)
	if err != nil {
		return nil, err
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, fmt.Errorf("%s: %w", key, errNoAddress)
	}
	a, err := parseAddress(text)
	if err != nil {
		return nil, fmt.Errorf("%s: not an address", key)
	}
	return checked(key, a)
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
func checked(what string, a *mail.Address) (*mail.Address, error) {
	address, err := a.Address, error(nil)
	if at := strings.LastIndexByte(address, '@'); !isASCII(address[at:]) {
		var domain string
		domain, err = idna.Lookup.ToASCII(address[at+1:])
		address = address[:at+1] + domain
	}
	if err != nil || len(address) > maxAddress || strings.ContainsFunc(address+a.Name, unicode.IsControl) {
		return nil, fmt.Errorf("%s: not an address that mail can be sent to or from", what)
	}
	return &mail.Address{Name: a.Name, Address: address}, nil
}

// line makes the text of a header: on one line, so that a job cannot add headers.
func (f *form) line(key string, t *render.Template, view *render.Job) (string, error) {
	text, err := t.Text(view, maxHeader)
	if err != nil {
		return "", err
	}
	text = strings.Join(strings.Fields(text), " ")
	if strings.ContainsFunc(text, unicode.IsControl) {
		return "", fmt.Errorf("%s: it has characters that a header cannot have", key)
	}
	return text, nil
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
