package render

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"text/template/parse"
)

var jobType = reflect.TypeFor[*Job]()

// offered lists what a template sees of a job, as it is written.
var offered = func() (names []string) {
	for _, f := range reflect.VisibleFields(jobType.Elem()) {
		if f.IsExported() {
			names = append(names, "."+f.Name)
		}
	}
	for i := range jobType.NumMethod() {
		if name := jobType.Method(i).Name; name != "Vars" { // which only steps have
			names = append(names, "."+name)
		}
	}
	slices.Sort(names)
	return names
}()

// judge finds what a template asks of a job that no job has, which would fail for each of them. dot tells whether the dot is the job: in
// {{range}} and {{with}} it is something else, of which nothing is known.
func judge(n parse.Node, dot bool) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := judge(child, dot); err != nil {
				return err
			}
		}
	case *parse.ActionNode:
		return judgePipe(n.Pipe, dot)
	case *parse.IfNode:
		return judgeBranch(&n.BranchNode, dot, dot)
	case *parse.WithNode:
		return judgeBranch(&n.BranchNode, dot, false)
	case *parse.RangeNode:
		return judgeBranch(&n.BranchNode, dot, false)
	}
	return nil
}

// judgeBranch judges a condition and what depends on it; inside is dot in the first list.
func judgeBranch(n *parse.BranchNode, dot, inside bool) error {
	if err := judgePipe(n.Pipe, dot); err != nil {
		return err
	}
	if err := judge(n.List, inside); err != nil {
		return err
	}
	return judge(n.ElseList, dot)
}

func judgePipe(pipe *parse.PipeNode, dot bool) error {
	for i, cmd := range pipe.Cmds {
		for k, arg := range cmd.Args {
			given := 0
			if k == 0 {
				given = len(cmd.Args) - 1 + min(i, 1) // the last argument is what comes through the pipe
			}
			if err := judgeValue(arg, given, dot); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgeValue judges a value that is given so many arguments.
func judgeValue(n parse.Node, given int, dot bool) error {
	switch n := n.(type) {
	case *parse.FieldNode:
		if dot {
			return judgePath(n.Ident, given)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			return judgePath(n.Ident[1:], given)
		}
	case *parse.ChainNode:
		return judgeValue(n.Node, 0, dot)
	case *parse.PipeNode:
		return judgePipe(n, dot)
	}
	return nil
}

// judgePath follows names from a job on, as far as their types are known.
func judgePath(path []string, given int) error {
	at := jobType
	for i, name := range path {
		written := "." + strings.Join(path[:i+1], ".")
		takes := 0
		if method, ok := at.MethodByName(name); ok {
			takes = method.Type.NumIn() - 1
			at = method.Type.Out(0)
		} else if field, ok := fieldOf(at, name); ok {
			at = field
		} else {
			return unknown(written, i)
		}
		args := 0
		if i == len(path)-1 {
			args = given
		}
		switch {
		case takes > 0 && args != takes:
			return fmt.Errorf(`%s takes %d argument, as in {{ %s "name" }}`, written, takes, written)
		case i > 0 || at.Kind() == reflect.Interface:
			return nil // not of a job itself
		case args > takes:
			return fmt.Errorf("%s takes no argument; remove what follows or comes before it", written)
		}
	}
	return nil
}

func fieldOf(of reflect.Type, name string) (reflect.Type, bool) {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return nil, false
	}
	field, ok := of.FieldByName(name)
	return field.Type, ok && field.IsExported()
}

// unknown is the error of a name that is not there; depth is how far from the job.
func unknown(written string, depth int) error {
	if depth > 0 {
		return fmt.Errorf("there is no %s", written)
	}
	return fmt.Errorf("a job has no %s; use one of %s, and .JSON%s for what is in its payload", written, strings.Join(offered, ", "), written)
}
