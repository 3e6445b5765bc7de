package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/sink"
)

// EnvPrefix is the prefix of all variables.
const EnvPrefix = "PACER_"

// ofScripts are the variables of scripts/services.sh, which a shell may have exported.
var ofScripts = []string{EnvPrefix + "STACK", EnvPrefix + "SECURE", EnvPrefix + "BRIEF", EnvPrefix + "KAFKA_PROXY"}

// EnvName returns the environment variable of a path: kafka.topic_prefix is PACER_KAFKA_TOPIC_PREFIX.
func EnvName(path string) string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// environment adds the values of PACER_* variables to the tree of the file. Since keys contain underscores themselves,
// a name is not split but looked up among the names of the known keys. An empty variable counts as not set, because
// compose files and shells write a missing value in this way.
func (l *loader) environment(environ []string, file map[string]any) {
	paths := l.envPaths()
	variables := pacerVariables(environ)
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value := variables[name]
		if value == "" || slices.Contains(ofScripts, name) {
			continue
		}
		path, ok := paths[name]
		if !ok {
			path, ok = sinkPath(name, file)
		}
		if !ok {
			l.warnings = append(l.warnings, name+": there is no such setting; it is ignored")
			continue
		}
		l.origin[strings.Join(path, ".")] = name
		insert(file, path, value)
	}
}

// pacerVariables returns the variables with pacer's prefix; of duplicates the last counts.
func pacerVariables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && strings.HasPrefix(name, EnvPrefix) {
			vars[name] = value
		}
	}
	return vars
}

// envPaths maps each variable's name to the path it sets, except for sinks.
func (l *loader) envPaths() map[string][]string {
	paths := map[string][]string{}
	for _, leaf := range l.schema.leaves {
		paths[EnvName(leaf.path)] = strings.Split(leaf.path, ".")
	}
	for section := range l.schema.sections {
		if path, ok := l.schema.switchOf(section); ok {
			paths[EnvName(section)] = strings.Split(path, ".")
		}
	}
	return paths
}

// sinkPath parses PACER_SINKS_<NAME>_<KEY>. The name is that of a matching sink in the file (ignoring case, and with _
// for - and .), else the variable's own part in lower case: a sink can be defined by the environment alone.
func sinkPath(name string, file map[string]any) (path []string, ok bool) {
	rest, ok := strings.CutPrefix(name, EnvPrefix+"SINKS_")
	if !ok {
		return nil, false
	}
	fromFile, _ := file["sinks"].(map[string]any)
	for _, known := range slices.Sorted(maps.Keys(fromFile)) {
		if key, ok := strings.CutPrefix(rest, sinkVariable(known)+"_"); ok {
			if tail := sinkKey(key, fromFile[known]); tail != nil {
				return append([]string{"sinks", known}, tail...), true
			}
		}
	}
	// The sink is not in the file: take the longest key that the name ends in; the rest is the sink's name.
	for i := range len(rest) {
		if rest[i] != '_' || i == 0 {
			continue
		}
		if tail := sinkKey(rest[i+1:], nil); tail != nil {
			return append([]string{"sinks", strings.ToLower(rest[:i])}, tail...), true
		}
	}
	return nil, false
}

func sinkVariable(name string) string { return strings.TrimPrefix(EnvName(name), EnvPrefix) }

// sinkKey returns the path below a sink for the end of a variable's name; nil if there is none.
func sinkKey(variable string, fromFile any) []string {
	if header, ok := strings.CutPrefix(variable, "HEADERS_"); ok && header != "" {
		tree, _ := fromFile.(map[string]any)
		headers, _ := tree["headers"].(map[string]any)
		for name := range headers {
			if sinkVariable(name) == header {
				return []string{"headers", name}
			}
		}
		return []string{"headers", strings.ToLower(strings.ReplaceAll(header, "_", "-"))}
	}
	if variable == "TYPE" {
		return []string{"type"}
	}
	for _, kind := range sink.Kinds() {
		cfg, _ := sink.NewConfig(kind)
		for _, leaf := range schemaOf("", cfg).leaves {
			if leaf.path != "headers" && sinkVariable(leaf.path) == variable {
				return strings.Split(leaf.path, ".")
			}
		}
	}
	return nil
}

// insert sets the value at path, and makes maps as needed. A value in the place of a section stays, and validation reports it.
func insert(tree map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		sub, ok := tree[key].(map[string]any)
		if !ok && tree[key] != nil {
			return
		}
		if !ok {
			sub = map[string]any{}
			tree[key] = sub
		}
		tree = sub
	}
	tree[path[len(path)-1]] = value
}
