package config

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink"
)

// minToken is the least length of a token that nobody guesses.
const minToken = 16

// Problems returns the errors in the values that are set. Which settings are required depends on the command: see
// Require.
func (c *Config) Problems() Problems {
	v := &validator{}
	v.kafka(c)
	v.redis(&c.Redis)
	v.eventual(c)
	v.postgres(&c.Postgres)
	v.pacing(&c.Pacing)
	v.retry(&c.Retry)
	v.dedupe(&c.Dedupe)
	v.http(&c.HTTP)
	v.tracing(&c.Tracing)
	v.oneOf("metrics.campaigns", c.Metrics.Campaigns, string(progress.ShowAll), string(progress.ShowActive), string(progress.ShowNone))
	v.duration("unknown_grace", c.UnknownGrace, time.Second, 30*24*time.Hour)
	between(v, "max_weight", c.MaxWeight, 1, delivery.MaxGrant)
	if n := len(c.AdminToken.Reveal()); n > 0 && n < minToken {
		v.add("admin_token", "%d characters can be guessed; use %d or more", n, minToken)
	}
	v.duration("max_not_before", c.MaxNotBefore, time.Minute, 3650*notation.Day)
	v.sinks(c)
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	v.duration("shutdown_timeout", c.ShutdownTimeout, time.Second, 10*time.Minute)
	v.duration("watchdog", c.Watchdog, 15*time.Second, 24*time.Hour)
	return v.problems
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

func (v *validator) duration(path string, d, least, most time.Duration) {
	if d < least || d > most {
		v.add(path, "%s is out of range; use a duration between %s and %s",
			notation.FormatSpan(d), notation.FormatSpan(least), notation.FormatSpan(most))
	}
}

func between[T int | int64 | float64 | notation.Size](v *validator, path string, n, least, most T) {
	if in := n >= least && n <= most; !in { // NaN is out of range too
		v.add(path, "%v is out of range; use a number between %v and %v", n, least, most)
	}
}

func (v *validator) oneOf(path, value string, allowed ...string) {
	if slices.Contains(allowed, value) {
		return
	}
	v.add(path, "there is no %s; use one of %s", quoted(value), strings.Join(allowed, ", "))
}

func (v *validator) address(path, address, remedy string) {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		v.add(path, "%s is not host:port; %s", quoted(address), remedy)
	}
}

var sinkPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)

func validSinkName(name string) bool { return sinkPattern.MatchString(name) }

const (
	maxPrefix   = 200 // of a topic's 249 characters; the rest is for "timer.30m" and the like
	maxLanes    = 10_000
	maxReplicas = 15
	maxTimers   = 20
	maxRoots    = 16
)

func (v *validator) kafka(c *Config) {
	k := &c.Kafka
	for _, b := range k.Brokers {
		v.address("kafka.brokers", b, "use one such as 127.0.0.1:9092")
	}
	for i, t := range k.Topics {
		switch {
		case !notation.IsTopic(t):
			v.add("kafka.topics", "%s is not a name for a topic; use letters, digits, dots, - and _", quoted(t))
		case ownedTopic(t, k.TopicPrefix):
			v.add("kafka.topics", "%s is a topic of pacer's own; name the topic your producers write to", t)
		case slices.Contains(k.Topics[:i], t):
			v.add("kafka.topics", "%s is listed twice; name it once", t)
		}
	}
	if k.Group == "" || len(k.Group) > 255 {
		v.add("kafka.group", "must have 1 to 255 characters, such as pacer")
	}
	if len(k.TopicPrefix) > maxPrefix || !notation.IsTopic(k.TopicPrefix+"dead") {
		v.add("kafka.topic_prefix", "%s cannot begin a topic's name; use at most %d letters, digits, dots, - and _",
			quoted(k.TopicPrefix), maxPrefix)
	}
	between(v, "kafka.lanes", k.Lanes, 1, maxLanes)
	between(v, "kafka.max_record_bytes", k.MaxRecordBytes, 64<<10, 1<<30)
	between(v, "kafka.replication_factor", k.ReplicationFactor, 0, maxReplicas)
	v.timers(k.TimerDelays)
	v.tls("kafka.tls", &k.TLS)
	if s := k.SASL; s.Mechanism != "" {
		v.oneOf("kafka.sasl.mechanism", s.Mechanism, "plain", "scram-sha-256", "scram-sha-512")
		if s.Username == "" || s.Password == "" {
			v.add("kafka.sasl.username", "required together with kafka.sasl.password; set both or remove kafka.sasl.mechanism")
		}
	} else if s.Username != "" || s.Password != "" {
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

func (v *validator) timers(delays []time.Duration) {
	const path = "kafka.timer_delays"
	if len(delays) == 0 || len(delays) > maxTimers {
		v.add(path, "%d delays; use 1 to %d, such as 5s,30s,5m,30m,6h", len(delays), maxTimers)
	}
	for i, d := range delays {
		if d < time.Millisecond || d > 7*24*time.Hour || d%time.Millisecond != 0 {
			v.add(path, "%s is out of range; use whole milliseconds between 1ms and 7d", notation.FormatSpan(d))
		}
		if slices.Contains(delays[:i], d) {
			v.add(path, "%s is listed twice; name it once", d)
		}
	}
}

func (v *validator) tls(path string, t *TLS) {
	if (t.CertFile == "") != (t.KeyFile == "") {
		v.add(path+".cert_file", "goes together with %s.key_file; set both or neither", path)
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

func (v *validator) eventual(c *Config) {
	const path = "eventual.roots"
	e := &c.Eventual
	if len(e.Roots) > maxRoots {
		v.add(path, "%d roots; use at most %d", len(e.Roots), maxRoots)
	}
	if !slices.Equal(e.Roots, c.Redis.Addrs) { // which are checked elsewhere
		for i, root := range e.Roots {
			v.address(path, root, "use one such as 127.0.0.1:6379")
			if slices.Contains(e.Roots[:i], root) {
				v.add(path, "%s is listed twice; name it once", masked(root))
			}
		}
	}
	v.duration("eventual.sync", e.Sync, 50*time.Millisecond, time.Minute)
	v.duration("eventual.low_burst", e.LowBurst, 0, time.Hour)
	v.duration("eventual.high_burst", e.HighBurst, time.Millisecond, time.Hour)
	if e.LowBurst > e.HighBurst {
		v.add("eventual.low_burst", "%s is above eventual.high_burst, %s; lower it", e.LowBurst, e.HighBurst)
	}
}

func (v *validator) postgres(p *Postgres) {
	if p.DSN == "" {
		return
	}
	// The parser's own error may quote parts of the DSN, and with them the password. Files that it names are read later.
	_, err := pgx.ParseConfig(p.DSN.Reveal())
	var file *fs.PathError
	if err != nil && !errors.As(err, &file) {
		v.add("postgres.dsn", "not a PostgreSQL connection string; use one such as postgres://user:password@127.0.0.1:5432/pacer")
	}
}

func (v *validator) tracing(t *Tracing) {
	between(v, "tracing.sample", t.Sample, 0, 1)
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

func (v *validator) pacing(p *Pacing) {
	v.duration("pacing.min_quantum", p.MinQuantum, 10*time.Millisecond, time.Second)
	v.duration("pacing.max_quantum", p.MaxQuantum, 10*time.Millisecond, time.Second)
	if p.MinQuantum > p.MaxQuantum {
		v.add("pacing.min_quantum", "%s is above pacing.max_quantum, %s; lower it", p.MinQuantum, p.MaxQuantum)
	}
	v.duration("pacing.late_tolerance", p.LateTolerance, time.Millisecond, time.Second)
	v.duration("pacing.max_open_age", p.MaxOpenAge, 100*time.Millisecond, time.Hour)
	between(v, "pacing.max_buffer_bytes", p.MaxBufferBytes, 1<<20, 1<<40)
	between(v, "pacing.items_per_second", p.ItemsPerSecond, 100, 10_000_000)
}

func (v *validator) retry(r *Retry) {
	between(v, "retry.max_attempts", r.MaxAttempts, 1, 1000)
	v.duration("retry.initial", r.Initial, 10*time.Millisecond, 24*time.Hour)
	v.duration("retry.max", r.Max, 10*time.Millisecond, 7*24*time.Hour)
	if r.Initial > r.Max {
		v.add("retry.initial", "%s is above retry.max, %s; lower it", r.Initial, r.Max)
	}
	between(v, "retry.jitter", r.Jitter, 0, retry.MaxJitter)
}

func (v *validator) dedupe(d *Dedupe) {
	if d.TTL != 0 && (d.TTL < time.Second || d.TTL > maxDedupe) {
		v.add("dedupe.ttl", "%s is out of range; use a duration between 1s and %s, or 0 for no deduplication",
			notation.FormatSpan(d.TTL), notation.FormatSpan(maxDedupe))
	}
	v.oneOf("dedupe.on_store_failure", d.OnStoreFailure, delivery.PolicyClosed, delivery.PolicyOpen)
}

func (v *validator) http(h *HTTP) {
	if h.Listen != "" {
		v.address("http.listen", h.Listen, `use one such as 127.0.0.1:8080, or "off"`)
	}
	if h.MetricsListen != "" {
		v.address("http.metrics_listen", h.MetricsListen, "use one such as 127.0.0.1:9464, or \"off\", to have /metrics at http.listen")
	}
	if h.Collide() {
		v.add("http.metrics_listen", "%s cannot be listened at beside http.listen, %s; use another port, or \"off\", to have /metrics at http.listen",
			quoted(h.MetricsListen), h.Listen)
	}
	if h.BasePath != "" && !basePath.MatchString(h.BasePath) {
		v.add("http.base_path", "must begin with / and not end with it, such as /pacer, with letters, digits, - and _")
	}
	v.oneOf("http.anonymous", h.Anonymous, auth.Viewer.String(), auth.None.String())
	v.oneOf("http.payloads", h.Payloads, PayloadsAll, PayloadsBeginning, PayloadsHidden)
	if err := auth.CheckTokens(h.Tokens.Reveal()); err != nil && len(strings.Fields(h.Tokens.Reveal())) == 1 {
		v.add("http.tokens", "%s; a file of such lines is named as file:PATH", err)
	} else if err != nil {
		v.add("http.tokens", "%s", err)
	}
	for _, origin := range h.TrustedOrigins {
		if err := http.NewCrossOriginProtection().AddTrustedOrigin(origin); err != nil {
			v.add("http.trusted_origins", "%s is not an origin; use one such as https://ops.example.com", quoted(origin))
		}
	}
	for _, network := range h.Proxy.Networks {
		if _, err := netip.ParsePrefix(network); err != nil {
			v.add("http.proxy.networks", "%s is not a network; use one such as 10.0.0.7/32 or 127.0.0.1/32", quoted(network))
		}
	}
	for path, header := range map[string]string{"http.proxy.user_header": h.Proxy.UserHeader, "http.proxy.groups_header": h.Proxy.GroupsHeader} {
		if !headerName.MatchString(header) {
			v.add(path, "%s is not the name of a header; use one such as X-Forwarded-User", quoted(header))
		}
	}
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// basePath is what proxies put before the paths of the console.
var basePath = regexp.MustCompile(`^(/[\w-]+)+$`)

const maxDedupe = 30 * 24 * time.Hour

func (v *validator) sinks(c *Config) {
	names := slices.Sorted(maps.Keys(c.Sinks))
	for _, name := range names {
		for _, problem := range sink.Problems(c.Sinks[name]) {
			v.problems = append(v.problems, "sinks."+name+"."+problem)
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
