package http

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// event is a job whose record has an event in binary mode.
func event(change ...func(*delivery.Job)) *delivery.Job {
	j := job()
	for name, value := range map[string]string{
		"ce_specversion": "1.0", "ce_id": "e-1", "ce_source": "/shop", "ce_type": "order.made", "ce_subject": "Zoë \"42%\"", "ce_traceid": "7", "other": "x",
	} {
		j.Headers = append(j.Headers, delivery.Header{Key: name, Value: []byte(value)})
	}
	for _, f := range change {
		f(j)
	}
	return j
}

func without(name string) func(*delivery.Job) {
	return func(j *delivery.Job) {
		for i := range j.Headers {
			if j.Headers[i].Key == name {
				j.Headers[i].Key = "other"
			}
		}
	}
}

func contentType(v, payload string) func(*delivery.Job) {
	return func(j *delivery.Job) { j.ContentType, j.Payload = v, []byte(payload) }
}

func TestBinaryEvents(t *testing.T) {
	url, last := got(t)
	s := newSink(t, Config{URL: url}, func(c *Config) {
		c.CloudEvents, c.Headers = "binary", map[string]string{"ce-source": "/default", "ce-extra": "y"}
	})
	for _, tt := range []struct {
		job  *delivery.Job
		want string
	}{
		{event(), "1.0 e-1 /shop order.made Zo%C3%AB%20%2242%25%22 7 y"},
		{event(without("ce_id"), without("ce_specversion"), without("ce_source"), without("ce_subject"), without("ce_traceid")), "1.0 u-42 /default order.made   y"},
	} {
		sinktest.Deliver(t, s, tt.job, delivery.Delivered)
		var list []string
		for _, name := range []string{"specversion", "id", "source", "type", "subject", "traceid", "extra"} {
			list = append(list, last.header.Get("ce-"+name))
		}
		if all := strings.Join(list, " "); all != tt.want || last.body != `{"a":1}` || last.header.Get("content-type") != "application/json" || last.header.Get("other") != "" {
			t.Errorf("%s, %s of %s; want %s", all, last.body, last.header.Get("content-type"), tt.want)
		}
	}
}

func TestStructuredEvents(t *testing.T) {
	url, last := got(t)
	s := newSink(t, Config{URL: url}, func(c *Config) { c.CloudEvents, c.Sign.Secrets = "structured", []string{secretOf("a")} })
	for _, tt := range []struct {
		job  *delivery.Job
		want string
	}{
		{event(), `"data":{"a":1},"datacontenttype":"application/json"`},
		{event(contentType("application/vnd.x+json; charset=utf-8", `[1]`)), `"data":[1],"datacontenttype":"application/vnd.x+json; charset=utf-8"`},
		{event(contentType("text/plain", "a\nü")), `"data":"a\nü","datacontenttype":"text/plain"`},
		{event(contentType("text/plain", "\xff")), `"data_base64":"/w==","datacontenttype":"text/plain"`},
		{event(contentType("image/png", "png")), `"data_base64":"cG5n","datacontenttype":"image/png"`},
		{event(contentType("", "x")), `"data_base64":"eA==","datacontenttype":"application/octet-stream"`},
		{event(contentType("application/json", "")), `"datacontenttype":"application/json"`},
	} {
		sinktest.Deliver(t, s, tt.job, delivery.Delivered)
		want := "{" + tt.want + `,"id":"e-1","source":"/shop","specversion":"1.0","subject":"Zoë \"42%\"","traceid":"7","type":"order.made"}`
		if last.body != want || last.header.Get("content-type") != structuredType || last.header.Get("ce-id") != "" {
			t.Errorf("%s of %s\nwant %s", last.body, last.header.Get("content-type"), want)
		}
		if !json.Valid([]byte(last.body)) {
			t.Error("that is not JSON")
		}
	}
}

// TestEventsThatAreStructuredAlready are sent as they are, in both modes.
func TestEventsThatAreStructuredAlready(t *testing.T) {
	url, last := got(t)
	for _, mode := range []string{"binary", "structured"} {
		s := newSink(t, Config{URL: url}, func(c *Config) { c.CloudEvents = mode })
		j := job()
		j.ContentType, j.Payload = structuredType+"; charset=utf-8", []byte(`{"id":"e"}`)
		if r := s.Deliver(t.Context(), j); r.Class != delivery.Delivered || last.body != `{"id":"e"}` || last.header.Get("content-type") != j.ContentType || last.header.Get("ce-id") != "" {
			t.Errorf("%s: %+v %+v", mode, r, last)
		}
	}
}

// TestJobsThatAreNoEvents can never be sent.
func TestJobsThatAreNoEvents(t *testing.T) {
	url, last := got(t)
	add := func(name, value string) func(*delivery.Job) {
		return func(j *delivery.Job) { j.Headers = append(j.Headers, delivery.Header{Key: name, Value: []byte(value)}) }
	}
	for _, mode := range []string{"binary", "structured"} {
		for want, change := range map[string]func(*delivery.Job){
			"has no header ce_type":              without("ce_type"),
			"has no header ce_source":            func(j *delivery.Job) { without("ce_source")(j); add("ce_source", "")(j) },
			"begins with ce_, and is not":        add("ce_data", "x"),
			"is not the name of an attribute":    add("ce_Data-Ref", "x"),
			"the header ce_x is not text":        add("ce_x", "\xff"),
			"ce_specversion is not 1.0":          add("ce_specversion", "0.3"),
			"the payload is not JSON, which its": contentType("application/json", "{"),
		} {
			if mode == "binary" && strings.Contains(want, "JSON") {
				continue
			}
			s := newSink(t, Config{URL: url}, func(c *Config) { c.CloudEvents = mode })
			if r := s.Deliver(t.Context(), event(change)); r.Class != delivery.Permanent || !strings.Contains(r.Detail, want) || last.line != "" {
				t.Errorf("%s: %+v, want %s", mode, r, want)
			}
		}
	}
}
