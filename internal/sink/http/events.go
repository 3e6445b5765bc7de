package http

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
)

// Modes of CloudEvents in HTTP.
const (
	eventsBinary     = "binary"     // attributes as headers, the payload as the body
	eventsStructured = "structured" // all in the body, as JSON
)

const (
	eventHeader    = "ce_" // begins the headers of a record that are attributes
	structuredType = "application/cloudevents+json"
)

// eventProblems adds what is wrong with the settings of CloudEvents.
func (c *Config) eventProblems(p *base.Problems) {
	if c.CloudEvents != eventsStructured {
		return
	}
	if c.Body != "" {
		p.Add("cloudevents: structured makes the body; remove body, or use binary")
	}
	if c.Method == http.MethodGet {
		p.Add("cloudevents: a GET has no body; use binary, or another method")
	}
	if c.sets(keyContentType) {
		p.Add("cloudevents: structured has a content type of its own; remove headers.content-type, or use binary")
	}
}

// event makes the request that of a CloudEvent. A record that has an event in its value is sent as it is.
func (c *Client) event(r *httpcall.Request, job *delivery.Job) error {
	media, _, _ := mime.ParseMediaType(job.ContentType)
	if media == structuredType {
		return nil
	}
	attributes, err := eventOf(job)
	if err != nil {
		return err
	}
	key := func(name string) string { return http.CanonicalHeaderKey("ce-" + name) }
	binary := c.config.CloudEvents == eventsBinary
	for _, name := range [...]string{"source", "type"} { // which pacer cannot know
		if attributes[name] == "" && (!binary || r.Header[key(name)] == nil) {
			return fmt.Errorf("cloudevents: the record has no header %s%s", eventHeader, name)
		}
	}
	if binary {
		for name, value := range attributes {
			r.Header[key(name)] = []string{percentEncoded(value)}
		}
		return nil
	}
	r.Header[keyContentType] = []string{structuredType}
	r.Body, err = structured(attributes, job, media)
	return err
}

// eventOf returns the attributes of a job's event: those of its record that are not empty, the last of each name.
func eventOf(job *delivery.Job) (map[string]string, error) {
	attributes := map[string]string{"specversion": "1.0", "id": job.ID}
	for _, h := range job.Headers {
		name, is := strings.CutPrefix(h.Key, eventHeader)
		if !is || name == "datacontenttype" || len(h.Value) == 0 { // the type is content-type
			continue
		}
		if name == "" || name == "data" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
			return nil, errors.New("cloudevents: a header of the record begins with ce_, and is not the name of an attribute")
		}
		if !utf8.Valid(h.Value) || len(h.Value) > httpcall.MaxHeaderBytes {
			return nil, fmt.Errorf("cloudevents: the header %s%s is not text, or is too long", eventHeader, name)
		}
		attributes[name] = string(h.Value)
	}
	if attributes["specversion"] != "1.0" {
		return nil, errors.New("cloudevents: the record's ce_specversion is not 1.0")
	}
	return attributes, nil
}

// structured returns an event as JSON: with data as JSON, or as text, or in base64, by the content type.
func structured(attributes map[string]string, job *delivery.Job, media string) ([]byte, error) {
	event := make(map[string]any, len(attributes)+2)
	for name, value := range attributes {
		event[name] = value
	}
	event["datacontenttype"] = job.ContentType
	switch {
	case job.ContentType == "":
		event["datacontenttype"] = defaultContentType
		event["data_base64"] = base64.StdEncoding.EncodeToString(job.Payload)
	case len(job.Payload) == 0:
	case strings.HasSuffix(media, "/json") || strings.HasSuffix(media, "+json"):
		if !json.Valid(job.Payload) {
			return nil, errors.New("cloudevents: the payload is not JSON, which its content type says")
		}
		event["data"] = json.RawMessage(job.Payload)
	case strings.HasPrefix(media, "text/") && utf8.Valid(job.Payload):
		event["data"] = string(job.Payload)
	default:
		event["data_base64"] = base64.StdEncoding.EncodeToString(job.Payload)
	}
	return json.Marshal(event)
}

// percentEncoded returns the value of an attribute as a header's: what is not printable ASCII, and what would be ambiguous, as
// percent and two digits for each byte of its UTF-8.
func percentEncoded(s string) string {
	special := func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '"' || c == '%' }
	if !strings.ContainsFunc(s, special) {
		return s
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if special(rune(c)) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
