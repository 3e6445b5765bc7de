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

	"github.com/pacer/pacer/internal/notation"
)

// spanVar defines a flag for a duration, in the notation of files and the environment.
func spanVar(flags *pflag.FlagSet, to *time.Duration, name string, value time.Duration, usage string) {
	*to = value
	flags.Var((*notation.Span)(to), name, usage)
}

// optional adds a flag that sets *to only if it is given, so that "not given" and "empty" differ. shown is its default
// in the help.
func optional[T any](f *pflag.FlagSet, to **T, name, shown string, parse func(string) (T, error), usage string) {
	f.Var(&flagValue{kind: kindOf[T](), text: shown, set: func(text string) error {
		v, err := parse(text)
		if err == nil {
			*to = &v
		}
		return err
	}}, name, usage)
}

// optionalList is optional for values separated by commas, in one flag or in several. "" alone is none.
func optionalList[T any](f *pflag.FlagSet, to **[]T, name string, parse func([]string) ([]T, error), usage string) {
	var given []string
	f.Var(&flagValue{kind: "strings", set: func(text string) error {
		given = append(given, strings.Split(text, ",")...)
		list := given
		switch {
		case len(given) == 1 && text == "":
			list = given[:0]
		case slices.Contains(given, ""):
			return errors.New(`one of the values is empty; leave it out, or give "" alone for none`)
		}
		v, err := parse(list)
		if err == nil {
			*to = &v
		}
		return err
	}}, name, usage)
}

func kindOf[T any]() string {
	if _, ok := any(*new(T)).(int64); ok {
		return "int"
	}
	return "string"
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

// Parsers of the values of flags.
func text(text string) (string, error)       { return text, nil }
func wholeNumber(text string) (int64, error) { return strconv.ParseInt(text, 0, 64) }
func allOf(texts []string) ([]string, error) { return texts, nil }

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
