package command

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// spanVar defines a flag for a duration, in the notation of files and the environment.
func spanVar(flags *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	flags.Var((*notation.Span)(to), name, usage)
}

// settingFlags adds a flag for each of the settings. Those that are given are in the change, by their names in the API.
func settingFlags(f *pflag.FlagSet, settings []view.Setting, change view.Values) {
	for _, s := range settings {
		name, kind, hint := strings.ReplaceAll(s.Name, "_", "-"), "string", s.Hint
		var given []string
		take := func(text string) (err error) {
			change[s.Name], err = s.Value(text)
			return err
		}
		set := take
		switch s.Input {
		case view.InputNumber:
			kind = "int"
		case view.InputList, view.InputQuotas:
			name, kind, hint = strings.TrimSuffix(name, "s"), "strings", hint+`; several with commas between, or flags; "" for none`
			set = func(text string) error {
				if given = append(given, strings.Split(text, ",")...); len(given) > 1 && slices.Contains(given, "") {
					return errors.New(`one of the values is empty; leave it out, or give "" alone for none`)
				}
				return take(strings.Join(given, " "))
			}
		case view.InputHeaders:
			continue // of which each is a flag
		}
		f.Var(&flagValue{kind: kind, set: set}, name, hint)
	}
}

// flagValue implements pflag.Value.
type flagValue struct {
	kind, text string
	set        func(string) error
}

func (v *flagValue) String() string { return v.text }

func (v *flagValue) Type() string { return v.kind }

// Set implements pflag.Value.
func (v *flagValue) Set(text string) error {
	v.text = text
	return v.set(text)
}

// flagError makes the error of a flag readable; strconv's own errors are meant for programmers.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var number *strconv.NumError
	switch {
	case !errors.As(err, &invalid):
	case errors.As(err, &number):
		must := "must be a whole number"
		switch {
		case errors.Is(err, strconv.ErrRange):
			must = "is out of range"
		case number.Func == "ParseBool":
			must = "must be true or false"
		}
		err = fmt.Errorf("--%s %q %s", invalid.GetFlag().Name, invalid.GetValue(), must)
	default:
		err = fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	return fmt.Errorf("%w; %s --help lists the flags", err, cmd.CommandPath())
}
