package render

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/pacer/pacer/internal/delivery"
)

// offered lists what a template sees of a job, as it is written. Only steps have .Vars.
const offered = ".Attempt, .Campaign, .ContentType, .Header, .ID, .JSON, .Key, .Payload, .Time, .TraceParent, .Weight"

// judgePipe returns an error if a pipe asks for something that no job has, since it would fail for all jobs. The parameter dot is true
// where the dot is the job: in {{range}} and {{with}} it is an unknown value.
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

// judgeValue judges a value with the given number of arguments.
func judgeValue(n parse.Node, given int, dot bool) error {
	switch n := n.(type) {
	case *parse.FieldNode:
		if dot {
			return try(n.Ident, given)
		}
	case *parse.VariableNode:
		if n.Ident[0] == "$" && len(n.Ident) > 1 {
			return try(n.Ident[1:], given)
		}
	case *parse.ChainNode:
		return judgeValue(n.Node, 0, dot)
	case *parse.PipeNode:
		return judgePipe(n, dot)
	}
	return nil
}

// certain matches the errors that do not depend on the job, and absent those of a name that is not there.
var (
	certain = regexp.MustCompile(`can't evaluate field|unexported field|wrong number of args|has arguments but`)
	absent  = regexp.MustCompile(`field .* type \*?render\.Job$`)
)

// try asks an empty job for what the names lead to.
func try(path []string, given int) error {
	written := "." + strings.Join(path, ".")
	t, err := template.New("").Parse("{{ " + written + strings.Repeat(` ""`, given) + " }}")
	if err == nil {
		err = t.Execute(io.Discard, &Job{job: &delivery.Job{}})
	}
	switch {
	case err == nil || !certain.MatchString(err.Error()):
		return nil
	case absent.MatchString(err.Error()):
		return fmt.Errorf("a job has no .%s; use one of %s, and .JSON.%s for what is in its payload", path[0], offered, path[0])
	case strings.Contains(err.Error(), "can't evaluate field"):
		return fmt.Errorf("there is no %s", written)
	case strings.Contains(err.Error(), "has arguments but"):
		return fmt.Errorf("%s takes no argument; remove what follows or comes before it", written)
	}
	return fmt.Errorf(`%s takes 1 argument, as in {{ %s "name" }}`, written, written)
}
