package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// readFile reads and parses the file; the result is empty if the file is missing and may be.
func (l *loader) readFile(explicit bool) (map[string]any, error) {
	path := l.path
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
	var document yaml.Node
	tree, documents := map[string]any{}, yaml.NewDecoder(bytes.NewReader(b))
	if err = documents.Decode(&document); err == nil {
		if !errors.Is(documents.Decode(&yaml.Node{}), io.EOF) {
			return nil, fmt.Errorf("%s has a line --- and sections behind it; remove that line", path)
		}
		if root := document.Content[0]; root.Kind != yaml.MappingNode && root.Tag != "!!null" {
			return nil, fmt.Errorf("%s must consist of sections, such as kafka: {brokers: [\"127.0.0.1:9092\"]}", path)
		}
		err = document.Decode(&tree)
	}
	if err != nil && !errors.Is(err, io.EOF) { // an empty file has no document
		return nil, fmt.Errorf("%s is not valid YAML: %s", path, yamlProblem(b, err))
	}
	for _, root := range document.Content {
		l.locate("", root)
	}
	if tree == nil { // the document is null
		tree = map[string]any{}
	}
	return stringKeys(tree).(map[string]any), nil
}

// yamlValues matches the values that the YAML library repeats in its errors.
var yamlValues = regexp.MustCompile("anchor '.*' |`.*` |invalid map key: .*")

// yamlProblem puts an error of the YAML library on one line, without the values in it: any of them may be a secret.
func yamlProblem(text []byte, err error) string {
	problem := strings.Join(strings.Fields(err.Error()), " ")
	if _, name, ok := strings.Cut(problem, "unknown anchor '"); ok {
		name, _, _ = strings.Cut(name, "' referenced")
		before, _, _ := bytes.Cut(text, []byte("*"+name))
		return fmt.Sprintf("a value that begins with * must be put in quotes (line %d)", 1+bytes.Count(before, []byte("\n")))
	}
	return yamlValues.ReplaceAllStringFunc(problem, func(s string) string {
		kind, _, _ := strings.Cut(s, "'")
		if kind, _, _ = strings.Cut(kind, "`"); strings.HasPrefix(s, "invalid") {
			kind = "invalid map key: "
		}
		return kind + redacted + " "
	})
}

// stringKeys converts keys that YAML reads as numbers or other values to text.
func stringKeys(v any) any {
	switch m := v.(type) {
	case map[any]any:
		texts := make(map[string]any, len(m))
		for key, value := range m {
			texts[fmt.Sprint(key)] = stringKeys(value)
		}
		return texts
	case map[string]any:
		for key, value := range m {
			m[key] = stringKeys(value)
		}
	case []any:
		for i := range m {
			m[i] = stringKeys(m[i])
		}
	}
	return v
}

// locate records the line of each key in the file.
func (l *loader) locate(prefix string, node *yaml.Node) {
	if node.Kind == yaml.SequenceNode {
		for i, item := range node.Content {
			l.locate(prefix+strconv.Itoa(i)+".", item)
		}
		return
	}
	if node.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		path := prefix + node.Content[i].Value
		l.lines[path] = node.Content[i].Line
		l.locate(path+".", node.Content[i+1])
	}
}
