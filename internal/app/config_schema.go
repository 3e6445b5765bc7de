package app

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// setting is one key of the configuration and the field it sets.
type setting struct {
	path  string        // kafka.topic_prefix
	value reflect.Value // addressable
	tag   string        // the field's `secret` tag, or "value" for a Secret: how it is shown
}

// Values of the `secret` tag.
const (
	secretValue = "value" // nothing of it is shown
	secretURL   = "url"   // shown without user, password and query
)

// schema is what keys there are below a prefix: the leaves, in the order of the structs, and the sections they lie in.
type schema struct {
	leaves   []setting
	byPath   map[string]setting
	sections map[string]bool
}

// schemaOf walks the struct that target points to. Keys are prefixed with prefix ("" or ending in a dot).
func schemaOf(prefix string, target any) *schema {
	s := &schema{byPath: map[string]setting{}, sections: map[string]bool{}}
	s.walk(prefix, reflect.ValueOf(target).Elem())
	return s
}

func (s *schema) walk(prefix string, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		key := field.Tag.Get("koanf")
		if key == "" || key == "-" {
			continue
		}
		path := prefix + key
		if field.Type.Kind() == reflect.Struct {
			s.sections[path] = true
			s.walk(path+".", v.Field(i))
			continue
		}
		leaf := setting{path: path, value: v.Field(i), tag: field.Tag.Get("secret")}
		if field.Type == reflect.TypeFor[Secret]() {
			leaf.tag = secretValue
		}
		s.leaves = append(s.leaves, leaf)
		s.byPath[path] = leaf
	}
}

// switchOf is the key that a plain value for a whole section stands for: `tls: true` is tls.enabled.
func (s *schema) switchOf(section string) (path string, ok bool) {
	path = section + ".enabled"
	_, ok = s.byPath[path]
	return path, ok
}

// below lists the keys directly below a prefix, for suggestions.
func (s *schema) below(prefix string) []string {
	seen := map[string]bool{}
	var keys []string
	for _, leaf := range s.leaves {
		rest, ok := strings.CutPrefix(leaf.path, prefix)
		if !ok {
			continue
		}
		key, _, _ := strings.Cut(rest, ".")
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// set assigns a value from the file (as YAML typed it) or from the environment (a string). The error says what the
// field takes; it repeats the value only where that is no secret.
func (l setting) set(raw any) error {
	switch target := l.value.Addr().Interface().(type) {
	case *Secret:
		text, err := asText(raw)
		*target = Secret(text)
		return err
	case *string:
		text, err := asText(raw)
		*target = text
		return err
	case *bool:
		return assign(target, raw, asBool)
	case *int:
		return assign(target, raw, asInt)
	case *int64:
		return assign(target, raw, func(raw any) (int64, error) { n, err := asInt(raw); return int64(n), err })
	case *float64:
		return assign(target, raw, asFloat)
	case *time.Duration:
		return assign(target, raw, asDuration)
	case *Size:
		return assign(target, raw, asSize)
	case *[]string:
		return assign(target, raw, func(raw any) ([]string, error) { return asList(raw, asText) })
	case *[]time.Duration:
		return assign(target, raw, func(raw any) ([]time.Duration, error) { return asList(raw, asDuration) })
	case *map[string]string:
		return assign(target, raw, asTexts)
	default:
		return fmt.Errorf("pacer cannot configure a %T", target) // a mistake in a struct above, caught by the tests
	}
}

func assign[T any](target *T, raw any, convert func(any) (T, error)) error {
	v, err := convert(raw)
	if err == nil {
		*target = v
	}
	return err
}

func asText(raw any) (string, error) {
	if s, ok := raw.(string); ok {
		return s, nil
	}
	return "", fmt.Errorf("must be text; put it in quotes") // unquoted 0123 or 1e3 would not survive YAML's number types
}

func asTexts(raw any) (map[string]string, error) {
	m, ok := raw.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("must be a section of name: \"value\" lines")
	}
	texts := make(map[string]string, len(m))
	for k, v := range m {
		s, err := asText(v)
		if err != nil {
			return nil, fmt.Errorf("%s %w", k, err)
		}
		texts[k] = s
	}
	return texts, nil
}

func asBool(raw any) (bool, error) {
	if b, ok := raw.(bool); ok {
		return b, nil
	}
	if s, ok := raw.(string); ok {
		switch strings.ToLower(strings.TrimSpace(s)) {
		case "true", "yes", "on", "1":
			return true, nil
		case "false", "no", "off", "0":
			return false, nil
		}
	}
	return false, fmt.Errorf("%s is neither true nor false", quoted(raw))
}

func asInt(raw any) (int, error) {
	switch v := raw.(type) {
	case int:
		return v, nil
	case string:
		if n, err := strconv.Atoi(strings.TrimSpace(v)); err == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%s is not a whole number", quoted(raw))
}

func asFloat(raw any) (float64, error) {
	switch v := raw.(type) {
	case int:
		return float64(v), nil
	case float64:
		return v, nil
	case string:
		if f, err := strconv.ParseFloat(strings.TrimSpace(v), 64); err == nil {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%s is not a number", quoted(raw))
}

func asDuration(raw any) (time.Duration, error) {
	switch v := raw.(type) {
	case int:
		if v == 0 {
			return 0, nil
		}
	case string:
		if d, err := time.ParseDuration(strings.TrimSpace(v)); err == nil {
			return d, nil
		}
	}
	return 0, fmt.Errorf("%s is not a duration; give a number with a unit, such as 25ms, 5s or 30m", quoted(raw))
}

func asSize(raw any) (Size, error) {
	switch v := raw.(type) {
	case int:
		return ParseSize(strconv.Itoa(v))
	case string:
		return ParseSize(v)
	}
	return 0, fmt.Errorf("%s is not a size; use one such as 64MiB", quoted(raw))
}

// asList reads a YAML list, or text separated by commas.
func asList[T any](raw any, convert func(any) (T, error)) ([]T, error) {
	var items []any
	switch v := raw.(type) {
	case []any:
		items = v
	case string:
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, part)
			}
		}
	default:
		return nil, fmt.Errorf("%s is not a list; write [a, b], or a,b in the environment", quoted(raw))
	}
	list := make([]T, 0, len(items))
	for i, item := range items {
		v, err := convert(item)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", i+1, err)
		}
		list = append(list, v)
	}
	return list, nil
}

// quoted quotes a value for a message, in one bounded line.
func quoted(raw any) string {
	s := strconv.Quote(fmt.Sprint(raw))
	if len(s) > 60 {
		s = s[:56] + `..."`
	}
	return s
}
