package rule

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/vm"
)

// Bounds on expressions. With no loop in a loop, where a loop searches nothing but its element, and answers of bounded size, they bound the time that
// one takes.
const (
	maxExpression = 4 << 10 // bytes of its text
	maxNodes      = 500
	maxMemory     = 100_000 // values made at once
)

// builtins are the functions that expressions have: none takes much longer than its argument is long, and none looks at
// anything else.
var builtins = []string{
	"all", "any", "none", "one", "filter", "map", "find", "count", "len", "int", "float", "string", "abs", "max", "min",
	"trim", "trimPrefix", "trimSuffix", "upper", "lower", "split", "join", "indexOf", "hasPrefix", "hasSuffix", "first", "last", "get", "keys", "values",
}

// Expression is a compiled expression; nil makes nil.
type Expression struct{ program *vm.Program }

// compile compiles an expression, and notes what it looks at.
func (s *Set) compile(key, text string, isBool bool) (*Expression, error) {
	if len(text) > maxExpression {
		return nil, fmt.Errorf("%s: the expression is longer than %d bytes", key, maxExpression)
	}
	look := &inspector{needs: &s.needs}
	kind := expr.AsAny()
	if isBool {
		kind = expr.AsBool()
	}
	options := []expr.Option{expr.Env(Answer{}), expr.MaxNodes(maxNodes), expr.DisableAllBuiltins(), expr.Patch(look), kind}
	for _, name := range builtins {
		options = append(options, expr.EnableBuiltin(name))
	}
	program, err := expr.Compile(text, options...)
	if err != nil {
		return nil, fmt.Errorf("%s: not an expression: %s", key, firstLine(err))
	}
	if look.within.loop {
		return nil, fmt.Errorf("%s: a loop in a loop is not available; use one of them", key)
	}
	if look.within.search {
		return nil, fmt.Errorf("%s: a loop may search its element only, not the rest of the answer: "+
			"functions, in, contains, matches and the like may not have body, text or headers in it", key)
	}
	return &Expression{program}, nil
}

// Compile compiles an expression outside of rules, for answers that were read whole; isBool says that it has to be true or false. The error is
// one line, which begins with the key.
func Compile(key, text string, isBool bool) (*Expression, error) {
	return new(Set).compile(key, text, isBool)
}

// Is reports whether the expression is true for an answer.
func (e *Expression) Is(a *Answer) bool {
	is, _ := e.Run(a).(bool)
	return is
}

// firstLine leaves out the lines of an error that quote the expression.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// Run returns the value of the expression for an answer; nil if it has none.
func (e *Expression) Run(a *Answer) any {
	if e == nil {
		return nil
	}
	machine := vm.VM{MemoryBudget: maxMemory}
	v, err := machine.Run(e.program, a)
	if err != nil {
		return nil
	}
	return v
}

// inspector finds out what an expression looks at, and what its loops do.
type inspector struct {
	needs  *needs
	within within
}

// Visit implements ast.Visitor.
func (l *inspector) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.IdentifierNode:
		all := n.Value == "$env"
		l.needs.body = l.needs.body || all || n.Value == "body" || n.Value == "text"
		l.needs.headers = l.needs.headers || all || n.Value == "headers"
	case *ast.PredicateNode:
		ast.Walk(&n.Node, &l.within)
	}
}

// within is what is done for each element of a loop, and takes as long as what it looks at is long: another loop, or a search of something else
// than the element.
type within struct{ loop, search bool }

// Visit implements ast.Visitor.
func (w *within) Visit(node *ast.Node) {
	switch n := (*node).(type) {
	case *ast.PredicateNode:
		w.loop = true
	case *ast.BuiltinNode, *ast.CallNode:
		ast.Walk(node, (*search)(w))
	case *ast.BinaryNode:
		if slices.Contains([]string{"in", "contains", "startsWith", "endsWith", "matches", "..", "+"}, n.Operator) {
			ast.Walk(node, (*search)(w))
		}
	}
}

// search looks for anything but the element, the variables of steps, and the status.
type search within

// Visit implements ast.Visitor.
func (s *search) Visit(node *ast.Node) {
	if n, is := (*node).(*ast.IdentifierNode); is && n.Value != "vars" && n.Value != "status" {
		s.search = true
	}
}

// Decode returns JSON as expressions see it; nil if it is none.
func Decode(body []byte) (v any) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&v) != nil {
		return nil
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil
	}
	return numbers(v)
}

// numbers replaces the numbers in a decoded value by whole ones where they fit.
func numbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.Atoi(v.String()); err == nil {
			return n
		}
		if n, err := v.Float64(); err == nil && (n < math.MinInt64 || n > math.MaxInt64) && !strings.ContainsAny(v.String(), ".eE") {
			return v.String() // an id that no number holds
		}
		n, _ := v.Float64()
		return n
	case map[string]any:
		for key := range v {
			v[key] = numbers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = numbers(v[i])
		}
	}
	return v
}

// text returns a value as text: "" for one that is not text, a number, true or false.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int, bool:
		return fmt.Sprint(v)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
