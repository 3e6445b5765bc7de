// Package render writes text for one job from a template of the configuration: a URL, a header, a body.
package render

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"text/template"
	"text/template/parse"
)

// Bounds on what a template may do for one job. They stop a template that would not end, and data that would make it do so.
const (
	maxTemplate = 64 << 10 // bytes of its text
	maxSteps    = 100_000  // writes, and rounds of {{range}}
)

// Escape says where the text goes, and so how the values in it are written. The text around them is left as it is.
type Escape uint8

// The escapes.
const (
	Plain Escape = iota // as they are
	Path                // as one segment of a URL's path
	Query               // as a part of a URL's query
	Host                // as a part of a host name; other values are errors
	HTML                // as text of an HTML document, or as the value of an attribute in quotes; {{raw X}} leaves X as it is
)

// Template is a parsed template. It sees one job, and nothing of the environment, of files or of other jobs. It is safe
// for concurrent use.
type Template struct {
	name  string
	tree  *template.Template
	texts []string
}

// IsTemplate reports whether a text of the configuration is a template: it has an action, {{…}}.
func IsTemplate(text string) bool { return strings.Contains(text, "{{") }

// Parse parses a template, and finds what it asks of a job that no job has. The error is one line, with nothing of the template but names.
func Parse(name, text string, escape Escape) (*Template, error) {
	if len(text) > maxTemplate {
		return nil, fmt.Errorf("the template is longer than %d bytes", maxTemplate)
	}
	tree, err := template.New(name).Option("missingkey=error").Funcs(functions).Funcs(escapes[escape]).Parse(text)
	if err != nil {
		return nil, errors.New(reason(err))
	}
	t := &Template{name: name, tree: tree}
	if len(tree.Templates()) > 1 {
		return nil, errors.New("define, block and template are not available")
	}
	if tree.Tree == nil || tree.Root == nil {
		return nil, errors.New("the template is empty")
	}
	if err := t.prepare(tree.Root, true); err != nil {
		return nil, err
	}
	return t, nil
}

// Texts returns the parts of the template that are the same for all jobs. They may hold a secret.
func (t *Template) Texts() []string { return t.texts }

// prepare has every value pass the function that writes it, and every round of a loop be counted. It judges what is asked of a
// job; dot reports whether the dot is one.
func (t *Template) prepare(n parse.Node, dot bool) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := t.prepare(child, dot); err != nil {
				return err
			}
		}
	case *parse.TextNode:
		t.texts = append(t.texts, string(n.Text))
	case *parse.ActionNode:
		if err := judgePipe(n.Pipe, dot); err != nil {
			return err
		}
		if len(n.Pipe.Decl) == 0 { // {{$x := …}} writes nothing
			n.Pipe.Cmds = append(n.Pipe.Cmds, &parse.CommandNode{
				NodeType: parse.NodeCommand, Pos: n.Pos, Args: []parse.Node{parse.NewIdentifier(write).SetPos(n.Pos).SetTree(t.tree.Tree)},
			})
		}
	case *parse.IfNode:
		return t.branch(&n.BranchNode, dot, dot)
	case *parse.WithNode:
		return t.branch(&n.BranchNode, dot, false)
	case *parse.RangeNode:
		if err := t.branch(&n.BranchNode, dot, false); err != nil {
			return err
		}
		n.List.Nodes = append([]parse.Node{&parse.TextNode{NodeType: parse.NodeText, Pos: n.Pos}}, n.List.Nodes...)
	case *parse.TemplateNode:
		return errors.New("define, block and template are not available")
	}
	return nil
}

// branch prepares what depends on a condition; inside is dot in the first list.
func (t *Template) branch(n *parse.BranchNode, dot, inside bool) error {
	return cmp.Or(judgePipe(n.Pipe, dot), t.prepare(n.List, inside), t.prepare(n.ElseList, dot))
}

// Append appends the text for a job to dst. A text of more than limit bytes is an error, as is a value that is not there.
// An error is about the job, or its template, and stays the same however often it is tried.
func (t *Template) Append(dst []byte, job *Job, limit int) ([]byte, error) {
	w := &bounded{b: dst, left: limit}
	if err := t.tree.Execute(w, job); err != nil {
		return dst, fmt.Errorf("%s: %s", t.name, reason(err))
	}
	return w.b, nil
}

// Text returns the text for a job.
func (t *Template) Text(job *Job, limit int) (string, error) {
	b, err := t.Append(nil, job, limit)
	return string(b), err
}

var (
	errLong  = errors.New("the text is too long")
	errSteps = errors.New("the template takes too many steps")
)

// bounded is what a template writes to.
type bounded struct {
	b     []byte
	left  int
	steps int
}

func (w *bounded) Write(p []byte) (int, error) {
	w.steps++
	switch {
	case w.steps > maxSteps:
		return 0, errSteps
	case len(p) > w.left:
		return 0, errLong
	}
	w.left -= len(p)
	w.b = append(w.b, p...)
	return len(p), nil
}

// reason returns what a template's error says, on one line, without the names that package template puts first.
func reason(err error) string {
	text := err.Error()
	if i := strings.Index(text, ": executing "); i >= 0 {
		if at := strings.Index(text[i:], " at <"); at >= 0 {
			text = text[i+at+1:]
		}
	} else if rest, ok := strings.CutPrefix(text, "template: "); ok {
		if parts := strings.SplitN(rest, ":", 3); len(parts) == 3 {
			text = "line " + parts[1] + ":" + parts[2]
		}
	}
	return strings.Join(strings.Fields(text), " ")
}

// Text is a setting that is a text or a template.
type Text struct {
	Key, Text string
	Escape    Escape
}

// Set is the templates of settings, by key; those that are "" are missing.
type Set map[string]*Template

// ParseAll parses the templates of settings. Each error begins with the key.
func ParseAll(texts ...Text) (set Set, errs []error) {
	set = Set{}
	for _, t := range texts {
		if t.Text == "" {
			continue
		}
		parsed, err := Parse(t.Key, t.Text, t.Escape)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Key, err))
			continue
		}
		set[t.Key] = parsed
	}
	return set, errs
}

// Make returns the text that the template of a setting makes for a job; "" if there is none.
func (s Set) Make(key string, job *Job, limit int) (string, error) {
	if t := s[key]; t != nil {
		return t.Text(job, limit)
	}
	return "", nil
}
