package config

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/http"
)

// lines yields every setting as a path and its value, without secrets, in the order of the file.
func (c *Config) lines(each func(path, value string)) {
	shown := *c // schemaOf needs an addressable value; nothing is written to it
	for _, leaf := range schemaOf("", &shown).leaves {
		each(leaf.path, leaf.shown())
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		prefix := "sinks." + name + "."
		each(prefix+"type", sink.KindOf(c.Sinks[name]))
		secrets, ok := c.Sinks[name].(interface{ FromFile(key string) bool })
		for _, leaf := range schemaOf(prefix, c.Sinks[name]).leaves {
			value := leaf.shown()
			if leaf.tag == secretURL && ok && secrets.FromFile(strings.TrimPrefix(leaf.path, prefix)) {
				value = redacted // whoever knows its path may be able to send
			}
			each(leaf.path, value)
		}
	}
}

// Setting is a setting in force.
type Setting struct {
	Key   string `json:"key"`
	Value string `json:"value"` // as it is written; *** for a secret
	From  string `json:"from"`  // default, the line of the file, the variable, or the setting that it is derived from
}

// Settings reads the configuration as LoadFor does, judges all of it, and returns every setting, without secrets, with where its value comes from.
func Settings(from Source) (settings []Setting, warnings []string, err error) {
	l, err := read(from)
	if err == nil {
		err = l.faults(l.values)
	}
	if err != nil {
		return nil, l.warnings, UsageError{err}
	}
	l.cfg.lines(func(path, value string) { settings = append(settings, Setting{path, value, l.from(path)}) })
	return settings, append(l.warnings, l.cfg.warnings()...), nil
}

// from says where the value of a setting comes from.
func (l *loader) from(path string) string {
	var from []string
	switch {
	case l.origin[path] != "":
		from = append(from, l.origin[path])
	case l.set[path] && l.line(path) > 0:
		from = append(from, fmt.Sprintf("%s:%d", l.path, l.line(path)))
	case l.derived[path] != "":
		from = append(from, l.derived[path])
	}
	below := func(key string) bool { return strings.HasPrefix(key, path+".") } // of headers, each has its own
	for _, key := range slices.Sorted(maps.Keys(l.origin)) {
		if below(key) {
			from = append(from, l.origin[key])
		}
	}
	for _, key := range slices.Sorted(maps.Keys(l.content)) {
		if file := l.content[key]; file != "" && (key == path || below(key)) {
			from = append(from, "content of "+file)
		}
	}
	switch {
	case len(from) > 0:
		return strings.Join(from, ", ")
	case l.set[path]: // through an alias
		return l.path
	}
	return "default"
}

// line returns the line of a path in the file, or of the section that it is the switch of (tls: true); 0 for none.
func (l *loader) line(path string) int {
	if n := l.lines[path]; n > 0 {
		return n
	}
	section, isSwitch := strings.CutSuffix(path, ".enabled")
	if !isSwitch {
		return 0
	}
	return l.lines[section]
}

// shown returns the setting's value in printable form.
func (l setting) shown() string {
	switch v := l.value.Interface().(type) {
	case map[string]string:
		names := slices.Sorted(maps.Keys(v))
		for i, name := range names {
			value := redacted
			if l.tag == "" {
				value = v[name]
			}
			names[i] = name + ": " + value
		}
		return "{" + strings.Join(names, ", ") + "}"
	case []time.Duration:
		parts := make([]string, len(v))
		for i, d := range v {
			parts[i] = notation.FormatSpan(d)
		}
		return strings.Join(parts, ",")
	case []string:
		if l.tag != "" {
			v = slices.Repeat([]string{redacted}, len(v))
		}
		return strings.Join(v, ",")
	case time.Duration:
		return notation.FormatSpan(v)
	case string:
		switch {
		case l.tag == secretURL && v != "":
			return http.Redacted(v)
		case l.tag != "" && v != "":
			return redacted
		}
		return v
	default:
		return fmt.Sprint(v)
	}
}

// String returns one "path: value" line per setting, without secrets.
func (c *Config) String() string {
	var b strings.Builder
	c.lines(func(path, value string) { fmt.Fprintf(&b, "%s: %s\n", path, value) })
	return b.String()
}

// GoString keeps secrets out of %#v.
func (c *Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer, without secrets.
func (c *Config) LogValue() slog.Value {
	var attrs []slog.Attr
	c.lines(func(path, value string) { attrs = append(attrs, slog.String(path, value)) })
	return slog.GroupValue(attrs...)
}
