package render

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

func job() *Job {
	j := &delivery.Job{
		ID: "u-42", Campaign: "spring", Weight: 3,
		Meta: delivery.Meta{ContentType: "application/json", TraceParent: "00-1", Key: []byte("k"), Headers: []delivery.Header{
			{Key: "tenant", Value: []byte("green")}, {Key: "tenant", Value: []byte("blue & Söhne/?")},
		}},
		Payload: []byte(`{"user":{"name":"Ann","age":12345678901234567890},"tags":["a","b"],"none":null,"html":"<b>"}`),
		History: delivery.History{Attempt: 2},
	}
	return NewJob(j, time.Date(2026, 11, 1, 12, 0, 0, 5e8, time.FixedZone("", 3600)))
}

func TestText(t *testing.T) {
	for _, tt := range []struct {
		template string
		escape   Escape
		want     string
	}{
		{"{{ .ID }}/{{ .Campaign }} {{ .Weight }} {{ .Attempt }} {{ .Key }} {{ .ContentType }} {{ .TraceParent }}", Plain, "u-42/spring 3 3 k application/json 00-1"},
		{`{{ .Time.Unix }} {{ .Time.Format "2006-01-02T15:04:05Z07:00" }}`, Plain, "1793530800 2026-11-01T11:00:00Z"},
		{`{{ .Header "tenant" }}|{{ .Header "no" }}|`, Plain, "blue & Söhne/?||"},
		{`/a/{{ .Header "tenant" }}/b`, Path, "/a/blue%20&%20S%C3%B6hne%2F%3F/b"},
		{`x={{ .Header "tenant" }}&y={{ .ID }}`, Query, "x=blue+%26+S%C3%B6hne%2F%3F&y=u-42"},
		{`{{ .JSON.user.name }} {{ .JSON.user.age }} {{ index .JSON.tags 1 }}`, Plain, "Ann 12345678901234567890 b"},
		{`{"to":{{ json .JSON.user }},"raw":{{ json .Payload | len }},"html":{{ json .JSON.html }}}`, Plain, `{"to":{"age":12345678901234567890,"name":"Ann"},"raw":114,"html":"<b>"}`},
		{`{{ range $i, $t := .JSON.tags }}{{ if $i }},{{ end }}{{ $t | upper }}{{ $.ID }}{{ else }}none{{ end }}`, Plain, "Au-42,Bu-42"},
		{`{{ with .JSON.user }}{{ .name | lower }}{{ end }}{{ $x := "  y " }}{{ trim $x }}`, Plain, "anny"},
		{`{{ index .JSON "missing" | default "d" }}{{ index .JSON "none" | default "e" }}{{ .Header "no" | default "f" }}{{ .ID | default "g" }}`, Plain, "defu-42"},
		{`{{ json .JSON.none }} {{ base64 "a?" }} {{ sha256 "" | printf "%.8s" }} {{ replace "a" "b" "aac" }} {{ eq .JSON.user.name "Ann" }}`, Plain, "null YT8= e3b0c442 bbc true"},
		{`no action`, Plain, "no action"},
		{`{{ with .JSON.user }}{{ .name }}{{ end }}{{ range .JSON.tags }}{{ . }}{{ $.ID }}{{ end }}{{ "tenant" | .Header | len }}`, Plain, "Annau-42bu-4215"},
		{`{{ $j := .JSON }}{{ $j.user.name }}{{ (.JSON).user.name }}{{ with $x := .ID }}{{ $x }}{{ end }}{{ .Time.Year | print | len }}`, Plain, "AnnAnnu-424"},
		{`<a href="{{ .Header "tenant" }}">{{ .JSON.html }}{{ raw .JSON.html }}{{ .JSON.html | raw }}{{ .JSON.user.age }}</a>`, HTML,
			`<a href="blue &amp; Söhne/?">&lt;b&gt;<b><b>12345678901234567890</a>`},
		{`{{ .Payload }}`, Plain, `{"user":{"name":"Ann","age":12345678901234567890},"tags":["a","b"],"none":null,"html":"<b>"}`},
	} {
		parsed, err := Parse("body", tt.template, tt.escape)
		if err != nil {
			t.Errorf("%s: %v", tt.template, err)
			continue
		}
		if got, err := parsed.Text(job(), 1000); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v\nwant %q", tt.template, got, err, tt.want)
		}
	}
}

func TestTemplatesThatAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{{ .ID":                                         "line 1: unclosed action",
		"{{ raw .ID }}":                                  `function "raw" not defined`,
		"a\n{{ env \"HOME\" }}":                          `line 2: function "env" not defined`,
		`{{ define "a" }}{{ end }}x`:                     "define, block and template are not available",
		`{{ block "a" . }}x{{ end }}`:                    "define, block and template are not available",
		`{{ if true }}{{ template "body" }}{{ end }}`:    "define, block and template are not available",
		"{{ .Nope }}":                                    "a job has no .Nope; use one of .Attempt, .Campaign, ",
		"{{ .job.ID }}":                                  "a job has no .job; use one of",
		"a{{ if .ID }}{{ else }}{{ .Campain }}{{ end }}": "a job has no .Campain; use one of",
		"{{ range .JSON.a }}{{ $.Cmpaign }}{{ end }}":    "a job has no .Cmpaign; use one of",
		`{{ with .JSON }}x{{ else }}{{ .Idd }}{{ end }}`: "a job has no .Idd; use one of",
		`{{ upper (print .Secret) }}`:                    "a job has no .Secret",
		`{{ (.Secret).x }}`:                              "a job has no .Secret",
		`{{ .Payload.name }}`:                            "there is no .Payload.name",
		`{{ .Time.Nope }}`:                               "there is no .Time.Nope",
		`{{ .Header }}`:                                  `.Header takes 1 argument, as in {{ .Header "name" }}`,
		`{{ "a" | .ID }}`:                                ".ID takes no argument",
		`{{ .ID }}` + strings.Repeat("x", maxTemplate):   "the template is longer than 65536 bytes",
	} {
		if _, err := Parse("body", text, Plain); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40s: %v, want %s", text, err, want)
		}
	}
}

// TestTemplatesThatFail: a template that does not fit a job returns an error on one line, without the payload.
func TestTemplatesThatFail(t *testing.T) {
	for text, want := range map[string]string{
		"{{ .JSON.nobody }}":              `map has no entry for key "nobody"`,
		"{{ .JSON.user.name.first }}":     "can't evaluate field first",
		"{{ .JSON.none }}":                "the value is null; use default or json",
		"{{ .JSON.user }}":                "the value is an object or a list; use json",
		"{{ . }}":                         "the value is an object or a list; use json",
		"{{ range 1000000000 }}{{ end }}": "the template takes too many steps",
		"{{ range 1000 }}{{ range 1000 }}{{ end }}{{ end }}":                                        "the template takes too many steps",
		"{{ range 1000 }}0123456789{{ end }}":                                                       "the text is too long",
		"{{ $x := .Payload }}{{ range 1000 }}{{ $x = print $x $x }}{{ end }}":                       "the text is too long",
		"{{ $x := .Payload }}{{ range 1000 }}{{ $x = replace `a` `aaaa` (print `a` $x) }}{{ end }}": "the text is too long",
	} {
		parsed, err := Parse("body", text, Plain)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		_, err = parsed.Text(job(), 1000)
		if err == nil || !strings.HasPrefix(err.Error(), "body: ") || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, payload := range []string{"hunter22", "{} hunter22", "", `{"a":`} {
		j := NewJob(&delivery.Job{Payload: []byte(payload)}, time.Now())
		parsed, _ := Parse("body", "{{ .JSON.a }}", Plain)
		if _, err := parsed.Text(j, 1000); err == nil || !strings.Contains(err.Error(), "the payload is not JSON") || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%q: %v", payload, err)
		}
	}
}

// TestAnythingIsBounded: every template is refused, fails or makes a text within its limit; and the values in a path or a query cannot
// end it.
func TestAnythingIsBounded(t *testing.T) {
	pieces := []string{"{{ .ID }}", "{{ .Payload }}", `{{ .Header "x" }}`, "{{ range .JSON }}", "{{ end }}", "{{ if .Key }}", "{{ else }}", "{{ . }}", "x", "{{ json . }}"}
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 8).Draw(t, "template"), "")
		escape := rapid.SampledFrom([]Escape{Plain, Path, Query}).Draw(t, "escape")
		parsed, err := Parse("url", text, escape)
		if err != nil {
			return
		}
		value := rapid.String().Draw(t, "value")
		j := &delivery.Job{ID: value, Payload: []byte(value), Meta: delivery.Meta{Key: []byte(value), Headers: []delivery.Header{{Key: "x", Value: []byte(value)}}}}
		got, err := parsed.Text(NewJob(j, time.Now()), 100)
		if err == nil && (len(got) > 100 || escape != Plain && strings.ContainsAny(got, "/?# \n\x00")) {
			t.Fatalf("%s makes %q", text, got)
		}
	})
}

// TestReadersDoNotWait: for calls that decode long payloads.
func TestReadersDoNotWait(t *testing.T) {
	for range cap(long) {
		long <- struct{}{}
		defer func() { <-long }()
	}
	j := &delivery.Job{Payload: []byte(`{"a":"` + strings.Repeat("x", 2*longPayload) + `"}`)}
	begun := time.Now()
	for range 10 {
		if _, err := NewQuick(j).JSON(); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begun); took > 5*longWait {
		t.Errorf("ten jobs took %s", took)
	}
}

// TestLongPayloadsLeaveAProcessor: those that are decoded at a time are fewer than there are processors, and a short one does not wait for them.
func TestLongPayloadsLeaveAProcessor(t *testing.T) {
	for range cap(long) {
		long <- struct{}{}
	}
	decoded := make(chan error, 1)
	j := NewJob(&delivery.Job{Payload: []byte(`"` + strings.Repeat("x", longPayload) + `"`)}, time.Now())
	go func() {
		_, err := j.JSON()
		decoded <- err
	}()
	if _, err := job().JSON(); err != nil {
		t.Error(err)
	}
	select {
	case <-decoded:
		t.Error("there was a processor for it")
	case <-time.After(20 * time.Millisecond):
	}
	for range cap(long) {
		<-long
	}
	if err := <-decoded; err != nil {
		t.Error(err)
	}
}
