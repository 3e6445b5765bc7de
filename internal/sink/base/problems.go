package base

import "fmt"

// Problems are the errors in a configuration, one line each, beginning with the key, without secrets. Those of a value alone are in the tags
// of its field, and are found by package config.
type Problems []string

// Add adds an error.
func (p *Problems) Add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// When adds an error if something is wrong.
func (p *Problems) When(wrong bool, format string, args ...any) {
	if wrong {
		p.Add(format, args...)
	}
}

// Because adds the error in a setting; why is "" if there is none.
func (p *Problems) Because(key, why string) { p.When(why != "", "%s: %s", key, why) }

// Note adds an error, unless it is nil.
func (p *Problems) Note(err error) {
	if err != nil {
		*p = append(*p, err.Error())
	}
}
