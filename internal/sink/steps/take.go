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

// taking finds values in answers, in the order of their names.
type taking []taken

// taken is a value: that of an expression, or of a path.
type taken struct {
	name string
	expr *rule.Expression
	path *path
}

// newTaking compiles what is to be taken. An error begins with the key.
func newTaking(key string, take, namespaces map[string]string) (t taking, err error) {
	for _, name := range slices.Sorted(maps.Keys(take)) {
		at, one := key+"."+name, taken{name: name}
		if !namePattern.MatchString(name) {
			return nil, fmt.Errorf("%s: not a name; use letters, digits and _", at)
		}
		if text, isPath := strings.CutPrefix(take[name], xpathScheme); !isPath {
			one.expr, err = rule.Compile(at, text, false)
		} else if expr, wrong := xpath.CompileWithNS(strings.TrimSpace(text), namespaces); wrong != nil {
			err = fmt.Errorf("%s: not an XPath expression: %s", at, strings.Join(strings.Fields(wrong.Error()), " "))
		} else {
			one.path = &path{expr: expr}
		}
		if err != nil {
			return nil, err
		}
		t = append(t, one)
	}
	return t, nil
}

// namePattern matches the names that a template can use: .Vars.name.
var namePattern = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]{0,63}$`)

// from adds the values in an answer to vars, and returns the names of those that are not there. No expression sees another's value.
func (t taking) from(a *rule.Answer, vars map[string]any) (missing []string) {
	var root *xmlquery.Node
	if slices.ContainsFunc(t, func(one taken) bool { return one.path != nil }) {
		root, _ = xmlquery.Parse(strings.NewReader(a.Text)) // nothing is found in what is no XML
	}
	found := map[string]any{}
	for _, one := range t {
		v := one.expr.Run(a)
		if one.path != nil && root != nil {
			v = one.path.in(root)
		}
		if v == nil {
			missing = append(missing, one.name)
			continue
		}
		found[one.name] = v
	}
	maps.Copy(vars, found)
	return missing
}

// path is an XPath expression, which keeps where it is in a document.
type path struct {
	mu   sync.Mutex
	expr *xpath.Expr
}

// in returns the value in a document: the text of the first node that the path selects. It is nil if there is none, or if the document has
// something that a function of the path does not take, where package xpath panics.
func (p *path) in(root *xmlquery.Node) (value any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer func() { _ = recover() }()
	switch v := p.expr.Evaluate(xmlquery.CreateXPathNavigator(root)).(type) {
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
