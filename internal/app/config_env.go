package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/sink"
)

const envPrefix = "PACER_"

// envName is the environment variable of a path: kafka.topic_prefix is PACER_KAFKA_TOPIC_PREFIX.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(path))
}

// environment turns PACER_* variables into a tree like the file's. Since keys contain underscores themselves, a name is
// never split: it is looked up among the names of the known keys. A variable set to nothing counts as not set, which
// is what compose files and shells make of an absent value.
func (l *loader) environment(environ []string, file map[string]any) map[string]any {
	paths := l.envPaths()
	tree := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(pacerVariables(environ))) {
		value := pacerVariables(environ)[name]
		if value == "" {
			continue
		}
		path, ok := paths[name]
		if !ok {
			path, ok = sinkPath(name, file)
		}
		if !ok {
			l.warnings = append(l.warnings, unknownVariable(name, paths))
			continue
		}
		l.origin[strings.Join(path, ".")] = name
		insert(tree, path, value)
	}
	return tree
}

// pacerVariables are the variables with pacer's prefix; of one that is given twice, the last counts.
func pacerVariables(environ []string) map[string]string {
	vars := map[string]string{}
	for _, e := range environ {
		if name, value, ok := strings.Cut(e, "="); ok && strings.HasPrefix(name, envPrefix) {
			vars[name] = value
		}
	}
	return vars
}

// envPaths maps each variable's name to the path it sets, sinks apart.
func (l *loader) envPaths() map[string][]string {
	paths := map[string][]string{}
	for _, leaf := range l.schema.leaves {
		paths[envName(leaf.path)] = strings.Split(leaf.path, ".")
	}
	for section := range l.schema.sections {
		if path, ok := l.schema.switchOf(section); ok {
			paths[envName(section)] = strings.Split(path, ".")
		}
	}
	return paths
}

// sinkPath reads PACER_SINKS_<NAME>_<KEY>. The name is that of a sink in the file where one matches (whatever its case,
// and with _ for - and .), else the variable's own part in lower case: a sink can come from the environment alone.
func sinkPath(name string, file map[string]any) (path []string, ok bool) {
	rest, ok := strings.CutPrefix(name, envPrefix+"SINKS_")
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
	// No sink of the file: the longest key that the name ends in, so that the sink's name is what is left.
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

func sinkVariable(name string) string { return strings.TrimPrefix(envName(name), envPrefix) }

// sinkKey is the path below a sink that the end of a variable's name stands for; nil if none.
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
				return []string{leaf.path}
			}
		}
	}
	return nil
}

func unknownVariable(name string, paths map[string][]string) string {
	known := slices.Sorted(maps.Keys(paths))
	if near := nearest(name, known); near != "" && distance(name, near) <= 3 {
		return fmt.Sprintf("%s: there is no such setting; did you mean %s?", name, near)
	}
	return fmt.Sprintf("%s: there is no such setting; it is ignored", name)
}

// insert sets the value at path, making maps on the way.
func insert(tree map[string]any, path []string, value any) {
	for _, key := range path[:len(path)-1] {
		sub, ok := tree[key].(map[string]any)
		if !ok {
			sub = map[string]any{}
			tree[key] = sub
		}
		tree = sub
	}
	tree[path[len(path)-1]] = value
}
