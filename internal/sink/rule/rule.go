// Package rule says what an answer means: by its status, or by expressions over its status, its headers and its body.
package rule

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// Options are what a configuration says of answers. Configurations embed it.
type Options struct {
	Classes map[string]string `yaml:"classes"` // by status: 404 or 5xx
	Rules   map[string]string `yaml:"rules"`   // expressions that are true or false, by class
	Take    Take              `yaml:"take"`
	// Whole has every answer read whole, for others to look at it.
	Whole bool `yaml:"-"`
}

// Take has the expressions for what an answer says in the destination's own words; "" for none.
type Take struct {
	ProviderCode      string `yaml:"provider_code"`
	ProviderMessageID string `yaml:"provider_message_id"`
	RetryAfter        string `yaml:"retry_after"`
}

// Set is a compiled Options. It is safe for concurrent use.
type Set struct {
	byStatus map[string]Verdict
	rules    []judge // in the order in which they are asked

	code, messageID, retryAfter *Expression

	needs needs
}

// needs are the parts of an answer that expressions look at.
type needs struct{ body, headers bool }

// Verdict is what an answer means.
type Verdict struct {
	Class  delivery.ResultClass
	Scope  delivery.Scope
	ByRule bool // an expression said so, not the status
}

type judge struct {
	verdict Verdict
	when    *Expression
}

// Answer is what expressions see.
type Answer struct {
	Status  int               `expr:"status"`
	Headers map[string]string `expr:"headers"` // by name in lower case; the first value of each
	Body    any               `expr:"body"`    // decoded from JSON; nil if it is none
	Text    string            `expr:"text"`    // the body as it is
	Vars    map[string]any    `expr:"vars"`    // what the steps of a request have found out
}

// New compiles the options; it returns nil if they say nothing. The error is one line, which begins with the key.
func New(opt Options) (*Set, error) {
	s := &Set{needs: needs{body: opt.Whole, headers: opt.Whole}}
	var err error
	if s.byStatus, err = classes(opt.Classes); err != nil {
		return nil, err
	}
	for _, text := range slices.Sorted(maps.Keys(opt.Rules)) {
		key := "rules." + text
		v, err := parseVerdict(key, text)
		if err != nil {
			return nil, err
		}
		v.ByRule = true
		when, err := s.compile(key, opt.Rules[text], true)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(s.rules, func(j judge) bool { return j.verdict == v }) {
			return nil, fmt.Errorf("%s: the same class is there twice; join the expressions by or", key)
		}
		s.rules = append(s.rules, judge{v, when})
	}
	slices.SortFunc(s.rules, func(a, b judge) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.verdict.Class), slices.Index(order, b.verdict.Class)),
			cmp.Compare(a.verdict.Scope, b.verdict.Scope))
	})
	for _, take := range []struct {
		key, text string
		to        **Expression
	}{
		{"take.provider_code", opt.Take.ProviderCode, &s.code}, {"take.provider_message_id", opt.Take.ProviderMessageID, &s.messageID},
		{"take.retry_after", opt.Take.RetryAfter, &s.retryAfter},
	} {
		if take.text == "" {
			continue
		}
		if *take.to, err = s.compile(take.key, take.text, false); err != nil {
			return nil, err
		}
	}
	if !opt.Whole && len(opt.Classes) == 0 && len(opt.Rules) == 0 && opt.Take == (Take{}) {
		return nil, nil
	}
	return s, nil
}

// order is the order of evaluation: rules that lose no job come first.
var order = []delivery.ResultClass{
	delivery.Misconfigured, delivery.Throttled, delivery.Temporary, delivery.Rejected, delivery.Permanent, delivery.Delivered,
}

const useClass = "use delivered, rejected, permanent, temporary, throttled or misconfigured; the latter two may be followed by " +
	"sink, campaign or recipient, as in \"throttled campaign\""

// parseVerdict parses the value of a key: a class, perhaps with a scope, as in "throttled campaign".
func parseVerdict(key, text string) (v Verdict, err error) {
	class, scope, scoped := strings.Cut(strings.Join(strings.Fields(text), " "), " ")
	i := slices.IndexFunc(order, func(c delivery.ResultClass) bool { return c.String() == class })
	if i < 0 {
		return v, fmt.Errorf("%s: %q is not a class; %s", key, text, useClass)
	}
	v.Class = order[i]
	if !scoped {
		return v, nil
	}
	var known bool
	switch v.Scope, known = scopes[scope]; {
	case !known:
		return v, fmt.Errorf("%s: %q has no such scope; %s", key, text, useClass)
	case v.Class != delivery.Throttled && (v.Class != delivery.Misconfigured || v.Scope == delivery.ScopeRecipient):
		return v, fmt.Errorf("%s: %q cannot have this scope; %s", key, text, useClass)
	}
	return v, nil
}

var scopes = map[string]delivery.Scope{
	"sink": delivery.ScopeSink, "destination": delivery.ScopeDestination, "campaign": delivery.ScopeCampaign, "recipient": delivery.ScopeRecipient,
}

// classes returns the verdict of each status: 404 counts before 4xx.
func classes(texts map[string]string) (map[string]Verdict, error) {
	by := map[string]Verdict{}
	for _, status := range slices.Sorted(maps.Keys(texts)) {
		key := "classes." + status
		if !statuses.MatchString(status) {
			return nil, fmt.Errorf("%s: not a status; use one such as \"404\" or \"5xx\"", key)
		}
		v, err := parseVerdict(key, texts[status])
		if err != nil {
			return nil, err
		}
		by[strings.ToLower(status)] = v
	}
	return by, nil
}

// statuses are those that an answer may end with, or a class of them.
var statuses = regexp.MustCompile(`^[2-5](\d\d|xx|XX)$`)

// NeedsBody reports whether an expression looks at the body of answers.
func (s *Set) NeedsBody() bool { return s.needs.body }

// NewAnswer returns an answer as expressions see it. The body is nil if none looks at it.
func (s *Set) NewAnswer(status int, header http.Header, body []byte) *Answer {
	a := &Answer{Status: status}
	if s.needs.headers {
		a.Headers = make(map[string]string, len(header))
		for name, values := range header {
			if len(values) > 0 {
				a.Headers[strings.ToLower(name)] = values[0]
			}
		}
	}
	if s.needs.body {
		a.Text, a.Body = string(body), Decode(body)
	}
	return a
}

// Judge returns what an answer means; ok is false if nothing is said of it. An expression that makes no sense for an answer
// is not true.
func (s *Set) Judge(a *Answer) (v Verdict, ok bool) {
	for _, r := range s.rules {
		if r.when.Is(a) {
			return r.verdict, true
		}
	}
	status := strconv.Itoa(a.Status)
	if v, ok = s.byStatus[status]; !ok {
		v, ok = s.byStatus[status[:1]+"xx"]
	}
	return v, ok
}

// Provider returns what an answer says in the destination's own words; nil if nothing.
func (s *Set) Provider(a *Answer) *delivery.Provider {
	if s.code == nil && s.messageID == nil {
		return nil
	}
	p := delivery.Provider{Code: text(s.code.Run(a)), MessageID: text(s.messageID.Run(a))}
	if p == (delivery.Provider{}) {
		return nil
	}
	return &p
}

// RetryAfter returns how long an answer says to wait, as a Retry-After header would; "" if it does not say.
func (s *Set) RetryAfter(a *Answer) string { return text(s.retryAfter.Run(a)) }
