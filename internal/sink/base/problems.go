package base

import "fmt"

// Problems are the errors in a configuration, one line each, beginning with the key, without secrets. Those of a value alone are in the tags
// of its field, and are found by package config.
type Problems []string

// Add adds an error.
func (p *Problems) Add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// Note adds an error, unless it is nil.
func (p *Problems) Note(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}
