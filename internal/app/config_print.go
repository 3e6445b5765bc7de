package app

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/http"
)

// lines gives every setting as a path and its value, without secrets, in the order of the file.
func (c *Config) lines(each func(path, value string)) {
	shown := *c // schemaOf needs something addressable; nothing is written to it
	for _, leaf := range schemaOf("", &shown).leaves {
		each(leaf.path, leaf.shown())
	}
	for _, name := range slices.Sorted(maps.Keys(c.Sinks)) {
		prefix := "sinks." + name + "."
		each(prefix+"type", sink.KindOf(c.Sinks[name]))
		for _, leaf := range schemaOf(prefix, c.Sinks[name]).leaves {
			each(leaf.path, leaf.shown())
		}
	}
}

// shown is the setting's value as it may be printed.
func (l setting) shown() string {
	switch v := l.value.Interface().(type) {
	case map[string]string:
		names := slices.Sorted(maps.Keys(v))
		for i, name := range names {
			names[i] = name + ": " + redacted
		}
		return "{" + strings.Join(names, ", ") + "}"
	case []time.Duration:
		parts := make([]string, len(v))
		for i, d := range v {
			parts[i] = spellDuration(d)
		}
		return strings.Join(parts, ",")
	case []string:
		return strings.Join(v, ",")
	case time.Duration:
		return spellDuration(v)
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

// spellDuration writes a duration as people do: 30m, not 30m0s.
func spellDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// String gives one "path: value" line per setting, without secrets.
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
