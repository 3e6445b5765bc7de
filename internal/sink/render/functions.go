package render

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"strings"
	"text/template"
)

// functions are the template functions that pacer adds to package text/template. Each uses its arguments alone.
var functions = template.FuncMap{
	"json":    JSON,
	"base64":  func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
	"sha256":  func(s string) string { sum := sha256.Sum256([]byte(s)); return hex.EncodeToString(sum[:]) },
	"lower":   strings.ToLower,
	"upper":   strings.ToUpper,
	"trim":    strings.TrimSpace,
	"default": fallback,

	// These can make a text longer, and would do so again and again.
	"replace":  func(from, to, s string) (string, error) { return limited(strings.ReplaceAll(s, from, to)) },
	"print":    func(v ...any) (string, error) { return limited(fmt.Sprint(v...)) },
	"println":  func(v ...any) (string, error) { return limited(fmt.Sprintln(v...)) },
	"printf":   func(format string, v ...any) (string, error) { return limited(fmt.Sprintf(format, v...)) },
	"html":     func(v ...any) (string, error) { return limited(template.HTMLEscaper(v...)) },
	"js":       func(v ...any) (string, error) { return limited(template.JSEscaper(v...)) },
	"urlquery": func(v ...any) (string, error) { return limited(template.URLQueryEscaper(v...)) },
}

// maxValue bounds a text that a function makes, in bytes.
const maxValue = 4 << 20

func limited(s string) (string, error) {
	if len(s) > maxValue {
		return "", errLong
	}
	return s, nil
}

// write is the name of the function that every value passes before it is written.
const write = "_write"

var escapes = map[Escape]template.FuncMap{
	Plain: {write: text},
	Path:  {write: escaped(url.PathEscape)},
	Query: {write: escaped(url.QueryEscape)},
	Host:  {write: partOfHost},
	HTML:  {write: markup, "raw": raw},
}

// partOfHost refuses what would end the host, or name a user or a port.
func partOfHost(v any) (string, error) {
	s, err := text(v)
	if err != nil {
		return "", err
	}
	other := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '-' && c != '_'
	}
	if s == "" || strings.ContainsFunc(s, other) {
		return "", errors.New("the value is not a part of a host name")
	}
	return s, nil
}

// marked is a text that is HTML already.
type marked string

// raw takes a value for HTML.
func raw(v any) (marked, error) {
	s, err := text(v)
	return marked(s), err
}

func markup(v any) (string, error) {
	if m, ok := v.(marked); ok {
		return string(m), nil
	}
	s, err := text(v)
	return html.EscapeString(s), err
}

// JSON returns a value as JSON, without escapes for HTML.
func JSON(v any) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "", errors.New("the value has no form in JSON")
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// fallback returns a value, or another where it is null or empty.
func fallback(other, v any) any {
	if v == nil || v == "" {
		return other
	}
	return v
}

// text returns a value as it is written. Null, objects and lists have no text.
func text(v any) (string, error) {
	switch v := v.(type) {
	case nil:
		return "", errors.New("the value is null; use default or json")
	case string:
		return v, nil
	case map[string]any, []any, *Job:
		return "", errors.New("the value is an object or a list; use json")
	}
	return fmt.Sprint(v), nil
}

func escaped(escape func(string) string) func(any) (string, error) {
	return func(v any) (string, error) {
		s, err := text(v)
		return escape(s), err
	}
}
