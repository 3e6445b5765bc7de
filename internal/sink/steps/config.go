package steps

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/http"
)

// Config configures a steps sink.
type Config struct {
	// Deadline is how long a request may take, from the first call to the last answer.
	Deadline time.Duration `yaml:"deadline" range:"1s..30d"`
	// PollsPerSecond is how many calls a second one daemon makes for steps after the first.
	PollsPerSecond int `yaml:"polls_per_second" range:"1..100000"`
	// Steps are made one after the other.
	Steps []Step `yaml:"steps"`
	// Namespaces are those of XPath expressions, by prefix.
	Namespaces map[string]string `yaml:"namespaces"`

	http.Common // of all steps, whose own headers come on top; secrets of a step have "steps." and its number before their key
}

// Step is one call of a request.
type Step struct {
	ID      string            `yaml:"id"`
	Method  string            `yaml:"method"`
	URL     string            `yaml:"url" secret:"url"`
	Headers map[string]string `yaml:"headers" secret:"value"`
	Body    string            `yaml:"body" secret:"value"`
	Classes map[string]string `yaml:"classes"`
	Rules   map[string]string `yaml:"rules"`
	// Take is what later steps need of the answer, by name: expressions, or xpath: and an XPath expression.
	Take map[string]string `yaml:"take"`
	// Once says that the step must not be made twice: Lookup is asked first.
	Once   bool   `yaml:"once"`
	Lookup Lookup `yaml:"lookup"`
	// Poll makes the step again until its answer says that it is done.
	Poll Poll `yaml:"poll"`
}

// Lookup is a call that says whether a step was made before.
type Lookup struct {
	Method  string            `yaml:"method"`
	URL     string            `yaml:"url" secret:"url"`
	Headers map[string]string `yaml:"headers" secret:"value"`
	Body    string            `yaml:"body" secret:"value"`
	// Found is an expression over the answer; "" for every answer with success.
	Found string `yaml:"found"`
	// Take is what it finds; that of the step if there is none.
	Take map[string]string `yaml:"take"`
}

// Poll says when a step is made again, and when it is done.
type Poll struct {
	Every time.Duration `yaml:"every" range:"100ms..30d" zero:""` // the first wait; each is twice as long as the one before
	Max   time.Duration `yaml:"max" range:"100ms..30d" zero:""`   // the longest; 0 for Every
	Until string        `yaml:"until"`                            // is true of the answer that ends it
	Fail  string        `yaml:"fail"`                             // is true of an answer that will never be another: the job is refused; "" for none
}

// used reports whether the step is polled.
func (p *Poll) used() bool { return *p != Poll{} }

const maxSteps = 20

// Default returns the configuration of a steps sink without steps.
func Default() *Config {
	return &Config{Deadline: 24 * time.Hour, PollsPerSecond: 20, Common: http.DefaultCommon()}
}

// Entry returns what the router needs to know of the sink.
func (c *Config) Entry() base.Entry {
	e := c.Common.Entry()
	e.Timeout, e.FollowUps = 2*c.Timeout, c.PollsPerSecond // a step may be two calls: its lookup, and itself
	return e
}

// call is one call of a step: the configuration of the http sink that makes it.
type call struct {
	at      string            // the keys of the call begin with this: steps.0.
	headers map[string]string // those that only this call has
	*http.Config
}

// call returns a call that has no request yet: its headers, and the settings and secrets that all calls have.
func (c *Config) call(at string, headers map[string]string) call {
	h := http.Default()
	h.Common = c.Common
	h.Secrets, h.Headers = access.Secrets{Sources: map[string]func() (string, error){}}, map[string]string{}
	replaced := func(name string) bool {
		return slices.ContainsFunc(slices.Collect(maps.Keys(headers)), func(own string) bool { return strings.EqualFold(own, name) })
	}
	maps.Copy(h.Headers, c.Headers)
	maps.DeleteFunc(h.Headers, func(name, _ string) bool { return replaced(name) })
	maps.Copy(h.Headers, headers)
	for _, key := range slices.Sorted(maps.Keys(c.Sources)) {
		if own, isOwn := strings.CutPrefix(key, at); isOwn && !strings.HasPrefix(own, "lookup.") {
			h.Sources[own] = c.Sources[key]
		} else if name, isHeader := strings.CutPrefix(key, "headers."); !strings.HasPrefix(key, "steps.") && (!isHeader || !replaced(name)) {
			h.Sources[key] = c.Sources[key]
		}
	}
	h.Name = func(problem string) string {
		key, _, _ := strings.Cut(problem, ":")
		root, name, _ := strings.Cut(key, ".")
		if _, isOwn := headers[name]; slices.Contains(ofCall, root) || root == "headers" && isOwn {
			return at + problem
		}
		return problem
	}
	return call{at, headers, h}
}

// ofCall are the settings that a call has of its own, beside headers.
var ofCall = []string{"url", "method", "body", "classes", "rules"}

// allCalls returns the calls of all steps.
func (c *Config) allCalls() (list []call) {
	for n := range c.Steps {
		list = append(list, c.calls(n)...)
	}
	return list
}

// calls returns the calls of a step: its lookup if it has one, and the step itself.
func (c *Config) calls(n int) []call {
	s := &c.Steps[n]
	at := "steps." + strconv.Itoa(n) + "."
	own := c.call(at, s.Headers)
	own.Step, own.URL, own.Method, own.Body, own.Classes, own.Rules = s.ID, s.URL, s.Method, s.Body, s.Classes, s.Rules
	own.Whole = len(s.Take) > 0 || s.Poll.used()
	if s.Method == "" && s.Poll.used() {
		own.Method = methodGet
	}
	if !s.Once {
		return []call{own}
	}
	asks := c.call(at+"lookup.", s.Lookup.Headers)
	asks.Step, asks.URL, asks.Method, asks.Body = s.ID+":lookup", s.Lookup.URL, cmp.Or(s.Lookup.Method, methodGet), s.Lookup.Body
	asks.Whole = true
	return []call{asks, own}
}

const methodGet = "GET"

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p base.Problems
	if len(c.Steps) == 0 || len(c.Steps) > maxSteps {
		return append(p, fmt.Sprintf("steps: there are %d; use 1 to %d", len(c.Steps), maxSteps))
	}
	seen, taken := map[string]bool{}, map[string]bool{}
	for i := range c.Steps {
		s, at := &c.Steps[i], "steps."+strconv.Itoa(i)+"."
		switch {
		case !(&delivery.State{Step: s.ID}).Valid():
			p = append(p, at+"id: required; use 1 to 64 letters and digits")
		case seen[s.ID]:
			p = append(p, at+"id: is that of another step as well; use another")
		}
		seen[s.ID] = true
		p = append(p, c.stepProblems(i, at, taken)...)
		for _, take := range []map[string]string{s.Take, s.Lookup.Take} {
			for name := range take {
				taken[name] = true
			}
		}
	}
	if len(p) == 0 {
		if _, err := c.compile(); err != nil {
			p = append(p, err.Error())
		}
	}
	return p
}

// stepProblems returns the errors of a step. The values taken are those of the steps before it.
func (c *Config) stepProblems(n int, at string, taken map[string]bool) (p []string) {
	s := &c.Steps[n]
	for _, of := range c.calls(n) {
		if of.at != at && of.URL == "" {
			p = append(p, at+"lookup.url: required for once: where to ask whether the step was made before a crash; use one such as https://example.com/orders?key={{ .ID }}")
			continue
		}
		p = append(p, c.callProblems(of, taken)...)
	}
	if !s.Once && !reflect.ValueOf(s.Lookup).IsZero() {
		p = append(p, at+"lookup: is for a step with once: true; set that, or remove it")
	}
	if s.Once && s.Poll.used() {
		p = append(p, at+"once: a poll is made many times; remove it")
	}
	if !s.Poll.used() {
		return p
	}
	if s.Poll.Every == 0 {
		p = append(p, at+"poll.every: required; use a duration such as 5s")
	}
	if s.Poll.Max != 0 && s.Poll.Max < s.Poll.Every {
		p = append(p, fmt.Sprintf("%spoll.max: %s is less than every; use a duration such as 1m", at, s.Poll.Max))
	}
	if s.Poll.Until == "" {
		p = append(p, at+"poll.until: required; use an expression such as body.state == \"done\"")
	}
	return p
}

// used matches the values of earlier steps that a template uses.
var used = regexp.MustCompile(`\.Vars\.([a-zA-Z_][a-zA-Z0-9_]*)`)

// callProblems returns the errors of a call. Those of settings that all calls have in common are those of the sink, and come
// once. A value that no earlier step takes is an error here: the calls before it would be made in vain.
func (c *Config) callProblems(of call, taken map[string]bool) (p []string) {
	texts := map[string]string{"url": of.URL, "method": of.Method, "body": of.Body}
	for name, text := range of.headers {
		texts["headers."+name] = text
	}
	for _, key := range slices.Sorted(maps.Keys(texts)) {
		for _, name := range used.FindAllStringSubmatch(texts[key], -1) {
			if !taken[name[1]] {
				p = append(p, fmt.Sprintf("%s%s: uses .Vars.%s, and no step before takes %[3]s", of.at, key, name[1]))
			}
		}
	}
	for _, problem := range of.Problems() {
		if strings.HasPrefix(problem, of.at) || of.at == "steps.0." {
			p = append(p, problem)
		}
	}
	if of.Elsewhere() {
		p = append(p, of.at+"url: must name one host; a template may stand in the path and the query")
	}
	return p
}
