package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/sink"
)

const (
	// DefaultPath is the path of the configuration if --config is not given.
	DefaultPath   = "./pacer.yaml"
	maxConfigFile = 1 << 20
)

// Problems are the errors in a configuration: one line each, which begins with the key and ends with the remedy.
type Problems []string

// maxProblems bounds the lines that are told of.
const maxProblems = 50

func (p Problems) Error() string {
	if more := len(p) - maxProblems; more > 0 {
		return strings.Join(p[:maxProblems], "\n") + fmt.Sprintf("\n%d more; correct these first", more)
	}
	return strings.Join(p, "\n")
}

// keyOf returns the key that a problem is with.
func keyOf(problem string) string {
	key, _, _ := strings.Cut(problem, ": ")
	key, _, _ = strings.Cut(key, " (")
	return key
}

// Source is where a configuration is read from: the defaults, then the YAML file, then the PACER_* variables, which override the file.
type Source struct {
	Path     string   // of the file; "" for DefaultPath
	Explicit bool     // the user has named the file, so it must exist
	Environ  []string // "NAME=value", as returned by os.Environ
}

// LoadFor reads the configuration for a command that needs these sections, whose required settings must be there. The values of others are not
// judged: a secret of theirs that cannot be read, for one, does not concern the command. Keys that do not exist, and values of another type, are
// errors all the same. An error is a UsageError around Problems. Warnings are single lines about probable mistakes that stop nothing, such as an
// unknown PACER_ variable.
//
// Values are assigned by this package rather than by the YAML decoder, so that each error is one line that names the
// key, its valid values, and its position in the file.
func LoadFor(from Source, needs ...Section) (cfg *Config, warnings []string, err error) {
	l, err := read(from)
	if err == nil {
		var used Problems
		for _, problem := range l.values {
			if uses(needs, keyOf(problem)) {
				used = append(used, problem)
			} else {
				l.cfg.unused = append(l.cfg.unused, problem)
			}
		}
		err = l.faults(append(used, l.cfg.missing(needs)...))
	}
	if err != nil {
		return nil, l.warnings, UsageError{err}
	}
	if slices.Contains(needs, NeedSinks) { // what the values mean concerns whoever works with them
		l.warnings = append(l.warnings, l.cfg.warnings()...)
	}
	return l.cfg, l.warnings, nil
}

// faults returns the problems with the form of the configuration or, if it has none, these with its values; nil if there are none.
func (l *loader) faults(values Problems) error {
	switch {
	case len(l.problems) > 0: // defaults are in the place of values that could not be read
		return l.problems
	case len(values) > 0:
		return values
	}
	return nil
}

// read reads a configuration, which is not judged yet. The loader knows where each value comes from.
func read(from Source) (*loader, error) {
	l := &loader{
		cfg: Default(), path: cmp.Or(from.Path, DefaultPath),
		origin: map[string]string{}, lines: map[string]int{}, set: map[string]bool{}, content: map[string]string{},
	}
	file, err := l.readFile(from.Explicit)
	if err != nil {
		return l, err
	}
	l.schema = schemaOf("", l.cfg)
	l.expandSwitches("", file)
	l.environment(from.Environ, file)
	l.bind(file)
	form := l.problems
	l.problems = nil
	l.resolveSecrets()
	l.values, l.problems = l.problems, form
	l.derived = l.cfg.derive()
	unread := map[string]bool{}
	for _, problem := range l.values {
		unread[keyOf(problem)] = true
	}
	for _, problem := range l.cfg.Problems() {
		if !unread[keyOf(problem)] {
			l.values = append(l.values, problem)
		}
	}
	return l, nil
}

// loader is the state of a LoadFor.
type loader struct {
	cfg      *Config
	path     string            // of the file
	schema   *schema           // of cfg, without sinks
	sinks    []*schema         // of each sink's configuration
	origin   map[string]string // the environment variable that set a path
	lines    map[string]int    // the line of a path in the file
	set      map[string]bool   // the paths that have a value
	content  map[string]string // the file that a secret was read from, by path
	derived  map[string]string // the path that a value was derived from, by path
	problems Problems          // with the form: keys, types
	values   Problems          // with the values, secrets among them
	warnings []string
}

// complain adds a problem with a key, and says where its value comes from.
func (l *loader) complain(path, format string, args ...any) {
	problem := ": " + fmt.Sprintf(format, args...)
	if name := l.origin[path]; name != "" {
		problem = " (" + name + ")" + problem
	} else if line := l.lines[path]; line > 0 {
		problem += fmt.Sprintf(" (line %d)", line)
	}
	l.problems = append(l.problems, masked(path)+problem)
}

// expandSwitches turns `tls: true` into `tls: {enabled: true}`, so that the environment may add keys to it.
func (l *loader) expandSwitches(prefix string, tree map[string]any) {
	for key, v := range tree {
		path := prefix + key
		if !l.schema.sections[path] {
			continue
		}
		if sub, ok := v.(map[string]any); ok {
			l.expandSwitches(path+".", sub)
		} else if _, ok := l.schema.switchOf(path); ok && v != nil {
			tree[key] = map[string]any{"enabled": v}
		}
	}
}

// bind assigns every value of the tree.
func (l *loader) bind(tree map[string]any) {
	sinks := tree["sinks"]
	delete(tree, "sinks")
	l.bindTree(l.schema, "", tree)
	switch m := sinks.(type) {
	case nil:
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(m)) {
			l.bindSink(name, m[name])
		}
	default:
		l.complain("sinks", "must be a section with one sink per name, such as receiver: {type: http, url: \"http://...\"}")
	}
}

func (l *loader) bindTree(s *schema, prefix string, tree map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		path, v := prefix+key, tree[key]
		if leaf, ok := s.byPath[path]; ok {
			if v == nil {
				continue // a key without a value: the default applies
			}
			if err := leaf.set(v); err != nil {
				l.complain(path, "%s", err)
			}
			l.set[path] = true
			continue
		}
		if _, ok := s.lists[path]; ok {
			l.bindList(s, path, v)
			continue
		}
		if !s.sections[path] {
			l.unknownKey(s, prefix, key)
			continue
		}
		switch sub := v.(type) {
		case nil:
		case map[string]any:
			l.bindTree(s, path+".", sub)
		default:
			l.complain(path, "must be a section with the keys %s", strings.Join(s.below(path+"."), ", "))
		}
	}
}

// maxSections bounds a list of sections.
const maxSections = 64

// bindList assigns a list of sections.
func (l *loader) bindList(s *schema, path string, v any) {
	items, ok := v.([]any)
	if !ok && v != nil || len(items) > maxSections {
		l.complain(path, "must be a list of at most %d sections, each with a line that begins with -", maxSections)
		return
	}
	list := s.lists[path]
	list.Set(reflect.MakeSlice(list.Type(), len(items), len(items)))
	l.set[path] = true
	for i, item := range items {
		of, at := s.item(path, i), path+"."+strconv.Itoa(i)
		tree, ok := item.(map[string]any)
		if !ok {
			l.complain(at, "must be a section with the keys %s", strings.Join(of.below(at+"."), ", "))
			continue
		}
		l.bindTree(of, at+".", tree)
		l.sinks = append(l.sinks, of)
	}
}

func (l *loader) unknownKey(s *schema, prefix, key string) {
	known := s.below(prefix)
	switch {
	case prefix == "":
		known = append(known, "sinks")
	case strings.HasPrefix(prefix, "sinks.") && strings.Count(prefix, ".") == 2: // of a sink itself
		known = append(known, "type")
	}
	l.complain(prefix+key, "there is no such key; use one of %s", strings.Join(known, ", "))
}

// bindSink makes the configuration of one sink, whose keys depend on its type.
func (l *loader) bindSink(name string, raw any) {
	prefix := "sinks." + name
	if !validSinkName(name) {
		l.complain(prefix, "not a name for a sink; use 1 to 64 letters, digits, dots, - or _")
		return
	}
	tree, ok := raw.(map[string]any)
	if !ok && raw != nil {
		l.complain(prefix, "must be a section with a type and its keys, such as {type: http, url: \"http://...\"}")
		return
	}
	kind, _ := tree["type"].(string)
	cfg, ok := sink.NewConfig(kind)
	if !ok {
		kinds := strings.Join(sink.Kinds(), ", ")
		if _, given := tree["type"]; !given {
			l.complain(prefix+".type", "required; use one of %s", kinds)
		} else {
			l.complain(prefix+".type", "there is no type %s; use one of %s", quoted(tree["type"]), kinds)
		}
		return
	}
	s := schemaOf(prefix+".", cfg)
	rest := maps.Clone(tree)
	delete(rest, "type")
	l.bindTree(s, prefix+".", rest)
	l.sinks, l.set[prefix+".type"] = append(l.sinks, s), true
	l.cfg.Sinks[name] = cfg
}

// resolveSecrets replaces the "file:" references of all secret settings.
func (l *loader) resolveSecrets() {
	for _, s := range append([]*schema{l.schema}, l.sinks...) {
		for _, leaf := range s.leaves {
			if leaf.tag == "" {
				continue
			}
			switch target := leaf.value.Addr().Interface().(type) {
			case *Secret:
				*target = Secret(l.secret(s, leaf.path, string(*target)))
			case *string:
				*target = l.secret(s, leaf.path, *target)
			case *[]string:
				for i, value := range *target {
					(*target)[i] = l.secret(s, leaf.path+"."+strconv.Itoa(i), value)
				}
			case *map[string]string:
				for _, name := range slices.Sorted(maps.Keys(*target)) {
					(*target)[name] = l.secret(s, leaf.path+"."+name, (*target)[name])
				}
			}
		}
	}
}

// rereader is a configuration that wants to read its secrets again while the daemon runs.
type rereader interface {
	SecretFrom(key string, read func() (string, error))
}

func (l *loader) secret(s *schema, path, value string) string {
	content, file, err := readSecretOf(path, value)
	l.content[path] = file
	if err != nil {
		l.complain(path, "%s", err)
		return value
	}
	if again, ok := s.target.(rereader); ok && strings.HasPrefix(value, fileScheme) {
		again.SecretFrom(strings.TrimPrefix(path, s.prefix), func() (string, error) {
			content, _, err := readSecretOf(path, value)
			return content, err
		})
	}
	return content
}
