package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"

	"github.com/pacer/pacer/internal/sink"
)

const (
	// DefaultConfigPath is where the configuration is looked for when --config is not given.
	DefaultConfigPath = "./pacer.yaml"
	maxConfigFile     = 1 << 20
)

// Problems are what is wrong with a configuration: each one line that begins with the key and ends with the remedy.
type Problems []string

func (p Problems) Error() string { return strings.Join(p, "\n") }

// Load reads the configuration: defaults, then the YAML file at path, then the PACER_* variables of environ ("NAME=value",
// as os.Environ gives them), which win. A file that does not exist is an error only if explicit, that is, asked for
// by name. An error is a UsageError around Problems. Warnings are single lines about what is probably a mistake but
// stops nothing, such as an unknown PACER_ variable.
//
// Values are assigned by package code rather than by koanf's own decoder, so that each complaint is one line that
// names the key and what it takes.
func Load(path string, explicit bool, environ []string) (cfg *Config, warnings []string, err error) {
	if path == "" {
		path = DefaultConfigPath
	}
	file, err := readConfigFile(path, explicit)
	if err != nil {
		return nil, nil, UsageError{err}
	}
	l := &loader{cfg: Default(), origin: map[string]string{}}
	l.schema = schemaOf("", l.cfg)
	l.expandSwitches("", file)
	env := l.environment(environ, file)

	k := koanf.New(".")
	// A nested map and no delimiter: a dot in the name of a sink or a header is part of it.
	for _, layer := range []map[string]any{file, env} {
		if err := k.Load(confmap.Provider(layer, ""), nil); err != nil {
			return nil, nil, UsageError{fmt.Errorf("%s: %w", path, err)}
		}
	}
	l.bind(k.Raw())
	l.resolveSecrets()
	l.cfg.derive()
	if len(l.problems) == 0 { // a value that could not be read would be complained about twice
		l.problems = l.cfg.Problems()
	}
	if len(l.problems) > 0 {
		return nil, l.warnings, UsageError{l.problems}
	}
	return l.cfg, append(l.warnings, l.cfg.warnings()...), nil
}

// readConfigFile reads and parses the file; nil when it may be and is absent.
func readConfigFile(path string, explicit bool) (map[string]any, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) && !explicit {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--config: %w; name an existing file", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxConfigFile+1))
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if len(b) > maxConfigFile {
		return nil, fmt.Errorf("--config: %s is larger than %d bytes", path, maxConfigFile)
	}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(b), yaml.Parser()); err != nil {
		return nil, fmt.Errorf("%s is not valid YAML: %s", path, strings.Join(strings.Fields(err.Error()), " "))
	}
	return k.Raw(), nil
}

// loader holds a configuration while it is put together.
type loader struct {
	cfg      *Config
	schema   *schema           // of cfg, without sinks
	sinks    []*schema         // of each sink's configuration
	origin   map[string]string // the environment variable that set a path
	problems Problems
	warnings []string
}

// complain adds a problem with a key; where the value came from the environment, the line says so.
func (l *loader) complain(path, format string, args ...any) {
	if name := l.origin[path]; name != "" {
		path += " (" + name + ")"
	}
	l.problems = append(l.problems, path+": "+fmt.Sprintf(format, args...))
}

// expandSwitches turns `tls: true` into `tls: {enabled: true}`, so that a layer above may add to it.
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
				continue // a key without a value: the default stays
			}
			if err := leaf.set(v); err != nil {
				l.complain(path, "%s", err)
			}
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

func (l *loader) unknownKey(s *schema, prefix, key string) {
	known := s.below(prefix)
	switch prefix {
	case "":
		known = append(known, "sinks")
	default:
		if strings.HasPrefix(prefix, "sinks.") {
			known = append(known, "type")
		}
	}
	if near := nearest(key, known); near != "" {
		l.complain(prefix+key, "there is no such key; did you mean %s?", near)
		return
	}
	l.complain(prefix+key, "there is no such key; use one of %s", strings.Join(known, ", "))
}

// bindSink makes the configuration of one sink; which keys it takes depends on its type.
func (l *loader) bindSink(name string, raw any) {
	prefix := "sinks." + name
	if !validSinkName(name) {
		l.complain(prefix, "not a name for a sink; use 1 to 64 letters, digits, dots, - or _")
		return
	}
	tree, _ := raw.(map[string]any)
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
	l.sinks = append(l.sinks, s)
	l.cfg.Sinks[name] = cfg
}

// resolveSecrets follows the file: references of every setting that is a secret.
func (l *loader) resolveSecrets() {
	for _, s := range append([]*schema{l.schema}, l.sinks...) {
		for _, leaf := range s.leaves {
			if leaf.tag == "" {
				continue
			}
			switch target := leaf.value.Addr().Interface().(type) {
			case *Secret:
				*target = Secret(l.secret(leaf.path, string(*target)))
			case *string:
				*target = l.secret(leaf.path, *target)
			case *map[string]string:
				for _, name := range slices.Sorted(maps.Keys(*target)) {
					(*target)[name] = l.secret(leaf.path+"."+name, (*target)[name])
				}
			}
		}
	}
}

func (l *loader) secret(path, value string) string {
	content, err := readSecret(value)
	if err != nil {
		l.complain(path, "%s", err)
		return value
	}
	return content
}

// nearest is the known word that s is most likely a misspelling of; "" if none is close.
func nearest(s string, known []string) string {
	best, bestDistance := "", max(1, len(s)/3)+1
	for _, k := range known {
		if d := distance(strings.ToLower(s), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// distance is how many bytes must be inserted, deleted, replaced or swapped with their neighbour to turn a into b.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	d := make([][]int, len(a)+1) // d[i][j]: from the first i bytes of a to the first j of b
	for i := range d {
		d[i] = make([]int, len(b)+1)
		d[i][0] = i
	}
	for j := range d[0] {
		d[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d[i][j] = min(d[i-1][j]+1, d[i][j-1]+1, d[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d[i][j] = min(d[i][j], d[i-2][j-2]+1)
			}
		}
	}
	return d[len(a)][len(b)]
}
