package config

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// minToken is the least length of a token, in characters.
const minToken = 16

// Problems returns the errors in the values that are set. Which settings are required depends on the command: see
// LoadFor.
func (c *Config) Problems() Problems {
	v, shown := &validator{}, *c // schemaOf needs an addressable value; nothing is written to it
	for _, leaf := range schemaOf("", &shown).leaves {
		if leaf.path == "eventual.roots" && slices.Equal(c.Eventual.Roots, c.Redis.Addrs) {
			continue // they are checked as redis.addrs
		}
		v.leaf(leaf)
	}
	v.kafka(c)
	v.redis(&c.Redis)
	v.ordered("eventual.low_burst", c.Eventual.LowBurst, "eventual.high_burst", c.Eventual.HighBurst)
	v.ordered("pacing.min_quantum", c.Pacing.MinQuantum, "pacing.max_quantum", c.Pacing.MaxQuantum)
	v.ordered("retry.initial", c.Retry.Initial, "retry.max", c.Retry.Max)
	v.http(&c.HTTP)
	v.tracing(&c.Tracing)
	v.problems = append(v.problems, c.secretProblems()...)
	v.sinks(c)
	return v.problems
}

// secretProblems returns the errors in the values of secrets. They may change while the daemon runs.
func (c *Config) secretProblems() Problems {
	v := &validator{}
	v.postgres(&c.Postgres)
	v.tokens(c.HTTP.Tokens.Reveal())
	if n := len(c.AdminToken.Reveal()); n > 0 && n < minToken {
		v.add("admin_token", "%d characters can be guessed; use %d or more", n, minToken)
	}
	return v.problems
}

// forms are what the `is` tag of a text, or of the items of a list, may name.
var forms = map[string]struct {
	name string
	is   func(string) bool
}{
	"address": {"host:port", func(s string) bool {
		_, port, err := net.SplitHostPort(s)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		return err == nil
	}},
	"topic":  {"a name for a topic", notation.IsTopic},
	"path":   {"a path that begins with / and does not end with it", regexp.MustCompile(`^(/[\w-]+)+$`).MatchString},
	"header": {"the name of a header", regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`).MatchString},
	"own header": {"the name of a producer's header", func(s string) bool {
		return s != "" && len(s) <= 128 && utf8.ValidString(s) && !strings.HasPrefix(s, delivery.HeaderPrefix)
	}},
	"network": {"a network", func(s string) bool { n, err := netip.ParsePrefix(s); return err == nil && n.Bits() > 0 }},
	"origin":  {"an origin", func(s string) bool { return http.NewCrossOriginProtection().AddTrustedOrigin(s) == nil }},
}

// check returns what is wrong with the value, or with the items of a list, by the tags of its field:
//
//	range  the least and the greatest value
//	oneof  the words that are allowed
//	is     the name of a form, and such an example of it
//	most   the number of items of a list; once forbids repeated ones
//	zero   what a valid zero value means
func (l setting) check() (wrong []string) {
	values := []reflect.Value{l.value}
	if l.value.Kind() == reflect.Slice {
		values = nil
		for i := range l.value.Len() {
			values = append(values, l.value.Index(i))
		}
	}
	if most, _ := strconv.Atoi(l.tags.Get("most")); most > 0 && len(values) > most {
		wrong = append(wrong, fmt.Sprintf("%d of them; use at most %d", len(values), most))
	}
	zero, mayBeZero := l.tags.Lookup("zero")
	if zero != "" {
		zero = ", or 0 for " + zero
	}
	for i, v := range values {
		text := setting{value: v}.shown()
		switch words, form := l.tags.Get("oneof"), l.tags.Get("is"); {
		case mayBeZero && v.IsZero():
		case form != "" && !forms[form].is(text):
			wrong = append(wrong, fmt.Sprintf("%s is not %s; use one such as %s", quoted(text), forms[form].name, l.tags.Get("such")))
		case words != "" && !slices.Contains(strings.Split(words, ", "), text):
			wrong = append(wrong, fmt.Sprintf("there is no %s; use one of %s", quoted(text), words))
		case !l.inRange(v):
			kind, bounds := "number", strings.Replace(l.tags.Get("range"), "..", " and ", 1)
			if v.Type() == reflect.TypeFor[time.Duration]() {
				kind = "duration"
			}
			wrong = append(wrong, fmt.Sprintf("%s is out of range; use a %s between %s%s", text, kind, bounds, zero))
		case l.tags.Get("once") != "" && slices.ContainsFunc(values[:i], v.Equal):
			wrong = append(wrong, masked(text)+" is listed twice; name it once")
		}
	}
	return wrong
}

// inRange reports whether a value is within the bounds of the field, if it has some.
func (l setting) inRange(v reflect.Value) bool {
	least, most, bounded := strings.Cut(l.tags.Get("range"), "..")
	if !bounded {
		return true
	}
	within := func(bound string, above bool) bool {
		b := reflect.New(v.Type()).Elem()
		if (setting{value: b}).set(bound) != nil {
			return false // a mistake in a tag, found by the tests
		}
		switch {
		case v.CanFloat():
			return above && v.Float() >= b.Float() || !above && v.Float() <= b.Float() // NaN is neither
		case above:
			return v.Int() >= b.Int()
		}
		return v.Int() <= b.Int()
	}
	return within(least, true) && within(most, false)
}

// warnings returns one line for each setting that is valid and probably a mistake.
func (c *Config) warnings() []string {
	if len(c.Sinks) > 1 && c.DefaultSink == "" {
		return []string{"default_sink: not set although there are several sinks; campaigns that name no sink are held"}
	}
	return nil
}

// validator collects problems.
type validator struct{ problems Problems }

func (v *validator) add(path, format string, args ...any) {
	v.problems = append(v.problems, path+": "+fmt.Sprintf(format, args...))
}

// leaf adds what is wrong with a value alone.
func (v *validator) leaf(l setting) {
	for _, wrong := range l.check() {
		v.add(l.path, "%s", wrong)
	}
}

// ordered refuses a setting that is above another one.
func (v *validator) ordered(low string, least time.Duration, high string, most time.Duration) {
	if least > most {
		v.add(low, "%s is above %s, %s; lower it", least, high, most)
	}
}

var sinkPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

func validSinkName(name string) bool { return sinkPattern.MatchString(name) }

const (
	maxPrefix = 200 // of a topic's 249 characters; the rest is for "timer.30m" and the like
	maxTimers = 20
)

func (v *validator) kafka(c *Config) {
	k := &c.Kafka
	for _, t := range k.Topics {
		if ownedTopic(t, k.TopicPrefix) {
			v.add("kafka.topics", "%s is a topic of pacer's own; name the topic your producers write to", t)
		}
	}
	if k.Group == "" || len(k.Group) > 255 {
		v.add("kafka.group", "must have 1 to 255 characters, such as pacer")
	}
	if len(k.TopicPrefix) > maxPrefix || !notation.IsTopic(k.TopicPrefix+"dead") {
		v.add("kafka.topic_prefix", "%s cannot begin a topic's name; use at most %d letters, digits, dots, - and _",
			quoted(k.TopicPrefix), maxPrefix)
	}
	if n := len(k.TimerDelays); n == 0 || n > maxTimers || slices.ContainsFunc(k.TimerDelays, func(d time.Duration) bool { return d%time.Millisecond != 0 }) {
		v.add("kafka.timer_delays", "%d delays; use 1 to %d, in whole milliseconds, such as 5s,30s,5m,30m,6h", n, maxTimers)
	}
	if len(c.Results.Headers) > 0 && !k.Results {
		v.add("results.headers", "no results are written; set kafka.results to true, or remove it")
	}
	v.tls("kafka.tls", &k.TLS)
	switch s := k.SASL; {
	case s.Mechanism != "" && (s.Username == "" || s.Password == ""):
		v.add("kafka.sasl.username", "required together with kafka.sasl.password; set both or remove kafka.sasl.mechanism")
	case s.Mechanism == "" && (s.Username != "" || s.Password != ""):
		v.add("kafka.sasl.mechanism", "required with a username or password; use one of plain, scram-sha-256, scram-sha-512")
	}
}

// ownedTopic reports whether pacer itself writes the topic: reading it as ingress would feed pacer its own output.
func ownedTopic(topic, prefix string) bool {
	rest, ok := strings.CutPrefix(topic, prefix)
	return ok && (rest == "lanes" || rest == "dead" || rest == "replays" || rest == "results" || strings.HasPrefix(rest, "timer."))
}

// writer is the configuration of a sink that writes to a topic.
type writer interface{ WritesTo() (topic string) }

// notOwn refuses a topic that pacer reads or writes itself: jobs written to it would come back, or take the place of its
// own. Brokers are not compared, since one cluster has many addresses.
func (v *validator) notOwn(path, topic string, k *Kafka) {
	switch {
	case ownedTopic(topic, k.TopicPrefix):
		v.add(path, "%s is a topic of pacer's own; name one that is not, also in another cluster", quoted(topic))
	case slices.Contains(k.Topics, topic):
		v.add(path, "%s is one that jobs are read from (kafka.topics), so each would be sent again and again; name another topic", quoted(topic))
	}
}

func (v *validator) tls(path string, t *TLS) {
	for _, problem := range t.Certificates.Problems() {
		v.problems = append(v.problems, path+"."+problem)
	}
	if !t.Enabled && *t != (TLS{}) {
		v.add(path+".enabled", "the other keys of %s have no effect without it; set it to true or remove them", path)
	}
}

func (v *validator) redis(r *Redis) {
	where := r.Options()
	for _, problem := range where.Problems() {
		v.problems = append(v.problems, "redis."+problem)
	}
	if strings.ContainsAny(r.KeyPrefix, "{} \t\r\n") || len(r.KeyPrefix) > maxPrefix {
		v.add("redis.key_prefix", "must have at most %d characters, without spaces and braces, which would decide a key's shard", maxPrefix)
	}
	v.tls("redis.tls", &r.TLS)
}

func (v *validator) postgres(p *Postgres) {
	if p.DSN == "" {
		return
	}
	if err := catalog.CheckDSN(p.DSN.Reveal()); err != nil {
		v.problems = append(v.problems, err.Error())
	}
}

func (v *validator) tracing(t *Tracing) {
	if t.Endpoint == "" {
		return
	}
	to, err := url.Parse(t.Endpoint)
	switch {
	case err != nil || to.Host == "" || to.Scheme != "http" && to.Scheme != "https" || to.User != nil || to.RawQuery != "":
		v.add("tracing.endpoint", "must be the URL of an OpenTelemetry collector that takes OTLP over HTTP, such as https://collector:4318; "+
			"credentials belong to tracing.authorization")
	case to.Scheme == "http" && t.Authorization != "":
		v.add("tracing.authorization", "would be sent unencrypted; use an https endpoint")
	}
}

func (v *validator) http(h *HTTP) {
	if h.MetricsListen != "" && h.MetricsListen == h.Listen {
		v.add("http.metrics_listen", "%s is http.listen; use another port, or remove it", h.MetricsListen)
	}
	if p := &h.Proxy; len(p.Networks) == 0 && len(p.Operators)+len(p.Admins) > 0 {
		v.add("http.proxy.networks", "http.proxy.operators and http.proxy.admins have no effect without it; set it to the networks of the proxy, such as 10.0.0.7/32, or remove them")
	}
}

func (v *validator) tokens(list string) {
	if err := auth.CheckTokens(list); err != nil && len(strings.Fields(list)) == 1 {
		v.add("http.tokens", "%s; a file of such lines is named as file:PATH", err)
	} else if err != nil {
		v.add("http.tokens", "%s", err)
	}
}

func (v *validator) sinks(c *Config) {
	names := slices.Sorted(maps.Keys(c.Sinks))
	for _, name := range names {
		prefix := "sinks." + name + "."
		for _, problem := range c.Sinks[name].Problems() {
			v.problems = append(v.problems, prefix+problem)
		}
		for _, leaf := range schemaOf(prefix, c.Sinks[name]).leaves {
			v.leaf(leaf)
		}
		if w, ok := c.Sinks[name].(writer); ok {
			v.notOwn("sinks."+name+".topic", w.WritesTo(), &c.Kafka)
		}
		if w, ok := c.Sinks[name].(responder); ok && w.WritesResponsesTo() != "" {
			v.notOwn("sinks."+name+".responses", w.WritesResponsesTo(), &c.Kafka)
		}
	}
	if _, ok := c.Sinks[c.DefaultSink]; ok || c.DefaultSink == "" {
		return
	}
	if len(names) == 0 {
		v.add("default_sink", "there is no sink %s; add it under sinks", quoted(c.DefaultSink))
		return
	}
	v.add("default_sink", "there is no sink %s; use one of %s", quoted(c.DefaultSink), strings.Join(names, ", "))
}
