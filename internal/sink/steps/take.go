package steps

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/antchfx/xmlquery"
	"github.com/antchfx/xpath"

	"github.com/pacer/pacer/internal/sink/rule"
)

// xpathScheme begins what is taken from an answer in XML.
const xpathScheme = "xpath:"

// taking finds values in answers, by name.
type taking struct {
	names []string
	exprs map[string]*rule.Expression
	paths map[string]*xpath.Expr
	mu    *sync.Mutex // guards paths, which keep where they are in a document
}

// newTaking compiles what is to be taken. An error begins with the key.
func newTaking(key string, take, namespaces map[string]string) (taking, error) {
	t := taking{names: slices.Sorted(maps.Keys(take)), exprs: map[string]*rule.Expression{}, paths: map[string]*xpath.Expr{}, mu: new(sync.Mutex)}
	for _, name := range t.names {
		at := key + "." + name
		if !namePattern.MatchString(name) {
			return t, fmt.Errorf("%s: not a name; use letters, digits and _", at)
		}
		text, isPath := strings.CutPrefix(take[name], xpathScheme)
		var err error
		if isPath {
			if t.paths[name], err = xpath.CompileWithNS(strings.TrimSpace(text), namespaces); err != nil {
				return t, fmt.Errorf("%s: not an XPath expression: %s", at, strings.Join(strings.Fields(err.Error()), " "))
			}
		} else if t.exprs[name], err = rule.Compile(at, text, false); err != nil {
			return t, err
		}
	}
	return t, nil
}

// namePattern matches the names that a template can use: .Vars.name.
var namePattern = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`)

// from adds the values in an answer to vars, and returns the names of those that are not there.
func (t *taking) from(a *rule.Answer, vars map[string]any) (missing []string) {
	var root *xmlquery.Node
	if len(t.paths) > 0 {
		root, _ = xmlquery.Parse(strings.NewReader(a.Text)) // nothing is found in what is no XML
	}
	found := map[string]any{}
	for _, name := range t.names {
		var v any
		if path := t.paths[name]; path == nil {
			v = t.exprs[name].Run(a)
		} else if root != nil {
			v = t.evaluate(path, root)
		}
		if v == nil {
			missing = append(missing, name)
			continue
		}
		found[name] = v
	}
	maps.Copy(vars, found)
	return missing
}

// evaluate returns the value of a path: the text of the first node that it selects; nil if there is none, or if the answer has something
// that a function of the path does not take, where package xpath panics.
func (t *taking) evaluate(path *xpath.Expr, root *xmlquery.Node) (value any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = recover() }()
	switch v := path.Evaluate(xmlquery.CreateXPathNavigator(root)).(type) {
	case *xpath.NodeIterator:
		if !v.MoveNext() {
			return nil
		}
		return v.Current().Value()
	case string, float64, bool:
		return v
	}
	return nil
}
