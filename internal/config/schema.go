package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/notation"
)

// setting is one key of the configuration and the field it sets.
type setting struct {
	path  string        // kafka.topic_prefix
	value reflect.Value // addressable
	tag   string        // the field's `secret` tag, or "value" for a Secret
	tags  reflect.StructTag
}

// Values of the `secret` tag.
const (
	secretValue = "value" // nothing of it is shown
	secretURL   = "url"   // shown without user, password and query
)

// schema holds the keys below a prefix: the leaves, in the order of the structs, and the sections that contain them.
type schema struct {
	leaves   []setting
	byPath   map[string]setting
	sections map[string]bool
	lists    map[string]reflect.Value // of sections, such as the steps of a sink; addressable
	prefix   string
	target   any // the struct they are in
}

// schemaOf walks the struct that target points to. Keys are prefixed with prefix ("" or ending in a dot).
func schemaOf(prefix string, target any) *schema {
	s := &schema{byPath: map[string]setting{}, sections: map[string]bool{}, lists: map[string]reflect.Value{}, prefix: prefix, target: target}
	s.walk(prefix, reflect.ValueOf(target).Elem())
	return s
}

func (s *schema) walk(prefix string, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Anonymous {
			s.walk(prefix, v.Field(i))
			continue
		}
		key := field.Tag.Get("yaml")
		if key == "" || key == "-" {
			continue
		}
		path := prefix + key
		if field.Type.Kind() == reflect.Struct {
			s.sections[path] = true
			s.walk(path+".", v.Field(i))
			continue
		}
		if field.Type.Kind() == reflect.Slice && field.Type.Elem().Kind() == reflect.Struct {
			s.lists[path] = v.Field(i)
			for k := range v.Field(i).Len() {
				s.walk(path+"."+strconv.Itoa(k)+".", v.Field(i).Index(k))
			}
			continue
		}
		leaf := setting{path: path, value: v.Field(i), tag: field.Tag.Get("secret"), tags: field.Tag}
		if field.Type == reflect.TypeFor[Secret]() {
			leaf.tag = secretValue
		}
		s.leaves = append(s.leaves, leaf)
		s.byPath[path] = leaf
	}
}

// switchOf returns the key that a plain value for a whole section stands for: `tls: true` is tls.enabled.
func (s *schema) switchOf(section string) (path string, ok bool) {
	path = section + ".enabled"
	_, ok = s.byPath[path]
	return path, ok
}

// item makes the schema of one section of a list.
func (s *schema) item(list string, n int) *schema {
	of := &schema{byPath: map[string]setting{}, sections: map[string]bool{}, lists: map[string]reflect.Value{}, prefix: s.prefix, target: s.target}
	of.walk(list+"."+strconv.Itoa(n)+".", s.lists[list].Index(n))
	return of
}

// below returns the keys directly below a prefix, for suggestions.
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
	for path := range s.lists {
		if key, ok := strings.CutPrefix(path, prefix); ok && !strings.Contains(key, ".") && !seen[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// set assigns a value from the file (as YAML typed it) or from the environment (a string). The error says which values
// the field accepts; it repeats the value only if that is no secret.
func (l setting) set(raw any) error {
	switch target := l.value.Addr().Interface().(type) {
	case *Secret:
		return setText((*string)(target), raw)
	case *string:
		return setText(target, raw)
	case *bool:
		return setScalar(target, raw, parseBool, "neither true nor false")
	case *int:
		return setScalar(target, raw, strconv.Atoi, "not a whole number")
	case *int64:
		parse := func(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }
		return setScalar(target, raw, parse, "not a whole number")
	case *float64:
		parse := func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
		return setScalar(target, raw, parse, "not a number")
	case *time.Duration:
		return setDuration(target, raw)
	case *notation.Size:
		return setScalar(target, raw, notation.ParseSize, "not a size; use one such as 64MiB")
	case *[]string:
		if _, isText := raw.(string); !isText && l.tag != "" {
			if _, isList := raw.([]any); !isList {
				return fmt.Errorf("must be a list; write [a, b], or a,b in the environment")
			}
		}
		return setList(target, raw, setText)
	case *[]int:
		return setList(target, raw, func(target *int, raw any) error {
			return setScalar(target, raw, strconv.Atoi, "not a whole number")
		})
	case *[]time.Duration:
		return setList(target, raw, setDuration)
	case *map[string]string:
		return setTexts(target, raw)
	default:
		return fmt.Errorf("pacer cannot configure a %T", target) // a mistake in a struct above, found by the tests
	}
}

func setText(target *string, raw any) error {
	text, ok := raw.(string)
	if !ok {
		return fmt.Errorf("must be text; put it in quotes") // unquoted 0123 or 1e3 would not survive YAML's number types
	}
	*target = text
	return nil
}

func setTexts(target *map[string]string, raw any) error {
	m, ok := raw.(map[string]any)
	if !ok {
		return fmt.Errorf("must be a section of name: \"value\" lines")
	}
	texts := make(map[string]string, len(m))
	for name, v := range m {
		var text string
		if err := setText(&text, v); err != nil {
			return fmt.Errorf("%s %w", masked(name), err)
		}
		texts[name] = text
	}
	*target = texts
	return nil
}

// setScalar assigns a value that YAML has typed, or parses text and whole numbers with parse.
func setScalar[T any](target *T, raw any, parse func(string) (T, error), wrong string) error {
	v, ok := raw.(T)
	if !ok {
		text, isText := raw.(string)
		if n, isInt := raw.(int); isInt {
			text, isText = strconv.Itoa(n), true
		}
		var err error
		if v, err = parse(strings.TrimSpace(text)); isText && errors.Is(err, strconv.ErrRange) {
			return fmt.Errorf("%s is out of range", quoted(raw))
		}
		if !isText || err != nil {
			return fmt.Errorf("%s is %s", quoted(raw), wrong)
		}
	}
	*target = v
	return nil
}

func parseBool(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, strconv.ErrSyntax
}

func setDuration(target *time.Duration, raw any) error {
	return setScalar(target, raw, notation.ParseSpan,
		"not a duration; give a number with a unit, such as 25ms, 5s, 30m or 7d")
}

// setList reads a YAML list, or text separated by commas.
func setList[T any](target *[]T, raw any, set func(*T, any) error) error {
	items, ok := raw.([]any)
	if text, isText := raw.(string); isText {
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				items = append(items, part)
			}
		}
	} else if !ok {
		return fmt.Errorf("%s is not a list; write [a, b], or a,b in the environment", quoted(raw))
	}
	list := make([]T, len(items))
	for i, item := range items {
		if err := set(&list[i], item); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	*target = list
	return nil
}

// quoted quotes a value for a message, on one line of bounded length and without credentials.
func quoted(raw any) string {
	s := strconv.Quote(masked(fmt.Sprint(raw)))
	if len(s) > 60 {
		s = s[:56] + `..."`
	}
	return s
}
